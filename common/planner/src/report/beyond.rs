//! A report's tables about main memory and disks, and the transfers to and from them.

use super::{Report, Request, StageReport};
use events::say::counted;
use events::{Class, Place, Route};
use prediction::invalid::{InvalidJob, check_bytes};
use prediction::ledger::Memory;
use prediction::placement::{Placement, place_word};
use prediction::recipe::ModelStates;
use serde::Serialize;
use shell::table::Table;

/// The places of [`StageReport::beyond`], and their names.
const BEYOND: [Place; 2] = [Place::Host, Place::Disk];
const NAMES: [&str; 2] = ["main memory", "disk"];

/// The offloaded states, and the number of GPUs that share a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Offloading {
    /// Where states are stored.
    #[serde(flatten)]
    pub placement: Placement,
    /// GPUs that share a machine's main memory and disk.
    pub gpus_per_node: usize,
}

/// The bytes that a rank keeps in main memory or on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceReport {
    /// The place.
    pub place: Place,
    /// Bytes held between steps.
    pub model_states: ModelStates,
    /// Peaks by class; `None` if no model was given.
    pub memory: Option<Memory>,
    /// Peak of everything together.
    pub total: u64,
    /// Peak of all GPUs of a machine together.
    pub per_machine: u64,
}

impl Request {
    /// Returns the number of GPUs of a machine.
    fn machine(&self) -> usize {
        self.gpus_per_node.min(self.job.world_size)
    }

    pub(super) fn offloading(&self) -> Option<Offloading> {
        let offloading = Offloading { placement: self.job.placement, gpus_per_node: self.machine() };
        self.job.placement.any().then_some(offloading)
    }

    /// Returns an entry for main memory and one for the disk if anything is offloaded, else none.
    /// Model states, peaks and total are those of `held`. Refuses a machine whose bytes would not
    /// fit into 64 bits.
    pub(super) fn beyond(
        &self,
        held: impl Fn(Place) -> (ModelStates, Option<Memory>, u64),
    ) -> Result<Vec<PlaceReport>, InvalidJob> {
        if !self.job.placement.any() {
            return Ok(Vec::new());
        }
        let report = |place| {
            let (model_states, memory, total) = held(place);
            check_bytes(total as f64 * self.machine() as f64)?;
            let per_machine = total * self.machine() as u64;
            Ok(PlaceReport { place, model_states, memory, total, per_machine })
        };
        BEYOND.into_iter().map(report).collect()
    }
}

impl Report {
    /// Returns in words which states are offloaded, and where they are stored.
    pub(super) fn offloaded(&self) -> String {
        let Some(Offloading { placement, .. }) = self.offload else { return String::new() };
        let states = [
            ("optimizer", placement.optimizer),
            ("ZeRO-3's parameters", placement.parameters),
            ("inputs of blocks", placement.activations),
        ];
        let offloaded = states.into_iter().filter(|(_, place)| *place != Place::Device);
        let words: Vec<String> =
            offloaded.map(|(what, place)| format!("{what} to {}", place_word(place))).collect();
        format!("offloaded: {}\n", words.join(", "))
    }

    /// Returns the bytes in main memory and on disks, per GPU and per machine, and the bytes moved
    /// per GPU and step.
    pub fn beyond(&self) -> Vec<Table> {
        let Some(Offloading { gpus_per_node, .. }) = self.offload else { return Vec::new() };
        let places = (0..BEYOND.len()).filter(|&i| self.stages.iter().any(|stage| stage.beyond[i].total > 0));
        let mut tables: Vec<Table> = places.map(|i| self.place(i)).collect();
        let machine = |i: usize| (NAMES[i], self.of(|stage| stage.beyond[i].per_machine));
        let title = format!("machine of {}", counted(gpus_per_node, "GPU", "GPUs"));
        tables.push(self.bytes(&title, [machine(0), machine(1)].into()));
        let route = |route: &Route| (route.label(), self.of(|stage| stage.transfers_per_step.bytes(*route)));
        let routes = Route::ALL.iter().map(route).filter(|(_, bytes)| bytes.iter().any(|&bytes| bytes > 0));
        tables.push(self.bytes("moved per GPU and step", routes.collect()));
        tables
    }

    /// Returns the bytes that a GPU's rank holds in one place. Rows of zeros are left out, except
    /// the last.
    fn place(&self, i: usize) -> Table {
        let held = |class: Class| {
            move |stage: &StageReport| {
                let PlaceReport { model_states, memory, .. } = &stage.beyond[i];
                match (class, memory) {
                    (Class::Parameters, _) => model_states.parameters(),
                    (Class::Gradients, _) => model_states.gradients,
                    (Class::Optimizer, _) => model_states.optimizer(),
                    (_, memory) => memory.map_or(0, |memory| memory.peak(class)),
                }
            }
        };
        let rows = Class::ALL.iter().map(|&class| (class.label(), self.of(held(class))));
        let mut rows: Vec<_> = rows.filter(|(_, bytes)| bytes.iter().any(|&bytes| bytes > 0)).collect();
        let peak = BEYOND[i] == Place::Host && self.model.is_some();
        let total = if peak { "= peak at any one time" } else { "= together" };
        rows.push((total, self.of(|stage| stage.beyond[i].total)));
        self.bytes(&format!("{} per GPU", NAMES[i]), rows)
    }
}
