//! The collective that sums gradients.

use clap::ValueEnum;
use serde::Serialize;

/// How gradients are summed where a rank updates a slice of what it holds in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradSync {
    /// Each rank receives the slice that it updates.
    #[default]
    ReduceScatter,
    /// Each rank receives everything and uses its slice: the textbook version, to show its cost.
    AllReduce,
}
