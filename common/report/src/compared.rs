//! Predictions next to measurements, as the rows of a report.

use crate::measured::{Measured, Peaks};
use crate::rows::{
    EvaluationRow, MemoryRow, NeighbourRow, TimeRow, TotalRow, TrafficRow, TransferRow, operation_times,
};
use events::{Class, Operation, Place, Route};
use prediction::Saving;

/// Predicted figures, to compare with the measured ones.
pub struct Predicted {
    /// Peak bytes by rank and place, in [`Place::ALL`]'s order.
    pub memory: Vec<Vec<Peaks>>,
    /// Transfers between places, by rank, over the steps that were run.
    pub transfers: Vec<prediction::Transfers>,
    /// Payload and collectives by rank, over the steps that were run.
    pub traffic: Vec<prediction::traffic::Traffic>,
    /// Payload to neighbours by rank, part of `traffic`.
    pub to_neighbours: Vec<u64>,
    /// How each rank saves its part of a checkpoint.
    pub saving: Saving,
}

/// The predictions and the measurements of all ranks.
pub(crate) struct Compared<'a> {
    pub predicted: &'a Predicted,
    pub measured: &'a [Measured],
}

impl Compared<'_> {
    /// Returns the peaks of every class in `places`.
    pub(crate) fn memory(&self, places: &[Place]) -> Vec<MemoryRow> {
        let classes = |&place: &Place| Class::ALL.iter().map(move |&class| (place, class));
        let keys: Vec<(Place, Class)> = places.iter().flat_map(classes).collect();
        self.rows(&keys, |rank, (place, class), m| MemoryRow {
            rank,
            place,
            class,
            predicted_bytes: self.predicted.memory[rank][place.index()].classes[class.index()],
            peak_bytes: m.memory[place.index()].classes[class.index()],
        })
    }

    /// Returns the peaks of all classes together, place by place.
    pub(crate) fn totals(&self, places: &[Place]) -> Vec<TotalRow> {
        let total = |rank: usize, place: Place, m: &Measured| TotalRow {
            rank,
            place,
            predicted_bytes: self.predicted.memory[rank][place.index()].total,
            peak_bytes: m.memory[place.index()].total,
        };
        places.iter().flat_map(|&place| self.rows(&[place], total)).collect()
    }

    /// Returns the transfers between places.
    pub(crate) fn transfers(&self, routes: &[Route]) -> Vec<TransferRow> {
        self.rows(routes, |rank, route, m| TransferRow {
            rank,
            route,
            predicted_bytes: self.predicted.transfers[rank].bytes(route),
            bytes: m.transfers.bytes[route.index()],
            predicted_calls: self.predicted.transfers[rank].calls(route),
            calls: m.transfers.calls[route.index()],
            waited_seconds: m.transfers.waited[route.index()],
            validation_bytes: m.validation_transfers.bytes[route.index()],
            validation_waited_seconds: m.validation_transfers.waited[route.index()],
            other_bytes: m.other_transfers.bytes[route.index()],
            other_waited_seconds: m.other_transfers.waited[route.index()],
        })
    }

    /// Returns the traffic of the ranks.
    pub(crate) fn traffic(&self) -> Vec<TrafficRow> {
        self.rows(&Operation::ALL, |rank, operation, m| TrafficRow {
            rank,
            operation,
            predicted_bytes: self.predicted.traffic[rank].bytes(operation),
            bytes_sent: m.traffic.sent(operation),
            predicted_calls: self.predicted.traffic[rank].calls(operation),
            calls: m.traffic.calls[operation.index()],
        })
    }

    /// Returns the traffic within groups of neighbours; empty without such groups.
    pub(crate) fn to_neighbours(&self) -> Vec<NeighbourRow> {
        let row = |(rank, m): (usize, &Measured)| {
            let predicted_bytes = self.predicted.to_neighbours[rank];
            m.to_neighbours.map(|bytes_sent| NeighbourRow { rank, predicted_bytes, bytes_sent })
        };
        self.measured.iter().enumerate().filter_map(row).collect()
    }

    /// Returns the validation losses, which are the same on every rank.
    pub(crate) fn evaluations(&self) -> Vec<EvaluationRow> {
        self.measured[0].evaluations.iter().map(|&(step, loss)| EvaluationRow { step, loss }).collect()
    }

    /// Returns each rank's seconds per phase.
    pub(crate) fn times(&self) -> Vec<TimeRow> {
        self.rows(&[()], |rank, (), m| TimeRow {
            rank,
            seconds: m.seconds,
            clocks: m.clocks,
            operations: operation_times(&m.traffic),
        })
    }

    /// Returns a row for each rank and each of `keys`.
    fn rows<K: Copy, R>(&self, keys: &[K], row: impl Fn(usize, K, &Measured) -> R) -> Vec<R> {
        let of_rank = |(rank, m)| keys.iter().map(|&key| row(rank, key, m)).collect::<Vec<_>>();
        self.measured.iter().enumerate().flat_map(of_rank).collect()
    }
}
