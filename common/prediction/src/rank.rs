//! A rank without memory or peers: it counts its bytes per place, its traffic and its transfers
//! and, on request, writes down what it does, action by action.

use crate::ledger::{Allocation, Memory, SymbolicLedger};
use crate::moment::{Moment, Peak};
use crate::script::{Action, After, Begins, CpuTask, CpuWork, Issued, Moved};
use crate::traffic::{Among, ByteCounter};
use events::{Class, Operation, Pass, Place, Route};
use model::LayerKind;

/// A collective, a transfer or the CPU's work, in flight. [`SymbolicRank::wait`] takes it by value,
/// so that a rank waits for it once.
#[must_use]
pub(crate) struct InFlight(usize);

impl InFlight {
    /// Returns what an action names to wait for this one.
    pub(crate) fn end(&self) -> After {
        After::Action(self.0)
    }

    /// Returns its number.
    pub(crate) fn number(&self) -> usize {
        self.0
    }
}

impl UpdateEnds {
    /// Adds what leaves a piece by `moves`, in flight as `left`. Shards on their way to disk may be
    /// used before they are written.
    pub(crate) fn add(&mut self, moves: &[(Route, Class, u64)], left: &[InFlight]) {
        for ((route, class, _), end) in moves.iter().zip(left) {
            let ends = match (class, route) {
                (Class::Parameters, Route::HostToDisk) => &mut self.on_disk,
                (Class::Parameters, _) => &mut self.parameters,
                _ => &mut self.others,
            };
            ends.push(end.number());
        }
    }
}

/// What a transfer moves between which places.
#[derive(Clone, Copy)]
pub(crate) struct Cargo {
    pub(crate) route: Route,
    pub(crate) class: Class,
    pub(crate) unit: usize,
    pub(crate) bytes: u64,
}

/// The actions that end the update of a piece or a unit, by number.
#[derive(Default)]
pub(crate) struct UpdateEnds {
    /// Those after which its parameters may be used.
    pub(crate) parameters: Vec<usize>,
    /// Those after which its parameters are on disk, if they are stored there.
    pub(crate) on_disk: Vec<usize>,
    /// The others.
    pub(crate) others: Vec<usize>,
}

/// One rank, as its ledgers and counters see it.
#[derive(Default)]
pub(crate) struct SymbolicRank {
    places: [SymbolicLedger; Place::ALL.len()],
    pub(crate) counter: ByteCounter,
    /// The number of collectives, transfers and tasks of the CPU so far.
    issued: usize,
    /// `None` if nothing is written down.
    script: Option<Vec<Action>>,
}

impl SymbolicRank {
    /// Returns a rank that writes down a script.
    pub(crate) fn scripted() -> Self {
        SymbolicRank { script: Some(Vec::new()), ..SymbolicRank::default() }
    }

    /// True if it writes down a script.
    pub(crate) fn is_scripted(&self) -> bool {
        self.script.is_some()
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

    fn number(&mut self) -> usize {
        self.issued += 1;
        self.issued - 1
    }

    /// Issues one collective over the buffers of `units`: the number of each and its elements. It
    /// begins after `after`.
    pub(crate) fn issue(
        &mut self,
        (among, operation): (Among, Operation),
        units: &[(usize, u64)],
        bytes_per_element: u64,
        after: &[After],
    ) -> InFlight {
        let elements = units.iter().map(|&(_, elements)| elements);
        self.counter.collective(among, operation, elements.clone(), bytes_per_element);
        let number = self.number();
        self.write(|| {
            Action::Issue(Issued {
                number,
                among,
                operation,
                units: units.iter().map(|&(unit, _)| unit as u16).collect(),
                bytes: elements.clone().sum::<u64>() * bytes_per_element,
                elements: elements.collect(),
                after: after.to_vec(),
            })
        });
        InFlight(number)
    }

    /// Issues one transfer, which begins after `after`.
    pub(crate) fn transfer(&mut self, cargo: Cargo, begins: Begins, after: &[After]) -> InFlight {
        let Cargo { route, class, unit, bytes } = cargo;
        self.counter.transfers.count(route, bytes);
        let number = self.number();
        let unit = unit as u16;
        self.write(|| {
            Action::Transfer(Moved { number, route, class, unit, bytes, after: after.to_vec(), begins })
        });
        InFlight(number)
    }

    /// Gives the CPU work on `elements` elements of `unit`, which it begins after `after`.
    pub(crate) fn on_cpu(
        &mut self,
        task: CpuTask,
        (unit, elements): (usize, u64),
        after: &[After],
    ) -> InFlight {
        let (number, unit) = (self.number(), unit as u16);
        self.write(|| Action::OnCpu(CpuWork { number, task, unit, elements, after: after.to_vec() }));
        InFlight(number)
    }

    /// Notes that the update of `unit` is issued, and which actions end it.
    pub(crate) fn updated(&mut self, unit: usize, UpdateEnds { parameters, on_disk, others }: UpdateEnds) {
        self.write(|| Action::Updated { unit: unit as u16, parameters, on_disk, others });
    }

    /// Waits until `after` has ended.
    pub(crate) fn wait_for(&mut self, after: &[After]) {
        for after in after {
            if let After::Action(number) = *after {
                self.write(|| Action::Wait { number });
            }
        }
    }

    /// Notes that the update's slots are in use until the actions of `until` have ended.
    pub(crate) fn slots_in_use(&mut self, until: Vec<Vec<After>>) {
        self.write(|| Action::SlotsInUse { until });
    }

    /// Waits until the parameters of `unit` are updated; for `None`, until the whole update is
    /// complete.
    pub(crate) fn wait_for_update(&mut self, unit: Option<usize>) {
        self.write(|| Action::WaitForUpdate { unit: unit.map(|unit| unit as u16) });
    }

    /// Waits for a collective, a transfer or the CPU.
    pub(crate) fn wait(&mut self, InFlight(number): InFlight) {
        self.write(|| Action::Wait { number });
    }

    /// Exchanges `bytes` bytes between every two ranks, and waits for it.
    pub(crate) fn exchange(&mut self, among: Among, bytes: u64) {
        self.counter.exchange(among, bytes);
        let number = self.number();
        self.write(|| {
            let (operation, units) = (Operation::Scalars, Default::default());
            let (elements, after) = (Vec::new(), Vec::new());
            Action::Issue(Issued { number, among, operation, units, elements, bytes, after })
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

    /// Updates piece number `piece` of `unit`, which has `elements` elements, on the device.
    pub(crate) fn update(&mut self, unit: usize, piece: u16, elements: u64) {
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
