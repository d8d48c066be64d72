//! Watching a run changes nothing, and the watched events add up to the report.

use events::{Event, Pass, Recording, What};
use prediction::{Job, Partition, Stage};
use std::path::Path;
use tests::{STAGES, losses, train};

const RUN: &str = "--gpus 4 --steps 4 --batch-size 2 --seq-len 32 --threads 1";

fn recorded(file: &Path) -> Recording {
    Recording::open(file).unwrap()
}

fn events(recording: &Recording) -> Vec<Event> {
    recording.events().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_recorded_run_learns_the_same_bits_and_its_events_add_up_to_the_report() {
    let dir = tempfile::tempdir().unwrap();
    for stage in STAGES {
        let plain = train(stage, RUN).unwrap();
        let file = dir.path().join(stage.package());
        let report = train(stage, &format!("{RUN} --record {}", file.display())).unwrap();
        assert_eq!(losses(&plain), losses(&report), "{stage}");
        assert_eq!(plain.weights_blake3, report.weights_blake3, "{stage}");

        let recording = recorded(&file);
        assert!(recording.is_complete());
        assert_eq!(recording.header().stage, report.stage.label());
        let events = events(&recording);
        let loss = |what: &What| match what {
            What::StepFinished { loss, .. } => Some(*loss),
            _ => None,
        };
        let rank_0 = events.iter().filter(|event| event.rank == 0);
        assert_eq!(rank_0.filter_map(|event| loss(&event.what)).collect::<Vec<_>>(), losses(&report));
        let mut finished = 0;
        for event in &events {
            let What::Finished { peaks, total_peak, sent } = &event.what else { continue };
            finished += 1;
            let rank = event.rank as usize;
            assert_eq!(*total_peak, report.total_peak_bytes[rank].peak_bytes);
            for row in report.memory.iter().filter(|row| row.rank == rank) {
                assert_eq!(peaks[row.class.index()], row.peak_bytes, "{stage}, rank {rank}, {}", row.class);
            }
            for row in report.traffic.iter().filter(|row| row.rank == rank) {
                assert_eq!(
                    sent[row.operation.index()],
                    row.bytes_sent,
                    "{stage}, rank {rank}, {}",
                    row.operation
                );
            }
        }
        assert_eq!(finished, 4, "{stage}");
    }
}

/// The optimizer updates a rank's slices in pieces of the requested size, and shows each piece.
#[test]
fn updates_go_in_pieces_of_the_size_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    let slices = |stage| {
        let units = Partition::of(&Job::new(stages::config("").unwrap().model, stage, 4)).units;
        units.into_iter().map(|unit| unit.padded / 4)
    };
    for (flags, size) in [("", u64::MAX), ("--sub-group-size 10000", 10_000)] {
        let expected: u64 = slices(Stage::Zero3).map(|slice| slice.div_ceil(size)).sum();
        train(Stage::Zero3, &format!("{RUN} {flags} --record {}", file.display())).unwrap();
        let pieces = events(&recorded(&file)).into_iter().filter(|event| {
            event.rank == 3 && matches!(event.what, What::PassStarted { pass: Pass::Step, .. })
        });
        assert_eq!(pieces.count() as u64, 4 * expected, "four steps {flags}");
    }
}

/// The events about validations and the loss scale agree with the report.
#[test]
fn validations_and_scales_are_told_as_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    let flags = format!(
        "{RUN} --precision fp16 --initial-scale-power 10 --hysteresis 1 --inject overflow@rank1,step1 \
         --val-fraction 0.1 --eval-every 2 --eval-batches 1 --record {}",
        file.display()
    );
    let report = train(Stage::Zero2, &flags).unwrap();
    let (mut scales, mut validations) = (Vec::new(), Vec::new());
    for event in events(&recorded(&file)).into_iter().filter(|event| event.rank == 2) {
        match event.what {
            What::LossScale { step, scale, skipped } => scales.push((step, Some(scale), skipped)),
            What::Evaluated { step, loss } => validations.push((step, loss)),
            _ => {}
        }
    }
    let mut skipped = 0;
    let told: Vec<_> = report
        .steps
        .iter()
        .map(|row| {
            skipped += u32::from(row.skipped);
            (row.step, row.loss_scale, skipped)
        })
        .collect();
    assert_eq!(scales, told);
    assert_eq!(told.iter().map(|row| row.1).collect::<Vec<_>>(), [1024.0, 1024.0, 512.0, 512.0].map(Some));
    assert_eq!((told[3].2, report.skipped_steps), (1, 1));
    let evaluated: Vec<_> = report.evaluations.iter().map(|row| (row.step, row.loss)).collect();
    assert_eq!((validations.len(), validations), (2, evaluated));
}
