//! The groups of ranks that take part in a collective: the world, or groups within it that run the
//! same collective side by side.

use events::Snapshot;

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
pub fn beside(now: &Snapshot, number: u16) -> Vec<RankGroup> {
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
