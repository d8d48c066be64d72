//! Who takes part in a collective: all ranks, or a group within the world beside others that do the same.

use events::Snapshot;

/// One of the groups that ranks form together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What its collectives call it; 0 is the world.
    pub number: u16,
    /// Its members, by their ranks in the world.
    pub ranks: Vec<usize>,
}

impl Part {
    /// Whether its members are neighbours.
    fn contiguous(&self) -> bool {
        self.ranks.windows(2).all(|pair| pair[1] == pair[0] + 1)
    }
}

/// The group called `number` and those that were made with it, in the order of their first members. The world is alone.
pub fn beside(now: &Snapshot, number: u16) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    let place = |rank: &events::RankSnapshot| rank.groups.iter().position(|group| group.number == number);
    if let Some(place) = now.ranks.iter().find_map(place) {
        for group in now.ranks.iter().filter_map(|rank| rank.groups.get(place)) {
            if found.iter().all(|part| part.number != group.number) {
                let ranks = group.ranks.iter().map(|&rank| rank as usize);
                let ranks = ranks.filter(|&rank| rank < now.ranks.len()).collect();
                found.push(Part { number: group.number, ranks });
            }
        }
    }
    if found.is_empty() {
        found.push(Part { number, ranks: (0..now.ranks.len()).collect() });
    }
    found
}

/// Whether every group is one of neighbours.
pub fn are_neighbours(parts: &[Part]) -> bool {
    parts.iter().all(Part::contiguous)
}

/// The group among `parts` that `rank` is a member of.
pub fn of_rank(parts: &[Part], rank: usize) -> Option<&Part> {
    parts.iter().find(|part| part.ranks.contains(&rank))
}
