//! The table of kernels against the sources, and the shim against kernels that break its rules.

use crate::memory::Memory;
use crate::shim::{Shim, kernel_count, shim_or_return, signature};
use device::DType;
use device::cuda::kernels::{Argument, Kernel, Launch, Source, kernels};
use std::collections::HashSet;

#[test]
fn every_kernel_of_the_table_is_in_its_source_and_every_kernel_of_the_sources_in_the_table() {
    shim_or_return!();
    let names: HashSet<_> = kernels().into_iter().map(|kernel| kernel.name).collect();
    assert_eq!(names.len(), kernels().len(), "a name stands twice");
    for name in &names {
        assert!(signature(name).is_some(), "{name} is in no source");
    }
    assert_eq!(names.len(), kernel_count());
}

#[test]
fn every_source_has_kernels() {
    for source in Source::ALL {
        assert!(kernels().iter().any(|kernel| kernel.source == source), "{}", source.name());
    }
}

fn launch<'a>(
    name: &'static str,
    block: u32,
    shared_bytes: u32,
    arguments: &'a [Argument<'a>],
) -> Launch<'a> {
    let kernel = Kernel { source: Source::Elementwise, name };
    Launch { kernel, grid: [1, 1, 1], block: [block, 1, 1], shared_bytes, arguments }
}

#[test]
fn unknown_kernels_and_impossible_blocks_are_refused() {
    shim_or_return!();
    let shim = Shim::new(0);
    assert!(shim.run(launch("no_such_kernel", 32, 0, &[])).unwrap_err().contains("no_such_kernel"));
    for block in [0, 257, 2048] {
        assert!(shim.run(launch("fill_f32", block, 0, &[])).unwrap_err().contains("fill_f32"));
    }
}

#[test]
fn writes_behind_shared_memory_are_found() {
    shim_or_return!();
    let (x, partial) = (Memory::poisoned(DType::F32, 16, 0), Memory::poisoned(DType::F32, 16, 0));
    let pointers = [&x, &partial, &x, &x, &x, &x].map(|memory| Argument::Pointer(memory.pointer()));
    let arguments = [pointers.as_slice(), &[1, 16, 1, 16, 1].map(Argument::U32)].concat();
    // 16 columns need 64 bytes.
    let error = Shim::new(0).run(launch("rms_norm_backward_f32", 32, 32, &arguments)).unwrap_err();
    assert!(error.contains("behind a shared array"), "{error}");
}
