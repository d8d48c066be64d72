//! Describes in words what a rank is doing.

use crate::player::Scene;
use crate::theme::{self, ALARM, DIM, GOOD, WAITING, bold, class_colour, ink};
use crate::{failure, groups, narration, places, words};
use events::{Flight, PassNow, RankSnapshot, RankStatus, Route};
use ratatui::style::Style;

/// A rank's current activity.
pub(super) struct Activity {
    /// A letter for narrow places: small for computation, capital for communication.
    pub letter: &'static str,
    /// One or two words, the same for all units.
    pub kind: &'static str,
    /// A few words, which may name a unit or an operation.
    pub text: String,
    /// The style of the words.
    pub style: Style,
}

impl Activity {
    fn plain(letter: &'static str, kind: &'static str, style: Style) -> Self {
        Activity { letter, kind, text: kind.into(), style }
    }

    fn marked(letter: &'static str, kind: &'static str, style: Style) -> Self {
        Activity { text: format!("{letter} {kind}"), ..Activity::plain(letter, kind, style) }
    }
}

pub(super) fn activity(scene: &Scene, number: usize) -> Activity {
    let rank = &scene.now.ranks[number];
    match &rank.status {
        _ if culprits(scene, rank).contains(&number) => return at_fault(scene, rank),
        RankStatus::Failed(_) => return stopped(scene, rank),
        // Another rank's failure is known: this one is about to report the same.
        RankStatus::Failing if scene.now.failure.is_some() => return stopped(scene, rank),
        RankStatus::Finished => return Activity::marked("✓", "finished", bold(GOOD)),
        RankStatus::Failing => return Activity::marked("✗", "failing", bold(ALARM)),
        RankStatus::Running => {}
    }
    if let Some(pass) = rank.pass {
        let (kind, style) = (words::pass(pass.pass), bold(theme::pass_colour(pass.pass)));
        let text = format!("{kind} {}", words::unit(&scene.header, pass.unit));
        return Activity { letter: theme::pass_glyph(pass.pass), kind, text, style };
    }
    match rank.flights.first() {
        Some(flight) if narration::stuck(rank) && is_awaited(scene, flight) => Activity {
            text: format!("waits: {}", flight.event.operation),
            ..Activity::plain("w", "waits", bold(WAITING))
        },
        Some(flight) => {
            let operation = flight.event.operation;
            let style = bold(theme::operation_colour(operation));
            Activity::plain(theme::operation_glyph(operation), operation.label(), style)
        }
        None => transferring(scene, rank).unwrap_or_else(|| Activity::plain("·", "between units", ink(DIM))),
    }
}

/// Returns the activity of a rank that only waits for a transfer.
fn transferring(scene: &Scene, rank: &RankSnapshot) -> Option<Activity> {
    // A rank waits for transfers that arrive, rarely for those that leave.
    let arriving = places::flight(rank, |event| !event.route.leaves());
    let event = arriving.or(places::flight(rank, |_| true))?.event;
    let (letter, kind) = match event.route {
        Route::DiskToHost => ("D", "reads"),
        Route::HostToDisk => ("D", "writes"),
        Route::DeviceToHost | Route::HostToDevice => ("C", "copies"),
    };
    let text = format!("{kind} {}", places::cargo(&scene.header, &event));
    Some(Activity { text, ..Activity::plain(letter, kind, bold(class_colour(event.class))) })
}

/// True if at least one rank has not issued the collective yet.
fn is_awaited(scene: &Scene, flight: &Flight) -> bool {
    let event = &flight.event;
    let groups = groups::created_with(&scene.now, event.group);
    let members = groups.iter().filter(|group| group.number == event.group).flat_map(|group| &group.ranks);
    members.into_iter().any(|&rank| !scene.now.ranks[rank].has_issued(event.group, event.sequence))
}

/// Returns the ranks that made the run fail: those that issued a different collective than the
/// other members in the collective of `rank`, else the ranks that the failure names.
fn culprits(scene: &Scene, rank: &RankSnapshot) -> Vec<usize> {
    let Some(failure) = failure::shown(&scene.now) else { return Vec::new() };
    let disagreement = rank.flights.first().and_then(|flight| groups::disagreement(scene, flight));
    disagreement.map_or(failure.ranks, |found| found.odd)
}

/// Returns the pass or the collective that a rank has begun and not finished; `None` if there is
/// none.
fn unfinished(scene: &Scene, rank: &RankSnapshot) -> Option<String> {
    let pass =
        |pass: PassNow| format!("{} {}", words::pass(pass.pass), words::unit(&scene.header, pass.unit));
    let flight = || rank.flights.first().map(|flight| flight.event.operation.to_string());
    rank.pass.map(pass).or_else(flight)
}

/// Returns the activity of a rank that made the run fail: its latest known one, since it may not
/// have noticed the failure.
fn at_fault(scene: &Scene, rank: &RankSnapshot) -> Activity {
    let past =
        |last: PassNow| format!("after {} {}", words::pass(last.pass), words::unit(&scene.header, last.unit));
    let at = unfinished(scene, rank).or_else(|| rank.last_pass.map(past)).unwrap_or_else(|| "failed".into());
    Activity { text: format!("✗ {at}"), ..Activity::plain("✗", "failed", bold(ALARM)) }
}

/// Returns the activity of a rank that another rank's failure has stopped.
fn stopped(scene: &Scene, rank: &RankSnapshot) -> Activity {
    let text = unfinished(scene, rank).map_or("stopped".into(), |at| format!("‖ {at}"));
    Activity { text, ..Activity::plain("‖", "stopped", bold(WAITING)) }
}
