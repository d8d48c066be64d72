//! One sentence about what is happening now, in the field's terms.

use crate::groups;
use crate::player::Scene;
use crate::words;
use events::event::NO_UNIT;
use events::units::GatherState;
use events::{Flight, Operation, Pass, PassNow, RankSnapshot, RankStatus, Scaling};

/// Returns a sentence about `scene`. It has at most `room` characters unless even the shortest form
/// is longer.
pub fn sentence(scene: &Scene, room: usize) -> String {
    if let Some(sentence) = ending(scene).or_else(|| waiting(scene)) {
        return sentence;
    }
    let ranks = &scene.now.ranks;
    let leader = leading_collective(scene);
    let pass = ranks.iter().find_map(|rank| rank.pass);
    let (main, more) = match (leader, pass) {
        (Some(flight), Some(pass)) => (collective(scene, &flight), format!("; {}", computing(scene, pass))),
        (Some(flight), None) => (collective(scene, &flight), String::new()),
        (None, Some(pass)) => (capitalised(&computing(scene, pass)), pass_note(scene, pass).to_string()),
        (None, None) => return between(scene),
    };
    fitting(&main, &more, room)
}

/// Returns the longest form that fits: all, without the computation, without the bytes, without the
/// explanation.
fn fitting(main: &str, more: &str, room: usize) -> String {
    let plain = main.rsplit_once(" (").map_or(main, |(plain, _)| plain);
    let head = main.split(':').next().unwrap_or(main);
    let all = [format!("{main}{more}."), format!("{main}."), format!("{plain}."), format!("{head}.")];
    let fits = all.iter().find(|sentence| sentence.chars().count() <= room);
    fits.unwrap_or(&all[3]).clone()
}

fn ending(scene: &Scene) -> Option<String> {
    if let Some((_, message)) = &scene.now.failure {
        return Some(message.lines().next().unwrap_or("a rank failed").to_string());
    }
    let ranks = &scene.now.ranks;
    let all = ranks.iter().all(|rank| rank.status == RankStatus::Finished);
    all.then(|| "The run is over: every rank has finished its last step.".into())
}

/// Returns the most important collective in flight: one that moves data rather than one that is
/// only issued, never scalars.
fn leading_flight(rank: &RankSnapshot) -> Option<Flight> {
    let data = |flight: &&Flight| flight.event.unit != NO_UNIT;
    let moving = rank.flights.iter().filter(data).find(|flight| flight.started.is_some());
    moving.or_else(|| rank.flights.iter().find(data)).copied()
}

/// Returns the collective to narrate: the first of all ranks' leading flights that moves, else the
/// first that is issued.
pub fn leading_collective(scene: &Scene) -> Option<Flight> {
    let flights = scene.now.ranks.iter().filter_map(leading_flight);
    flights.min_by_key(|flight| (flight.started.is_none(), flight.event.sequence))
}

/// True if a rank computes nothing and its oldest collective in flight does not move. An all-gather
/// does not count while the rank holds another gathered unit: it can compute with that one.
pub fn stuck(rank: &RankSnapshot) -> bool {
    let gathered = || rank.units.units.iter().any(|unit| unit.gather == GatherState::Gathered);
    let ahead = |flight: &Flight| flight.event.operation == Operation::AllGather && gathered();
    let still = |flight: &Flight| flight.started.is_none() && !ahead(flight);
    rank.pass.is_none() && rank.flights.first().is_some_and(still)
}

/// Returns a sentence about ranks that wait in a collective for ranks that have not issued it, if
/// there are any.
fn waiting(scene: &Scene) -> Option<String> {
    let ranks = &scene.now.ranks;
    let waiting: Vec<usize> = (0..ranks.len()).filter(|&rank| stuck(&ranks[rank])).collect();
    let event = ranks.get(*waiting.first()?)?.flights.first()?.event;
    let groups = groups::beside(&scene.now, event.group);
    let members = &groups::of_rank(&groups, waiting[0])?.ranks;
    let waiting: Vec<usize> = waiting.into_iter().filter(|rank| members.contains(rank)).collect();
    let flight = ranks[waiting[0]].flights.first()?;
    let late = |rank: &&usize| !ranks[**rank].has_issued(event.group, event.sequence);
    let late: Vec<usize> = members.iter().filter(late).copied().collect();
    if late.is_empty() || late.len() == members.len() {
        return None;
    }
    let verb = if waiting.len() == 1 { "waits" } else { "wait" };
    let what = name(scene, flight);
    Some(format!("{} {verb} for {} in the {what}.", capitalised(&listed(&waiting)), listed(&late)))
}

/// Lists ranks: `rank 2`, `ranks 1, 3`, `7 ranks`.
pub fn listed(ranks: &[usize]) -> String {
    match ranks {
        [only] => format!("rank {only}"),
        many if ranks.len() > 4 => format!("{} ranks", many.len()),
        many => {
            let numbers: Vec<String> = many.iter().map(usize::to_string).collect();
            format!("ranks {}", numbers.join(", "))
        }
    }
}

/// Returns the name of a collective: `all-gather of block 2`.
pub fn name(scene: &Scene, flight: &Flight) -> String {
    if flight.event.unit == NO_UNIT {
        return match flight.event.operation {
            Operation::Scalars => "exchange of scalars".into(),
            other => other.label().into(),
        };
    }
    format!(
        "{} of {}",
        flight.event.operation,
        words::units(&scene.header, flight.event.unit, flight.event.units)
    )
}

fn collective(scene: &Scene, flight: &Flight) -> String {
    let units = words::units(&scene.header, flight.event.unit, flight.event.units);
    let groups = groups::beside(&scene.now, flight.event.group);
    let slice = words::bytes(groups::slice(&groups, flight.event.bytes));
    let (others, among) = if groups.len() > 1 {
        ("its group", format!(" in groups of {}", groups::members(&groups)))
    } else {
        ("the others", String::new())
    };
    match flight.event.operation {
        Operation::AllReduce if !groups::are_neighbours(&groups) => {
            let whole = words::bytes(flight.event.bytes);
            format!("All-reduce of {units} across groups: the owners of each slice sum it ({whole})")
        }
        Operation::AllGather if scene.header.sharded.parameters => {
            format!("All-gather of {units}: every rank sends its slice ({slice}) to {others}")
        }
        Operation::AllGather => {
            format!("All-gather of {units}: every rank sends its updated slice ({slice})")
        }
        Operation::ReduceScatter => {
            format!("Reduce-scatter of {units}{among}: rank r keeps the sum of slice r ({slice})")
        }
        Operation::AllReduce => {
            let whole = words::bytes(flight.event.bytes);
            format!("All-reduce of {units}: every rank gets the gradients' sum ({whole})")
        }
        Operation::Broadcast => format!("Broadcast of {units}: one rank sends its copy to all others"),
        other => format!("{} of {units}", capitalised(other.label())),
    }
}

fn computing(scene: &Scene, pass: PassNow) -> String {
    let unit = words::unit(&scene.header, pass.unit);
    match pass.pass {
        Pass::Forward => format!("forward runs through {unit}"),
        Pass::Backward => format!("backward runs through {unit}"),
        Pass::Step => format!("AdamW updates {unit}"),
        Pass::Evaluate => format!("validation runs through {unit}"),
        Pass::Recompute => format!("{unit} recomputes what its forward did not keep"),
    }
}

fn pass_note(scene: &Scene, pass: PassNow) -> &'static str {
    let sharded = scene.header.sharded;
    match pass.pass {
        Pass::Forward => " and keeps its activations for backward",
        Pass::Backward if sharded.gradients => ", whose full gradients wait in a bucket for reduction",
        Pass::Backward => ", whose gradients every rank keeps whole",
        Pass::Step if sharded.optimizer => ": each rank only the slice whose optimizer states it owns",
        Pass::Step => ": every rank does the same work on the same numbers",
        Pass::Evaluate => "; nothing is kept",
        Pass::Recompute => ", because its backward needs it",
    }
}

fn between(scene: &Scene) -> String {
    let now = &scene.now;
    let Some(rank) = now.ranks.first().filter(|_| now.events > 0) else {
        return "Nothing has happened yet.".into();
    };
    if let Some(flight) = rank.flights.first() {
        return format!("{} over all ranks: losses, norms, checks.", capitalised(&name(scene, flight)));
    }
    match rank.last_pass {
        None if rank.in_step => format!("Step {} begins.", rank.step),
        None => "The ranks set up: parameters, gradients and optimizer states are allocated.".into(),
        Some(_) if !rank.in_step => done(rank),
        Some(last) => {
            let unit = words::unit(&scene.header, last.unit);
            format!("{} of {unit} is done.", capitalised(words::pass(last.pass)))
        }
    }
}

fn done(rank: &RankSnapshot) -> String {
    let step = rank.step;
    match rank.scaling.filter(|scaling| scaling.overflowed) {
        Some(Scaling { scale, .. }) => format!(
            "Step {step} is skipped: its gradients overflowed with the loss multiplied by {}.",
            words::grouped(scale as u64)
        ),
        None => format!("Step {step} is done."),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
