//! The numbers of a run that chapters ask for.

use events::say::grouped;
use events::{Class, Operation, Place, Route};
use report::{LinkRow, TransferRow};
use serde::Deserialize;
use trainer::Report;

/// Maximum relative difference at which a measured time counts as predicted, because machines
/// differ.
const CLOSE: f64 = 0.1;

/// A number in a run's report, of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Peak bytes of a class on the device.
    Peak(Class),
    /// Peak bytes of a class in a place.
    PeakIn(Place, Class),
    /// Peak bytes of all classes on the device at any one time.
    TotalPeak,
    /// Bytes moved on a route between places.
    Moved(Route),
    /// Bytes sent in an operation.
    Sent(Operation),
    /// Bytes sent in all operations that move model states.
    SentInAll,
    /// Milliseconds of waiting for a simulated link. The prediction is the link's time for
    /// everything that is sent directly (not through a ring), with no overlap.
    Exposed,
    /// Milliseconds of waiting for the simulated link between device and main memory. The
    /// prediction is the time of all transfers one after another, with no overlap.
    Crossing,
}

impl Figure {
    /// Returns the predicted and the measured number.
    pub fn of(self, report: &Report) -> (u64, u64) {
        let sent = |wanted: &dyn Fn(Operation) -> bool| {
            let rows = report.traffic.iter().filter(|row| row.rank == 0 && wanted(row.operation));
            rows.fold((0, 0), |(p, m), row| (p + row.predicted_bytes, m + row.bytes_sent))
        };
        match self {
            Figure::Peak(class) => peak(report, Place::Device, class),
            Figure::PeakIn(place, class) => peak(report, place, class),
            Figure::TotalPeak => {
                report.total_peak_bytes.first().map_or((0, 0), |row| (row.predicted_bytes, row.peak_bytes))
            }
            Figure::Moved(route) => {
                let own = report.transfers.iter().find(|row| row.rank == 0 && row.route == route);
                own.map_or((0, 0), |row| (row.predicted_bytes, row.bytes))
            }
            Figure::Sent(operation) => sent(&|other| other == operation),
            Figure::SentInAll => sent(&|other| other != Operation::Scalars),
            Figure::Exposed => (whole(on_the_link(report)), whole(waited_for_the_link(report))),
            Figure::Crossing => (whole(crossing(report)), whole(waited_for_crossings(report))),
        }
    }

    /// Returns the number's unit.
    pub fn unit(self) -> &'static str {
        if self.is_time() { "ms" } else { "bytes" }
    }

    /// Returns the maximum relative error of a correct guess.
    pub fn tolerance(self) -> f64 {
        if self.is_time() { CLOSE } else { 0.01 }
    }

    fn is_time(self) -> bool {
        matches!(self, Figure::Exposed | Figure::Crossing)
    }

    /// Returns prediction and measurement in the book's format. No two runs take equally long, so a
    /// measured time is described by its closeness to the prediction.
    pub fn said(self, report: &Report) -> [String; 2] {
        let (predicted, measured) = self.of(report);
        if !self.is_time() {
            return [predicted, measured].map(grouped);
        }
        let otherwise = seconds(report) - measured as f64 / 1e3;
        let measured = if is_close(predicted, measured, whole(otherwise)) {
            format!("within {} %, not counting time spent computing", CLOSE * 100.0)
        } else {
            format!("{} ms", grouped(measured))
        };
        [format!("{} ms", grouped(predicted)), measured]
    }
}

/// True if the wait for a link is as predicted. It may be shorter by the time in which the rank did
/// something else or had no processor, because the link transfers during that time too.
fn is_close(predicted: u64, measured: u64, otherwise: u64) -> bool {
    let apart = CLOSE * predicted as f64;
    let least = predicted.saturating_sub(otherwise) as f64 - apart;
    (least..=predicted as f64 + apart).contains(&(measured as f64))
}

fn whole(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

/// Returns the seconds that a link takes for `calls` calls and `bytes` bytes.
pub(crate) fn time_on(link: &LinkRow, calls: u64, bytes: u64) -> f64 {
    calls as f64 * link.latency_seconds + bytes as f64 / link.bytes_per_second
}

/// Returns the seconds that the link takes for everything that rank 0 sends: α per round, and the
/// bytes over β.
fn on_the_link(report: &Report) -> f64 {
    let Some(link) = &report.link else { return 0.0 };
    let of_rank = report.traffic.iter().filter(|row| row.rank == 0);
    let seconds = of_rank.map(|row| {
        let rounds = row.predicted_calls * row.operation.rounds();
        time_on(link, rounds, row.predicted_bytes)
    });
    seconds.sum()
}

fn waited_for_the_link(report: &Report) -> f64 {
    let own = report.time.iter().find(|row| row.rank == 0).map(|row| &row.clocks.for_link);
    own.map_or(0.0, |waits| waits.forward + waits.backward + waits.step)
}

/// Returns the total seconds of rank 0's steps.
pub(crate) fn seconds(report: &Report) -> f64 {
    report.time.iter().find(|row| row.rank == 0).map_or(0.0, |row| row.seconds)
}

/// Returns rank 0's peak of `class` in `place`, predicted and measured.
fn peak(report: &Report, place: Place, class: Class) -> (u64, u64) {
    let wanted = (0, place, class);
    let own = report.memory.iter().find(|row| (row.rank, row.place, row.class) == wanted);
    own.map_or((0, 0), |row| (row.predicted_bytes, row.peak_bytes))
}

/// Returns the rows of rank 0's transfers between device and main memory.
fn crossings(report: &Report) -> impl Iterator<Item = &TransferRow> {
    let crosses =
        |row: &&TransferRow| row.rank == 0 && matches!(row.route, Route::DeviceToHost | Route::HostToDevice);
    report.transfers.iter().filter(crosses)
}

/// Returns the seconds that the simulated link between device and main memory takes for everything
/// that rank 0 moves: α per transfer, and the bytes over β.
pub(crate) fn crossing(report: &Report) -> f64 {
    let Some(link) = &report.host_link else { return 0.0 };
    crossings(report).map(|row| time_on(link, row.predicted_calls, row.predicted_bytes)).sum()
}

/// Returns the seconds that rank 0 waited for transfers between device and main memory.
pub(crate) fn waited_for_crossings(report: &Report) -> f64 {
    crossings(report).map(|row| row.waited_seconds).sum()
}

#[cfg(test)]
mod tests;
