//! Popular claims about ZeRO, next to the computed facts.
//!
//! Each claim is from a document that many people learn from. This crate computes the numbers next
//! to it.

mod advice;
mod memory;

use crate::numbers::plain;
use prediction::Stage;
use prediction::recipe::{ByteUnit, Recipe};
use serde::Serialize;
use shell::table::Table;

const BILLION: u64 = 1_000_000_000;
const GIB: f64 = ByteUnit::Gibibyte.bytes();

/// The documents that claims are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Document {
    /// *ZeRO and FSDP: Memory-Efficient Data Parallelism*, a tutorial.
    Tutorial,
    /// *DeepSpeed ZeRO for Distributed Training*, one lesson of a course.
    Course,
    /// *AI in Multiple GPUs: ZeRO & FSDP*, an article.
    Article,
    /// *ZeRO Optimization Deep Dive*, a guide.
    Guide,
    /// The seventh notebook of a series on the *Ultra-Scale Playbook*.
    Notebook,
}

events::labels! {
    Document {
        Tutorial => "tutorial",
        Course => "course",
        Article => "article",
        Guide => "guide",
        Notebook => "notebook",
    }
}

/// A claim and the computed facts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The document that makes the claim.
    pub source: Document,
    /// The claim.
    pub says: &'static str,
    /// The facts, with their numbers.
    pub holds: String,
    /// The numbers in `holds`, unrounded, in order.
    pub numbers: Vec<f64>,
}

/// Returns every claim with the computed facts.
pub fn claims() -> Vec<Claim> {
    [memory::claims(), advice::claims()].concat()
}

/// Returns the claims as a table.
pub fn table() -> Table {
    let mut table = Table::prose(["source", "claim", "what holds"]);
    for claim in claims() {
        table.row(claim.source.label(), [claim.says.to_string(), claim.holds]);
    }
    table
}

/// Fills the `{}` of `pattern` with `numbers`, each to at most `decimals` places.
fn claim(source: Document, says: &'static str, decimals: usize, pattern: &str, numbers: &[f64]) -> Claim {
    let mut holds = String::new();
    let mut parts = pattern.split("{}");
    holds.push_str(parts.next().unwrap_or_default());
    for (part, number) in parts.zip(numbers) {
        holds.push_str(&plain(*number, decimals));
        holds.push_str(part);
    }
    Claim { source, says, holds, numbers: numbers.to_vec() }
}

/// How many times less than DDP, in the mixed recipe.
fn times_less(gpus: usize, stage: Stage) -> f64 {
    let of = |stage| Recipe::MIXED.gigabytes(1024 * BILLION, gpus, stage);
    of(Stage::REPLICATED) / of(stage)
}
