//! Finds ranks that have issued different collectives under the same sequence number. One of them
//! has skipped a collective, and each waits for one that the others never issue.

use crate::groups;
use crate::player::Scene;
use events::{Flight, Operation};

/// The collectives that ranks have issued under one sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// The collective that most ranks have issued.
    pub usual: Flight,
    /// Ranks that have issued another one.
    pub odd: Vec<usize>,
    /// The collective that the first of these has issued.
    pub theirs: Flight,
}

/// Returns the disagreement about the sequence number of `flight`, if there is one.
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

/// Returns the flights under the same number on all members of the flight's group, with their
/// ranks.
fn issued(scene: &Scene, flight: &Flight) -> Vec<(usize, Flight)> {
    let (group, sequence) = (flight.event.group, flight.event.sequence);
    let groups = groups::beside(&scene.now, group);
    let members = groups.iter().filter(|g| g.number == group).flat_map(|g| &g.ranks);
    let same = |flight: &&Flight| (flight.event.group, flight.event.sequence) == (group, sequence);
    // Messages between two ranks have sequence numbers of their own.
    let message = |flight: &Flight| matches!(flight.event.operation, Operation::Send | Operation::Recv);
    let all = |flight: &&Flight| same(flight) && !message(flight);
    members.filter_map(|&rank| Some((rank, *scene.now.ranks[rank].flights.iter().find(all)?))).collect()
}
