//! The groups of ranks that take part in a collective: the world, or groups within it that run the
//! same collective side by side. Also finds ranks of a group that disagree about a collective.

use crate::player::Scene;
use events::{Flight, Operation, Snapshot, UnitSet};
use std::collections::HashMap;

/// A process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankGroup {
    /// Its number in its collectives' events; 0 is the world.
    pub number: u16,
    /// Its members, by their ranks in the world.
    pub ranks: Vec<usize>,
}

/// Returns the group called `number` and those created with it, in the order of their first
/// members. The world is alone.
pub fn created_with(now: &Snapshot, number: u16) -> Vec<RankGroup> {
    let mut found: Vec<RankGroup> = Vec::new();
    let place = |rank: &events::RankSnapshot| rank.groups.iter().position(|group| group.number == number);
    if let Some(place) = now.ranks.iter().find_map(place) {
        for membership in now.ranks.iter().filter_map(|rank| rank.groups.get(place)) {
            if found.iter().all(|group| group.number != membership.number) {
                let ranks = membership.ranks.iter().map(|&rank| rank as usize);
                let ranks = ranks.filter(|&rank| rank < now.ranks.len()).collect();
                found.push(RankGroup { number: membership.number, ranks });
            }
        }
    }
    if found.is_empty() {
        found.push(RankGroup { number, ranks: (0..now.ranks.len()).collect() });
    }
    found
}

/// True if the members of each group are neighbours.
pub fn are_neighbours(groups: &[RankGroup]) -> bool {
    groups.iter().all(|group| group.ranks.windows(2).all(|pair| pair[1] == pair[0] + 1))
}

/// Returns the group of which `rank` is a member.
pub fn of_rank(groups: &[RankGroup], rank: usize) -> Option<&RankGroup> {
    groups.iter().find(|group| group.ranks.contains(&rank))
}

/// Returns the number of ranks in each group; at least 1.
pub fn members(groups: &[RankGroup]) -> usize {
    groups.first().map_or(1, |group| group.ranks.len()).max(1)
}

/// Returns the size of one member's slice of a buffer of `bytes`.
pub fn slice(groups: &[RankGroup], bytes: u64) -> u64 {
    bytes / members(groups) as u64
}

/// Ranks have issued different collectives under one sequence number: one of them has skipped a
/// collective, and each waits for one that the others never issue.
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
pub fn disagreement(scene: &Scene, flight: &Flight) -> Option<Disagreement> {
    let issued = issued(scene, flight);
    let mut alike: HashMap<_, usize> = HashMap::new();
    issued.iter().for_each(|(_, flight)| *alike.entry(meaning(flight)).or_default() += 1);
    let most = alike.values().copied().max()?;
    let usual = issued.iter().find(|(_, flight)| alike[&meaning(flight)] == most)?.1;
    let others = || issued.iter().filter(|(_, flight)| meaning(flight) != meaning(usual));
    let theirs = others().next()?.1;
    let odd = others().map(|(rank, _)| *rank).collect();
    Some(Disagreement { usual: usual.clone(), odd, theirs: theirs.clone() })
}

fn meaning(flight: &Flight) -> (Operation, &UnitSet) {
    (flight.event.operation, &flight.event.units)
}

/// Returns the flights under the same number on all members of the flight's group, with their
/// ranks.
fn issued<'a>(scene: &'a Scene, flight: &Flight) -> Vec<(usize, &'a Flight)> {
    let (group, sequence) = (flight.event.group, flight.event.sequence);
    let groups = created_with(&scene.now, group);
    let members = groups.iter().filter(|g| g.number == group).flat_map(|g| &g.ranks);
    let same = |flight: &&Flight| (flight.event.group, flight.event.sequence) == (group, sequence);
    // Messages between two ranks have sequence numbers of their own.
    let message = |flight: &Flight| matches!(flight.event.operation, Operation::Send | Operation::Recv);
    let all = |flight: &&Flight| same(flight) && !message(flight);
    members.filter_map(|&rank| Some((rank, scene.now.ranks[rank].flights.iter().find(all)?))).collect()
}
