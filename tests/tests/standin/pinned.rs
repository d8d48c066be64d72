//! Copies between main memory and a GPU, on the stand-in driver. It runs copies late, which exposes
//! page-locked blocks that are reused before their copy is done, and pageable memory whose copy is
//! not waited for. Also covers large blocks, which the rank's threads copy, and launches from any
//! thread.

use device::cuda::kernels::{self, Operand};
use device::cuda::{Gpu, Options};
use device::{
    AttentionShape, Buffer, Class, Copying, DType, Device, DeviceError, Ledger, Place, Rope, RopeScaling,
    View, ViewMut,
};
use events::Emitter;
use tests::standin_or_return;

/// Delays are often longer than the host takes from one copy to the next.
const DOZE: (&str, &str) = ("STANDIN_DOZE", "5000");

fn rank() -> Device {
    rank_of(1)
}

fn rank_of(threads: usize) -> Device {
    let ledger = Ledger::new(Emitter::silent(0), None);
    Device::cuda(ledger, Gpu::open(0).unwrap(), Options { threads, ..Options::default() }).unwrap()
}

/// Returns batch `index` of a series in which all batches differ everywhere.
fn batch(index: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| (index * 7919 + at) as u32).collect()
}

fn waits(device: &Device) -> u64 {
    device.gpu().unwrap().usage().unwrap().waits
}

#[test]
fn batches_arrive_whole_however_late_their_copies_run() {
    standin_or_return!(&[DOZE]);
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
    standin_or_return!(&[DOZE]);
    let (device, len, count) = (rank(), 1500, 60);
    let sum = |values: &[u32]| values.iter().map(|&value| u64::from(value)).sum::<u64>();
    let mut fetched = Vec::new();
    for index in 0..count {
        let buffer = device.upload(Class::Activations, &batch(index, len)).unwrap();
        fetched.push(device.fetch(buffer.view(), sum).unwrap());
        // The buffer is freed, and the next one takes its place. Some sums are never waited for.
        if index % 5 == 4 {
            drop(fetched.pop());
        }
    }
    let kept = (0..count).filter(|index| index % 5 != 4);
    for (index, fetched) in kept.zip(fetched) {
        assert_eq!(fetched.wait().unwrap(), sum(&batch(index, len)), "batch {index}");
    }
}

/// Data larger than a block: the driver may read it until the stream is waited for.
#[test]
fn weights_arrive_whole_and_are_the_callers_again() {
    standin_or_return!(&[DOZE]);
    let (device, len) = (rank(), 1_500_000);
    let buffers: Vec<Buffer> =
        (0..3).map(|index| device.upload(Class::Parameters, &batch(index, len)).unwrap()).collect();
    for (index, buffer) in buffers.iter().enumerate() {
        assert!(device.read::<u32>(buffer.view()).unwrap()[..] == batch(index, len), "batch {index}");
    }
}

fn start(device: &Device, out: ViewMut<'_>, x: View<'_>) -> Copying {
    device.start_copy(out, x, None).unwrap()
}

/// The next buffers take the place of those whose copies still run, on both sides.
#[test]
fn buffers_may_be_dropped_while_they_are_copied() {
    standin_or_return!(&[DOZE]);
    let (device, len, count) = (rank(), 1500, 60);
    let host = || device.allocate_host(Class::Workspace, DType::U32, len).unwrap();
    let mut copies = Vec::new();
    for index in 0..count {
        let sent = device.upload(Class::Workspace, &batch(index, len)).unwrap();
        let mut arrived = host();
        let copying = start(&device, arrived.view_mut(), sent.view());
        drop(sent);
        copies.push((copying, arrived));
    }
    for (index, (copying, arrived)) in copies.into_iter().enumerate() {
        copying.wait().unwrap();
        assert_eq!(arrived.as_slice::<u32>(), batch(index, len), "batch {index}");
    }
    let mut copies = Vec::new();
    for index in 0..count {
        let mut arrived = device.allocate(Class::Workspace, DType::U32, len).unwrap();
        let mut sent = host();
        device.write(sent.view_mut(), &batch(index, len)).unwrap();
        copies.push((start(&device, arrived.view_mut(), sent.view()), arrived));
    }
    for (index, (copying, arrived)) in copies.into_iter().enumerate() {
        copying.wait().unwrap();
        assert_eq!(device.read::<u32>(arrived.view()).unwrap()[..], batch(index, len), "batch {index}");
    }
}

/// Reads and writes of page-locked memory wait for the copies that touch the same elements, and so
/// do later copies, including those in the other direction.
#[test]
fn copies_of_the_same_elements_wait_for_each_other() {
    standin_or_return!(&[DOZE]);
    let (device, len, half) = (rank(), 1500, 700);
    let mut host = device.allocate_host(Class::Workspace, DType::U32, len).unwrap();
    let gpu = || device.allocate(Class::Workspace, DType::U32, len).unwrap();
    for index in 0..30 {
        let (mut left, mut passed_on) = (gpu(), gpu());
        device.write(host.view_mut(), &batch(index, len)).unwrap();
        let leaves = start(&device, left.view_mut(), host.view());
        let next = device.upload(Class::Workspace, &batch(index + 1, half)).unwrap();
        let comes = start(&device, host.slice_mut(0..half), next.view());
        let read: Vec<u32> = host.as_slice().to_vec();
        assert_eq!((&read[..half], &read[half..]), (&batch(index + 1, half)[..], &batch(index, len)[half..]));
        let goes_on = start(&device, passed_on.view_mut(), host.view());
        for copying in [leaves, comes, goes_on] {
            copying.wait().unwrap();
        }
        assert_eq!(device.read::<u32>(left.view()).unwrap()[..], batch(index, len), "batch {index}");
        assert_eq!(device.read::<u32>(passed_on.view()).unwrap()[..], read, "batch {index}");
    }
}

#[test]
fn copies_of_other_types_or_lengths_are_refused() {
    standin_or_return!();
    let device = rank();
    let x = device.zeros(Class::Workspace, DType::F32, 10).unwrap();
    for (dtype, len) in [(DType::U32, 10), (DType::F32, 9)] {
        let mut out = device.allocate_host(Class::Workspace, dtype, len).unwrap();
        assert!(device.start_copy(out.view_mut(), x.view(), None).is_err(), "{dtype:?}, {len}");
    }
}

/// The case of an offloaded optimizer that reads gradients in main memory.
#[test]
fn norms_take_tensors_wherever_they_lie() {
    standin_or_return!();
    let device = rank();
    let there = device.upload::<f32>(Class::Gradients, &[3.0, -7.0]).unwrap();
    let mut here = device.allocate_host(Class::Gradients, DType::F32, 2).unwrap();
    for (values, largest) in [([1.0f32, -5.0], 7.0), ([2.0, -9.0], 9.0)] {
        device.write(here.view_mut(), &values).unwrap();
        let all = [there.view(), here.view()];
        assert_eq!(device.kernels().max_magnitude(&all).unwrap(), largest);
        let parts = all.clone().map(|x| device.kernels().sum_of_squares(&[x], 3).unwrap());
        assert_eq!(device.kernels().sum_of_squares(&all, 3).unwrap(), parts.iter().sum::<u128>());
    }
}

/// A thread launches without a current context.
#[test]
fn any_thread_may_launch() {
    standin_or_return!();
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

/// Number of elements in a block that the driver does not allocate itself. It is divisible by
/// neither pages nor threads.
const LARGE: usize = (20 << 20) / 4 + 5;

/// Fails the test if memory is left at the end.
const FREED: (&str, &str) = ("STANDIN_FREED", "1");

/// Smaller than [`LARGE`] elements.
const SMALL_BLOCKS: (&str, &str) = ("STANDIN_HOST_BLOCK", "16777215");

/// Copies two large blocks to the GPU and back into two others, which take the place of blocks that
/// were freed and overwritten.
fn large_blocks_travel() {
    let device = rank_of(3);
    let host = || device.allocate_host(Class::Workspace, DType::U32, LARGE).unwrap();
    let mut first = [host(), host()];
    for (index, block) in first.iter_mut().enumerate() {
        device.write(block.view_mut(), &batch(index, LARGE)).unwrap();
    }
    let there = first.map(|block| {
        let mut there = device.allocate(Class::Workspace, DType::U32, LARGE).unwrap();
        start(&device, there.view_mut(), block.view()).wait().unwrap();
        there
    });
    for (index, there) in there.iter().enumerate() {
        let mut back = host();
        start(&device, back.view_mut(), there.view()).wait().unwrap();
        assert!(back.as_slice::<u32>() == batch(index, LARGE), "batch {index}");
    }
}

#[test]
fn large_blocks_are_fetched_by_threads_then_locked_and_freed() {
    standin_or_return!(&[DOZE, FREED, SMALL_BLOCKS]);
    large_blocks_travel();
}

#[test]
fn large_blocks_are_the_drivers_where_it_locks_no_others() {
    standin_or_return!(&[DOZE, FREED, ("STANDIN_REGISTER", "0")]);
    large_blocks_travel();
}

/// True if main memory has run out for `bytes` bytes because the driver refuses to lock more.
fn is_shortage(refused: device::Result<Buffer>, bytes: u64) -> bool {
    let Err(DeviceError::OutOfMemory(short)) = refused else { return false };
    (short.place, short.requested, short.by_system) == (Place::Host, bytes, true)
}

#[test]
fn a_block_that_cannot_be_locked_is_an_error() {
    standin_or_return!(&[FREED, ("STANDIN_REGISTER", "0"), SMALL_BLOCKS]);
    let refused = rank_of(3).allocate_host(Class::Workspace, DType::U32, LARGE);
    assert!(is_shortage(refused, 4 * LARGE as u64));
}

/// Freed blocks kept for reuse, including another rank's, are released for a block that finds no
/// space.
#[test]
fn spare_blocks_of_other_sizes_make_room() {
    let room = ("STANDIN_HOST_MEMORY", "100000");
    standin_or_return!(&[FREED, room]);
    let (device, other) = (rank(), rank());
    let host = |device: &Device, len| device.allocate_host(Class::Workspace, DType::U32, len);
    for (device, len) in [(&device, 15_000), (&device, 16_000), (&other, 20_000), (&device, 18_000)] {
        let mut block = host(device, len).unwrap();
        device.write(block.view_mut(), &batch(len, len)).unwrap();
        assert!(block.as_slice::<u32>() == batch(len, len), "{len} elements");
    }
    let in_use = host(&device, 15_000).unwrap();
    assert!(is_shortage(host(&other, 20_000), 80_000));
    drop(in_use);
    host(&other, 20_000).unwrap();
}

/// A table of rotations that finds no page-locked memory for its copy keeps no memory of the GPU's.
#[test]
fn a_table_that_does_not_arrive_takes_no_memory() {
    standin_or_return!(&[("STANDIN_HOST_BLOCK", "4096")]);
    let device = rank();
    let attention = AttentionShape { batch: 1, tokens: 100, heads: 1, kv_heads: 1, head_dim: 64 };
    let rope = Rope { attention, theta: 1e4, scaling: RopeScaling::None, first_position: 0, inverse: false };
    let mut qkv =
        device.zeros(Class::Activations, DType::F32, attention.rows() * attention.packed_width()).unwrap();
    let taken = || device.gpu().unwrap().usage().unwrap().workspaces;
    let before = taken();
    for _ in 0..2 {
        let refusal = device.kernels().rope(qkv.view_mut(), rope).unwrap_err().to_string();
        assert!(refusal.contains("cuMemHostAlloc"), "{refusal}");
        assert_eq!(taken(), before);
    }
}

/// This GPU has less memory than cuBLASLt's workspace needs.
#[test]
fn a_rank_without_a_workspace_leaves_nothing_behind() {
    standin_or_return!(&[FREED, ("STANDIN_MEMORY", "16777216")]);
    let ledger = Ledger::new(Emitter::silent(0), None);
    let refusal = Device::cuda(ledger, Gpu::open(0).unwrap(), Options::default()).err().unwrap().to_string();
    assert!(refusal.contains("cuBLASLt's workspace"), "{refusal}");
}
