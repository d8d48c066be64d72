//! Buckets of gradients in flight.

use super::*;

proptest! {
    #![proptest_config(config())]

    /// Without overlap, reduced gradients are freed before the next unit's are allocated.
    #[test]
    fn buckets_without_overlap(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), overlap: false, ..job.with_stage(Stage::Zero2) };
        job.config.tied = false;
        prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * largest_in_a_row(&padded(&job), 1));
        let overlapping = Job { overlap: true, ..job.clone() };
        prop_assert_eq!(ranks(&job)[0].traffic.step, ranks(&overlapping)[0].traffic.step);
    }

    /// A bucket per unit: full gradients of the unit in backward and of the one before it, which is
    /// being reduced.
    #[test]
    fn buckets_of_one_unit(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), ..job.with_stage(Stage::Zero2) };
        job.config.tied = false;
        let padded = padded(&job);
        let pairs = largest_in_a_row(&padded, 2);
        let across = if job.micro_batches > 1 { padded[0] + padded[padded.len() - 1] } else { 0 };
        prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * pairs.max(across));
    }

    /// Gradients that are reduced in another type: while a unit's are converted, both copies exist,
    /// and the copy that is being reduced. Where a rank holds full gradients, only converted ones
    /// are in buckets.
    #[test]
    fn converted_buckets_of_one_unit(job in jobs(), bytes in prop_oneof![Just(2u64), Just(4)]) {
        let mut job = Job { reduce_bucket: Some(1), converted_gradients: Some(bytes), micro_batches: 1, ..job };
        job.config.tied = false;
        let zero2 = job.with_stage(Stage::Zero2);
        let padded = padded(&zero2);
        let behind = |i: usize| padded.get(i + 1).copied().unwrap_or(0);
        let converting = |i: usize| F32 * padded[i] + bytes * (padded[i] + behind(i));
        let most = (0..padded.len()).map(converting).max().unwrap();
        prop_assert_eq!(peak(&zero2, Class::CommunicationBuckets), most);
        prop_assert_eq!(
            peak(&job.with_stage(Stage::Zero1), Class::CommunicationBuckets),
            bytes * largest_in_a_row(&padded, 2)
        );
    }

    /// Gradients are sent in the converted type, parameters in their own.
    #[test]
    fn converted_traffic(job in jobs()) {
        for stage in [Stage::Zero1, Stage::Zero2, Stage::Zero3] {
            let job = job.with_stage(stage);
            let plain = ranks(&job)[0].traffic.step;
            let halved = ranks(&Job { converted_gradients: Some(2), ..job })[0].traffic.step;
            let bytes = |traffic: &prediction::Traffic, operation| traffic.bytes(operation);
            prop_assert_eq!(2 * bytes(&halved, Operation::ReduceScatter), bytes(&plain, Operation::ReduceScatter));
            prop_assert_eq!(bytes(&halved, Operation::AllGather), bytes(&plain, Operation::AllGather));
        }
    }

    /// One bucket for all units: every full gradient at once, twice if the next micro-batch fills
    /// another.
    #[test]
    fn one_bucket(job in jobs()) {
        let sum: u64 = padded(&job.with_stage(Stage::Zero3)).iter().sum();
        for stage in [Stage::Zero2, Stage::Zero3] {
            let job = Job { reduce_bucket: Some(u64::MAX), ..job.with_stage(stage) };
            let times = job.micro_batches.min(2) as u64;
            prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * times * sum);
            let calls = ranks(&job)[0].traffic.step.calls(Operation::ReduceScatter);
            prop_assert_eq!(calls, job.micro_batches as u64);
        }
    }
}
