//! A prediction does in a step what a rank does, in the same order: the same buffers are allocated
//! and freed, the same collectives issued and waited for, between the same passes.

use events::{Class, Event, Pass, Place, Progress, Recording, What};
use prediction::{Action, Stage};
use std::path::Path;
use tests::{STAGES, fixture, train};

const FREE: &str = "free";

fn memory(place: Place, class: Class, delta: i64, live: u64) -> String {
    if delta < 0 {
        return format!("{FREE} {} bytes of {class}, {place}", -delta);
    }
    format!("allocate {delta} bytes of {class}, {place}: {live}")
}

/// Sorts what is freed at once: buffers that go out of scope together are freed in an order that
/// means nothing.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    let runs = lines.chunk_by_mut(|line, next| line.starts_with(FREE) && next.starts_with(FREE));
    runs.for_each(<[String]>::sort);
    lines
}

/// Returns what rank `rank` did in step 1, a line per event.
fn done(file: &Path, rank: u32) -> Vec<String> {
    let recording = Recording::open(file).unwrap();
    let events: Vec<Event> = recording.events().collect::<Result<_, _>>().unwrap();
    let own = events.into_iter().filter(|event| event.rank == rank).map(|event| event.what);
    let step = own
        .skip_while(|what| !matches!(what, What::StepStarted { step: 1 }))
        .take_while(|what| !matches!(what, What::StepFinished { step: 1, .. }));
    let step = step.filter_map(|what| match what {
        What::Memory { place, class, delta, live } => Some(memory(place, class, delta, live)),
        What::Collective(event) => match event.progress {
            Progress::Issued => {
                Some(format!("issue {} of {}, {} bytes", event.operation, event.units, event.bytes))
            }
            Progress::Finished => Some(format!("wait for {} of {}", event.operation, event.units)),
            Progress::Started => None,
        },
        What::PassStarted { pass, unit, micro } => Some(format!("begin {pass} of {unit}, {micro}")),
        What::PassFinished { pass, unit, .. } => Some(format!("end {pass} of {unit}")),
        _ => None,
    });
    sorted(step.collect())
}

/// Returns what a prediction of `stage` with `flags` does in a step, in the same words.
fn predicted(stage: Stage, flags: &str) -> Vec<String> {
    let job = settings::planned::job(stage, &tests::config(flags).unwrap());
    let [_, step] = prediction::scripts(&job).unwrap();
    let (mut issued, mut passes, mut micro) = (Vec::new(), Vec::new(), 0);
    let mut lines = Vec::new();
    let mut piece = (0, 0);
    for action in step.actions {
        match action {
            Action::Memory { place, class, delta, live } => {
                lines.push(memory(place, class, delta, live));
            }
            Action::Issue(call) => {
                lines.push(format!("issue {} of {}, {} bytes", call.operation, call.units, call.bytes));
                issued.push(call);
            }
            Action::Wait { number } => {
                let at = issued.iter().position(|call| call.number == number).unwrap();
                let call = issued.remove(at);
                lines.push(format!("wait for {} of {}", call.operation, call.units));
            }
            Action::MicroBatch { number } => micro = number,
            Action::Begin { pass, unit, .. } => {
                lines.push(format!("begin {pass} of {unit}, {micro}"));
                passes.push((pass, unit));
            }
            Action::End => {
                let (pass, unit) = passes.pop().unwrap();
                lines.push(format!("end {pass} of {unit}"));
            }
            Action::Update { unit, .. } => {
                piece = if piece.0 == unit { (unit, piece.1 + 1) } else { (unit, 1) };
                lines.push(format!("begin {} of {unit}, {}", Pass::Step, piece.1 - 1));
                lines.push(format!("end {} of {unit}", Pass::Step));
            }
        }
    }
    sorted(lines)
}

/// A flag of each kind that changes what a rank does, apart from offload.
const CHOICES: [&str; 4] = [
    "",
    "--grad-accum 3 --precision bf16 --wrap module",
    "--checkpoint-activations block --no-overlap",
    "--checkpoint-activations selective --precision fp16 --reduce-bucket 100000 --sub-group-size 10000",
];

const ZERO3_CHOICES: [&str; 8] = [
    "--strategy shard-grad-op",
    "--strategy hybrid-shard --shard-group-size 2 --grad-accum 2",
    "--strategy hybrid-shard --shard-group-size 2 --precision bf16",
    "--secondary-shard-size 2",
    "--param-persistence-threshold 1000",
    "--backward-prefetch post",
    "--backward-prefetch none --wrap parameter",
    "--prefetch-bucket 300000",
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
        let predicted = predicted(stage, &flags);
        for rank in [0, 2] {
            let done = done(&file, rank);
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
