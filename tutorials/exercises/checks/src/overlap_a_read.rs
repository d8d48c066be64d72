//! Checks reads of shards from a disk ahead of a pass, on a simulated clock that counts ticks.

use crate::{Figure, Score, Verdict};

/// Ticks that a read takes.
const READ: u64 = 2;
/// Ticks that a unit's computation takes.
const COMPUTE: u64 = 3;
/// Number of staging buffers in main memory.
const BUFFERS: usize = 2;

/// Passes, by the order of their units: forward, backward, one that skips persistent units, a
/// single unit, and none.
const ORDERS: [&[usize]; 5] = [&[0, 1, 2, 3, 4, 5], &[5, 4, 3, 2, 1, 0], &[1, 2, 4, 0], &[3], &[]];

/// The function under check: (the units in order, the disk).
pub type Pass = fn(&[usize], &mut Disk);

/// A disk that reads one unit at a time, and a processor.
#[derive(Default)]
pub struct Disk {
    /// Units that are in staging buffers or being read into them, and the time of each arrival.
    staged: Vec<(usize, u64)>,
    computed: Vec<usize>,
    /// The processor's time.
    now: u64,
    /// The time at which the disk has no more pending reads.
    free: u64,
    problem: Option<String>,
}

impl Disk {
    /// Issues the read of `unit` into a free staging buffer.
    pub fn start(&mut self, unit: usize) {
        let staged: Vec<usize> = self.staged.iter().map(|(unit, _)| *unit).collect();
        if staged.contains(&unit) {
            self.complain(format!("unit {unit} is read twice"));
        } else if staged.len() == BUFFERS {
            self.complain(format!("the read of unit {unit} has no staging buffer: {staged:?} are in them"));
        }
        self.free = self.free.max(self.now) + READ;
        self.staged.push((unit, self.free));
    }

    /// Waits until the read of `unit` is done, computes with it, and frees its staging buffer.
    pub fn compute(&mut self, unit: usize) {
        let Some(at) = self.staged.iter().position(|(staged, _)| *staged == unit) else {
            self.complain(format!("unit {unit} computes, and no read of it was started"));
            return;
        };
        let (_, arrival) = self.staged.remove(at);
        self.now = self.now.max(arrival) + COMPUTE;
        self.computed.push(unit);
    }

    /// Records the first problem.
    fn complain(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// Runs passes in several orders.
pub fn check(pass: Pass) -> Verdict {
    let mut ticks = Figure::of("ticks for all passes");
    for order in ORDERS {
        ticks.add(run(pass, order)?, least(order.len() as u64));
    }
    Ok(Score::right("every pass computes in its order, with two staging buffers").with(ticks))
}

/// Returns the minimum ticks for a pass of `units` units: only the first read is not hidden.
fn least(units: u64) -> u64 {
    if units == 0 { 0 } else { READ + (units - 1) * READ.max(COMPUTE) + COMPUTE }
}

/// Returns the ticks that a pass takes.
fn run(pass: Pass, order: &[usize]) -> Result<u64, String> {
    let mut disk = Disk::default();
    pass(order, &mut disk);
    if let Some(problem) = disk.problem {
        return Err(format!("order {order:?}: {problem}"));
    }
    if disk.computed != order {
        return Err(format!("order {order:?}: these units computed: {:?}", disk.computed));
    }
    match disk.staged.first() {
        Some((unit, _)) => Err(format!("order {order:?}: unit {unit} is read and never computes")),
        None => Ok(disk.now),
    }
}
