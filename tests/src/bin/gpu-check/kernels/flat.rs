//! Checks kernels without a row structure: element-wise ones, AdamW, reductions.

use super::Closeness::Bits;
use super::{Operation, Output, output, outputs, shapes, tensor, values};
use device::{AdamW, AdamWUpdate, Buffer, Class, DType, Device, Result};

pub(super) fn all() -> Vec<Operation> {
    let any = |seed| [vec![[1003], [1]], shapes(seed, 4, [5000])].concat();
    vec![
        Operation::new("add, copy, fill", Bits, any(51), elementwise),
        Operation::new("adamw", Bits, any(52), |device, dtype, [len]| adamw(device, dtype, len, 27, false)),
        Operation::new("adamw_rounding", Bits, any(53), |device, dtype, [len]| {
            adamw(device, dtype, len, 28, true)
        }),
        Operation::new(
            "max_magnitude, sum_of_squares",
            Bits,
            [vec![[70_001], [1]], shapes(54, 3, [20_000])].concat(),
            reductions,
        ),
    ]
}

fn elementwise(device: &Device, dtype: DType, [len]: [usize; 1]) -> Result<Vec<Output>> {
    let (mut sum, x) = (tensor(device, dtype, 22, len)?, tensor(device, DType::F32, 23, len)?);
    let mut constant = device.allocate(Class::Workspace, dtype, len)?;
    let mut shifted = device.zeros(Class::Workspace, dtype, len)?;
    device.kernels().add(sum.view_mut(), x.view())?;
    device.kernels().fill(constant.view_mut(), 0.1)?;
    device.kernels().copy(shifted.slice_mut(1..len), x.slice(0..len - 1))?;
    outputs(device, [("sum", &sum), ("constant", &constant), ("shifted", &shifted)])
}

const UPDATE: AdamW = AdamW {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    step: Some(3),
    gradient_scale: 0.7,
};

/// Returns master weights, momentum, and a non-negative variance.
fn states(device: &Device, len: usize) -> Result<[Buffer; 3]> {
    let variance: Vec<f32> = values(26, len).into_iter().map(|x| x * x).collect();
    let master = tensor(device, DType::F32, 24, len)?;
    let momentum = tensor(device, DType::F32, 25, len)?;
    Ok([master, momentum, device.upload(Class::Workspace, &variance)?])
}

/// Runs one update, `rounded` to parameters or not. `seed` determines the gradients.
fn adamw(device: &Device, dtype: DType, len: usize, seed: u64, rounded: bool) -> Result<Vec<Output>> {
    let [mut master, mut momentum, mut variance] = states(device, len)?;
    let gradients = tensor(device, dtype, seed, len)?;
    let mut parameters = device.allocate(Class::Workspace, dtype, len)?;
    device.kernels().adamw(AdamWUpdate {
        parameters: rounded.then(|| parameters.view_mut()),
        master: master.view_mut(),
        momentum: momentum.view_mut(),
        variance: variance.view_mut(),
        gradients: gradients.view(),
        settings: UPDATE,
        len,
    })?;
    let states = [("master", &master), ("momentum", &momentum), ("variance", &variance)];
    let all = [("rounded", &parameters)].into_iter().filter(|_| rounded).chain(states);
    all.map(|(name, buffer)| output(device, name, buffer)).collect()
}

/// Returns the fixed-point sum in pieces of 16 bits, which f32 holds exactly.
fn reductions(device: &Device, dtype: DType, [len]: [usize; 1]) -> Result<Vec<Output>> {
    let x = tensor(device, dtype, 29, len)?;
    let largest = device.kernels().max_magnitude(&[x.view()])?;
    let sum = device.kernels().sum_of_squares(&[x.view()], 0)?;
    let pieces = (0..8).map(|piece| (sum >> (16 * piece) & 0xffff) as f32).collect();
    let exact = |name, values| Output { name, values, absolute: true };
    Ok(vec![exact("max_magnitude", vec![largest]), exact("sum_of_squares", pieces)])
}
