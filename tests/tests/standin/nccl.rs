//! Collectives over NCCL, on the stand-in driver and the stand-in NCCL; see [`tests::standin`].

use collectives::local::{Options, groups};
use collectives::{Bucket, CallId, CollectiveError, Group, nccl, tcp};
use device::cuda::{self, Gpu};
use device::{Buffer, Class, DType, Device, Ledger};
use events::{Emitter, Operation};
use std::time::{Duration, Instant};
use tests::job::free_port;
use tests::standin_or_return;

pub(super) const PATIENT: Duration = Duration::from_secs(60);

/// Runs `body` on every rank of a world on this machine's GPUs. Returns the results in rank order.
pub(super) fn world<R: Send>(
    size: u32,
    timeout: Duration,
    body: impl Fn(Group, &Device) -> R + Sync,
) -> Vec<R> {
    let gpus = cuda::list().unwrap().len();
    let opened: Vec<_> = (0..gpus).map(|gpu| Gpu::open(gpu).unwrap()).collect();
    Gpu::connect(&opened).unwrap();
    std::thread::scope(|scope| {
        let start = |group: Group| {
            let (body, gpu) = (&body, opened[group.rank() as usize % gpus].clone());
            scope.spawn(move || {
                let ledger = Ledger::new(Emitter::silent(group.rank()), None);
                let device = Device::cuda(ledger, gpu, cuda::Options::default()).unwrap();
                body(group, &device)
            })
        };
        let options = Options { timeout, ..Options::default() };
        let ranks: Vec<_> = groups(size, options).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Runs like [`world`], with NCCL between the ranks.
pub(super) fn connected<R: Send>(
    size: u32,
    timeout: Duration,
    body: impl Fn(Group, &Device) -> R + Sync,
) -> Vec<R> {
    nccl::allow_sharing();
    if size as usize > cuda::list().unwrap().len() {
        nccl::prepare_shared_gpus();
    }
    world(size, timeout, |group, device| {
        body(nccl::join(group, device.gpu().unwrap(), timeout).unwrap(), device)
    })
}

/// Returns a number that is unique to this rank and place, of magnitude up to 3.
fn value(rank: u32, index: usize) -> f32 {
    let seed = (u64::from(rank) * 7919 + index as u64 * 31 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * 3.0
}

pub(super) fn bucket(device: &Device, dtype: DType, rank: u32, lens: &[usize]) -> Bucket {
    let buffer = |&len: &usize| {
        let values: Vec<f32> = (0..len).map(|index| value(rank, index + len)).collect();
        device.upload_as(Class::Gradients, dtype, &values).unwrap()
    };
    Bucket::from(lens.iter().map(buffer).collect::<Vec<_>>())
}

/// Returns the elements of `buffers`, widened to f32.
pub(super) fn read(device: &Device, buffers: &[Buffer]) -> Vec<Vec<f32>> {
    let wide = |buffer: &Buffer| -> Vec<f32> {
        let mut wide = device.allocate(Class::Workspace, DType::F32, buffer.len()).unwrap();
        device.kernels().copy(wide.view_mut(), buffer.view()).unwrap();
        device.read::<f32>(wide.view()).unwrap().into_owned()
    };
    buffers.iter().map(wide).collect()
}

/// Runs every operation, some in flight at the same time. Returns the results, and the bytes sent.
fn everything(group: &Group, device: &Device, dtype: DType, lens: &[usize]) -> (Vec<Vec<f32>>, Vec<u64>) {
    let (rank, size) = (group.rank(), group.size());
    let new = || bucket(device, dtype, rank, lens);
    let mut results = Vec::new();
    let (sum, more) = (group.all_reduce(new()).unwrap(), group.all_gather(new()).unwrap());
    // The later one first.
    results.extend(read(device, &more.wait().unwrap()));
    results.extend(read(device, &sum.wait().unwrap()));
    for (buffer, whole) in
        read(device, &group.reduce_scatter(new()).unwrap().wait().unwrap()).iter().zip(lens)
    {
        let slice = whole / size as usize;
        results.push(buffer[rank as usize * slice..(rank as usize + 1) * slice].to_vec());
    }
    results.extend(read(device, &group.broadcast(new(), size - 1).unwrap().wait().unwrap()));
    let halves = group.split(u64::from(rank % 2)).unwrap();
    results.extend(read(device, &halves.all_reduce(new()).unwrap().wait().unwrap()));
    let words = group.exchange(format!("rank {rank}").as_bytes()).unwrap();
    results.push(words.concat().into_iter().map(f32::from).collect());
    group.barrier().unwrap();
    (results, Operation::ALL.iter().map(|&operation| group.overall_traffic().sent(operation)).collect())
}

#[test]
fn every_collective_gives_what_local_ones_give() {
    standin_or_return!(&[("STANDIN_GPUS", "2")]);
    let lens = [4, 0, 1200, 100_000];
    for (size, dtype, apart) in
        [(2, DType::F32, 1e-5), (4, DType::Bf16, 0.1), (4, DType::F16, 0.02), (3, DType::F32, 1e-5)]
    {
        let lens = lens.map(|len| len * size as usize / 4 * 4);
        let local = world(size, PATIENT, |group, device| everything(&group, device, dtype, &lens));
        let nccl = connected(size, PATIENT, |group, device| everything(&group, device, dtype, &lens));
        for (rank, ((local, sent), (nccl, sent_by_nccl))) in local.iter().zip(&nccl).enumerate() {
            assert_eq!(sent, sent_by_nccl, "{dtype}, rank {rank}");
            assert_eq!(local.len(), nccl.len());
            for (place, (local, nccl)) in local.iter().zip(nccl).enumerate() {
                assert_eq!(local.len(), nccl.len());
                let near = |a: &f32, b: &f32| (a - b).abs() <= apart;
                let off = local.iter().zip(nccl).find(|(a, b)| !near(a, b));
                assert_eq!(off, None, "{dtype}, {size} ranks, rank {rank}, result {place}");
            }
        }
    }
}

fn sum(group: &Group, device: &Device, len: usize) -> Result<Vec<Buffer>, CollectiveError> {
    group.all_reduce(bucket(device, DType::F32, group.rank(), &[len]))?.wait()
}

/// Sums until a call fails, waiting for each sum on the GPU.
fn until_it_fails(group: &Group, device: &Device) -> CollectiveError {
    for _ in 0..1000 {
        match sum(group, device, 999) {
            Ok(_) => device.synchronize().unwrap(),
            Err(error) => return error,
        }
    }
    panic!("nothing went wrong");
}

#[test]
fn different_lengths_are_an_error_on_every_rank_before_anything_moves() {
    standin_or_return!();
    let errors = connected(3, PATIENT, |group, device| {
        sum(&group, device, 4).unwrap();
        sum(&group, device, if group.rank() == 2 { 5 } else { 4 }).err().unwrap()
    });
    for error in errors {
        let CollectiveError::Mismatch { culprit: 2, reference: 0, sequence: 1, expected, theirs, .. } =
            &error
        else {
            panic!("{error}")
        };
        assert_eq!(expected, "all-reduce of 1 buffer (buffer 0: 4 × f32)");
        assert_eq!(theirs, "all-reduce of 1 buffer (buffer 0: 5 × f32)");
    }
}

#[test]
fn an_error_on_the_gpu_ends_all_ranks_and_names_who_and_where() {
    standin_or_return!(&[("STANDIN_NCCL_ERROR", "1:3")]);
    let begin = Instant::now();
    for error in connected(3, PATIENT, |group, device| until_it_fails(&group, device)) {
        let CollectiveError::Poisoned { culprit: 1, during, reason, .. } = &error else { panic!("{error}") };
        assert_eq!(during, "all-reduce #2", "{error}");
        assert!(reason.contains("NCCL reports") && reason.contains("internal error"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn a_rank_that_loses_a_peer_first_learns_which_one() {
    standin_or_return!(&[("STANDIN_NCCL_ERROR", "1:2:6")]);
    let begin = Instant::now();
    let errors = connected(3, PATIENT, |group, device| {
        if group.rank() == 2 {
            sum(&group, device, 999).and_then(|_| sum(&group, device, 999)).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            group.poison("the test".into(), "it wanted to".into());
        }
        until_it_fails(&group, device)
    });
    for error in errors {
        assert!(matches!(&error, CollectiveError::Poisoned { culprit: 2, .. }), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn a_rank_that_loses_a_peer_names_no_culprit_that_it_does_not_know() {
    standin_or_return!(&[("STANDIN_NCCL_ERROR", "1:2:2")]);
    let timeout = Duration::from_secs(1);
    for error in connected(3, timeout, |group, device| until_it_fails(&group, device)) {
        let CollectiveError::Unknown { during, reason, .. } = &error else { panic!("{error}") };
        assert_eq!((during.as_str(), error.culprit()), ("all-reduce #1", None), "{error}");
        assert!(reason.contains("system error") || reason.contains("not finished it within 1s"), "{error}");
    }
}

/// Returns a group whose ranks agree over TCP, as processes do, and use NCCL.
fn over_tcp(group: &Group, device: &Device, port: u16, timeout: Duration) -> Group {
    let (rank, world_size) = (group.rank(), group.size());
    let (address, settings) = ("127.0.0.1".into(), String::new());
    let place = tcp::JoinOptions { rank, world_size, address, port, timeout, settings, secret: None };
    nccl::join(tcp::join(&place).unwrap().group, device.gpu().unwrap(), timeout).unwrap()
}

/// An abort waits for everything that runs on the GPU. Aborting the idle world waits for a sum of
/// two neighbours, which itself waits for a rank that has issued the sum and then fails.
#[test]
fn a_rank_with_several_communicators_aborts_them_side_by_side() {
    standin_or_return!(&[("STANDIN_GPUS", "4")]);
    nccl::allow_sharing();
    let (begin, port) = (Instant::now(), free_port());
    let errors = world(4, PATIENT, |group, device| {
        let (rank, group) = (group.rank(), over_tcp(&group, device, port, PATIENT));
        let neighbours = group.split(u64::from(rank / 2)).unwrap();
        let pending = neighbours.all_reduce(bucket(device, DType::F32, rank, &[8])).unwrap();
        if rank == 1 {
            std::thread::sleep(Duration::from_millis(500));
            group.poison("the test".into(), "it wanted to".into());
            return pending.wait().err();
        }
        let waited = pending.wait();
        let _ = device.synchronize();
        waited.and_then(|_| sum(&group, device, 8)).err()
    });
    for error in errors {
        assert!(matches!(error, Some(CollectiveError::Poisoned { culprit: 1, .. })), "{error:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_rank_that_hangs_in_nccl_is_named_after_the_timeout() {
    standin_or_return!(&[("STANDIN_NCCL_ABSENT", "2:2:20000")]);
    let begin = Instant::now();
    let errors = connected(3, Duration::from_secs(1), |group, device| until_it_fails(&group, device));
    for error in errors {
        let CollectiveError::Poisoned { culprit: 2, during, reason, .. } = &error else { panic!("{error}") };
        assert_eq!(during, "all-reduce #1", "{error}");
        assert!(reason.contains("waited 1s") && reason.contains("never handed its part"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_rank_that_its_disk_blocks_is_not_to_blame() {
    standin_or_return!(&[("STANDIN_GPUS", "3")]);
    nccl::allow_sharing();
    // A block is excused for at most the timeout, so half of it is left for a machine with much to
    // do.
    let (timeout, port) = (Duration::from_secs(3), free_port());
    let sums = world(3, timeout, |group, device| {
        let (rank, group) = (group.rank(), over_tcp(&group, device, port, timeout));
        let pending = group.all_reduce(bucket(device, DType::F32, rank, &[8])).unwrap();
        if rank == 2 {
            group.watch().set_blocked(true);
            std::thread::sleep(timeout * 3 / 2);
            group.watch().set_blocked(false);
        }
        read(device, &pending.wait().unwrap())
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]));
}

/// A collective's timeout starts when the GPU has finished the work before it.
#[test]
fn what_a_gpu_computes_before_a_collective_takes_no_time_from_it() {
    standin_or_return!(&[("STANDIN_GPUS", "2"), ("STANDIN_DOZE", "20000")]);
    nccl::allow_sharing();
    let (timeout, port) = (Duration::from_millis(500), free_port());
    let took = world(2, timeout, |group, device| {
        let (rank, group) = (group.rank(), over_tcp(&group, device, port, timeout));
        let (bucket, begin) = (bucket(device, DType::F32, rank, &[8]), Instant::now());
        let mut other = device.allocate(Class::Workspace, DType::F32, 8).unwrap();
        (0..1000).for_each(|_| device.kernels().fill(other.view_mut(), 1.0).unwrap());
        read(device, &group.all_reduce(bucket).unwrap().wait().unwrap());
        let took = begin.elapsed();
        sum(&group, device, 8).unwrap();
        took
    });
    assert!(took.iter().all(|&took| took > timeout), "there was enough to compute: {took:?}");
}

/// A rank's next call may load machine code, which waits for the rank's kernel and blocks the
/// driver from launching kernels of other ranks.
#[test]
fn no_rank_that_shares_a_gpu_continues_before_all_have_issued() {
    let late = ("STANDIN_NCCL_ABSENT", "2:2:500");
    standin_or_return!(&[late]);
    let took = connected(3, PATIENT, |group, device| {
        sum(&group, device, 8).unwrap();
        let begin = Instant::now();
        sum(&group, device, 8).unwrap();
        begin.elapsed()
    });
    assert!(took.iter().all(|&took| took > Duration::from_millis(450)), "{took:?}");
}

/// Sums in pairs, and allocates in between. Returns the first error.
fn sum_and_allocate(group: &Group, device: &Device) -> Result<Vec<Buffer>, CollectiveError> {
    let (rank, pair) = (group.rank(), group.split(u64::from(group.rank() / 2))?);
    for round in 0..30 {
        let pending = pair.all_reduce(bucket(device, DType::F32, rank, &[999]))?;
        for size in (0..8).filter(|_| round % 3 != rank % 3) {
            let len = 128 * (32 * round + 8 * rank + size + 1) as usize;
            drop(device.allocate(Class::Workspace, DType::F32, len).unwrap());
        }
        pending.wait()?;
    }
    sum(group, device, 8)
}

/// The GPU is so full that every new size makes ranks free memory kept for reuse. That waits for
/// everything that runs there, including kernels of the other pair, and blocks launches of the
/// process.
#[test]
fn ranks_that_share_a_gpu_may_free_memory_at_any_time() {
    let settings = [("STANDIN_MEMORY", "300000000"), ("STANDIN_LOCKS", "1")];
    standin_or_return!(&settings);
    let (timeout, port) = (Duration::from_secs(5), free_port());
    let mut errors = connected(4, timeout, |group, device| sum_and_allocate(&group, device).err());
    errors.extend(world(4, timeout, |group, device| {
        sum_and_allocate(&over_tcp(&group, device, port, timeout), device).err()
    }));
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
}

#[test]
fn a_rank_that_never_connects_or_never_comes_is_named() {
    standin_or_return!(&[("STANDIN_NCCL_VERSION", "23004")]);
    let timeout = Duration::from_millis(300);
    nccl::allow_sharing();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    let errors = world(2, timeout, |group, device| {
        if group.rank() == 1 {
            // It stays in the group but does not join until the other rank has timed out.
            return left.lock().unwrap().recv().err().map(|error| error.to_string());
        }
        let error = nccl::join(group, device.gpu().unwrap(), timeout).err().map(|error| error.to_string());
        leave.send(()).unwrap();
        error
    });
    let text = errors[0].as_ref().unwrap();
    assert!(text.contains("rank 1") && text.contains("never issued it"), "{text}");
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    let errors = connected(2, Duration::from_secs(1), |group, device| {
        sum(&group, device, 8).unwrap();
        if group.rank() == 1 {
            left.lock().unwrap().recv().unwrap();
            return None;
        }
        let error = sum(&group, device, 8).err();
        leave.send(()).unwrap();
        error
    });
    assert!(
        matches!(
            &errors[0],
            Some(CollectiveError::Timeout { culprit: 1, call: CallId { sequence: 1, .. }, .. })
        ),
        "{errors:?}"
    );
}

#[test]
fn communicators_that_do_not_come_about_end_with_the_deadline() {
    standin_or_return!(&[("STANDIN_NCCL_ABSENT", "1:0:20000")]);
    nccl::allow_sharing();
    let (begin, timeout) = (Instant::now(), Duration::from_millis(500));
    let join =
        |group: Group, device: &Device| nccl::join(group, device.gpu().unwrap(), timeout).err().unwrap();
    for error in world(2, timeout, join).into_iter().map(|error| error.to_string()) {
        assert!(error.contains("NCCL") && error.contains("within 500ms"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn processes_load_machine_code_when_they_need_it() {
    standin_or_return!();
    let set = |name: &str| std::env::var(name).ok();
    nccl::allow_sharing_among_processes();
    assert_eq!(set("NCCL_MULTI_RANK_GPU_ENABLE").as_deref(), Some("1"));
    assert_eq!([set("CUDA_MODULE_LOADING"), set("NCCL_NVLS_ENABLE")], [None, None]);
    nccl::allow_sharing();
    nccl::prepare_shared_gpus();
    assert_eq!(set("CUDA_MODULE_LOADING").as_deref(), Some("EAGER"));
    assert_eq!(set("NCCL_NVLS_ENABLE").as_deref(), Some("0"));
}
