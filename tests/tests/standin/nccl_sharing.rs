//! Which ranks may share a GPU under NCCL, and what of it each of them gets.

use super::nccl::{PATIENT, bucket, connected, read, world};
use collectives::{Group, nccl};
use device::{DType, Device};
use tests::standin_or_return;

/// A block of NCCL's occupies a multiprocessor, and blocks of all ranks run at the same time.
#[test]
fn ranks_share_the_multiprocessors_of_a_small_gpu() {
    standin_or_return!(&[("STANDIN_MULTIPROCESSORS", "10")]);
    let sums = connected(3, PATIENT, |group, device| {
        let bucket = bucket(device, DType::F32, group.rank(), &[5]);
        read(device, &group.all_reduce(bucket).unwrap().wait().unwrap())
    });
    assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
}

#[test]
fn more_ranks_than_multiprocessors_are_refused() {
    standin_or_return!(&[("STANDIN_MULTIPROCESSORS", "2")]);
    nccl::allow_sharing();
    nccl::prepare_shared_gpus();
    let join = |group: Group, device: &Device| {
        nccl::join(group, device.gpu().unwrap(), PATIENT).err().map(|error| error.to_string())
    };
    for error in world(3, PATIENT, join) {
        let text = error.unwrap();
        assert!(text.contains("3 ranks share a GPU of 2 multiprocessors"), "{text}");
    }
}

#[test]
fn ranks_that_share_a_gpu_need_a_new_nccl() {
    let old = ("STANDIN_NCCL_VERSION", "22809");
    standin_or_return!(&[old, ("STANDIN_GPUS", "2")]);
    nccl::allow_sharing();
    let join = |group: Group, device: &Device| {
        nccl::join(group, device.gpu().unwrap(), PATIENT).err().map(|error| error.to_string())
    };
    for error in world(3, PATIENT, join) {
        let text = error.unwrap();
        assert!(text.contains("ranks 0 and 2 share a GPU") && text.contains("2.28.9"), "{text}");
        assert!(text.contains("2.30"), "{text}");
    }
    assert_eq!(world(2, PATIENT, join), [None, None]);
}
