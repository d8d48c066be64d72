//! A rank without memory or peers: it counts its bytes per place, its traffic and its transfers
//! and, on request, writes down what it does, action by action.

use crate::ledger::{Allocation, Memory, SymbolicLedger};
use crate::moment::{Moment, Peak};
use crate::script::{Action, Issued};
use crate::traffic::{Among, ByteCounter};
use events::{Class, Operation, Pass, Place};
use model::LayerKind;

/// A collective that is in flight. [`SymbolicRank::wait`] takes it by value, so that a rank waits
/// for it once.
#[must_use]
pub(crate) struct InFlight(usize);

/// One rank, as its ledgers and counters see it.
#[derive(Default)]
pub(crate) struct SymbolicRank {
    places: [SymbolicLedger; Place::ALL.len()],
    pub(crate) counter: ByteCounter,
    /// The number of collectives issued so far.
    issued: usize,
    /// `None` if nothing is written down.
    script: Option<Vec<Action>>,
}

impl SymbolicRank {
    /// Returns a rank that writes down a script.
    pub(crate) fn scripted() -> Self {
        SymbolicRank { script: Some(Vec::new()), ..SymbolicRank::default() }
    }

    fn write(&mut self, action: impl FnOnce() -> Action) {
        if let Some(script) = &mut self.script {
            script.push(action());
        }
    }

    fn write_memory(&mut self, place: Place, class: Class, delta: i64, live: u64) {
        if delta != 0 {
            self.write(|| Action::Memory { place, class, delta, live });
        }
    }

    /// Returns what was written down since the last call.
    pub(crate) fn take_script(&mut self) -> Vec<Action> {
        self.script.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Allocates bytes on the device.
    pub(crate) fn allocate(&mut self, class: Class, bytes: u64) -> Allocation {
        self.allocate_in(Place::Device, class, bytes)
    }

    pub(crate) fn allocate_in(&mut self, place: Place, class: Class, bytes: u64) -> Allocation {
        let ledger = &mut self.places[place.index()];
        ledger.add(class, bytes);
        let live = ledger.live[class.index()];
        self.write_memory(place, class, bytes as i64, live);
        Allocation { place, class, bytes }
    }

    pub(crate) fn free(&mut self, Allocation { place, class, bytes }: Allocation) {
        let ledger = &mut self.places[place.index()];
        ledger.subtract(class, bytes);
        let live = ledger.live[class.index()];
        self.write_memory(place, class, -(bytes as i64), live);
    }

    pub(crate) fn free_all(&mut self, held: impl IntoIterator<Item = Allocation>) {
        for held in held {
            self.free(held);
        }
    }

    /// Begins `moment`: later peaks of the device are recorded at that moment.
    pub(crate) fn enter(&mut self, moment: Moment) {
        self.places[Place::Device.index()].enter(moment);
    }

    /// Issues one collective over the buffers of `units`: the number of each and its elements.
    pub(crate) fn issue(
        &mut self,
        (among, operation): (Among, Operation),
        units: &[(usize, u64)],
        bytes_per_element: u64,
    ) -> InFlight {
        let elements = units.iter().map(|&(_, elements)| elements);
        self.counter.collective(among, operation, elements.clone(), bytes_per_element);
        let number = self.issued;
        self.issued += 1;
        self.write(|| {
            Action::Issue(Issued {
                number,
                among,
                operation,
                units: units.iter().map(|&(unit, _)| unit as u16).collect(),
                bytes: elements.clone().sum::<u64>() * bytes_per_element,
                elements: elements.collect(),
            })
        });
        InFlight(number)
    }

    /// Waits for a collective.
    pub(crate) fn wait(&mut self, InFlight(number): InFlight) {
        self.write(|| Action::Wait { number });
    }

    /// Exchanges `bytes` bytes between every two ranks, and waits for it.
    pub(crate) fn exchange(&mut self, among: Among, bytes: u64) {
        self.counter.exchange(among, bytes);
        let number = self.issued;
        self.issued += 1;
        self.write(|| {
            let (operation, units) = (Operation::Scalars, Default::default());
            Action::Issue(Issued { number, among, operation, units, elements: Vec::new(), bytes })
        });
        self.wait(InFlight(number));
    }

    /// Begins a micro-batch of the step.
    pub(crate) fn micro_batch(&mut self, number: usize) {
        self.write(|| Action::MicroBatch { number: number.min(u16::MAX.into()) as u16 });
    }

    /// Begins a pass over `layer`, whose unit is `unit`; [`SymbolicRank::end`] ends it.
    pub(crate) fn begin(&mut self, pass: Pass, unit: usize, layer: LayerKind) {
        self.write(|| Action::Begin { pass, unit: unit as u16, layer });
    }

    /// Ends the pass that began last.
    pub(crate) fn end(&mut self) {
        self.write(|| Action::End);
    }

    /// Updates piece number `piece` of `unit`, which has `elements` elements.
    pub(crate) fn update(&mut self, unit: usize, piece: u64, elements: u64) {
        let piece = piece.min(u16::MAX.into()) as u16;
        self.write(|| Action::Update { unit: unit as u16, piece, elements });
    }

    /// Returns the live bytes per place and class.
    pub(crate) fn live(&self) -> [[u64; Class::ALL.len()]; Place::ALL.len()] {
        self.places.each_ref().map(|ledger| ledger.live)
    }

    /// Returns the peak bytes per place.
    pub(crate) fn memory(&self) -> [Memory; Place::ALL.len()] {
        self.places.each_ref().map(|ledger| ledger.memory)
    }

    /// Returns the device's peak.
    pub(crate) fn peak(&self) -> Peak {
        self.places[Place::Device.index()].peak
    }
}
