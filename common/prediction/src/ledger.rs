//! A ledger without memory behind it: counts live bytes per class, and their peaks.

use crate::moment::{Moment, Peak};
use events::{Class, Place};
use serde::ser::{Serialize, SerializeMap, Serializer};

const CLASSES: usize = Class::ALL.len();

/// Peak bytes of one rank in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Peak per class, in [`Class::ALL`]'s order.
    pub peaks: [u64; CLASSES],
    /// Peak of the sum over classes, which is at most the sum of the peaks.
    pub total_peak: u64,
}

impl Memory {
    /// Returns the peak bytes of one class.
    pub fn peak(&self, class: Class) -> u64 {
        self.peaks[class.index()]
    }
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(CLASSES + 1))?;
        for class in Class::ALL {
            map.serialize_entry(&class, &self.peak(class))?;
        }
        map.serialize_entry("total_peak", &self.total_peak)?;
        map.end()
    }
}

/// Bytes that the ledger counts as live. [`SymbolicRank::free`](crate::rank::SymbolicRank::free)
/// takes an allocation by value, so that it cannot be freed twice.
#[must_use]
pub(crate) struct Allocation {
    pub(crate) place: Place,
    pub(crate) class: Class,
    pub(crate) bytes: u64,
}

/// Counts the bytes of one rank in one place: live now, and at their peak.
#[derive(Default)]
pub(crate) struct SymbolicLedger {
    /// Bytes live now, per class.
    pub(crate) live: [u64; CLASSES],
    live_total: u64,
    pub(crate) memory: Memory,
    now: Moment,
    /// The moment at which all classes together were at their peak, and the bytes of each class
    /// then.
    pub(crate) peak: Peak,
}

impl SymbolicLedger {
    pub(crate) fn add(&mut self, class: Class, bytes: u64) {
        let live = &mut self.live[class.index()];
        *live += bytes;
        self.live_total += bytes;
        let peak = &mut self.memory.peaks[class.index()];
        *peak = (*peak).max(*live);
        if self.live_total > self.memory.total_peak {
            self.memory.total_peak = self.live_total;
            self.peak = Peak { moment: self.now, live: self.live };
        }
    }

    pub(crate) fn subtract(&mut self, class: Class, bytes: u64) {
        self.live[class.index()] -= bytes;
        self.live_total -= bytes;
    }

    /// Begins `moment`: later peaks are recorded at that moment.
    pub(crate) fn enter(&mut self, moment: Moment) {
        self.now = moment;
    }
}
