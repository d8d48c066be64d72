//! Ranks on threads, for tests.

use collectives::local::{Algorithm, Options, groups};
use collectives::{CollectiveError, Group, Pending};
use device::{Buffer, Class, DType, Device, Ledger};
use events::Emitter;
use half::{bf16, f16};
use std::sync::Barrier;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Runs `body` on every rank of a new world, each on a thread of its own. Returns their results in
/// rank order.
pub(crate) fn world<R: Send>(
    size: u32,
    options: Options,
    body: impl Fn(Group, &Device) -> R + Sync,
) -> Vec<R> {
    std::thread::scope(|scope| {
        let start = |group: Group| {
            let body = &body;
            scope.spawn(move || {
                let device = Device::cpu(Ledger::new(Emitter::silent(group.rank()), None), 1);
                body(group, &device)
            })
        };
        let threads: Vec<_> = groups(size, options).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `body`. Returns its result and how long it took, without stalls of the whole machine: at
/// most a quarter of a second counts from one look at the clock to the next.
pub(crate) fn timed<R>(body: impl FnOnce() -> R) -> (R, Duration) {
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    const MOST: Duration = Duration::from_millis(250);
    let (running, watched) = channel::<()>();
    std::thread::scope(|scope| {
        let clock = scope.spawn(move || {
            let (mut looked, mut took) = (Instant::now(), Duration::ZERO);
            loop {
                let is_over = watched.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Disconnected);
                let now = Instant::now();
                took += (now - std::mem::replace(&mut looked, now)).min(MOST);
                if is_over {
                    return took;
                }
            }
        });
        let result = body();
        // Disconnects the channel, as does the end of this closure if `body` panics.
        drop(running);
        (result, clock.join().unwrap())
    })
}

pub(crate) fn direct() -> Options {
    Options::default()
}

pub(crate) fn ring() -> Options {
    Options { algorithm: Algorithm::Ring, ..Options::default() }
}

/// Returns values that are not representable in 16 bits and differ between ranks and places.
pub(crate) fn value(rank: usize, buffer: usize, index: usize) -> f32 {
    let seed = (rank * 7919 + buffer * 104_729 + index * 31) as u64;
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (mixed as f32 / (1u64 << 23) as f32 - 1.0) * 3.0
}

/// Returns a buffer of `values`, rounded to `dtype`.
pub(crate) fn upload(device: &Device, dtype: DType, values: &[f32]) -> Buffer {
    let class = Class::Gradients;
    let buffer = match dtype {
        DType::F32 => device.upload(class, values),
        DType::Bf16 => device.upload(class, &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>()),
        DType::F16 => device.upload(class, &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>()),
        DType::U32 => device.upload(class, &values.iter().map(|&v| v.to_bits()).collect::<Vec<_>>()),
    };
    buffer.unwrap()
}

/// Runs an all-reduce of `len` ones.
pub(crate) fn sum(group: &Group, device: &Device, len: usize) -> Result<Vec<Buffer>, CollectiveError> {
    group.all_reduce(vec![upload(device, DType::F32, &vec![1.0; len])].into())?.wait()
}

/// Issues three all-reduces after one that succeeds: the first of the three has another length on
/// rank 2. Waits for the last one first, then issues one more. Returns the errors of the four.
pub(crate) fn errors_from_a_mismatch_on(group: &Group, device: &Device) -> Vec<CollectiveError> {
    sum(group, device, 4).unwrap();
    let odd = usize::from(group.rank() == 2);
    let ones = |len| vec![upload(device, DType::F32, &vec![1.0; len])];
    let issued = [4 + odd, 4, 4].map(|len| group.all_reduce(ones(len).into()));
    let mut errors: Vec<_> =
        issued.into_iter().rev().map(|call| call.and_then(Pending::wait).err().unwrap()).collect();
    errors.push(sum(group, device, 4).err().unwrap());
    errors
}

/// Three ranks. Rank 2 never issues in the group of ranks 1 and 2. Rank 1 issues there late, after
/// rank 0 has waited for it in another group for most of its timeout. Rank 1 is then blocked on
/// rank 2: no rank may blame rank 1.
pub(crate) struct Chain {
    over: Barrier,
}

impl Default for Chain {
    fn default() -> Self {
        Chain { over: Barrier::new(3) }
    }
}

impl Chain {
    pub(crate) const TIMEOUT: Duration = Duration::from_millis(3000);

    /// Plays one rank. Returns its error.
    pub(crate) fn run(&self, group: &Group, device: &Device) -> Option<CollectiveError> {
        let rank = group.rank();
        let [first, last] = [rank / 2, rank.min(1)].map(|color| group.split(color.into()).unwrap());
        let error = match rank {
            0 => sum(&first, device, 4).err(),
            1 => {
                std::thread::sleep(Self::TIMEOUT * 3 / 5);
                let error = sum(&last, device, 4).err();
                group.blame(
                    error.as_ref().and_then(CollectiveError::culprit),
                    "step 1".into(),
                    "late".into(),
                );
                error
            }
            _ => None,
        };
        self.over.wait();
        error
    }

    pub(crate) fn check(&self, errors: &[Option<CollectiveError>]) {
        let culprits: Vec<_> = errors.iter().flatten().map(CollectiveError::culprit).collect();
        assert_eq!(culprits, [Some(2), Some(2)], "{errors:?}");
    }
}

/// Returns the elements of `buffer`, widened.
pub(crate) fn values(buffer: &Buffer) -> Vec<f32> {
    match buffer.dtype() {
        DType::F32 => buffer.as_slice::<f32>().to_vec(),
        DType::Bf16 => buffer.as_slice::<bf16>().iter().map(|v| v.to_f32()).collect(),
        DType::F16 => buffer.as_slice::<f16>().iter().map(|v| v.to_f32()).collect(),
        DType::U32 => buffer.as_slice::<u32>().iter().map(|v| f32::from_bits(*v)).collect(),
    }
}

/// Returns `v`, rounded to `dtype`.
pub(crate) fn round(dtype: DType, v: f32) -> f32 {
    match dtype {
        DType::F32 | DType::U32 => v,
        DType::Bf16 => bf16::from_f32(v).to_f32(),
        DType::F16 => f16::from_f32(v).to_f32(),
    }
}

/// Returns the sum that the local backend promises, by its definition.
pub(crate) fn tree_sum(values: &[f32]) -> f32 {
    match values.len() {
        1 => values[0],
        count => {
            let half = (1..count).rev().find(|left| left.is_power_of_two()).unwrap();
            tree_sum(&values[..half]) + tree_sum(&values[half..])
        }
    }
}
