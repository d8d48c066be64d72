//! Bytes per parameter, and the model states of a rank as closed forms.

use crate::stage::Stage;
use events::Class;
use serde::Serialize;
use std::iter::Sum;

/// Bytes per element of a value that is not rounded.
pub const F32: u64 = 4;

/// The unit that a table is printed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ByteUnit {
    /// 10⁹ bytes.
    #[serde(rename = "GB")]
    Gigabyte,
    /// 2³⁰ bytes.
    #[serde(rename = "GiB")]
    Gibibyte,
}

events::labels! { ByteUnit { Gigabyte => "GB", Gibibyte => "GiB" } }

impl ByteUnit {
    /// Returns the bytes in one of it.
    pub const fn bytes(self) -> f64 {
        match self {
            ByteUnit::Gigabyte => 1e9,
            ByteUnit::Gibibyte => (1u64 << 30) as f64,
        }
    }
}

/// How many bytes each model state takes per parameter, with Adam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// Its name on the command line.
    pub name: &'static str,
    /// Bytes per weight that forward and backward compute with.
    pub weights: u64,
    /// Bytes per gradient.
    pub gradients: u64,
    /// Bytes per master weight that the optimizer updates; 0 if it updates the weights themselves.
    pub master: u64,
    /// Bytes per element of Adam's first moment.
    pub momentum: u64,
    /// Bytes per element of Adam's second moment.
    pub variance: u64,
    /// The first stage that shards master weights: ZeRO-1, since they are optimizer states; only
    /// [`Recipe::NOTEBOOK`] follows a source that keeps them whole until ZeRO-3.
    pub master_sharded_from: Stage,
    /// The unit in which its source prints.
    pub unit: ByteUnit,
}

impl Recipe {
    /// Single precision throughout: 4 + 4 + 8 bytes. No master weights.
    pub const FP32: Recipe = Recipe {
        name: "fp32",
        weights: 4,
        gradients: 4,
        master: 0,
        momentum: 4,
        variance: 4,
        master_sharded_from: Stage::SHARDS_OPTIMIZER,
        unit: ByteUnit::Gigabyte,
    };
    /// 16-bit weights and gradients, fp32 master weights and moments: 2 + 2 + 12 bytes, K = 12 in
    /// the ZeRO paper (section 3.1).
    pub const MIXED: Recipe = Recipe { name: "mixed", weights: 2, gradients: 2, master: 4, ..Recipe::FP32 };
    /// 16-bit weights, fp32 gradients and moments, no master weights: 2 + 4 + 8 bytes.
    pub const MIXED_FP32_GRADIENTS: Recipe = Recipe { name: "mixed-fp32-grads", weights: 2, ..Recipe::FP32 };
    /// 16-bit weights and gradients, fp32 moments, no master weights: 2 + 2 + 8 bytes. A sum that
    /// forgets the master weights gives this.
    pub const NO_MASTER: Recipe = Recipe { name: "no-master", weights: 2, gradients: 2, ..Recipe::FP32 };
    /// [`Recipe::MIXED`] with master weights that stay whole until ZeRO-3, printed in GiB.
    pub const NOTEBOOK: Recipe = Recipe {
        name: "notebook",
        master_sharded_from: Stage::SHARDS_PARAMETERS,
        unit: ByteUnit::Gibibyte,
        ..Recipe::MIXED
    };

    /// Every recipe, in the order in which help texts list them.
    pub const ALL: [Recipe; 5] =
        [Recipe::MIXED, Recipe::FP32, Recipe::MIXED_FP32_GRADIENTS, Recipe::NO_MASTER, Recipe::NOTEBOOK];

    /// True if a run can train with this recipe; the others are for comparing documents.
    pub fn is_trainable(&self) -> bool {
        [Recipe::MIXED, Recipe::FP32].contains(self)
    }

    /// Returns the bytes of optimizer states per parameter (K in the paper).
    pub const fn optimizer(&self) -> u64 {
        self.master + self.momentum + self.variance
    }

    /// Returns the bytes of all model states per parameter.
    pub const fn total(&self) -> u64 {
        self.weights + self.gradients + self.optimizer()
    }

    /// Returns the model states of one rank of `world_size`, in bytes, for units of the given
    /// numbers of parameters. Each unit is padded to a multiple of the shard count; a bare count Ψ
    /// is one unit.
    ///
    /// Ψ parameters and K optimizer bytes give (2+2+K)Ψ, 4Ψ + KΨ/N, 2Ψ + (2+K)Ψ/N and (4+K)Ψ/N in
    /// mixed precision (ZeRO paper, figure 1).
    pub fn model_states(&self, units: &[u64], world_size: usize, stage: Stage) -> ModelStates {
        let shards = stage.shard_count(world_size.max(1));
        let shard: u64 = units.iter().map(|unit| unit.div_ceil(shards)).sum();
        let held = |is_sharded: bool| if is_sharded { shard } else { shard * shards };
        let sharded = stage.sharded();
        ModelStates {
            weights: held(sharded.parameters) * self.weights,
            gradients: held(sharded.gradients) * self.gradients,
            master: held(stage >= self.master_sharded_from) * self.master,
            momentum: held(sharded.optimizer) * self.momentum,
            variance: held(sharded.optimizer) * self.variance,
            secondary: 0,
        }
    }

    /// Returns the model states of one rank in GB, for a model of one unit.
    pub fn gigabytes(&self, parameters: u64, world_size: usize, stage: Stage) -> f64 {
        self.model_states(&[parameters], world_size, stage).total() as f64 / 1e9
    }
}

/// Bytes that one rank holds between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStates {
    /// Weights.
    pub weights: u64,
    /// Gradients.
    pub gradients: u64,
    /// Master weights.
    pub master: u64,
    /// Adam's first moment.
    pub momentum: u64,
    /// Adam's second moment.
    pub variance: u64,
    /// Secondary shards: a second copy of weights, from which backward gathers.
    pub secondary: u64,
}

impl Sum for ModelStates {
    fn sum<I: Iterator<Item = ModelStates>>(units: I) -> Self {
        units.fold(ModelStates::default(), |sum, unit| ModelStates {
            weights: sum.weights + unit.weights,
            gradients: sum.gradients + unit.gradients,
            master: sum.master + unit.master,
            momentum: sum.momentum + unit.momentum,
            variance: sum.variance + unit.variance,
            secondary: sum.secondary + unit.secondary,
        })
    }
}

impl ModelStates {
    /// Returns the bytes of weights, secondary shards included.
    pub fn parameters(&self) -> u64 {
        self.weights + self.secondary
    }

    /// Returns the bytes of optimizer states.
    pub fn optimizer(&self) -> u64 {
        self.master + self.momentum + self.variance
    }

    /// Returns the bytes of all model states.
    pub fn total(&self) -> u64 {
        self.parameters() + self.gradients + self.optimizer()
    }

    /// Returns these bytes by the ledger's classes.
    pub fn by_class(&self) -> [(Class, u64); 3] {
        [
            (Class::Parameters, self.parameters()),
            (Class::Gradients, self.gradients),
            (Class::Optimizer, self.optimizer()),
        ]
    }
}
