//! Ranks that mean different collectives by the same number: one of them has left one out, and what each waits for the
//! others never issue.

use crate::groups;
use crate::player::Scene;
use events::{Flight, Operation};

/// What most ranks have issued under a number, and what others have.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Of the first of most ranks.
    pub usual: Flight,
    /// Ranks that have issued something else.
    pub odd: Vec<usize>,
    /// What the first of these has issued.
    pub theirs: Flight,
}

/// The ranks that disagree about the number of `flight`, if any do.
pub fn about(scene: &Scene, flight: &Flight) -> Option<Disagreement> {
    let issued = issued(scene, flight);
    let alike = |one: &Flight| issued.iter().filter(|(_, other)| meaning(other) == meaning(one)).count();
    let most = issued.iter().map(|(_, flight)| alike(flight)).max()?;
    let usual = issued.iter().find(|(_, flight)| alike(flight) == most)?.1;
    let others = || issued.iter().filter(|(_, flight)| meaning(flight) != meaning(&usual));
    let theirs = others().next()?.1;
    Some(Disagreement { usual, odd: others().map(|(rank, _)| *rank).collect(), theirs })
}

fn meaning(flight: &Flight) -> (Operation, u16, u16) {
    (flight.event.operation, flight.event.unit, flight.event.units)
}

/// What the members of the flight's group have on their way under its number.
fn issued(scene: &Scene, flight: &Flight) -> Vec<(usize, Flight)> {
    let (group, sequence) = (flight.event.group, flight.event.sequence);
    let groups = groups::beside(&scene.now, group);
    let members = groups.iter().filter(|g| g.number == group).flat_map(|g| &g.ranks);
    let same = |flight: &&Flight| (flight.event.group, flight.event.sequence) == (group, sequence);
    // The messages of a pair have numbers of their own.
    let message = |flight: &Flight| matches!(flight.event.operation, Operation::Send | Operation::Recv);
    let all = |flight: &&Flight| same(flight) && !message(flight);
    members.filter_map(|&rank| Some((rank, *scene.now.ranks[rank].flights.iter().find(all)?))).collect()
}
