//! Copies between main memory and a GPU, on the stand-in driver: they run late there, so that a
//! page-locked block that is reused before its copy was done shows, and so does pageable memory
//! whose copy is not waited for. Launches from any thread.

use device::cuda::kernels::{self, Operand};
use device::cuda::{Gpu, Options};
use device::{Buffer, Class, DType, Device, Ledger};
use events::Emitter;
use tests::standin;

/// Dozes often outlast the host's way from one copy to the next.
const DOZE: (&str, &str) = ("STANDIN_DOZE", "5000");

fn rank() -> Device {
    let ledger = Ledger::new(Emitter::silent(0), None);
    Device::cuda(ledger, Gpu::open(0).unwrap(), Options::default()).unwrap()
}

/// The `index`-th of a row of batches that differ everywhere.
fn batch(index: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| (index * 7919 + at) as u32).collect()
}

fn waits(device: &Device) -> u64 {
    device.gpu().unwrap().usage().unwrap().waits
}

#[test]
fn batches_arrive_whole_however_late_their_copies_run() {
    if !standin(batches_arrive_whole_however_late_their_copies_run, &[DOZE]) {
        return;
    }
    let (device, len, count) = (rank(), 1500, 60);
    let send = |index| device.upload(Class::Activations, &batch(index, len)).unwrap();
    let before = waits(&device);
    let buffers: Vec<Buffer> = (0..count).map(send).collect();
    assert_eq!(waits(&device), before, "the host went on");
    for (index, buffer) in buffers.iter().enumerate() {
        assert_eq!(device.read::<u32>(buffer.view()).unwrap()[..], batch(index, len), "batch {index}");
    }
}

#[test]
fn what_is_fetched_is_what_was_there_when_it_was_sent_for() {
    if !standin(what_is_fetched_is_what_was_there_when_it_was_sent_for, &[DOZE]) {
        return;
    }
    let (device, len, count) = (rank(), 1500, 60);
    let sum = |values: &[u32]| values.iter().map(|&value| u64::from(value)).sum::<u64>();
    let mut fetched = Vec::new();
    for index in 0..count {
        let buffer = device.upload(Class::Activations, &batch(index, len)).unwrap();
        fetched.push(device.fetch(buffer.view(), sum).unwrap());
        // The buffer goes back, and the next one lies where it was; some sums are never waited for.
        if index % 5 == 4 {
            drop(fetched.pop());
        }
    }
    let kept = (0..count).filter(|index| index % 5 != 4);
    for (index, fetched) in kept.zip(fetched) {
        assert_eq!(fetched.wait().unwrap(), sum(&batch(index, len)), "batch {index}");
    }
}

/// More than goes through a block: the driver may read it until the stream is waited for.
#[test]
fn weights_arrive_whole_and_are_the_callers_again() {
    if !standin(weights_arrive_whole_and_are_the_callers_again, &[DOZE]) {
        return;
    }
    let (device, len) = (rank(), 1_500_000);
    let buffers: Vec<Buffer> =
        (0..3).map(|index| device.upload(Class::Parameters, &batch(index, len)).unwrap()).collect();
    for (index, buffer) in buffers.iter().enumerate() {
        assert!(device.read::<u32>(buffer.view()).unwrap()[..] == batch(index, len), "batch {index}");
    }
}

/// A thread to which no context is current when it launches.
#[test]
fn any_thread_may_launch() {
    if !standin(any_thread_may_launch, &[]) {
        return;
    }
    let (device, len) = (rank(), 100);
    let buffer = device.zeros(Class::Workspace, DType::F32, len).unwrap();
    let (runtime, pointer) = buffer.on_gpu().unwrap();
    let operand = Operand { pointer, dtype: DType::F32 };
    std::thread::scope(|scope| {
        let launched = scope.spawn(|| kernels::fill(runtime.as_ref(), operand, 2.5, len)).join();
        launched.unwrap().unwrap();
    });
    assert_eq!(device.read::<f32>(buffer.view()).unwrap()[..], [2.5; 100]);
}
