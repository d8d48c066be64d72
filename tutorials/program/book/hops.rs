//! The slices that each rank receives, hop by hop, inside a recorded collective.

use events::{Recording, What};
use shell::table::{Format, Table};
use std::path::Path;
use trainer::{Failure, Result};

/// One transfer: its sender and its slice.
type Received = (u16, u16);

/// Returns the hops of a collective for `RECORDING OPERATION`, the first of that kind over one
/// unit: a row per hop and a column per rank, with the slice that the rank receives and its sender.
///
/// # Errors
/// If the recording cannot be read, or holds no such collective.
pub(super) fn text(root: &Path, arguments: &str) -> Result<String> {
    let fail = |e: &dyn std::fmt::Display| Failure::run(format!("hops {arguments}: {e}"));
    let (file, wanted) =
        arguments.split_once(' ').ok_or_else(|| fail(&"give a recording and an operation"))?;
    let recording = Recording::open(&root.join(file)).map_err(|e| fail(&e))?;
    let ranks = recording.header().world_size as usize;
    let mut first = None;
    let mut received: Vec<Vec<Received>> = vec![Vec::new(); ranks];
    for event in recording.events() {
        match event.map_err(|e| fail(&e))?.what {
            What::Collective(said)
                if said.group == 0 && said.units.len() == 1 && said.operation.to_string() == wanted =>
            {
                first.get_or_insert(said.sequence);
            }
            What::Hop { group: 0, sequence, from, to, chunk, .. } if first == Some(sequence) => {
                received[usize::from(to)].push((from, chunk));
            }
            _ => {}
        }
    }
    table(&received).ok_or_else(|| fail(&"there is no such collective, or some of its hops are missing"))
}

/// Returns the table in Markdown. `None` unless all ranks receive equally often.
fn table(received: &[Vec<Received>]) -> Option<String> {
    let hops = received.first()?.len();
    if hops == 0 || received.iter().any(|row| row.len() != hops) {
        return None;
    }
    let columns = (0..received.len()).map(|rank| format!("rank {rank} receives"));
    let mut table = Table::numbers("hop", columns);
    for hop in 0..hops {
        let cells = received.iter().map(|row| format!("slice {} from {}", row[hop].1, row[hop].0));
        table.row((hop + 1).to_string(), cells);
    }
    Some(table.render(Format::Markdown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(recording: &str, operation: &str) -> Vec<Vec<Received>> {
        let arguments = format!("viz/tests/recordings/{recording} {operation}");
        let text = text(&crate::workspace::root(), &arguments).unwrap();
        let number = |text: &str| text.parse::<u16>().unwrap();
        let cell = |cell: &str| {
            let words: Vec<&str> = cell.split_whitespace().collect();
            (number(words[3]), number(words[1]))
        };
        let rows = text.lines().filter(|line| line.contains("slice"));
        rows.map(|row| row.split('|').filter(|text| text.contains("slice")).map(cell).collect()).collect()
    }

    /// In a ring every slice comes from the left neighbour. The last slice of partial sums that a
    /// rank receives is the one it owns.
    #[test]
    fn a_ring_has_one_neighbour_and_the_direct_algorithm_all() {
        for (hop, row) in cells("ring.events", "reduce-scatter").iter().enumerate() {
            for (rank, &received) in (0..4).zip(row) {
                assert_eq!(received, ((rank + 3) % 4, (rank + 6 - hop as u16) % 4));
            }
        }
        let direct = cells("zero3.events", "reduce-scatter");
        for rank in 0..4_u16 {
            let mut from: Vec<u16> = direct.iter().map(|row| row[usize::from(rank)].0).collect();
            from.sort_unstable();
            assert_eq!(from, (0..4).filter(|&other| other != rank).collect::<Vec<_>>());
            assert!(direct.iter().all(|row| row[usize::from(rank)].1 == rank), "only its own slice");
        }
    }

    #[test]
    fn what_was_not_recorded_is_no_table() {
        let missing = text(&crate::workspace::root(), "viz/tests/recordings/ring.events broadcast");
        assert!(missing.unwrap_err().to_string().contains("no such collective"));
    }
}
