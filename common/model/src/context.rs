//! The model, the shape of a micro-batch, and the context that every layer's passes share.

use crate::layout::BlockTensors;
use crate::{Layout, ModelConfig, ModelError, Weights};
use device::{
    Addend, AttentionShape, Buffer, Class, DType, Device, Matmul, Matrix, Result, Rope, Rounding, RowShape,
    View, ViewMut,
};

/// A model: its numbers and its tensors, without the weights; see [`Weights`].
///
/// The passes are methods, one pair per kind of layer: [`Model::embed`], [`Model::block`] and
/// [`Model::head`], with their backwards. All fail with `OutOfMemory` if an allocation exceeds the
/// ledger's capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The numbers that define the architecture.
    pub config: ModelConfig,
    /// The tensors and layers.
    pub layout: Layout,
    /// The format to which weights, inputs and gradients are rounded before projections multiply
    /// them.
    pub rounding: Rounding,
}

impl Model {
    /// Returns the model that `config` describes. It multiplies elements as they are stored.
    ///
    /// # Errors
    /// [`ModelError::Invalid`], as [`ModelConfig::validate`].
    pub fn new(config: ModelConfig) -> std::result::Result<Self, ModelError> {
        config.validate()?;
        let layout = Layout::new(&config);
        Ok(Model { config, layout, rounding: Rounding::None })
    }

    pub(crate) fn context<'a>(
        &'a self,
        device: &'a Device,
        weights: &'a dyn Weights,
        batch: Batch,
    ) -> Context<'a> {
        Context { config: &self.config, device, weights, batch, rounding: self.rounding }
    }
}

/// Shape of a micro-batch on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence (T).
    pub tokens: usize,
}

impl Batch {
    /// Returns the number of tokens in all sequences (R): the rows of every activation.
    pub const fn rows(&self) -> usize {
        self.batch * self.tokens
    }
}

/// One layer's pass over one micro-batch.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) device: &'a Device,
    pub(crate) weights: &'a dyn Weights,
    pub(crate) batch: Batch,
    rounding: Rounding,
}

impl Context<'_> {
    /// Computes a projection's product, `out = addend + a · b`.
    pub(crate) fn multiply(
        &self,
        out: Matrix<ViewMut<'_>>,
        a: Matrix<View<'_>>,
        b: Matrix<View<'_>>,
        addend: Addend<View<'_>>,
    ) -> Result<()> {
        self.device.kernels().product(Matmul { out, a, b, addend, rounding: self.rounding })
    }

    /// Returns the shape of R vectors of `width` elements.
    pub(crate) fn row_shape(&self, width: usize) -> RowShape {
        RowShape { rows: self.batch.rows(), width }
    }

    /// Returns the positions of a block's tensors.
    pub(crate) fn tensors(&self) -> BlockTensors {
        BlockTensors::of(self.config.family)
    }

    pub(crate) fn attention(&self) -> AttentionShape {
        let ModelConfig { heads, kv_heads, head_dim, .. } = *self.config;
        AttentionShape { batch: self.batch.batch, tokens: self.batch.tokens, heads, kv_heads, head_dim }
    }

    /// Returns forward's rotation of queries and keys.
    pub(crate) fn rope(&self) -> Rope {
        let ModelConfig { rope_theta: theta, rope_scaling: scaling, .. } = *self.config;
        Rope { attention: self.attention(), theta, scaling, first_position: 0, inverse: false }
    }

    /// Allocates an activation of R rows, with unspecified values.
    pub(crate) fn activation(&self, dtype: DType, width: usize) -> Result<Buffer> {
        self.device.allocate(Class::Activations, dtype, self.batch.rows() * width)
    }

    /// Allocates a gradient of R rows, with unspecified values.
    pub(crate) fn workspace(&self, dtype: DType, width: usize) -> Result<Buffer> {
        self.device.allocate(Class::Workspace, dtype, self.batch.rows() * width)
    }
}
