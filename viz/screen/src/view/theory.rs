//! The communication of a step according to theory, from the run's header: in bytes, and in
//! multiples of Ψ(N−1)/N per rank.

use crate::player::Scene;
use events::header::Sweep;
use events::{Operation, Purpose, RunHeader, Sent, amount};

/// Returns the elements that all ranks together send to move all parameters once: (N−1)Ψ, padding
/// included.
fn once(header: &RunHeader) -> f64 {
    let padded = amount::total(header.units.iter().map(|unit| unit.padded));
    padded.saturating_mul(header.world_size.saturating_sub(1).into()).max(1) as f64
}

fn of(header: &RunHeader, operation: Operation) -> impl Iterator<Item = &Sweep> {
    header.theory.iter().filter(move |sweep| sweep.operation == operation)
}

/// Returns how many times `bytes`, sent by all ranks together in `operation`, move all parameters.
pub(super) fn times(header: &RunHeader, operation: Operation, bytes: u64) -> f64 {
    let size = of(header, operation).next().map_or(header.communicated_bytes, |sweep| sweep.element_bytes);
    bytes as f64 / f64::from(size.max(1)) / once(header)
}

/// Returns how many times `sent`, by all ranks together, moves all parameters.
pub(super) fn times_of_all(header: &RunHeader, sent: &Sent) -> f64 {
    Operation::ALL.into_iter().map(|o| times(header, o, sent.by_operation[o.index()])).sum()
}

/// Returns how many times a step moves all parameters in `operation`; `None` if the theory has no
/// such operation.
pub(super) fn expected_times(header: &RunHeader, operation: Operation) -> Option<f64> {
    let elements = amount::total(of(header, operation).map(|sweep| sweep.elements_sent(header.world_size)));
    (elements > 0).then(|| elements as f64 / once(header))
}

/// The source of expected numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedSource {
    /// The theory in the run's header.
    Theory,
    /// The planner's prediction, for a header without theory.
    Planned,
}

events::labels! {
    ExpectedSource {
        Theory => "theory",
        Planned => "planned",
    }
}

#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// Bytes of model data, all ranks together.
    pub bytes: u64,
    /// The number of times that these bytes move all parameters.
    pub times: f64,
    /// The source of the numbers.
    pub source: ExpectedSource,
}

/// Returns the expected communication of a step. A step that was `skipped` because of an overflow
/// has no updates.
pub(super) fn expected(scene: &Scene, skipped: bool) -> Expected {
    let header = &scene.header;
    if header.theory.is_empty() {
        let data = |p: &&events::header::PredictedBytes<Operation>| p.of != Operation::Scalars;
        let planned = || header.predicted_traffic.iter().filter(data);
        let times = planned().map(|p| times(header, p.of, p.bytes)).sum();
        return Expected {
            bytes: amount::total(planned().map(|p| p.bytes)),
            times,
            source: ExpectedSource::Planned,
        };
    }
    let sweeps = || header.theory.iter().filter(|sweep| !skipped || sweep.purpose != Purpose::Updates);
    let elements = amount::total(sweeps().map(|sweep| sweep.elements_sent(header.world_size)));
    Expected {
        bytes: amount::total(sweeps().map(|sweep| sweep.bytes_sent(header.world_size))),
        times: elements as f64 / once(header),
        source: ExpectedSource::Theory,
    }
}

/// Returns the terms of theory in words, from the longest to the shortest.
pub(super) fn counts(header: &RunHeader) -> Vec<String> {
    if header.theory.is_empty() {
        return Vec::new();
    }
    let value = |sweep: &Sweep| {
        let times = sweep.elements_sent(header.world_size) as f64 / once(header);
        ((times * 100.0).round() / 100.0).to_string()
    };
    let long = |sweep: &Sweep| {
        let link = if sweep.purpose == Purpose::Groups { "across" } else { "for" };
        format!("{} {link} {} {}", sweep.operation, sweep.purpose, value(sweep))
    };
    let short = |sweep: &Sweep| format!("{} {}", sweep.purpose, value(sweep));
    let sum =
        |words: &dyn Fn(&Sweep) -> String| header.theory.iter().map(words).collect::<Vec<_>>().join(" + ");
    let (long, short) = (sum(&long), sum(&short));
    vec![
        format!("theory counts {long}"),
        format!("= {long}"),
        format!("theory counts {short}"),
        format!("= {short}"),
    ]
}
