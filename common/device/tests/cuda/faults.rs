//! The shim's rules, each with a small kernel that breaks it and the same kernel corrected
//! (`tests/shim/faults.cu`).

use crate::memory::Memory;
use crate::shim::Shim;
use device::DType;
use device::cuda::kernels::{Argument, Kernel, Launch, Source};

/// Orders that are tried: a fault shows in at least one.
const SEEDS: u64 = 64;

/// A kernel of one block of `threads` threads, or of eight blocks, on output places 0.. and input
/// numbers 0..
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    threads: u32,
    blocks: u32,
    /// True if it copies numbers from main memory.
    copies: bool,
}

const fn lanes(name: &'static str, threads: u32) -> Case {
    Case { name, threads, blocks: 1, copies: false }
}

const fn copies(name: &'static str) -> Case {
    Case { name, threads: 32, blocks: 1, copies: true }
}

/// One run; `Err` with what the shim says.
fn run(case: Case, seed: u64) -> Result<Vec<u32>, String> {
    let len = if case.blocks > 1 { case.blocks } else { case.threads } as usize;
    let numbers: Vec<u32> = (0..256).collect();
    let (out, input) = (Memory::poisoned(DType::U32, len, 0), Memory::of_indices(&numbers));
    let pointers = [&out, &input].map(|memory| Argument::Pointer(memory.pointer()));
    let arguments = &pointers[..if case.copies { 2 } else { 1 }];
    let kernel = Kernel { source: Source::Elementwise, name: case.name };
    let (grid, block) = ([case.blocks, 1, 1], [case.threads, 1, 1]);
    Shim::new(seed).run(Launch { kernel, grid, block, shared_bytes: 1024, arguments })?;
    Ok(out.as_slice::<u32>().to_vec())
}

/// Counts the orders in which the numbers are wrong.
fn wrong(case: Case) -> usize {
    let step = if case.copies { 4 } else { 1 };
    let is_wrong = |seed: &u64| {
        let out = run(case, *seed).unwrap();
        !out.iter().enumerate().all(|(place, &number)| number as usize == step * place)
    };
    (0..SEEDS).filter(is_wrong).count()
}

fn shows(faulty: Case, mended: &'static str) {
    assert!(wrong(faulty) > 0, "{}: in no order does it show", faulty.name);
    assert_eq!(wrong(Case { name: mended, ..faulty }), 0, "{mended}");
}

fn is_refused(faulty: Case, mended: &'static str, words: &str) {
    let error = run(faulty, 1).unwrap_err();
    assert!(error.contains(words), "{}: {error}", faulty.name);
    assert_eq!(wrong(Case { name: mended, ..faulty }), 0, "{mended}");
}

#[test]
fn lanes_and_warps_come_in_any_order() {
    shows(lanes("faulty_lanes", 32), "mended_lanes");
    shows(lanes("faulty_warps", 64), "mended_warps");
    shows(lanes("faulty_reuse", 32), "mended_reuse");
}

#[test]
fn warps_run_ahead_of_each_other() {
    shows(lanes("faulty_ahead", 64), "mended_ahead");
}

#[test]
fn blocks_come_in_any_order() {
    shows(Case { blocks: 8, ..lanes("faulty_blocks", 32) }, "mended_blocks");
}

#[test]
fn shared_memory_is_poisoned() {
    shows(lanes("faulty_memory", 32), "mended_memory");
}

#[test]
fn copies_arrive_no_earlier_than_they_are_waited_for() {
    shows(copies("faulty_wait"), "mended_wait");
    shows(copies("faulty_group"), "mended_group");
    shows(copies("faulty_barrier"), "mended_barrier");
    shows(copies("faulty_tile"), "mended_tile");
}

#[test]
fn addresses_are_multiples_of_what_lies_there() {
    is_refused(copies("faulty_place"), "mended_place", "no multiple");
}

#[test]
fn copies_without_a_wait_and_barriers_without_all_lanes_are_refused() {
    is_refused(copies("faulty_end"), "mended_end", "copies under way");
    is_refused(lanes("faulty_meeting", 32), "mended_meeting", "wait for others that never come");
}
