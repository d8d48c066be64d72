//! Ranks that are connected by TCP: the same sums as ranks that share memory, and errors that name
//! the culprit.

use crate::common::{Chain, direct, errors_from_a_mismatch_on, sum, timed, upload, value, values, world};
use collectives::CollectiveError::{Mismatch, Poisoned, Timeout};
use collectives::tcp::{JoinError, JoinOptions, Secret, join};
use collectives::{Bucket, CallId, Group};
use device::{Buffer, Class, DType, Device, Ledger};
use events::{Emitter, Operation, UnitSet};
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// Options that let rank 0 listen on this machine.
pub(crate) fn place(world_size: u32, timeout: Duration) -> JoinOptions {
    // No two tests of this program meet at one port. All lie below the ephemeral range, so that no
    // socket of another test has the port before rank 0 listens.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = || {
        let turn = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        10_000 + (turn % 10_000) as u16
    };
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = std::iter::repeat_with(next).take(10_000).find(free).unwrap();
    let (address, settings) = ("127.0.0.1".to_string(), "steps 3".to_string());
    JoinOptions { rank: 0, world_size, address, port, timeout, settings, secret: None }
}

/// Connects to rank 0 as soon as it listens.
pub(crate) fn connect(place: &JoinOptions) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect((&place.address[..], place.port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < PATIENT, "{error}"),
        }
    }
}

/// Joins as every rank, each on a thread of its own.
pub(crate) fn meet<R: Send>(place: &JoinOptions, body: impl Fn(JoinOptions) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let start = |rank| {
            scope.spawn({
                let (body, place) = (&body, JoinOptions { rank, ..place.clone() });
                move || body(place)
            })
        };
        let threads: Vec<_> = (0..place.world_size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `body` on every rank of a new world of connected endpoints.
fn connected<R: Send>(size: u32, timeout: Duration, body: impl Fn(Group, &Device) -> R + Sync) -> Vec<R> {
    meet(&place(size, timeout), |place| {
        let device = Device::cpu(Ledger::new(Emitter::silent(place.rank), None), 1);
        body(join(&place).unwrap().group, &device)
    })
}

/// One case.
#[derive(Clone, Debug)]
struct Case {
    size: usize,
    lens: Vec<usize>,
    dtype: DType,
    root: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let dtype = prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::F16)];
    let lens = prop::collection::vec(prop_oneof![0usize..40, 1000..3000usize, Just(40_000)], 1..4);
    (1usize..=5, lens, dtype, 0usize..8).prop_map(|(size, lens, dtype, root)| Case {
        size,
        lens: lens.into_iter().map(|len| len * size).collect(),
        dtype,
        root: root % size,
    })
}

fn bits(buffer: &Buffer) -> Vec<u32> {
    values(buffer).into_iter().map(f32::to_bits).collect()
}

/// Runs every operation, two of them in flight together. Returns the bits of the results, and the
/// bytes sent.
fn everything(case: &Case, group: &Group, device: &Device) -> (Vec<Vec<u32>>, Vec<u64>) {
    let rank = group.rank() as usize;
    let bucket = |turn: usize| {
        let element = |buffer: usize, index| value(rank, buffer + 10 * turn, index);
        let buffer = |(buffer, &len): (usize, &usize)| {
            upload(device, case.dtype, &(0..len).map(|index| element(buffer, index)).collect::<Vec<_>>())
        };
        Bucket::from(case.lens.iter().enumerate().map(buffer).collect::<Vec<_>>())
    };
    let mut results = Vec::new();
    let mut keep = |buffers: Vec<Buffer>| results.extend(buffers.iter().map(bits));
    let (sum, more) = (group.all_reduce(bucket(0)).unwrap(), group.all_gather(bucket(1)).unwrap());
    // Wait for the later one first.
    keep(more.wait().unwrap());
    keep(sum.wait().unwrap());
    for buffer in group.reduce_scatter(bucket(2)).unwrap().wait().unwrap() {
        let own = rank * buffer.len() / case.size..(rank + 1) * buffer.len() / case.size;
        results.push(bits(&buffer)[own].to_vec());
    }
    let place = |len: &usize| device.zeros(Class::Gradients, DType::F32, len / case.size).unwrap();
    let places: Vec<Buffer> = case.lens.iter().map(place).collect();
    let exact = group.reduce_scatter_exact(bucket(5), places).unwrap().wait().unwrap();
    results.extend(exact[case.lens.len()..].iter().map(bits));
    let mut keep = |buffers: Vec<Buffer>| results.extend(buffers.iter().map(bits));
    keep(group.broadcast(bucket(3), case.root as u32).unwrap().wait().unwrap());
    let halves = group.split(rank as u64 % 2).unwrap();
    keep(halves.all_reduce(bucket(4)).unwrap().wait().unwrap());
    let words = group.exchange(format!("rank {rank}").as_bytes()).unwrap();
    results.push(words.concat().into_iter().map(u32::from).collect());
    group.barrier().unwrap();
    let sent = Operation::ALL.iter().map(|&operation| group.traffic().sent(operation)).collect();
    (results, sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn processes_compute_the_bits_of_threads_and_send_as_much(case in cases()) {
        let threads = world(case.size as u32, direct(), |group, device| everything(&case, &group, device));
        let processes =
            connected(case.size as u32, PATIENT, |group, device| everything(&case, &group, device));
        prop_assert_eq!(threads, processes);
    }
}

#[test]
fn large_messages_cross_without_blocking_each_other() {
    let results = connected(3, PATIENT, |group, device| {
        let pending: Vec<_> = (0..3)
            .map(|_| group.all_gather(vec![upload(device, DType::F32, &vec![1.0; 6 << 20])].into()).unwrap())
            .collect();
        pending.into_iter().map(|pending| pending.wait().unwrap()[0].len()).sum::<usize>()
    });
    assert_eq!(results, [18 << 20; 3]);
}

#[test]
fn different_lengths_are_an_error_of_every_rank() {
    let errors = connected(3, PATIENT, |group, device| {
        sum(&group, device, if group.rank() == 2 { 5 } else { 4 }).err().unwrap()
    });
    for error in errors {
        let Mismatch { culprit: 2, reference: 0, sequence: 0, expected, theirs, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(expected, "all-reduce of 1 buffer (buffer 0: 4 × f32)");
        assert_eq!(theirs, "all-reduce of 1 buffer (buffer 0: 5 × f32)");
    }
}

#[test]
fn the_first_failure_is_the_error_of_every_call_after_it() {
    let errors = connected(3, PATIENT, |group, device| errors_from_a_mismatch_on(&group, device));
    for error in errors.iter().flatten() {
        assert!(matches!(error, Mismatch { culprit: 2, sequence: 1, .. }), "{error}");
    }
    assert_eq!(errors.concat().len(), 3 * 4);
}

#[test]
fn a_left_out_collective_is_an_error_of_every_rank_even_if_the_next_one_looks_the_same() {
    let errors = connected(3, PATIENT, |group, device| {
        if group.rank() == 0 {
            group.skip_next_collective();
        }
        let sum = |first: u16| {
            let buffers = vec![upload(device, DType::F32, &[1.0; 4])];
            group.all_reduce(Bucket { buffers, units: UnitSet::from_iter([first, first + 1]) })?.wait()
        };
        (0..2).find_map(|bucket| sum(2 * bucket).err()).unwrap()
    });
    for error in errors {
        let Mismatch { culprit: 0, reference: 1, sequence: 0, expected, theirs, .. } = &error else {
            panic!("{error}")
        };
        assert!(expected.ends_with(" of units 0 to 1"), "{expected}");
        assert!(theirs.ends_with(" of units 2 to 3"), "{theirs}");
    }
}

#[test]
fn poison_carries_the_culprits_words() {
    let errors = connected(4, PATIENT, |group, device| {
        if group.rank() == 2 {
            sum(&group, device, 4).unwrap();
            group.poison("forward of block 3".into(), "out of memory".into());
        }
        (0..3).find_map(|_| sum(&group, device, 4).err()).unwrap()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let Poisoned { rank: reporter, culprit: 2, during, reason, .. } = &error else { panic!("{error}") };
        assert_eq!(*reporter as usize, rank);
        assert_eq!((during.as_str(), reason.as_str()), ("forward of block 3", "out of memory"));
    }
}

#[test]
fn a_failure_of_the_world_fails_its_sub_groups() {
    let errors = connected(4, PATIENT, |group, device| {
        // A slow rank may receive the failure before its split is over.
        let half = match group.split(u64::from(group.rank() / 2)) {
            Ok(half) => half,
            Err(error) => return error,
        };
        if group.rank() == 3 {
            sum(&half, device, 4).unwrap();
            group.poison("step 1".into(), "injected".into());
            half.poison("step 1 of half of the world".into(), "the group has failed".into());
        }
        loop {
            if let Err(error) = sum(&half, device, 4) {
                return error;
            }
        }
    });
    let first = |error: &_| matches!(error, Poisoned { culprit: 3, during, .. } if during == "step 1");
    assert!(errors.iter().all(first), "{errors:?}");
}

#[test]
fn a_rank_that_never_issues_is_named() {
    let timeout = Duration::from_millis(300);
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    let results = connected(2, timeout, |group, device| {
        if group.rank() == 1 {
            // Rank 1 stays connected, but issues nothing until rank 0 has timed out.
            left.lock().unwrap().recv().unwrap();
            return sum(&group, device, 4).err().unwrap();
        }
        let error = sum(&group, device, 4).err().unwrap();
        leave.send(()).unwrap();
        error
    });
    let call = CallId { operation: Operation::AllReduce, sequence: 0 };
    let missing = "never issued it";
    assert_eq!(results[0], Timeout { rank: 0, culprit: 1, missing, call, waited: timeout });
    assert!(matches!(&results[1], Poisoned { rank: 1, culprit: 1, .. }), "{}", results[1]);
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let errors = connected(3, PATIENT, |group, device| {
        let early = group.rank() == 1;
        if early { None } else { sum(&group, device, 4).err() }
    });
    assert_eq!(errors.iter().flatten().count(), 2);
    assert!(errors.iter().flatten().all(|e| matches!(e, Poisoned { culprit: 1, .. })), "{errors:?}");
}

/// How much later than the deadline a waiting rank may end, with some time for busy machines.
const GRACE: Duration = Duration::from_millis(2500);

/// Returns every rank's error at a rendezvous.
fn refused(place: &JoinOptions, change: impl Fn(JoinOptions) -> Option<JoinOptions> + Sync) -> Vec<String> {
    let (errors, took) = timed(|| meet(place, |place| Some(join(&change(place)?).err()?.to_string())));
    assert!(took < place.timeout + GRACE, "the deadline holds: {took:?}");
    errors.into_iter().flatten().collect()
}

#[test]
fn ranks_that_miss_the_meeting_are_named_to_all() {
    let place = place(4, Duration::from_millis(700));
    let errors = refused(&place, |place| match place.rank {
        // It waits for as long as rank 3, which has reached it.
        0 => Some(JoinOptions { timeout: PATIENT, ..place }),
        3 => {
            drop(connect(&place));
            Some(place)
        }
        _ => None,
    });
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|e| e.contains("ranks 1 and 2 never came")), "{errors:?}");
}

#[test]
fn no_rank_waits_longer_than_the_first_that_came() {
    let place = place(3, Duration::from_secs(3));
    let change = |place: JoinOptions| match place.rank {
        0 => {
            std::thread::sleep(Duration::from_millis(1500));
            Some(JoinOptions { timeout: PATIENT, ..place })
        }
        1 => None,
        _ => Some(place),
    };
    let (errors, took) = timed(|| refused(&place, change));
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|e| e.contains("rank 1 never came")), "{errors:?}");
}

#[test]
fn without_rank_0_the_others_say_where_they_looked() {
    let place = place(2, Duration::from_millis(300));
    let errors = refused(&place, |place| (place.rank == 1).then_some(place));
    assert!(errors[0].contains("rank 1 has not reached rank 0 at 127.0.0.1:"), "{errors:?}");
}

#[test]
fn other_settings_sizes_and_doubles_are_an_error_of_every_rank() {
    let change = |place: JoinOptions, odd: &dyn Fn(JoinOptions) -> JoinOptions| {
        if place.rank == 1 { odd(place) } else { place }
    };
    let wait = Duration::from_secs(20);
    let errors =
        refused(&place(2, wait), |p| Some(change(p, &|p| JoinOptions { settings: "steps 4".into(), ..p })));
    assert!(
        errors.iter().all(|e| e.contains("rank 0: steps 3") && e.contains("rank 1: steps 4")),
        "{errors:?}"
    );
    let errors = refused(&place(2, wait), |p| Some(change(p, &|p| JoinOptions { world_size: 3, ..p })));
    assert!(errors.iter().all(|e| e.contains("started for 3 ranks, rank 0 for 2")), "{errors:?}");
    let errors = refused(&place(3, wait), |p| Some(change(p, &|p| JoinOptions { rank: 2, ..p })));
    assert!(errors.iter().any(|e| e.contains("two processes say that they are rank 2")), "{errors:?}");
    assert_eq!(errors.len(), 3);
}

#[test]
fn a_port_in_use_and_another_machines_address_are_rank_0s_errors() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut place = place(2, Duration::from_millis(200));
    place.port = taken.local_addr().unwrap().port();
    assert!(matches!(join(&place), Err(JoinError::PortInUse { .. })));
    // An address of the block for documentation, which no machine has.
    (place.address, place.secret) = ("192.0.2.1".into(), Some(Secret::new(b"secret")));
    assert!(matches!(join(&place), Err(JoinError::Elsewhere { .. })));
    place.address = "no-such-host.invalid".into();
    assert!(matches!(join(&place), Err(JoinError::Unknown { .. })));
}

/// A control channel is no part of the run: no sequence number and no counter changes.
#[test]
fn a_control_channel_is_not_counted() {
    let tell = |group: Group| {
        let channel = group.control_channel(collectives::Topic::Ending);
        let mine = [group.rank() as u8];
        let told = [
            channel.exchange(&mine).unwrap(),
            group.exchange(&mine).unwrap(),
            channel.exchange(&[7]).unwrap(),
        ];
        assert_eq!(
            told,
            [vec![vec![0], vec![1], vec![2]], vec![vec![0], vec![1], vec![2]], vec![vec![7]; 3]]
        );
        group.traffic().calls[Operation::Scalars.index()]
    };
    assert_eq!(connected(3, PATIENT, |group, _| tell(group)), [1; 3]);
    assert_eq!(world(3, direct(), |group, _| tell(group)), [1; 3]);
}

#[test]
fn a_rank_that_is_blocked_is_not_to_blame() {
    let chain = Chain::default();
    chain.check(&connected(3, Chain::TIMEOUT, |group, device| chain.run(&group, device)));
}
