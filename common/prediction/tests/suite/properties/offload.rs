//! The effects of offload, and the quantities that it does not change.

use super::*;
use events::Place;
use prediction::{Placement, Saving};

fn places() -> impl Strategy<Value = Place> {
    proptest::sample::select(Place::ALL.to_vec())
}

fn placements() -> impl Strategy<Value = Placement> {
    let sub_group = proptest::option::of(1u64..5_000);
    let saving = proptest::sample::select(vec![Saving::Never, Saving::Copying, Saving::Streaming]);
    (places(), places(), places(), proptest::option::of(1u64..6), sub_group, any::<bool>(), saving).prop_map(
        |(optimizer, parameters, activations, buffers, sub_group_size, gathers_states, saving)| Placement {
            optimizer,
            parameters,
            activations,
            buffers,
            sub_group_size,
            gathers_states,
            saving,
        },
    )
}

proptest! {
    #![proptest_config(config())]

    /// The places of states change no collective, and each place holds the bytes of the closed
    /// form.
    #[test]
    fn traffic_and_model_states(job in jobs(), placement in placements(), persistence_threshold in 0u64..2_000) {
        for stage in Stage::ALL {
            let here = Job { persistence_threshold, ..job.with_stage(stage) };
            let mut away = Job { placement, ..here.clone() };
            if stage != Stage::Zero3 {
                away.placement.parameters = Place::Device;
            }
            if job.checkpointing != Checkpointing::Block {
                away.placement.activations = Place::Device;
            }
            let partition = Partition::of(&away);
            let done = RunCounts { steps: 1, skipped: 1, fresh_starts: 1, evaluations: 1, evaluation_batches: 1, checkpoints: 1 };
            for (with, without) in ranks(&away).iter().zip(ranks(&here)) {
                prop_assert_eq!(with.traffic.total(done), without.traffic.total(done), "{}", stage);
                prop_assert_eq!(with.to_neighbours, without.to_neighbours);
                for place in Place::ALL {
                    let memory = with.place(place);
                    for (class, bytes) in partition.model_states_in(&away, place).by_class() {
                        prop_assert_eq!(memory.peak(class), bytes, "{} {} {}", stage, place, class);
                    }
                    prop_assert!(memory.total_peak <= memory.peaks.iter().sum());
                }
            }
        }
    }

    /// With everything on the device, nothing moves, and main memory holds only the weights
    /// gathered for a hash, and the copy or the buffer of a checkpoint.
    #[test]
    fn nothing_leaves_unless_told(job in jobs(), placement in placements()) {
        let device = Place::Device;
        let placement = Placement { optimizer: device, parameters: device, activations: device, ..placement };
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let plain = ranks(&job)[0];
            prop_assert!(plain.host.total_peak == 0 && plain.disk.total_peak == 0);
            let told = ranks(&Job { placement, ..job.clone() })[0];
            prop_assert_eq!(RankPrediction { host: plain.host, ..told }, plain);
            let gathered = if placement.gathers_states { F32 * padded(&job).into_iter().max().unwrap() } else { 0 };
            let pages = |elements: u64| (F32 * elements).next_multiple_of(4096);
            let shards = job.shards();
            let slices = padded(&job).into_iter().map(|padded| if stage == Stage::Ddp { padded } else { padded / shards });
            let parts: Vec<u64> = slices.map(|slice| slice.div_ceil(job.world_size as u64 / shards)).collect();
            let saved = 3 * parts.iter().sum::<u64>();
            let piece = saved.div_ceil(prediction::MIN_STREAM_PIECES).min(prediction::STREAM_BUFFER);
            let expected = match placement.saving {
                Saving::Never => gathered,
                Saving::Copying => pages(saved) + gathered,
                Saving::Streaming => prediction::STREAM_BUFFERS * pages(piece) + gathered,
            };
            prop_assert_eq!(told.host.total_peak, expected, "{}", stage);
            let done = RunCounts { steps: 1, checkpoints: 1, ..RunCounts::default() };
            prop_assert!(told.transfers.total(done).is_none());
        }
    }
}
