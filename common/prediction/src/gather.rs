//! Full parameters of sharded units: gathered before the first layer that needs them, freed after
//! the last.

use crate::gathering::{BackwardPrefetch, Gathering};
use crate::job::Job;
use crate::ledger::Allocation;
use crate::offload::{Fetch, Offload};
use crate::partition::Partition;
use crate::rank::{Cargo, InFlight, SymbolicRank};
use crate::script::{After, Begins};
use crate::traffic::Among;
use events::{Class, Operation, Pass, Route};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The gathered units of one rank.
pub(crate) struct GatherWindow<'a> {
    partition: &'a Partition,
    /// The ranks among which this pass gathers.
    among: Among,
    gathering: Gathering,
    /// [`Gathering::reuse`], or no limit where the strategy keeps every unit.
    reuse: u64,
    bytes_per_element: u64,
    /// Per unit: what an all-gather fetches; `None` if the shard is on the device.
    fetches: Vec<Option<Fetch>>,
    /// Number of slots through which shards are fetched.
    slots: usize,
    /// What the slots without a shard are waiting for: the all-gathers that read them last.
    free: VecDeque<Vec<After>>,
    /// Shards that are still in their slots when backward begins, because forward gathered them
    /// last, and the all-gathers that read them.
    held: VecDeque<(usize, Vec<After>)>,
    /// Whether an update may continue while the next forward computes.
    follows_update: bool,
    /// Whether that update hands shards over, until this step's first forward has ended.
    hands_over: bool,
    /// Whether backward gathers from secondary shards, which never leave the device.
    secondary: bool,
    /// Per unit: its full parameters; `None` if they are not gathered.
    full: Vec<Option<Allocation>>,
    /// Elements of all gathered units.
    live: u64,
    /// The all-gathers in flight, by unit.
    in_flight: BTreeMap<usize, InFlight>,
    pass: Pass,
    /// Units in the order in which this pass needs them, and the number of units that it has
    /// reached.
    order: Vec<usize>,
    reached: usize,
    /// Elements that stayed gathered from the latest forward until backward.
    pub(crate) kept: u64,
}

impl<'a> GatherWindow<'a> {
    /// Returns an empty window over the units of `partition`.
    pub(crate) fn new(job: &Job, partition: &'a Partition, offload: &Offload) -> Self {
        let (units, slots) = (partition.units.len(), offload.fetch_slots().0 as usize);
        let ahead = if job.overlap { job.gathering.ahead } else { 0 };
        GatherWindow {
            partition,
            among: Among::World,
            gathering: Gathering { ahead, ..job.gathering },
            reuse: if job.strategy.reshards_after_forward() { job.gathering.reuse } else { u64::MAX },
            bytes_per_element: job.recipe.weights,
            fetches: offload.units.iter().map(|unit| offload.fetch(unit)).collect(),
            slots,
            free: vec![Vec::new(); slots].into(),
            held: VecDeque::new(),
            follows_update: offload.continues_in_forward(),
            hands_over: offload.hands_over(),
            secondary: job.secondary_shards.is_some(),
            full: (0..units).map(|_| None).collect(),
            live: 0,
            in_flight: BTreeMap::new(),
            pass: Pass::Forward,
            order: Vec::new(),
            reached: 0,
            kept: 0,
        }
    }

    /// Notes that no update precedes the step: all shards are read from where they are stored.
    pub(crate) fn start_fresh(&mut self) {
        self.hands_over = false;
    }

    /// Begins a pass whose layers need `units` in this order, gathered among `among`. The first
    /// all-gather is issued when the first unit is acquired.
    pub(crate) fn begin(&mut self, pass: Pass, units: impl Iterator<Item = usize>, among: Among) {
        (self.pass, self.among) = (pass, among);
        self.order.clear();
        if pass == Pass::Forward {
            self.kept = 0;
        }
        let mut seen = BTreeSet::new();
        let units = units.filter(|&unit| !self.partition.units[unit].persistent && seen.insert(unit));
        self.order.extend(units);
        self.reached = 0;
        if pass == Pass::Backward {
            let gathered = self.order.iter().copied().filter(|&unit| self.full[unit].is_none());
            let first = gathered.take(self.slots).filter(|&unit| !self.is_near(unit));
            let first: Vec<usize> = first.collect();
            let (held, left): (VecDeque<_>, VecDeque<_>) =
                self.held.drain(..).partition(|(unit, _)| first.contains(unit));
            self.held = held;
            self.free.extend(left.into_iter().map(|(_, after)| after));
            self.hands_over = false;
        }
    }

    /// True if backward needs `unit` again so soon after forward that it is kept if there is room.
    fn is_near(&self, unit: usize) -> bool {
        self.partition.reuse_distance(unit) < self.reuse
    }

    /// Acquires `unit` for a layer: gathers it unless it was gathered ahead, and waits for it.
    pub(crate) fn acquire(&mut self, rank: &mut SymbolicRank, unit: usize) {
        if self.order.get(self.reached) != Some(&unit) {
            return;
        }
        self.reached += 1;
        self.gather(rank, unit);
        if let Some(gather) = self.in_flight.remove(&unit) {
            rank.wait(gather);
        }
        if self.pass != Pass::Backward || self.gathering.backward == BackwardPrefetch::Pre {
            self.gather_ahead(rank);
        }
    }

    /// Ends forward's use of `unit`: keeps it if backward needs it again soon enough, else frees
    /// it.
    pub(crate) fn leave_forward(&mut self, rank: &mut SymbolicRank, unit: usize) {
        if !self.is_near(unit) || self.live > self.gathering.live {
            self.release(rank, unit);
        } else if self.full[unit].is_some() {
            self.kept += self.partition.units[unit].padded;
        }
    }

    /// Frees `unit` after its last use in the pass.
    pub(crate) fn free(&mut self, rank: &mut SymbolicRank, unit: usize) {
        if self.partition.units[unit].persistent {
            return;
        }
        self.release(rank, unit);
        if self.pass == Pass::Backward && self.gathering.backward == BackwardPrefetch::Post {
            self.gather_ahead(rank);
        }
    }

    /// Gathers the units that the pass needs next, as far as the limits allow.
    fn gather_ahead(&mut self, rank: &mut SymbolicRank) {
        let mut ahead = 0;
        for at in self.reached..self.order.len() {
            let unit = self.order[at];
            let elements = self.partition.units[unit].padded;
            let enough = ahead >= self.gathering.ahead;
            let busy = self.in_flight.len() >= self.gathering.in_flight;
            let full = self.live.saturating_add(elements) > self.gathering.live;
            if enough || self.full[unit].is_none() && (busy || full) {
                return;
            }
            self.gather(rank, unit);
            ahead += elements;
        }
    }

    fn gather(&mut self, rank: &mut SymbolicRank, unit: usize) {
        if self.full[unit].is_none() {
            let elements = self.partition.units[unit].padded;
            self.full[unit] =
                Some(rank.allocate(Class::GatheredParameters, elements * self.bytes_per_element));
            self.live += elements;
            let arrived = self.fetch(rank, unit);
            let updated = self.pass == Pass::Forward && self.follows_update;
            let after = if updated { vec![After::Update(unit as u16)] } else { Vec::new() };
            let after = arrived.map_or(after, |arrived| vec![arrived]);
            let kind = (self.among, Operation::AllGather);
            let gather = rank.issue(kind, &[(unit, elements)], self.bytes_per_element, &after);
            self.return_slot(unit, gather.end());
            self.in_flight.insert(unit, gather);
        }
    }

    /// True if the unit is gathered in this pass.
    pub(crate) fn gathers(&self, unit: usize) -> bool {
        self.order.contains(&unit)
    }

    /// Moves `unit`'s shard to the device, unless it is there already. Returns the end of its way.
    fn fetch(&mut self, rank: &mut SymbolicRank, unit: usize) -> Option<After> {
        let Fetch { read, copied } = self.fetches[unit]?;
        let is_backward = self.pass == Pass::Backward;
        if is_backward && (self.secondary || self.held.iter().any(|(held, _)| *held == unit)) {
            return None;
        }
        let read = read.filter(|_| !self.hands_over);
        let mut after = self.take_slot();
        let unit_id = unit as u16;
        after.push(if read.is_some() { After::OnDisk(unit_id) } else { After::Update(unit_id) });
        let mut transfer = |route, bytes, after: &[After]| {
            let cargo = Cargo { route, class: Class::Parameters, unit, bytes };
            rank.transfer(cargo, Begins::Ahead, after).end()
        };
        if let Some(read) = read.map(|bytes| transfer(Route::DiskToHost, bytes, &after)) {
            after = vec![read];
        }
        Some(transfer(Route::HostToDevice, copied, &after))
    }

    /// Takes a slot, and returns what it waits for. If none is free, takes the one whose shard
    /// forward has gathered first.
    fn take_slot(&mut self) -> Vec<After> {
        let oldest = |held: &mut VecDeque<(usize, Vec<After>)>| held.pop_front().map(|(_, after)| after);
        self.free.pop_front().or_else(|| oldest(&mut self.held)).unwrap_or_default()
    }

    /// Notes that `gather` reads the slot of `unit`, which backward may find there.
    fn return_slot(&mut self, unit: usize, gather: After) {
        if self.fetches[unit].is_none() || self.secondary && self.pass == Pass::Backward {
            return;
        }
        self.held.retain(|(held, _)| *held != unit);
        match self.pass {
            Pass::Forward => self.held.push_back((unit, vec![gather])),
            _ => self.free.push_back(vec![gather]),
        }
    }

    fn release(&mut self, rank: &mut SymbolicRank, unit: usize) {
        if let Some(full) = self.full[unit].take() {
            self.live -= self.partition.units[unit].padded;
            rank.free(full);
        }
    }
}
