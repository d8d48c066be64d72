//! Where in a run a rank is: what a peak of memory, or its end, happened in.

use events::{Class, Pass};
use model::LayerKind;
use std::fmt;

/// A phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// Before the first step: model states are allocated.
    #[default]
    Setup,
    /// A pass over a layer; what backward computes again belongs to backward.
    Layer(Pass, LayerKind),
    /// The optimizer step.
    Update,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Setup => f.write_str("setup"),
            Moment::Layer(pass, LayerKind::Embedding) => write!(f, "{} of the embedding", words(*pass)),
            Moment::Layer(pass, LayerKind::Block(number)) => write!(f, "{} of block {number}", words(*pass)),
            Moment::Layer(pass, LayerKind::Head) => write!(f, "{} of the head", words(*pass)),
            Moment::Update => f.write_str("the optimizer step"),
        }
    }
}

fn words(pass: Pass) -> &'static str {
    match pass {
        Pass::Evaluate => "validation",
        pass => pass.label(),
    }
}

/// When a rank's memory is at its peak for the first time, and what it consists of then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// When.
    pub moment: Moment,
    /// Bytes per class, in [`Class::ALL`]'s order.
    pub live: [u64; Class::ALL.len()],
}

impl Peak {
    /// Bytes, all classes together.
    pub fn total(&self) -> u64 {
        self.live.iter().sum()
    }
}
