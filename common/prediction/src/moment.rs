//! Moments of a run: they say when memory was at its peak or ran out.

use events::{Class, Pass};
use model::LayerKind;
use std::fmt;

/// A rank's position in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// Before the first step: model states are allocated.
    #[default]
    Setup,
    /// A pass over a layer; recomputation belongs to backward.
    Layer(Pass, LayerKind),
    /// The optimizer step.
    Update,
    /// Between steps or after the last: training states are gathered in main memory.
    Gathering,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Setup => f.write_str("setup"),
            Moment::Layer(pass, LayerKind::Embedding) => write!(f, "{} of the embedding", words(*pass)),
            Moment::Layer(pass, LayerKind::Block(number)) => write!(f, "{} of block {number}", words(*pass)),
            Moment::Layer(pass, LayerKind::Head) => write!(f, "{} of the head", words(*pass)),
            Moment::Update => f.write_str("the optimizer step"),
            Moment::Gathering => f.write_str("gathering states to hash or save"),
        }
    }
}

fn words(pass: Pass) -> &'static str {
    match pass {
        Pass::Evaluate => "validation",
        pass => pass.label(),
    }
}

/// The first moment at which a rank's memory is at its peak, and the bytes of each class then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The moment.
    pub moment: Moment,
    /// Bytes per class, in [`Class::ALL`]'s order.
    pub live: [u64; Class::ALL.len()],
}

impl Peak {
    /// Returns the bytes of all classes together.
    pub fn total(&self) -> u64 {
        self.live.iter().sum()
    }
}
