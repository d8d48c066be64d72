//! Simulated links between ranks that share a machine, and between the places of a rank: presets,
//! and the syntax of `--link`, `--host-link` and `--disk-link`.

use crate::size::{self, human};
use collectives::local::{self, Link};
use prediction::Algorithm;
use std::time::Duration;

/// A named link: its name in the flag, its full name, its latency in microseconds, and its
/// bandwidth per direction in bytes per second.
type Preset = (&'static str, &'static str, u64, f64);

/// Links between ranks.
///
/// Bandwidths are the link's own, from its specification; NCCL reaches about four fifths of them.
/// Latencies are round numbers for the time that a collective's round takes to start over such a
/// link, kernel launch included.
///
/// | name | bandwidth |
/// |---|---|
/// | `nvlink` | NVLink 4 (H100): 18 links of 25 GB/s |
/// | `pcie4` | PCIe 4.0, 16 lanes of 16 GT/s, 128 of 130 bits payload |
/// | `ethernet25g` | 25 Gbit/s |
const BETWEEN_RANKS: [Preset; 3] = [
    ("nvlink", "NVLink 4", 5, 450e9),
    ("pcie4", "PCIe 4.0 x16", 10, 31.5e9),
    ("ethernet25g", "25G Ethernet", 50, 3.125e9),
];

/// Links between a GPU and main memory.
///
/// Bandwidths are per direction, from the specification; a copy of pinned memory reaches about four
/// fifths of them. Latencies are round numbers for the time that a copy takes to start.
///
/// | name | bandwidth | source |
/// |---|---|---|
/// | `pcie3` | 16 lanes of 8 GT/s, 128 of 130 bits payload | PCI-SIG, PCI Express Base Specification 3.0 |
/// | `pcie4` | 16 lanes of 16 GT/s, likewise | 4.0 |
/// | `pcie5` | 16 lanes of 32 GT/s, likewise | 5.0 |
/// | `nvlink-c2c` | 900 GB/s in both directions together | NVIDIA, Grace Hopper Superchip Architecture (2023) |
const TO_MAIN_MEMORY: [Preset; 4] = [
    ("pcie3", "PCIe 3.0 x16", 10, 15.75e9),
    ("pcie4", "PCIe 4.0 x16", 10, 31.5e9),
    ("pcie5", "PCIe 5.0 x16", 10, 63e9),
    ("nvlink-c2c", "NVLink-C2C", 5, 450e9),
];

/// A link that the flags ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkChoice {
    /// Its name; `None` if it is not a preset.
    name: Option<&'static str>,
    /// Its figures.
    pub link: Link,
}

impl LinkChoice {
    /// Describes it: `25G Ethernet: 50 µs, 3.13 GB/s`.
    pub fn describe(&self) -> String {
        let Link { latency, bandwidth } = self.link;
        let figures = format!("{}, {}/s", duration(latency), human(bandwidth as u64));
        self.name.map_or(figures.clone(), |name| format!("{name}: {figures}"))
    }
}

/// Writes `link` as `--link` reads it: `12.3us,3.45GB/s`, in three digits.
pub fn flag(link: &Link) -> String {
    let nanos = link.latency.as_nanos() as f64;
    let (latency, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n => (n / 1e6, "ms"),
    };
    let time = if nanos == 0.0 { "0".into() } else { format!("{} {unit}", size::digits(latency)) };
    format!("{time},{}/s", human(link.bandwidth as u64)).replace(' ', "")
}

/// Returns the algorithm of collectives with this name.
pub fn algorithm(named: Algorithm) -> local::Algorithm {
    match named {
        Algorithm::Direct => local::Algorithm::Direct,
        Algorithm::Ring => local::Algorithm::Ring,
    }
}

/// Reads `--link`.
pub(crate) fn parse(text: &str) -> Result<LinkChoice, String> {
    read(text, &BETWEEN_RANKS, "50us,3GB/s")
}

/// Reads `--host-link`.
pub(crate) fn parse_host(text: &str) -> Result<LinkChoice, String> {
    read(text, &TO_MAIN_MEMORY, "10us,12GB/s")
}

/// Reads `--disk-link`.
pub(crate) fn parse_disk(text: &str) -> Result<LinkChoice, String> {
    read(text, &[], "100us,3GB/s")
}

/// Reads one of `presets`, or figures such as `example`.
fn read(text: &str, presets: &[Preset], example: &str) -> Result<LinkChoice, String> {
    if let Some(&(_, name, micros, bandwidth)) = presets.iter().find(|preset| preset.0 == text) {
        let link = Link { latency: Duration::from_micros(micros), bandwidth };
        return Ok(LinkChoice { name: Some(name), link });
    }
    let (latency, bandwidth) = text.split_once(',').ok_or_else(|| {
        let names: String = presets.iter().map(|preset| format!("{}, ", preset.0)).collect();
        let or = if names.is_empty() { "" } else { "or " };
        format!("write {names}{or}LATENCY,BANDWIDTH such as {example}")
    })?;
    Ok(LinkChoice { name: None, link: Link { latency: time(latency)?, bandwidth: rate(bandwidth)? } })
}

/// Reads `50us`, `0.2ms`, `1s`, `0`; at most ten seconds.
fn time(text: &str) -> Result<Duration, String> {
    let advice = || format!("latency {text:?}: write 0 to 10s, such as 50us, 0.2ms or 1s");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[digits..] {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if text == "0" => 1.0,
        _ => return Err(advice()),
    };
    let seconds = text[..digits].parse::<f64>().map_err(|_| advice())? * factor;
    if (0.0..=10.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(advice()) }
}

/// Reads `3GB/s`, `100MiB/s`, `25Gbit/s`; at least a kilobyte per second.
fn rate(text: &str) -> Result<f64, String> {
    let advice = || format!("bandwidth {text:?}: write 1kB/s or more, such as 3GB/s, 100MiB/s or 25Gbit/s");
    let per_second = text.trim().strip_suffix("/s").ok_or_else(advice)?;
    let bytes = match per_second.strip_suffix("bit") {
        Some(bits) => size::parse(bits).map_err(|_| advice())? / 8,
        None => size::parse(per_second).map_err(|_| advice())?,
    };
    if bytes >= 1000 { Ok(bytes as f64) } else { Err(advice()) }
}

/// Formats a time in the largest unit that gives at least 1: `50 µs`.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let (unit, label) = units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1.0, "s"));
    // Rounded to three decimals, because binary fractions print many more.
    format!("{} {label}", (seconds / unit * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests;
