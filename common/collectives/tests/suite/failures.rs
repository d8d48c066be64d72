//! The errors of all ranks when one fails.

use crate::common::{Chain, direct, errors_from_a_mismatch_on, ring, sum, upload, values, world};
use collectives::CollectiveError::{self, Invalid, Mismatch, Poisoned, Timeout};
use collectives::local::{Options, groups};
use collectives::{Bucket, CallId, Group, Topic};
use device::{DType, Device};
use events::Operation;
use std::time::Duration;

#[test]
fn different_lengths_are_an_error_of_every_rank() {
    let errors = world(3, direct(), |group, device| {
        let len = if group.rank() == 2 { 5 } else { 4 };
        sum(&group, device, len).err().unwrap()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let Mismatch { expected, theirs, .. } = &error else { panic!("{error}") };
        assert_eq!(expected, "all-reduce of 1 buffer (buffer 0: 4 × f32)");
        assert_eq!(theirs, "all-reduce of 1 buffer (buffer 0: 5 × f32)");
        let Mismatch { rank: reporter, culprit: 2, reference: 0, sequence: 0, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(reporter as usize, rank);
    }
}

/// All-reduces units 4 to 6, four elements each, until one fails. Returns its error.
fn sums_of_units(group: &Group, device: &Device) -> CollectiveError {
    let sum = |unit: u16| {
        let buffers = vec![upload(device, DType::F32, &[1.0; 4])];
        group.all_reduce(Bucket { buffers, units: unit.into() })?.wait()
    };
    (4..7).find_map(|unit| sum(unit).err()).unwrap()
}

/// A rank that skips a collective is named at that collective, even if the next one has the
/// same shape, and even if it is the first rank.
#[test]
fn the_first_failure_is_the_error_of_every_call_after_it() {
    let errors = world(3, direct(), |group, device| errors_from_a_mismatch_on(&group, device));
    for error in errors.iter().flatten() {
        assert!(matches!(error, Mismatch { culprit: 2, sequence: 1, .. }), "{error}");
    }
    assert_eq!(errors.concat().len(), 3 * 4);
}

#[test]
fn a_rank_that_leaves_out_a_collective_differs_from_most_in_the_next() {
    for odd in 0..3 {
        let errors = world(3, direct(), |group, device| {
            sum(&group, device, 4).unwrap();
            if group.rank() == odd {
                group.skip_next_collective();
            }
            sums_of_units(&group, device)
        });
        for error in errors {
            let Mismatch { culprit, reference, sequence: 1, expected, theirs, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((*culprit, *reference), (odd, u32::from(odd == 0)));
            assert_eq!(expected, "all-reduce of 1 buffer (buffer 0: 4 × f32) of unit 4");
            assert_eq!(theirs, "all-reduce of 1 buffer (buffer 0: 4 × f32) of unit 5");
        }
    }
}

#[test]
fn a_collective_that_is_left_out_returns_its_buffers_and_scalars_are_not_left_out() {
    world(2, direct(), |group, device| {
        group.skip_next_collective();
        assert_eq!(group.exchange(&[group.rank() as u8]).unwrap(), [[0], [1]]);
        let mine = [group.rank() as f32; 3];
        let back = group.all_reduce(vec![upload(device, DType::F32, &mine)].into()).unwrap().wait().unwrap();
        assert_eq!(values(&back[0]), mine);
        assert_eq!(values(&sum(&group, device, 2).unwrap()[0]), [2.0; 2]);
        assert_eq!(group.traffic().sent(Operation::AllReduce), 8, "only the second one");
    });
}

#[test]
fn different_operations_types_and_roots_are_mismatches() {
    let issue = |group: &Group, device: &Device, odd: u32, kind: usize| {
        let odd = group.rank() == odd;
        let dtype = if kind == 0 && odd { DType::Bf16 } else { DType::F16 };
        let bucket = vec![upload(device, DType::F32, &[0.0]), upload(device, dtype, &[0.0; 4])];
        match kind {
            1 if odd => group.barrier().map(|()| Vec::new()),
            2 => group.broadcast(bucket.into(), u32::from(odd))?.wait(),
            _ => group.all_reduce(bucket.into())?.wait(),
        }
    };
    for (kind, words) in
        [(0, "(buffer 1: 4 × bf16)"), (1, "barrier"), (2, "broadcast from root 1 of 2 buffers")]
    {
        let errors = world(3, ring(), |group, device| issue(&group, device, 1, kind).err().unwrap());
        for error in errors {
            let Mismatch { culprit: 1, theirs, .. } = &error else { panic!("{error}") };
            assert!(theirs.contains(words), "{theirs}");
        }
    }
}

#[test]
fn a_rank_that_never_issues_is_named() {
    let options = Options { timeout: Duration::from_millis(20), ..direct() };
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    let results = world(2, options, |group, device| {
        if group.rank() == 1 {
            // Rank 1 stays in the group, but issues nothing until rank 0 has timed out.
            left.lock().unwrap().recv().unwrap();
            return sum(&group, device, 4).err().unwrap();
        }
        // A wait for the second call carries out the first.
        let issue = || group.all_reduce(vec![upload(device, DType::F32, &[1.0; 4])].into()).unwrap();
        let (_first, second) = (issue(), issue());
        let error = second.wait().err().unwrap();
        leave.send(()).unwrap();
        error
    });
    let waited = Duration::from_millis(20);
    let call = CallId { operation: Operation::AllReduce, sequence: 0 };
    let missing = "never issued it";
    assert_eq!(results[0], Timeout { rank: 0, culprit: 1, missing, call, waited });
    let during = "all-reduce #0".to_string();
    let reason = "rank 0 waited 20ms for rank 1, which never issued it".to_string();
    assert_eq!(results[1], Poisoned { rank: 1, culprit: 1, during, reason, call: Some(call) });
}

#[test]
fn poison_carries_the_culprits_words() {
    let errors = world(4, direct(), |group, device| {
        sum(&group, device, 4).unwrap();
        if group.rank() == 2 {
            group.poison("forward of block 3".into(), "out of memory".into());
        }
        sum(&group, device, 4).err().unwrap()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let Poisoned { rank: reporter, culprit: 2, during, reason, call } = error else { panic!("{error}") };
        assert_eq!(reporter as usize, rank);
        assert_eq!(call, Some(CallId { operation: Operation::AllReduce, sequence: 1 }));
        assert_eq!((during.as_str(), reason.as_str()), ("forward of block 3", "out of memory"));
    }
}

#[test]
fn a_panic_names_its_rank() {
    for options in [direct(), ring()] {
        let results = world(3, options, |group, device| {
            let rank = group.rank();
            let attempt = std::panic::AssertUnwindSafe(|| {
                sum(&group, device, 6).unwrap();
                if rank == 1 {
                    let group = group;
                    std::panic::resume_unwind(Box::new(group.rank()));
                }
                sum(&group, device, 6)
            });
            match std::panic::catch_unwind(attempt) {
                Ok(result) => result.err(),
                Err(_) => None,
            }
        });
        assert_eq!(results[1], None);
        for rank in [0, 2] {
            let Some(Poisoned { culprit: 1, during, reason, call: Some(CallId { sequence: 1, .. }), .. }) =
                &results[rank]
            else {
                panic!("{:?}", results[rank])
            };
            assert_eq!(during, "its work after issuing all-reduce #0");
            assert_eq!(reason, "it panicked");
        }
    }
}

#[test]
fn leaving_early_is_an_error_of_the_ranks_that_stay() {
    let results = world(3, direct(), |group, device| {
        if group.rank() == 0 {
            return None;
        }
        sum(&group, device, 4).err()
    });
    for error in results.into_iter().skip(1) {
        assert!(matches!(error, Some(Poisoned { culprit: 0, .. })), "{error:?}");
    }
}

/// A rank may drop a pending collective before another waits for it; later collectives work.
#[test]
fn once_a_group_winds_down_a_dropped_pending_fails_no_rank() {
    for options in [direct(), ring()] {
        world(3, options, |group, device| {
            let neighbours = group.split(u64::from(group.rank() / 2)).unwrap();
            let issue =
                |group: &Group| group.all_gather(vec![upload(device, DType::F32, &[1.0; 6])].into()).unwrap();
            let (mut unwanted, of_neighbours) = (vec![issue(&group), issue(&group)], issue(&neighbours));
            group.wind_down();
            if group.rank() == 1 {
                unwanted.clear();
            }
            assert_eq!(values(&sum(&group, device, 4).unwrap()[0]), [3.0; 4]);
            drop((unwanted, of_neighbours));
            assert_eq!(group.traffic().calls[Operation::AllGather.index()], 0, "no rank waited for them");
        });
    }
}

#[test]
fn a_dropped_pending_fails_the_group() {
    for options in [direct(), ring()] {
        let errors = world(3, options, |group, device| {
            let pending = group.all_reduce(vec![upload(device, DType::F32, &[1.0; 999])].into());
            if group.rank() == 1 {
                drop(pending);
                return sum(&group, device, 1).err();
            }
            pending.and_then(|pending| pending.wait()).err()
        });
        for error in errors.into_iter().flatten() {
            let Poisoned { culprit: 1, during, reason, .. } = &error else { panic!("{error}") };
            assert_eq!(during, "all-reduce #0");
            assert_eq!(reason, "it dropped the pending collective without waiting for it");
        }
    }
}

#[test]
fn unfit_buffers_and_peers_are_refused() {
    let results = world(2, direct(), |group, device| {
        let ids = vec![upload(device, DType::U32, &[0.0; 4])];
        let odd = || vec![upload(device, DType::F32, &[0.0; 3])];
        [
            group.all_reduce(ids.into()).err(),
            group.reduce_scatter(odd().into()).err(),
            group.all_gather(odd().into()).err(),
            group.broadcast(odd().into(), 2).err(),
            // None of these counted as a collective.
            sum(&group, device, 3).err(),
        ]
    });
    for errors in results {
        assert!(errors[..4].iter().all(|error| matches!(error, Some(Invalid { .. }))), "{errors:?}");
        assert_eq!(errors[4], None);
        let text = errors[1].as_ref().unwrap().to_string();
        assert!(
            text.ends_with("reduce-scatter cannot take 3 elements: not a multiple of the 2 ranks"),
            "{text}"
        );
    }
}

#[test]
fn places_for_sums_must_fit_and_a_ring_has_none() {
    let refused = |options, dtype, len| {
        let results = world(2, options, move |group, device| {
            let full = || vec![upload(device, DType::Bf16, &[1.0; 4])];
            let places = vec![upload(device, dtype, &vec![0.0; len])];
            let error = group.reduce_scatter_exact(full().into(), places).err();
            let none = group.reduce_scatter_exact(full().into(), Vec::new()).err();
            [error, none]
        });
        results.into_iter().flatten().map(|error| error.map(|e| e.to_string())).collect::<Vec<_>>()
    };
    let says = |errors: Vec<Option<String>>, words: &str| {
        assert!(errors.iter().flatten().any(|error| error.contains(words)), "{errors:?}");
        assert!(errors.iter().all(Option::is_some), "{errors:?}");
    };
    for (dtype, len) in [(DType::F32, 4), (DType::Bf16, 2)] {
        says(refused(direct(), dtype, len), "other than one f32 slice per buffer");
    }
    says(refused(ring(), DType::F32, 2), "a ring and NCCL round them");
}

#[test]
fn poison_reaches_subgroups() {
    let results = world(4, direct(), |group, device| {
        let node = group.split(u64::from(group.rank() / 2)).unwrap();
        if group.rank() == 3 {
            group.poison("a test".into(), "it wanted to".into());
        }
        // Ranks 0 and 1 may finish before the poison; a later collective cannot.
        let mut error = None;
        while error.is_none() {
            error = sum(&node, device, 2).err();
        }
        error
    });
    for (rank, error) in results.into_iter().enumerate() {
        let Some(Poisoned { rank: reporter, culprit: 3, .. }) = error else { panic!("{error:?}") };
        assert_eq!(reporter as usize, rank);
    }
}

/// The world's first failure is also that of its sub-groups, whatever a rank reports later.
#[test]
fn subgroups_fail_as_the_world_did() {
    let errors = world(2, direct(), |group, device| {
        let half = group.split(0).unwrap();
        let len = if group.rank() == 0 { 2 } else { 4 };
        let first = sum(&group, device, len).err().unwrap();
        group.poison("what followed".into(), "the group has failed".into());
        (first, sum(&half, device, 2).err().unwrap())
    });
    for (first, then) in errors {
        assert!(matches!(first, Mismatch { .. }), "{first}");
        assert_eq!(first, then);
    }
}

#[test]
fn a_rank_that_is_blocked_is_not_to_blame() {
    let chain = Chain::default();
    let errors =
        world(3, Options { timeout: Chain::TIMEOUT, ..direct() }, |group, device| chain.run(&group, device));
    chain.check(&errors);
}

#[test]
#[should_panic(expected = "the control channel for Saving is open already")]
fn a_topic_has_one_channel() {
    let group = groups(1, Options::default()).remove(0);
    let _first = group.control_channel(Topic::Saving);
    group.control_channel(Topic::Saving);
}

#[test]
#[should_panic(expected = "only the group of all ranks is split")]
fn a_sub_group_is_not_split() {
    let group = groups(1, Options::default()).remove(0);
    let _ = group.split(0).unwrap().split(0);
}
