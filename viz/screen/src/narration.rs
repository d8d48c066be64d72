//! One sentence about what is happening now, in the field's terms.

use crate::groups::RankGroup;
use crate::player::Scene;
use crate::{failure, fit, groups, places, words};
use events::units::GatherState;
use events::{
    Class, Flight, Hop, Operation, Pass, PassNow, Place, RankSnapshot, RankStatus, Route, Scaling,
    TransferEvent,
};

/// The parts of a sentence about a collective, a transfer or a pass. All but the name may be empty;
/// each brings the punctuation before it.
#[derive(Default)]
struct Sentence {
    /// What moves or is computed: `All-gather of block 2`.
    name: String,
    /// The slice that a ring sends: `, slice 3`.
    hop: String,
    /// Whether it has begun: `, not begun`.
    state: &'static str,
    /// Where it goes or why: `: every rank sends its slice`.
    why: String,
    /// The bytes, and where each rank sends them: ` (4.2 MB) to the others`.
    bytes: String,
    /// What else happens: `; forward runs through block 1`.
    more: String,
    /// Whether `more` is a transfer between places, which counts more than the bytes.
    travels: bool,
}

impl Sentence {
    /// Returns the sentence's forms, from the longest to the shortest: full, without what else
    /// happens, without the bytes, without the reason, the name alone.
    fn forms(&self) -> Vec<String> {
        let Sentence { name, hop, state, why, bytes, more, travels } = self;
        let head = format!("{name}{hop}{state}");
        let (plain, whole) = (format!("{head}{why}"), format!("{head}{why}{bytes}"));
        let mut forms = vec![format!("{whole}{more}.")];
        if *travels {
            forms.extend([format!("{plain}{more}."), format!("{head}{more}.")]);
        }
        forms.extend([&whole, &plain, &head, name].map(|form| format!("{form}.")));
        forms
    }
}

/// Returns a sentence about `scene`. It takes at most `room` columns unless even the shortest form
/// is longer.
pub fn sentence(scene: &Scene, room: u16) -> String {
    let single = ending(scene).or_else(|| skipped(scene)).or_else(|| waiting(scene));
    let forms = match single {
        Some(sentence) => return sentence,
        None => happening(scene).map_or_else(|| vec![between(scene)], |sentence| sentence.forms()),
    };
    let fits = fit::fitting(&forms, room);
    if fits.is_empty() { forms.into_iter().last().unwrap_or_default() } else { fits.into() }
}

/// Returns a sentence about the collective, the pass and the transfer in progress; `None` if there
/// are none.
fn happening(scene: &Scene) -> Option<Sentence> {
    let leader = leading_collective(scene);
    let pass = scene.now.ranks.iter().find_map(|rank| rank.pass);
    let moving = transfer(scene, false).map(|moving| format!("; {}", moving.head));
    let travels = moving.is_some();
    let (main, more) = match (leader, pass) {
        (Some(flight), Some(pass)) => {
            let computing = || format!("; {}", computing(scene, pass));
            (collective(scene, &flight), moving.unwrap_or_else(computing))
        }
        (Some(flight), None) => (collective(scene, &flight), moving.unwrap_or_default()),
        (None, Some(pass)) => {
            let note = pass_note(scene, pass).to_string();
            let more = moving.filter(|_| pass.pass != Pass::Step).unwrap_or(note);
            (Sentence { name: capitalised(&computing(scene, pass)), ..Sentence::default() }, more)
        }
        (None, None) => {
            let Moving { head, why, bytes } = transfer(scene, true)?;
            let (why, bytes) = (format!(": {why}"), format!(" ({})", words::bytes(bytes)));
            let main = Sentence { name: capitalised(&head), why, bytes, ..Sentence::default() };
            (main, String::new())
        }
    };
    Some(Sentence { more, travels, ..main })
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
    let groups = groups::created_with(&scene.now, event.group);
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

/// Explains what a collective in flight moves, and says so if it has not begun to move data.
fn collective(scene: &Scene, flight: &Flight) -> Sentence {
    let groups = groups::created_with(&scene.now, flight.event.group);
    let moves = groups::members(&groups) > 1;
    let state = if flight.started.is_some() || !moves { "" } else { ", not begun" };
    Sentence { state, ..explained(scene, flight, &groups) }
}

/// Explains what a collective of one of `groups` moves.
fn explained(scene: &Scene, flight: &Flight, groups: &[RankGroup]) -> Sentence {
    let operation = flight.event.operation;
    let units = words::units(&scene.header, &flight.event.units);
    let whole = format!(" ({})", words::bytes(flight.event.bytes));
    let slice = format!(" ({})", words::bytes(groups::slice(groups, flight.event.bytes)));
    let members = groups::members(groups);
    let (others, among, kept) = if groups.len() > 1 {
        ("its group", format!(" in groups of {members}"), format!("r mod {members}"))
    } else {
        ("the others", String::new(), "r".into())
    };
    let of = |among: &str, why: &str, bytes: String| {
        let name = format!("{} of {units}{among}", capitalised(operation.label()));
        Sentence { name, why: why.into(), bytes, ..Sentence::default() }
    };
    if members == 1 {
        let all = if groups.len() > 1 { "its group" } else { "the run" };
        return of("", &format!(": nothing moves, since {all} has one rank"), whole);
    }
    if let Some((hop, why)) = hop(scene, flight, members) {
        return Sentence { hop, ..of(&among, &why, slice) };
    }
    match operation {
        Operation::AllReduce if !groups::are_neighbours(groups) => {
            of(" across groups", ": the owners of each slice sum it", whole)
        }
        Operation::AllGather if scene.header.sharded.parameters => {
            of("", ": every rank sends its slice", format!("{slice} to {others}"))
        }
        Operation::AllGather => of("", ": every rank sends its updated slice", slice),
        Operation::ReduceScatter => of(&among, &format!(": rank r keeps the sum of slice {kept}"), slice),
        Operation::AllReduce => of("", ": every rank gets the gradients' sum", whole),
        Operation::Broadcast => of("", ": one rank sends its copy to all others", String::new()),
        _ => of("", "", String::new()),
    }
}

/// Returns the current hop of a ring collective among `members` ranks: the furthest hop of the
/// ranks that have not finished it. The first part names the slice, the second says where it goes.
fn hop(scene: &Scene, flight: &Flight, members: usize) -> Option<(String, String)> {
    let key = (flight.event.group, flight.event.sequence);
    let moving = |(rank, state): (usize, &RankSnapshot)| {
        let hop = state.last_hop.filter(|hop| (hop.group, hop.sequence) == key)?;
        let flies = |flight: &Flight| (flight.event.group, flight.event.sequence) == key;
        state.flights.iter().any(flies).then_some((rank, hop))
    };
    let hops = scene.now.ranks.iter().enumerate().filter_map(moving);
    let (from, hop) = hops.max_by_key(|(rank, hop)| (hop.number, usize::MAX - rank))?;
    let all = flight.event.operation.rounds() * (members as u64 - 1);
    let Hop { chunk, to, number, .. } = hop;
    let parts = || (format!(", slice {chunk}"), format!(": rank {from} → rank {to}, hop {number} of {all}"));
    (scene.header.algorithm == "ring").then(parts)
}

/// A transfer between places in words.
struct Moving {
    /// The buffer that it moves, and where to.
    head: String,
    why: &'static str,
    bytes: u64,
}

/// Returns the transfer to narrate. If the ranks are `waiting`, it is the oldest arriving transfer,
/// else the one that was issued last.
fn transfer(scene: &Scene, waiting: bool) -> Option<Moving> {
    let flights = || {
        let ranks = scene.now.ranks.iter();
        ranks.flat_map(|rank| rank.transfers.flights.iter().map(move |flight| (rank, flight)))
    };
    let arriving = || flights().find(|(_, flight)| !flight.event.route.leaves());
    let latest = || flights().max_by_key(|(_, flight)| flight.issued);
    let (rank, flight) = if waiting { arriving().or_else(latest)? } else { latest()? };
    let this_step = rank.last_pass.filter(|last| last.since >= rank.step_started);
    let updating = rank.pass.or(this_step).is_some_and(|pass| pass.pass == Pass::Step);
    let (head, why) = travelling(scene, &flight.event, updating);
    Some(Moving { head, why, bytes: flight.event.bytes })
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
        Pass::Add => format!("the CPU adds reduced gradients of {unit}"),
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
        Pass::Add => " to their shard in main memory",
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
