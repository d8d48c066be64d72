//! Bytes held between steps, and at their peak.

use super::*;

proptest! {
    #![proptest_config(config())]

    /// The bytes held between steps are the recipe's closed form over padded units.
    #[test]
    fn model_states(job in jobs()) {
        let n = job.world_size as u64;
        let full: u64 = Partition::of(&job).parameters();
        let padded: u64 = padded(&job.with_stage(Stage::Zero3)).iter().sum();
        let shard = padded / n;
        let closed = [
            (Stage::Ddp, [full, full, 2 * full]),
            (Stage::Zero1, [padded, padded, 2 * shard]),
            (Stage::Zero2, [padded, shard, 2 * shard]),
            (Stage::Zero3, [shard, shard, 2 * shard]),
        ];
        for (stage, elements) in closed {
            let job = job.with_stage(stage);
            let held = [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| peak(&job, class));
            prop_assert_eq!(held, elements.map(|elements| elements * F32), "{}", stage);
        }
    }

    /// Activations and workspace depend on the model alone: the same in every stage, as counted
    /// from its contract.
    #[test]
    fn residual_states(job in jobs()) {
        let letters = Letters::of(&job);
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            prop_assert_eq!(peak(&job, Class::Activations), letters.activations());
            prop_assert_eq!(peak(&job, Class::Workspace), letters.workspace());
        }
        let memory = ranks(&job)[0].memory;
        let states = 16 * Partition::of(&job).parameters();
        prop_assert_eq!(memory.total_peak, states + letters.together(), "DDP: nothing else moves");
    }

    /// Checkpointing saves the bytes that blocks no longer keep, and changes no traffic.
    #[test]
    fn checkpointing(job in jobs()) {
        for stage in Stage::ALL {
            let with = |checkpointing| ranks(&Job { checkpointing, ..job.with_stage(stage) })[0];
            let everything = with(Checkpointing::None);
            for checkpointing in [Checkpointing::Selective, Checkpointing::Block] {
                let less = with(checkpointing);
                prop_assert_eq!(less.traffic.step, everything.traffic.step);
                prop_assert!(less.memory.total_peak <= everything.memory.total_peak);
                let classes = Class::ALL.iter().filter(|&&class| class != Class::Activations);
                for &class in classes {
                    prop_assert_eq!(less.memory.peak(class), everything.memory.peak(class), "{}", class);
                }
            }
        }
    }

    /// The total peak of ZeRO-3, layer by layer.
    #[test]
    fn total_of_zero3(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), micro_batches: 1, ..job.with_stage(Stage::Zero3) };
        job.config.tied = false;
        let padded = padded(&job);
        let states = 4 * padded.iter().sum::<u64>() / job.world_size as u64 * F32;
        prop_assert_eq!(ranks(&job)[0].memory.total_peak, states + Letters::of(&job).zero3(&padded));
    }

    /// The total is at least the live bytes at forward's end, and at most the sum of the peaks.
    #[test]
    fn totals_are_bounded(job in jobs()) {
        for stage in Stage::ALL {
            let memory = ranks(&job.with_stage(stage))[0].memory;
            let held: u64 = [Class::Parameters, Class::Gradients, Class::Optimizer, Class::Activations]
                .map(|class| memory.peak(class)).iter().sum();
            prop_assert!(held <= memory.total_peak && memory.total_peak <= memory.peaks.iter().sum());
        }
    }

    /// From the second micro-batch on, nothing about memory changes.
    #[test]
    fn micro_batches_repeat(job in jobs(), bucket in 1u64..5000) {
        for stage in Stage::ALL {
            let with = |micro_batches| {
                let job = Job { micro_batches, reduce_bucket: Some(bucket), ..job.with_stage(stage) };
                ranks(&job)[0].memory
            };
            prop_assert_eq!(with(2), with(7));
        }
    }

    /// Memory grows with sequences and with tokens.
    #[test]
    fn grows_with_the_batch(job in jobs()) {
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let total = |job: &Job| ranks(job)[0].memory.total_peak;
            let wider = Job { batch_size: job.batch_size + 1, ..job.clone() };
            let longer = Job { tokens: job.tokens + 1, ..job.clone() };
            prop_assert!(total(&job) < total(&wider));
            prop_assert!(total(&job) < total(&longer));
        }
    }

    /// The largest micro-batch fits and the next does not.
    #[test]
    fn fit(job in jobs(), capacity in 1_000u64..10_000_000) {
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let total = |batch_size| ranks(&Job { batch_size, ..job.clone() })[0].memory.total_peak;
            let largest = largest_batch_within(&job, [Some(capacity), None, None]).unwrap_or(0);
            prop_assert_eq!(total(job.batch_size) <= capacity, job.batch_size <= largest);
            prop_assert!(largest == 0 || total(largest) <= capacity);
            prop_assert!(total(largest + 1) > capacity);
        }
    }
}
