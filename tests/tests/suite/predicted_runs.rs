//! A step of a predicted run does what a run does, in the same order: the same buffers are
//! allocated and freed, the same collectives issued and waited for, between the same passes.

use events::event::TransferEvent;
use events::{Class, CollectiveEvent, Event, EventBatch, Message, Operation, Progress, Route, What};
use prediction::Stage;
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view};
use std::collections::BTreeMap;
use tests::{STAGES, fixture, recorded, train};
use timeline::{Calibration, Cluster, Costs, H100, PredictedRun, Software, play};

const FREE: &str = "free";

/// Sorts what is freed at once: buffers that go out of scope together are freed in an order that
/// means nothing.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    let runs = lines.chunk_by_mut(|line, next| line.starts_with(FREE) && next.starts_with(FREE));
    runs.for_each(<[String]>::sort);
    lines
}

/// Returns what rank `rank` did in step 1, a line per event.
fn done(events: &[Event], rank: u32) -> Vec<String> {
    let own = events.iter().filter(|event| event.rank == rank).map(|event| &event.what);
    let step = own
        .skip_while(|what| !matches!(what, What::StepStarted { step: 1 }))
        .take_while(|what| !matches!(what, What::StepFinished { step: 1, .. }));
    sorted(step.filter_map(line).collect())
}

fn line(what: &What) -> Option<String> {
    match what {
        What::Memory { place, class, delta: delta @ ..0, .. } => {
            Some(format!("{FREE} {} bytes of {class}, {place}", -delta))
        }
        What::Memory { place, class, delta, live } => {
            Some(format!("allocate {delta} bytes of {class}, {place}: {live}"))
        }
        What::Collective(CollectiveEvent { progress, operation, group, units, bytes, sent, .. }) => {
            let scalars = *operation == Operation::Scalars;
            match progress {
                Progress::Issued => {
                    Some(format!("issue {operation} of {units}, {bytes} bytes, group {group}"))
                }
                // Setup has exchanged other scalars.
                Progress::Finished if scalars => Some(format!("wait for {operation}")),
                Progress::Finished => Some(format!("wait for {operation} of {units}, {sent} bytes sent")),
                Progress::Started => None,
            }
        }
        What::Transfer(TransferEvent { progress, route, class, unit, bytes, .. }) => {
            let what = format!("{bytes} bytes of {class}, {unit}, {route}");
            match progress {
                Progress::Finished => Some(format!("wait for {what}")),
                _ => Some(format!("move {what}")),
            }
        }
        What::PassStarted { pass, unit, micro } => Some(format!("begin {pass} of {unit}, {micro}")),
        What::PassFinished { pass, unit, micro } => Some(format!("end {pass} of {unit}, {micro}")),
        _ => None,
    }
}

/// Returns a predicted run of three steps of `stage` with `flags`.
fn predicted(stage: Stage, flags: &str) -> PredictedRun {
    let job = settings::planned::job(stage, &tests::config(flags).unwrap());
    let costs = Costs::new(&job, Cluster::of(H100, 2), Software::Fused, Calibration::ALL_RUNS.of(&H100));
    play(&job, &prediction::predict(&job).unwrap(), &costs, 3).unwrap()
}

/// A flag of each kind that changes what a rank does, apart from offloaded states.
const CHOICES: [&str; 5] = [
    "",
    "--grad-accum 3 --precision bf16 --wrap module",
    "--checkpoint-activations block --no-overlap",
    "--checkpoint-activations block --offload-activations cpu",
    "--checkpoint-activations selective --precision fp16 --reduce-bucket 100000 --sub-group-size 10000",
];

const ZERO3_CHOICES: [&str; 9] = [
    "--strategy shard-grad-op",
    "--strategy hybrid-shard --shard-group-size 2 --grad-accum 2",
    "--strategy hybrid-shard --shard-group-size 2 --precision bf16",
    "--secondary-shard-size 2",
    "--param-persistence-threshold 1000",
    "--backward-prefetch post",
    "--backward-prefetch none --wrap parameter",
    "--prefetch-bucket 300000",
    "--checkpoint-activations block --offload-activations disk --grad-accum 2",
];

#[test]
fn a_step_is_predicted_in_order() {
    let flags = CHOICES.map(|flags| STAGES.map(|stage| (stage, flags)));
    let families = ["qwen2", "qwen3", "uneven-tied", "wide-heads"]
        .map(|model| format!("--model {}", fixture(&format!("{model}.json"))));
    let cases = flags.into_iter().flatten().chain(ZERO3_CHOICES.map(|flags| (Stage::Zero3, flags)));
    let cases = cases.chain(families.iter().map(|flags| (Stage::Zero3, flags.as_str())));
    let dir = tempfile::tempdir().unwrap();
    for (stage, flags) in cases {
        let flags = format!("--gpus 4 --steps 3 --batch-size 2 --seq-len 32 --threads 1 {flags}");
        let file = dir.path().join("run");
        train(stage, &format!("{flags} --record {}", file.display())).unwrap();
        let events = [recorded(&file), predicted(stage, &flags).events];
        for rank in 0..4 {
            let [done, predicted] = events.each_ref().map(|events| done(events, rank));
            assert!(done.len() > 100, "{stage} {flags}: {} events", done.len());
            let differs = done.iter().zip(&predicted).position(|(done, predicted)| done != predicted);
            let at = differs.unwrap_or(done.len().min(predicted.len()));
            assert_eq!(
                done.get(at),
                predicted.get(at),
                "{stage} {flags}, rank {rank}: after {:?}",
                &done[at.saturating_sub(4)..at]
            );
        }
    }
}

/// Flags by which states are stored elsewhere, in units of several pieces.
const STATES: [&str; 11] = [
    "--offload-optimizer cpu",
    "--offload-optimizer cpu --precision bf16 --grad-accum 2",
    "--offload-optimizer disk",
    "--offload-optimizer disk --precision bf16 --no-overlap",
    "--offload-optimizer cpu --offload-parameters cpu --grad-accum 2",
    "--offload-optimizer disk --offload-parameters disk",
    "--offload-optimizer cpu --offload-parameters disk --precision bf16 --grad-accum 2",
    "--offload-parameters cpu --offload-buffers 2",
    "--offload-parameters disk --offload-optimizer disk --param-persistence-threshold 1000",
    "--offload-parameters cpu --offload-optimizer cpu --secondary-shard-size 2 --wrap module",
    "--offload-parameters disk --offload-optimizer cpu --strategy shard-grad-op --grad-accum 2",
];

/// Returns the transfers that rank 0 finished in its steps, by route and class, in order.
fn moved(events: &[Event]) -> BTreeMap<(Route, Class), Vec<(u16, u64)>> {
    let mut moved: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let own = events.iter().filter(|event| event.rank == 0).map(|event| &event.what);
    let steps = own.skip_while(|what| !matches!(what, What::StepStarted { step: 0 }));
    for what in steps.take_while(|what| !matches!(what, What::StepFinished { step: 2, .. })) {
        if let What::Transfer(TransferEvent {
            progress: Progress::Finished, route, class, unit, bytes, ..
        }) = *what
        {
            moved.entry((route, class)).or_default().push((unit, bytes));
        }
    }
    moved
}

/// Every transfer of a run is predicted, in the order of its route. What overlaps depends on times.
#[test]
fn transfers_of_a_run_are_predicted() {
    let dir = tempfile::tempdir().unwrap();
    for (stage, flags) in STATES.iter().flat_map(|flags| STAGES.map(|stage| (stage, flags))) {
        let flags = format!(
            "--gpus 2 --steps 3 --batch-size 2 --seq-len 32 --threads 1 --sub-group-size 50000 {flags}"
        );
        if flags.contains("parameters") && stage != Stage::Zero3 {
            continue;
        }
        let (file, swap) = (dir.path().join("run"), dir.path().join("swap"));
        std::fs::create_dir_all(&swap).unwrap();
        let real = format!("{flags} --record {} --offload-dir {}", file.display(), swap.display());
        let real = if flags.contains("disk") { real } else { format!("{flags} --record {}", file.display()) };
        train(stage, &real).unwrap();
        let [real, predicted] =
            [recorded(&file), predicted(stage, &flags).events].map(|events| moved(&events));
        assert_eq!(real, predicted, "{stage} {flags}");
    }
}

/// A predicted run has no loss, and its screen says so in place of numbers.
#[test]
fn a_predicted_run_is_watched_like_any_other() {
    let PredictedRun { header, events } = predicted(Stage::Zero3, "--gpus 4");
    let mut timeline = Timeline::live(header, "");
    timeline.push(Message::Batch(EventBatch { dropped: 0, events }));
    timeline.push(Message::End);
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Recording);
    for part in [0.0, 0.3, 0.7, 1.0] {
        app.players[0].set_motion(Motion::Paused);
        app.players[0].seek_into_step(1, part);
        for view in View::ALL {
            app.view = view;
            let picture = view::picture(&app, Theme::FULL, 120, 40);
            let text: String = picture.content.iter().map(|cell| cell.symbol()).collect();
            assert!(
                !text.contains("NaN") && !text.contains("measured") && text.contains("predicted"),
                "{}: {text}",
                view.label()
            );
            if view == View::Overview {
                assert!(text.contains("a predicted run learns nothing"), "{text}");
            }
        }
    }
}
