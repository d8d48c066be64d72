//! Every operation against a plain oracle, for both algorithms.

use crate::common::{direct, ring, round, tree_sum, upload, value, values, world};
use collectives::{Bucket, Group};
use device::{Buffer, Class, DType, Device};
use events::Operation;
use proptest::prelude::*;
use std::sync::Barrier;
use std::time::Instant;

/// One case.
#[derive(Clone, Debug)]
struct Case {
    size: usize,
    lens: Vec<usize>,
    dtype: DType,
    root: usize,
}

impl Case {
    /// The rank's buffers before the collective, as f32.
    fn before(&self, rank: usize) -> Vec<Vec<f32>> {
        let element = |buffer, index| round(self.dtype, value(rank, buffer, index));
        let buffer = |(buffer, &len): (usize, &usize)| (0..len).map(|index| element(buffer, index)).collect();
        self.lens.iter().enumerate().map(buffer).collect()
    }

    fn bucket(&self, device: &Device, rank: usize) -> Bucket {
        let buffers = self.before(rank).iter().map(|values| upload(device, self.dtype, values)).collect();
        Bucket { buffers, units: 2.into() }
    }

    /// One element of every rank, by rank.
    fn column(&self, buffer: usize, index: usize) -> Vec<f32> {
        (0..self.size).map(|rank| round(self.dtype, value(rank, buffer, index))).collect()
    }

    fn padded(mut self) -> Self {
        self.lens.iter_mut().for_each(|len| *len *= self.size);
        self
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let dtype = prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::F16)];
    let lens = prop::collection::vec(prop_oneof![0usize..40, 1000..3000usize], 1..4);
    (1usize..=8, lens, dtype, 0usize..8).prop_map(|(size, lens, dtype, root)| Case {
        size,
        lens,
        dtype,
        root: root % size,
    })
}

/// Returns the bits of all elements of all buffers.
fn bits(buffers: &[Buffer]) -> Vec<Vec<u32>> {
    buffers.iter().map(|buffer| values(buffer).into_iter().map(f32::to_bits).collect()).collect()
}

fn own(rank: usize, len: usize, size: usize) -> std::ops::Range<usize> {
    rank * len / size..(rank + 1) * len / size
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_reduce_is_the_tree_sum_everywhere(case in cases()) {
        let results = world(case.size as u32, direct(), |group, device| {
            let bucket = case.bucket(device, group.rank() as usize);
            let buffers = group.all_reduce(bucket).unwrap().wait().unwrap();
            (bits(&buffers), group.traffic())
        });
        for (rank, (buffers, traffic)) in results.into_iter().enumerate() {
            let mut sent = 0;
            for (buffer, got) in buffers.iter().enumerate() {
                let sum = |index| round(case.dtype, tree_sum(&case.column(buffer, index))).to_bits();
                prop_assert_eq!(got, &(0..case.lens[buffer]).map(sum).collect::<Vec<_>>());
                let (len, own) = (case.lens[buffer], own(rank, case.lens[buffer], case.size).len());
                sent += (len - own + (case.size - 1) * own) * case.dtype.size();
            }
            prop_assert_eq!(traffic.sent(Operation::AllReduce), sent as u64);
            prop_assert_eq!(traffic.total(), sent as u64);
            prop_assert_eq!(traffic.calls[Operation::AllReduce.index()], 1);
        }
    }

    #[test]
    fn reduce_scatter_leaves_each_rank_its_slice(case in cases()) {
        let case = case.padded();
        for options in [direct(), ring()] {
            let results = world(case.size as u32, options, |group, device| {
                let bucket = case.bucket(device, group.rank() as usize);
                let buffers = group.reduce_scatter(bucket).unwrap().wait().unwrap();
                (buffers.iter().map(values).collect::<Vec<_>>(), group.traffic())
            });
            for (rank, (buffers, traffic)) in results.into_iter().enumerate() {
                for (buffer, got) in buffers.iter().enumerate() {
                    for index in own(rank, case.lens[buffer], case.size) {
                        let sum = round(case.dtype, tree_sum(&case.column(buffer, index)));
                        if options == direct() {
                            prop_assert_eq!(got[index].to_bits(), sum.to_bits());
                        } else {
                            let magnitude: f32 = case.column(buffer, index).iter().map(|v| v.abs()).sum();
                            prop_assert!((got[index] - sum).abs() <= tolerance(&case) * magnitude);
                        }
                    }
                }
                let bytes: usize = case.lens.iter().sum::<usize>() * case.dtype.size();
                prop_assert_eq!(traffic.total() as usize, bytes - bytes / case.size);
            }
        }
    }

    #[test]
    fn reduce_scatter_hands_out_its_sums_before_rounding(case in cases()) {
        let case = case.padded();
        let results = world(case.size as u32, direct(), |group, device| {
            let bucket = case.bucket(device, group.rank() as usize);
            let place = |&len: &usize| device.zeros(Class::Gradients, DType::F32, len / case.size).unwrap();
            let sums = case.lens.iter().map(place).collect();
            let mut buffers = group.reduce_scatter_exact(bucket, sums).unwrap().wait().unwrap();
            let sums = buffers.split_off(case.lens.len());
            let lens = buffers.iter().map(|buffer| (buffer.len(), buffer.dtype())).collect::<Vec<_>>();
            (lens, bits(&sums), group.traffic())
        });
        let bucket: Vec<_> = case.lens.iter().map(|&len| (len, case.dtype)).collect();
        for (rank, (buffers, sums, traffic)) in results.into_iter().enumerate() {
            prop_assert_eq!(&buffers, &bucket);
            for (buffer, got) in sums.iter().enumerate() {
                let sum = |index| tree_sum(&case.column(buffer, index)).to_bits();
                let slice = own(rank, case.lens[buffer], case.size);
                prop_assert_eq!(got, &slice.map(sum).collect::<Vec<_>>());
            }
            let bytes: usize = case.lens.iter().sum::<usize>() * case.dtype.size();
            prop_assert_eq!(traffic.total() as usize, bytes - bytes / case.size, "places for sums do not travel");
        }
    }

    #[test]
    fn all_gather_copies_every_slice_to_every_rank(case in cases()) {
        let case = case.padded();
        for options in [direct(), ring()] {
            let results = world(case.size as u32, options, |group, device| {
                let bucket = case.bucket(device, group.rank() as usize);
                let buffers = group.all_gather(bucket).unwrap().wait().unwrap();
                (bits(&buffers), group.traffic())
            });
            for (buffers, traffic) in results {
                for (buffer, got) in buffers.iter().enumerate() {
                    let len = case.lens[buffer];
                    let owner = |index| (0..case.size).find(|&rank| own(rank, len, case.size).contains(&index));
                    let wanted = |index| case.column(buffer, index)[owner(index).unwrap()].to_bits();
                    prop_assert_eq!(got, &(0..len).map(wanted).collect::<Vec<_>>());
                }
                let bytes: usize = case.lens.iter().sum::<usize>() * case.dtype.size();
                prop_assert_eq!(traffic.total() as usize, (case.size - 1) * bytes / case.size);
            }
        }
    }

    #[test]
    fn broadcast_copies_the_root(case in cases()) {
        for options in [direct(), ring()] {
            let results = world(case.size as u32, options, |group, device| {
                let bucket = case.bucket(device, group.rank() as usize);
                let buffers = group.broadcast(bucket, case.root as u32).unwrap().wait().unwrap();
                (buffers.iter().map(values).collect::<Vec<_>>(), group.traffic().total() as usize)
            });
            let bytes: usize = case.lens.iter().sum::<usize>() * case.dtype.size();
            for (rank, (buffers, sent)) in results.into_iter().enumerate() {
                prop_assert_eq!(buffers, case.before(case.root));
                let ring_sends = if (rank + 1) % case.size == case.root { 0 } else { bytes };
                let direct_sends = if rank == case.root { (case.size - 1) * bytes } else { 0 };
                prop_assert_eq!(sent, if options == ring() { ring_sends } else { direct_sends });
            }
        }
    }

    #[test]
    fn ring_all_reduce_agrees_to_rounding(case in cases()) {
        let results = world(case.size as u32, ring(), |group, device| {
            let bucket = case.bucket(device, group.rank() as usize);
            let buffers = group.all_reduce(bucket).unwrap().wait().unwrap();
            (buffers.iter().map(values).collect::<Vec<_>>(), group.traffic().total() as usize)
        });
        for (rank, (buffers, sent)) in results.iter().enumerate() {
            prop_assert_eq!(buffers, &results[0].0);
            for (buffer, got) in buffers.iter().enumerate() {
                for (index, got) in got.iter().enumerate() {
                    let column = case.column(buffer, index);
                    let magnitude: f32 = column.iter().map(|v| v.abs()).sum();
                    prop_assert!((got - tree_sum(&column)).abs() <= tolerance(&case) * magnitude);
                }
            }
            let right = (rank + 1) % case.size;
            let elements = |len: &usize| {
                2 * len - own(rank, *len, case.size).len() - own(right, *len, case.size).len()
            };
            prop_assert_eq!(*sent, case.lens.iter().map(elements).sum::<usize>() * case.dtype.size());
        }
    }
}

/// Returns the relative error of a sum of `size` terms that is rounded after every addition.
fn tolerance(case: &Case) -> f32 {
    let unit = match case.dtype {
        DType::F32 | DType::U32 => f32::EPSILON,
        DType::Bf16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
    };
    unit * case.size as f32
}

/// Returns the sum of `values` over `size` ranks that all hold them scaled by rank + 1, cut into
/// buckets of `pieces`.
fn cut(pieces: &[usize]) -> Vec<u32> {
    let results = world(5, direct(), |group, device| {
        let mut start = 0;
        let mut buffers = Vec::new();
        for len in pieces {
            let part: Vec<f32> =
                (start..start + len).map(|index| value(group.rank() as usize, 0, index)).collect();
            buffers.push(upload(device, DType::F32, &part));
            start += len;
        }
        let buffers = group.all_reduce(buffers.into()).unwrap().wait().unwrap();
        bits(&buffers).concat()
    });
    results[0].clone()
}

#[test]
fn sums_do_not_depend_on_the_cut() {
    let whole = cut(&[5000]);
    assert_eq!(whole, cut(&[1, 2, 1021, 1024, 2952]));
    assert_eq!(whole, cut(&[2500, 2500]));
}

#[test]
fn aligned_subgroups_are_subtrees() {
    let column: Vec<f32> = (0..8).map(|rank| value(rank, 0, 0)).collect();
    let pairs: Vec<f32> = column.chunks(2).map(tree_sum).collect();
    let quads: Vec<f32> = column.chunks(4).map(tree_sum).collect();
    let sum = |values: Vec<f32>| {
        let body = |group: Group, device: &Device| {
            let buffer = upload(device, DType::F32, &values[group.rank() as usize..][..1]);
            values_of(group.all_reduce(vec![buffer].into()).unwrap().wait().unwrap())
        };
        world(values.len() as u32, direct(), body)[0][0].to_bits()
    };
    assert_eq!(sum(pairs), sum(column.clone()));
    assert_eq!(sum(quads), sum(column));
}

fn values_of(buffers: Vec<Buffer>) -> Vec<f32> {
    buffers.iter().flat_map(values).collect()
}

#[test]
fn every_element_type_can_be_gathered() {
    let results = world(3, direct(), |group, device| {
        let ids: Vec<u32> = (0..6).map(|index| group.rank() * 10 + index).collect();
        let buffer = device.upload(device::Class::Workspace, &ids).unwrap();
        let buffers = group.all_gather(vec![buffer].into()).unwrap().wait().unwrap();
        buffers[0].as_slice::<u32>().to_vec()
    });
    assert_eq!(results, vec![vec![0, 1, 12, 13, 24, 25]; 3]);
}

#[test]
fn a_bucket_may_mix_element_types() {
    let dtypes = [DType::F16, DType::F32, DType::Bf16];
    for options in [direct(), ring()] {
        let results = world(3, options, |group, device| {
            let part = |dtype| upload(device, dtype, &[(1 << group.rank()) as f32; 7]);
            let buffers = group.all_reduce(dtypes.map(part).into_iter().collect::<Vec<_>>().into());
            values_of(buffers.unwrap().wait().unwrap())
        });
        assert_eq!(results, vec![vec![7.0; 21]; 3]);
    }
}

#[test]
fn scalars_reach_every_rank_in_rank_order() {
    let results = world(4, direct(), |group, _| {
        let mine = vec![group.rank() as u8; group.rank() as usize];
        let all = group.exchange(&mine).unwrap();
        group.barrier().unwrap();
        (all, group.traffic())
    });
    for (rank, (all, traffic)) in results.into_iter().enumerate() {
        assert_eq!(all, [vec![], vec![1], vec![2, 2], vec![3, 3, 3]]);
        assert_eq!(traffic.sent(Operation::Scalars), 3 * rank as u64);
        assert_eq!(traffic.calls[Operation::Barrier.index()], 1);
    }
}

#[test]
fn pending_collectives_may_be_waited_for_in_any_order() {
    for options in [direct(), ring()] {
        let results = world(3, options, |group, device| {
            let issue = |scale: f32| {
                group.all_reduce(
                    vec![upload(device, DType::F32, &[scale, 2.0 * scale, 3.0 * scale, 0.5])].into(),
                )
            };
            let first = issue(1.0).unwrap();
            let second = issue(10.0).unwrap();
            let (first, second) = if group.rank() == 1 {
                let second = second.wait().unwrap();
                (first.wait().unwrap(), second)
            } else {
                (first.wait().unwrap(), second.wait().unwrap())
            };
            (values_of(first), values_of(second))
        });
        assert_eq!(results, vec![(vec![3.0, 6.0, 9.0, 1.5], vec![30.0, 60.0, 90.0, 1.5]); 3]);
    }
}

#[test]
fn a_split_makes_groups_of_their_own() {
    let results = world(4, direct(), |group, device| {
        let node = group.split(u64::from(group.rank() / 2)).unwrap();
        let across = group.split(u64::from(group.rank() % 2)).unwrap();
        let sum = |group: &Group| {
            let mine = upload(device, DType::F32, &[(1 << (4 * node.rank() + 8 * across.rank())) as f32]);
            values_of(group.all_reduce(vec![mine].into()).unwrap().wait().unwrap())[0]
        };
        let sums = (sum(&node), sum(&across));
        let parts = [&node, &across, &group].map(|group| group.traffic().total());
        assert_eq!(group.overall_traffic().total(), parts.iter().sum::<u64>());
        assert_eq!(node.overall_traffic(), group.overall_traffic());
        // An all-reduce of one element of which one of two ranks owns a slice; two splits of four
        // ranks.
        assert_eq!((parts[0], parts[1], parts[2]), (4, 4, 2 * 3 * 8));
        ((node.rank(), across.rank()), sums.0, sums.1, node.size())
    });
    assert_eq!(
        results,
        [
            ((0, 0), 17.0, 257.0, 2),
            ((1, 0), 17.0, 4112.0, 2),
            ((0, 1), 4352.0, 257.0, 2),
            ((1, 1), 4352.0, 4112.0, 2)
        ]
    );
}

/// Runs mixed collectives with several in flight, many times, on real threads. The explored
/// schedules do so on simulated ones.
#[test]
fn many_collectives_in_flight() {
    for (size, options) in [(2, direct()), (8, direct()), (5, ring())] {
        world(size, options, |group, device| {
            let mut flight = std::collections::VecDeque::new();
            for round in 0..200u32 {
                let mine = vec![(group.rank() + round) as f32; 40 * size as usize];
                let bucket: Bucket = vec![upload(device, DType::F32, &mine)].into();
                flight.push_back((
                    round,
                    if round % 3 == 0 { group.all_gather(bucket) } else { group.all_reduce(bucket) },
                ));
                while flight.len() > (round % 4) as usize {
                    let (issued, pending) = flight.pop_front().unwrap();
                    let got = values_of(pending.unwrap().wait().unwrap());
                    let sum = (0..size).map(|rank| (rank + issued) as f32).sum::<f32>();
                    let right = |(index, &value): (usize, &f32)| match issued % 3 {
                        0 => value == (index as u32 / 40 + issued) as f32,
                        _ => value == sum,
                    };
                    assert!(got.iter().enumerate().all(right), "round {issued}");
                }
                if round % 50 == 0 {
                    assert_eq!(
                        group.exchange(&round.to_le_bytes()).unwrap(),
                        vec![round.to_le_bytes(); size as usize]
                    );
                }
            }
            while let Some((_, pending)) = flight.pop_front() {
                pending.unwrap().wait().unwrap();
            }
        });
    }
}

/// A collective's time of completion does not depend on when a rank waits for it.
#[test]
fn a_collective_is_complete_once_every_rank_has_issued_it() {
    let issued = Barrier::new(2);
    world(2, direct(), |group, device| {
        let before = Instant::now();
        let ones = upload(device, DType::F32, &[1.0; 4]);
        let pending = group.all_reduce(vec![ones].into()).unwrap();
        issued.wait();
        let after = Instant::now();
        let _ = pending.wait().unwrap();
        let complete = group.latest_complete();
        assert!(before <= complete && complete <= after, "{:?}", after.duration_since(complete));
    });
}
