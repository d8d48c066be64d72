//! The link that explains the measurements: latency α and bandwidth 1/β, as `--link` takes them.
//!
//! A call of r rounds in which the busiest rank sends b bytes takes α · r + β · b, as
//! [`Link::cost`] computes it. A least-squares fit finds α and β over all operations and sizes of
//! an engine. It weighs each median's error relative to that median, so small buffers count as much
//! as large ones.

use crate::engine::Engine;
use crate::row::Row;
use collectives::local::Link;
use settings::link;
use settings::size::human;
use std::time::Duration;

/// The cost of an engine's calls.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) engine: Engine,
    pub(crate) link: Link,
    /// The median share by which the link misses the times that were measured.
    pub(crate) error: f64,
}

/// Returns a link per engine, in the order of `rows`. An engine that was measured at one size has
/// none, for one size does not tell latency from bandwidth; nor has a single rank.
pub(crate) fn models(rows: &[Row]) -> Vec<Model> {
    let mut engines: Vec<Engine> = rows.iter().map(|row| row.engine).collect();
    engines.dedup();
    let of = |engine| rows.iter().filter(move |row| row.engine == engine);
    engines.into_iter().filter_map(|engine| Model::fit(engine, &of(engine).collect::<Vec<_>>())).collect()
}

/// A measured call: its rounds and the bytes sent, both divided by its median time in seconds.
type Call = (f64, f64);

impl Model {
    fn fit(engine: Engine, rows: &[&Row]) -> Option<Self> {
        let first = rows.first()?;
        if first.ranks < 2 || rows.iter().all(|row| row.size == first.size) {
            return None;
        }
        let calls: Vec<Call> = rows.iter().map(|row| call(engine, row)).collect();
        let (alpha, beta) = solve(&calls);
        let mut errors: Vec<f64> = calls.iter().map(|(r, b)| (alpha * r + beta * b - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let link = Link { latency: Duration::try_from_secs_f64(alpha).ok()?, bandwidth: 1.0 / beta };
        Some(Model { engine, link, error: errors[errors.len() / 2] })
    }

    /// Returns the link as the flag's value.
    pub(crate) fn flag(&self) -> String {
        link::flag(&self.link)
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<8}{:>10.1} µs{:>12}/s{:>10.0} %   --link {}",
            self.engine.label(),
            self.link.latency.as_secs_f64() * 1e6,
            human(self.link.bandwidth as u64),
            100.0 * self.error,
            self.flag()
        )
    }
}

fn call(engine: Engine, row: &Row) -> Call {
    let (algorithm, seconds) = (engine.algorithm(), row.median.as_secs_f64());
    let rounds = algorithm.rounds(row.operation, row.ranks as u32);
    (f64::from(rounds) / seconds, row.sent(algorithm) / seconds)
}

/// Returns the α and β, neither negative, for which α · r + β · b comes nearest to 1 over all
/// `calls`, in squares.
fn solve(calls: &[Call]) -> (f64, f64) {
    let sum = |term: fn(&Call) -> f64| calls.iter().map(term).sum::<f64>();
    let (rr, rb, bb) = (sum(|(r, _)| r * r), sum(|(r, b)| r * b), sum(|(_, b)| b * b));
    let (r, b) = (sum(|(r, _)| *r), sum(|(_, b)| *b));
    let determinant = rr * bb - rb * rb;
    let (alpha, beta) = ((r * bb - b * rb) / determinant, (b * rr - r * rb) / determinant);
    match () {
        () if alpha.is_finite() && alpha >= 0.0 && beta > 0.0 => (alpha, beta),
        // Larger buffers took no longer: all the time is latency, and bandwidth has no limit here.
        () if beta <= 0.0 => (r / rr, 1e-15),
        () => (0.0, b / bb),
    }
}

#[cfg(test)]
mod tests;
