//! One sentence about what is happening now, in the field's terms.

use crate::player::Scene;
use crate::{failure, groups, places, words};
use events::units::GatherState;
use events::{
    Class, Flight, Hop, Operation, Pass, PassNow, Place, RankSnapshot, RankStatus, Route, Scaling,
    TransferEvent,
};

/// Returns a sentence about `scene`. It has at most `room` characters unless even the shortest form
/// is longer.
pub fn sentence(scene: &Scene, room: usize) -> String {
    if let Some(sentence) = ending(scene).or_else(|| skipped(scene)).or_else(|| waiting(scene)) {
        return sentence;
    }
    let ranks = &scene.now.ranks;
    let leader = leading_collective(scene);
    let pass = ranks.iter().find_map(|rank| rank.pass);
    let moving = transfer(scene, false).map(|(head, _)| format!("; {head}"));
    let travels = moving.is_some();
    let (main, more) = match (leader, pass) {
        (Some(flight), Some(pass)) => {
            (collective(scene, &flight), moving.unwrap_or_else(|| format!("; {}", computing(scene, pass))))
        }
        (Some(flight), None) => (collective(scene, &flight), moving.unwrap_or_default()),
        (None, Some(pass)) => {
            let note = pass_note(scene, pass).to_string();
            let more = moving.filter(|_| pass.pass != Pass::Step).unwrap_or(note);
            (capitalised(&computing(scene, pass)), more)
        }
        (None, None) => match transfer(scene, true) {
            Some((head, detail)) => (capitalised(&format!("{head}: {detail}")), String::new()),
            None => return between(scene),
        },
    };
    fitting(&main, &more, travels, room)
}

/// Returns the longest form that fits: complete, without the computation, without the bytes,
/// without the explanation. A transfer between places counts more than the bytes.
fn fitting(main: &str, more: &str, travels: bool, room: usize) -> String {
    let plain = main.rsplit_once(" (").map_or(main, |(plain, _)| plain);
    let head = main.split(':').next().unwrap_or(main);
    let name = head.split(',').next().unwrap_or(head);
    let mut all = [main, plain, head, name].map(|form| format!("{form}.")).to_vec();
    all.insert(0, format!("{main}{more}."));
    if travels {
        all.splice(1..1, [format!("{plain}{more}."), format!("{head}{more}.")]);
    }
    let fits = all.iter().find(|sentence| sentence.chars().count() <= room);
    fits.or(all.last()).cloned().unwrap_or_default()
}

fn ending(scene: &Scene) -> Option<String> {
    if let Some(failure) = failure::shown(&scene.now) {
        return Some(failure.message.lines().next().unwrap_or("a rank failed").to_string());
    }
    let ranks = &scene.now.ranks;
    let all = ranks.iter().all(|rank| rank.status == RankStatus::Finished);
    all.then(|| "The run is over: every rank has finished its last step.".into())
}

/// Returns the most important collective in flight: one that moves data rather than one that is
/// only issued. Scalars never count.
fn leading_flight(rank: &RankSnapshot) -> Option<Flight> {
    let data = |flight: &&Flight| !flight.event.units.is_empty();
    let moving = rank.flights.iter().filter(data).find(|flight| flight.started.is_some());
    moving.or_else(|| rank.flights.iter().find(data)).cloned()
}

/// Returns the collective to narrate: the first of all ranks' leading flights that moves, else the
/// first that is issued.
pub fn leading_collective(scene: &Scene) -> Option<Flight> {
    let flights = scene.now.ranks.iter().filter_map(leading_flight);
    flights.min_by_key(|flight| (flight.started.is_none(), flight.event.sequence))
}

/// True if a rank computes nothing and its oldest collective in flight moves no data. An all-gather
/// does not count while the rank holds another gathered unit: it can compute with that one.
pub fn stuck(rank: &RankSnapshot) -> bool {
    let gathered = || rank.units.units.iter().any(|unit| unit.gather == GatherState::Gathered);
    let ahead = |flight: &Flight| flight.event.operation == Operation::AllGather && gathered();
    let still = |flight: &Flight| flight.started.is_none() && !ahead(flight);
    rank.pass.is_none() && rank.flights.first().is_some_and(still)
}

/// Returns a sentence about ranks that wait in a collective for ranks that have not issued it;
/// `None` if no rank waits.
fn waiting(scene: &Scene) -> Option<String> {
    let ranks = &scene.now.ranks;
    let waiting: Vec<usize> = (0..ranks.len()).filter(|&rank| stuck(&ranks[rank])).collect();
    let event = &ranks.get(*waiting.first()?)?.flights.first()?.event;
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
    if flight.event.units.is_empty() {
        return match flight.event.operation {
            Operation::Scalars => "exchange of scalars".into(),
            other => other.label().into(),
        };
    }
    let units = words::units(&scene.header, &flight.event.units);
    format!("{} of {units}", flight.event.operation)
}

/// Explains a collective in flight, and says so if it has not begun to move data.
fn collective(scene: &Scene, flight: &Flight) -> String {
    let explained = explained(scene, flight);
    let moves = groups::members(&groups::beside(&scene.now, flight.event.group)) > 1;
    match explained.split_once(": ") {
        _ if flight.started.is_some() || !moves => explained,
        Some((name, explanation)) => format!("{name}, not begun: {explanation}"),
        None => format!("{explained}, not begun"),
    }
}

/// Explains what a collective moves.
fn explained(scene: &Scene, flight: &Flight) -> String {
    let units = words::units(&scene.header, &flight.event.units);
    let groups = groups::beside(&scene.now, flight.event.group);
    let whole = words::bytes(flight.event.bytes);
    let slice = words::bytes(groups::slice(&groups, flight.event.bytes));
    let members = groups::members(&groups);
    let (others, among, kept) = if groups.len() > 1 {
        ("its group", format!(" in groups of {members}"), format!("r mod {members}"))
    } else {
        ("the others", String::new(), "r".into())
    };
    if members == 1 {
        let all = if groups.len() > 1 { "its group" } else { "the run" };
        let name = capitalised(flight.event.operation.label());
        return format!("{name} of {units}: nothing moves, since {all} has one rank ({whole})");
    }
    if let Some(hop) = hop(scene, flight, members) {
        return format!("{} of {units}{among}, {hop} ({slice})", capitalised(flight.event.operation.label()));
    }
    match flight.event.operation {
        Operation::AllReduce if !groups::are_neighbours(&groups) => {
            format!("All-reduce of {units} across groups: the owners of each slice sum it ({whole})")
        }
        Operation::AllGather if scene.header.sharded.parameters => {
            format!("All-gather of {units}: every rank sends its slice ({slice}) to {others}")
        }
        Operation::AllGather => {
            format!("All-gather of {units}: every rank sends its updated slice ({slice})")
        }
        Operation::ReduceScatter => {
            format!("Reduce-scatter of {units}{among}: rank r keeps the sum of slice {kept} ({slice})")
        }
        Operation::AllReduce => {
            format!("All-reduce of {units}: every rank gets the gradients' sum ({whole})")
        }
        Operation::Broadcast => format!("Broadcast of {units}: one rank sends its copy to all others"),
        other => format!("{} of {units}", capitalised(other.label())),
    }
}

/// Returns the current hop of a ring collective among `members` ranks: the furthest hop of the
/// ranks that have not finished it.
fn hop(scene: &Scene, flight: &Flight, members: usize) -> Option<String> {
    let key = (flight.event.group, flight.event.sequence);
    let moving = |(rank, state): (usize, &RankSnapshot)| {
        let hop = state.last_hop.filter(|hop| (hop.group, hop.sequence) == key)?;
        let flies = |flight: &Flight| (flight.event.group, flight.event.sequence) == key;
        state.flights.iter().any(flies).then_some((rank, hop))
    };
    let hops = scene.now.ranks.iter().enumerate().filter_map(moving);
    let (from, hop) = hops.max_by_key(|(rank, hop)| (hop.number, usize::MAX - rank))?;
    let rounds = if flight.event.operation == Operation::AllReduce { 2 } else { 1 };
    let all = rounds * (members - 1);
    let Hop { chunk, to, number, .. } = hop;
    (scene.header.algorithm == "ring")
        .then(|| format!("slice {chunk}: rank {from} → rank {to}, hop {number} of {all}"))
}

/// Returns the transfer to narrate and its reason. If the ranks are `waiting`, it is the oldest
/// arriving transfer, else the one that was issued last.
fn transfer(scene: &Scene, waiting: bool) -> Option<(String, String)> {
    let flights = || {
        let ranks = scene.now.ranks.iter();
        ranks.flat_map(|rank| rank.transfers.flights.iter().map(move |flight| (rank, flight)))
    };
    let arriving = || flights().find(|(_, flight)| !flight.event.route.leaves());
    let latest = || flights().max_by_key(|(_, flight)| flight.issued);
    let (rank, flight) = if waiting { arriving().or_else(latest)? } else { latest()? };
    let this_step = rank.last_pass.filter(|last| last.since >= rank.step_started);
    let updating = rank.pass.or(this_step).is_some_and(|pass| pass.pass == Pass::Step);
    let (head, detail) = travelling(scene, &flight.event, updating);
    Some((head, format!("{detail} ({})", words::bytes(flight.event.bytes))))
}

/// Returns the buffer that a transfer moves and the reason.
fn travelling(scene: &Scene, event: &TransferEvent, updating: bool) -> (String, &'static str) {
    let offload = &scene.header.offload;
    let unit = places::unit(&scene.header, event);
    let to = places::name(event.route.to());
    match (event.class, event.route) {
        (Class::Optimizer, Route::DiskToHost) => (
            format!("optimizer states of {unit} come from disk"),
            "their update takes them piece by piece through buffers in main memory",
        ),
        (Class::Optimizer, _) => (
            format!("updated optimizer states of {unit} return to {to}"),
            "the buffers are free for the next piece then",
        ),
        (Class::Gradients, _) if offload.place(Class::Gradients) == Place::Host => (
            format!("summed gradients of {unit} follow the optimizer states"),
            "they stay in main memory until the update",
        ),
        (Class::Gradients, _) => {
            (format!("gradients of {unit} come to {to}"), "its optimizer states are updated there")
        }
        (Class::Activations, Route::DeviceToHost | Route::HostToDisk) => {
            (format!("activations of {unit} leave for {to}"), "they come back for its backward")
        }
        (Class::Activations, _) => {
            (format!("activations of {unit} come back to {to}"), "its backward needs them")
        }
        (_, Route::DeviceToHost | Route::HostToDisk) => {
            (format!("updated parameters of {unit} leave for {to}"), "they stay there until they are needed")
        }
        _ if updating && offload.place(Class::Optimizer) != Place::Device => {
            (format!("updated parameters of {unit} return to {to}"), "the next step needs them there")
        }
        _ if updating => (format!("parameters of {unit} come to {to}"), "the device updates them there"),
        (_, Route::DiskToHost) => {
            (format!("the shard of {unit} comes from disk"), "through a buffer in main memory to the device")
        }
        _ => (format!("the shard of {unit} comes to the device"), "its all-gather follows"),
    }
}

fn computing(scene: &Scene, pass: PassNow) -> String {
    let unit = words::unit(&scene.header, pass.unit);
    match pass.pass {
        Pass::Forward => format!("forward runs through {unit}"),
        Pass::Backward => format!("backward runs through {unit}"),
        Pass::Step if scene.header.offload.place(Class::Optimizer) != Place::Device => {
            format!("AdamW updates {unit} in main memory")
        }
        Pass::Step => format!("AdamW updates {unit}"),
        Pass::Evaluate => format!("validation runs through {unit}"),
        Pass::Recompute => format!("{unit} recomputes what its forward did not keep"),
    }
}

fn pass_note(scene: &Scene, pass: PassNow) -> &'static str {
    let sharded = scene.header.sharded;
    let alone = scene.now.ranks.len() == 1;
    match pass.pass {
        Pass::Forward => " and keeps its activations for backward",
        Pass::Backward if sharded.gradients => ", whose full gradients wait in a bucket for reduction",
        Pass::Backward if alone => "",
        Pass::Backward => ", whose gradients every rank keeps whole",
        Pass::Step if scene.header.offload.place(Class::Optimizer) == Place::Disk => {
            ": piece by piece, while the next piece comes from disk and the last one returns"
        }
        Pass::Step if scene.header.offload.place(Class::Optimizer) == Place::Host => {
            ": its optimizer states stay there and never move"
        }
        Pass::Step if alone => "",
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
        Some(last) if !rank.in_step && last.pass != Pass::Evaluate => done(rank),
        Some(last) if rank.in_step && last.since < rank.step_started => format!("Step {} begins.", rank.step),
        Some(last) => {
            let unit = words::unit(&scene.header, last.unit);
            format!("{} of {unit} is done.", capitalised(words::pass(last.pass)))
        }
    }
}

/// Returns a sentence if rank 0 has skipped the step that it finished last, until it begins the
/// next. Other ranks may already compute the next step.
fn skipped(scene: &Scene) -> Option<String> {
    let rank = scene.now.ranks.first().filter(|rank| !rank.in_step && rank.pass.is_none())?;
    let validated = rank.last_pass.is_some_and(|last| last.pass == Pass::Evaluate);
    let overflowed = rank.scaling.is_some_and(|scaling| scaling.overflowed);
    (overflowed && !validated && rank.flights.is_empty()).then(|| done(rank))
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
