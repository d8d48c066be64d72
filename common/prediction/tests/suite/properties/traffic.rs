//! Bytes and collectives of a step.

use super::*;
use prediction::Algorithm;

/// Returns a buffer cut for `ranks` ranks.
fn slices(elements: u64, ranks: u64) -> Vec<u64> {
    let cut = |rank: u64| rank * elements / ranks;
    (0..ranks).map(|rank| cut(rank + 1) - cut(rank)).collect()
}

/// Returns the slices that rank `rank` passes on around a ring, hop by hop. Partial sums begin with
/// the slice to its left and end before its own; results begin with its own and end before its
/// right neighbour's.
fn passed_on(operation: Operation, slices: &[u64], rank: usize) -> u64 {
    let ranks = slices.len();
    let back = |steps: usize| slices[(rank + ranks - steps) % ranks];
    let sums: u64 = (1..ranks).map(back).sum();
    let results: u64 = (0..ranks - 1).map(back).sum();
    match operation {
        Operation::ReduceScatter => sums,
        Operation::AllGather => results,
        _ => sums + results,
    }
}

proptest! {
    #![proptest_config(config())]

    /// A skipped step gathers no updated parameters; the rest is as in any other step.
    #[test]
    fn skipped_steps(job in jobs()) {
        for stage in Stage::ALL {
            let rank = ranks(&job.with_stage(stage))[0];
            let (step, skipped) = (rank.traffic.step, rank.traffic.skipped_step);
            let gathers = matches!(stage, Stage::Zero1 | Stage::Zero2);
            for operation in Operation::ALL {
                let spared = gathers && operation == Operation::AllGather;
                let expected = if spared { 0 } else { step.bytes(operation) };
                prop_assert_eq!(skipped.bytes(operation), expected, "{} {}", stage, operation);
            }
        }
    }

    /// Reduce-scatter and all-gather per step: 2Ψ, 2Ψ, (M+1)Ψ and a little under 3MΨ, since the
    /// head is kept, each times (N−1)/N, on every rank.
    #[test]
    fn traffic(job in jobs()) {
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let units = padded(&job.with_stage(Stage::Zero3));
        let sum: u64 = units.iter().sum();
        let kept = units[units.len() - 1] + if job.config.tied { units[0] } else { 0 };
        let share = |elements: u64| elements / n * (n - 1) * F32;
        let closed = [
            (Stage::Zero1, share(sum), share(sum)),
            (Stage::Zero2, m * share(sum), share(sum)),
            (Stage::Zero3, m * share(sum), m * share(2 * sum - kept)),
        ];
        for (stage, reduced, gathered) in closed {
            for rank in ranks(&job.with_stage(stage)) {
                let step = rank.traffic.step;
                prop_assert_eq!(step.bytes(Operation::ReduceScatter), reduced, "{}", stage);
                prop_assert_eq!(step.bytes(Operation::AllGather), gathered, "{}", stage);
                prop_assert_eq!(step.bytes(Operation::Scalars), (16 + 4 + 16) * (n - 1));
                prop_assert_eq!(step.calls(Operation::Scalars), 3);
                prop_assert_eq!(rank.traffic.setup.total_bytes(), 32 * (n - 1));
                prop_assert_eq!(rank.traffic.evaluation.total_bytes(), 16 * (n - 1));
            }
        }
        let gathers = ranks(&job.with_stage(Stage::Zero3))[0].traffic.step.calls(Operation::AllGather);
        let kept_units = 1 + u64::from(job.config.tied);
        prop_assert_eq!(gathers, m * (2 * units.len() as u64 - kept_units));
    }

    /// All-reduce: slices may be uneven, but all ranks together send 2(N−1)Ψ elements, and each
    /// rank is off by less than one slice.
    #[test]
    fn all_reduce(job in jobs()) {
        let n = job.world_size as u64;
        let full = Partition::of(&job).parameters();
        let sent = ranks(&job).iter().map(|rank| rank.traffic.step.bytes(Operation::AllReduce)).collect::<Vec<_>>();
        prop_assert_eq!(sent.iter().sum::<u64>(), 2 * (n - 1) * full * F32);
        let units = Partition::of(&job).units.len() as u64;
        let (least, most) = (*sent.iter().min().unwrap(), *sent.iter().max().unwrap());
        prop_assert!(most - least <= units * n.saturating_sub(2) * F32);
        let step = ranks(&job)[0].traffic.step;
        prop_assert_eq!((step.calls(Operation::Scalars), step.bytes(Operation::Scalars)), (1, 16 * (n - 1)));

        let textbook = Job { textbook_all_reduce: true, ..job.with_stage(Stage::Zero1) };
        let sum: u64 = padded(&textbook).iter().sum();
        let step = ranks(&textbook)[0].traffic.step;
        prop_assert_eq!(step.payload_bytes(), 3 * (sum / n) * (n - 1) * F32);
    }

    /// In a ring each rank forwards slices. All ranks together send as much as directly, and so
    /// does each rank if slices are even.
    #[test]
    fn rings(elements in 0u64..2_000, ranks in 1u64..10) {
        let slices = slices(elements, ranks);
        for operation in [Operation::ReduceScatter, Operation::AllGather, Operation::AllReduce] {
            let sent = |algorithm: Algorithm| -> Vec<u64> {
                (0..ranks).map(|rank| algorithm.elements_sent(operation, elements, ranks, rank)).collect()
            };
            let (direct, ring) = (sent(Algorithm::Direct), sent(Algorithm::Ring));
            let hops: Vec<u64> = (0..ranks).map(|rank| passed_on(operation, &slices, rank as usize)).collect();
            prop_assert_eq!(&ring, &hops);
            prop_assert_eq!(ring.iter().sum::<u64>(), direct.iter().sum::<u64>());
            prop_assert!(!elements.is_multiple_of(ranks) || ring == direct);
        }
    }

    /// A job over a ring has the same memory, and the same traffic except in all-reduces of uneven
    /// slices.
    #[test]
    fn jobs_around_a_ring(job in jobs()) {
        for stage in Stage::ALL {
            let direct = job.with_stage(stage);
            let around = ranks(&Job { algorithm: Algorithm::Ring, ..direct.clone() });
            let units = padded(&direct);
            for (rank, (ring, direct)) in around.iter().zip(ranks(&direct)).enumerate() {
                let (step, plain) = (ring.traffic.step, direct.traffic.step);
                if stage == Stage::Ddp {
                    let cut = units.iter().map(|&unit| slices(unit, job.world_size as u64));
                    let passed = cut.map(|slices| passed_on(Operation::AllReduce, &slices, rank));
                    prop_assert_eq!(step.bytes(Operation::AllReduce), passed.sum::<u64>() * F32);
                } else {
                    prop_assert_eq!(step, plain);
                }
                prop_assert_eq!(step.bytes(Operation::Scalars), plain.bytes(Operation::Scalars));
                prop_assert_eq!(ring.memory, direct.memory);
            }
        }
    }

    /// An evaluation's batch: every unit gathered once in ZeRO-3, nothing elsewhere.
    #[test]
    fn evaluation(job in jobs()) {
        let n = job.world_size as u64;
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let batch = ranks(&job)[0].traffic.evaluation_batch;
            let units = padded(&job);
            let (calls, elements) =
                if stage == Stage::Zero3 { (units.len() as u64, units.iter().sum()) } else { (0, 0) };
            prop_assert_eq!(batch.calls(Operation::AllGather), calls);
            prop_assert_eq!(batch.total_bytes(), elements / n * (n - 1) * F32);
        }
    }
}
