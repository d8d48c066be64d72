//! Gathered parameters: how many at once, and how often.

use super::*;

proptest! {
    #![proptest_config(config())]

    /// Gathered at once: the unit in use and those ahead of it, in forward or in backward, and a
    /// tied table throughout.
    #[test]
    fn gathered_parameters(job in jobs(), ahead in prop_oneof![0u64..3, 0u64..20_000]) {
        let gathering = Gathering { ahead, in_flight: usize::MAX, ..Gathering::default() };
        let job = Job { gathering, ..job.with_stage(Stage::Zero3) };
        let padded = padded(&job);
        let tied = usize::from(job.config.tied);
        let reversed: Vec<u64> = padded[tied..].iter().rev().copied().collect();
        let either = largest_with_ahead(&padded[tied..], ahead).max(largest_with_ahead(&reversed, ahead));
        let closed = padded[..tied].iter().sum::<u64>() + either;
        prop_assert_eq!(peak(&job, Class::GatheredParameters), F32 * closed);
        prop_assert_eq!(peak(&job.with_stage(Stage::Zero2), Class::GatheredParameters), 0);
    }

    /// Wrapping: as one unit, the whole model is gathered once per micro-batch; as one unit per
    /// tensor, a layer's tensors are gathered and one more ahead. Payload differs only by padding
    /// and by the units that are kept from forward to backward.
    #[test]
    fn wrapping(job in jobs(), size in 1u64..20_000) {
        let mut job = job.with_stage(Stage::Zero3);
        job.config.tied = false;
        let parameters = Partition::of(&job).parameters();
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let with = |wrap| Job { wrap, ..job.clone() };
        let gathers = |job: &Job| ranks(job)[0].traffic.step.calls(Operation::AllGather);

        let whole = with(Wrap::Model);
        prop_assert_eq!(peak(&whole, Class::GatheredParameters), F32 * parameters.next_multiple_of(n));
        prop_assert_eq!(gathers(&whole), m);

        let single = with(Wrap::Parameter);
        let padded = padded(&single);
        prop_assert_eq!(padded.len(), 3 + 9 * job.config.layers);
        // The embedding; nine tensors per block; the final norm and the head, which are kept for
        // backward.
        prop_assert_eq!(gathers(&single), m * (2 * padded.len() as u64 - 2));
        let ahead = |layer: usize| {
            let (first, count) = if layer == 0 { (0, 1) } else { (9 * layer - 8, 9) };
            let last = padded.len().min(first + count);
            let own: u64 = padded[first..last].iter().sum();
            // Forward gathers the tensor after the layer's last one ahead; backward the first of
            // the layer before.
            let before = if layer == 0 { 0 } else { padded[if layer == 1 { 0 } else { 9 * layer - 17 }] };
            own + before.max(padded.get(last).copied().unwrap_or(0))
        };
        let most = (0..job.config.layers + 2).map(ahead).max().unwrap();
        prop_assert_eq!(peak(&single, Class::GatheredParameters), F32 * most);

        for wrap in [Wrap::Module, Wrap::Size(size)] {
            let job = with(wrap);
            let sum: u64 = Partition::of(&job).units.iter().map(|unit| unit.padded).sum();
            let reduced = ranks(&job)[0].traffic.step.bytes(Operation::ReduceScatter);
            prop_assert_eq!(reduced, m * sum / n * (n - 1) * F32);
            prop_assert!(sum - parameters <= Partition::of(&job).units.len() as u64 * (n - 1));
        }
    }

    /// Without overlap, one unit is gathered at a time. So too where limits allow no second
    /// all-gather in flight or no second unit, or where backward gathers after freeing and forward
    /// gathers none ahead.
    #[test]
    fn gathered_one_at_a_time(job in jobs()) {
        let mut job = job.with_stage(Stage::Zero3);
        job.config.tied = false;
        let one = F32 * largest_in_a_row(&padded(&job), 1);
        let two = F32 * largest_in_a_row(&padded(&job), 2);
        let base = Gathering { ahead: u64::MAX, in_flight: usize::MAX, ..Gathering::default() };
        let with = |gathering| peak(&Job { gathering, ..job.clone() }, Class::GatheredParameters);
        prop_assert_eq!(peak(&Job { overlap: false, ..job.clone() }, Class::GatheredParameters), one);
        prop_assert_eq!(with(Gathering { live: 0, ..base }), one);
        prop_assert_eq!(with(Gathering { in_flight: 1, ..base }), two);
        let bounded = with(Gathering { live: two / F32, ..base });
        prop_assert!(bounded <= two);
        for backward in [BackwardPrefetch::Post, BackwardPrefetch::None] {
            let reshard = Gathering { backward, ahead: 1, reuse: 0, ..base };
            prop_assert!((one..=two).contains(&with(reshard)));
        }
    }

    /// If backward's first units are not kept, they are gathered twice: exactly 3Ψ per micro-batch.
    /// If all units are kept, none is gathered twice: 2Ψ.
    #[test]
    fn reuse(job in jobs()) {
        let job = job.with_stage(Stage::Zero3);
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let sum: u64 = padded(&job).iter().sum();
        let gathered = |reuse| {
            let gathering = Gathering { reuse, ..Gathering::default() };
            let rank = ranks(&Job { gathering, ..job.clone() })[0];
            (rank.traffic.step.bytes(Operation::AllGather), rank.memory.peak(Class::GatheredParameters))
        };
        let share = sum / n * (n - 1) * F32;
        prop_assert_eq!(gathered(0).0, 2 * m * share);
        prop_assert_eq!(gathered(u64::MAX), (m * share, sum * F32));
        prop_assert!(gathered(0).1 <= gathered(1).1);
    }

    /// Persistent tensors are held whole, never gathered in a pass, and gathered once after the
    /// update.
    #[test]
    fn persistence_limits(job in jobs(), each in prop_oneof![0u64..40, 0u64..3_000, Just(u64::MAX)], room in 0u64..20_000) {
        let job = Job { persistence_threshold: each, model_persistence_threshold: room, ..job.with_stage(Stage::Zero3) };
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let (whole, cut): (Vec<_>, Vec<_>) = Partition::of(&job).units.into_iter().partition(|unit| unit.persistent);
        let [held, gathered] = [&whole, &cut].map(|units| units.iter().map(|unit| unit.padded).sum::<u64>());
        let parameters: u64 = whole.iter().chain(&cut).map(|unit| unit.parameters).sum();
        prop_assert_eq!(parameters, Partition::of(&job.with_stage(Stage::Ddp)).parameters());
        prop_assert!(whole.iter().map(|unit| unit.parameters).sum::<u64>() <= room);
        prop_assert_eq!(peak(&job, Class::Parameters), F32 * (held + gathered / n));
        prop_assert_eq!(peak(&job, Class::Optimizer), 2 * F32 * (held + gathered) / n);
        let reshard = Gathering { reuse: 0, ..Gathering::default() };
        let rank = ranks(&Job { gathering: reshard, ..job.clone() })[0];
        let share = |elements: u64| elements / n * (n - 1) * F32;
        let step = rank.traffic.step;
        prop_assert_eq!(step.bytes(Operation::AllGather), 2 * m * share(gathered) + share(held));
        prop_assert_eq!(step.bytes(Operation::ReduceScatter), m * share(gathered + held));
        prop_assert_eq!(Partition::of(&job.with_stage(Stage::Zero2)).units.iter().filter(|unit| unit.persistent).count(), 0);
    }
}
