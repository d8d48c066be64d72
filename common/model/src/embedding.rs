//! The embedding: token ids to vectors.
//!
//! | pass | step | allocates | frees |
//! |---|---|---|---|
//! | forward | x = table\[ids\] | x \[R·d·e, activations\] | |
//! | backward | dtable\[ids\] += dx | | dx |

use crate::context::{Batch, Model};
use crate::tensors::{gradient, weight};
use crate::{Gradients, Weights};
use device::{Buffer, Class, Device, Embedding, EmbeddingBackward, Result, RowShape};

impl Model {
    /// Computes `x = table[ids]`: `[R, d]`, in the weights' type. `ids`: u32 `[R]`, below the
    /// vocabulary.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn embed(
        &self,
        device: &Device,
        weights: &dyn Weights,
        ids: &Buffer,
        batch: Batch,
    ) -> Result<Buffer> {
        let table = weight(weights, 0);
        let shape = RowShape { rows: batch.rows(), width: self.config.width };
        let mut x = device.allocate(Class::Activations, table.dtype(), shape.rows * shape.width)?;
        device.kernels().embedding(Embedding {
            out: x.view_mut(),
            table,
            ids: ids.view(),
            vocabulary: self.config.vocabulary,
            shape,
        })?;
        Ok(x)
    }

    /// Computes the backward of [`Model::embed`]: the table's gradient from `dx` `[R, d]`. Frees
    /// `dx`.
    ///
    /// # Errors
    /// A kernel's error.
    pub fn embed_backward(
        &self,
        device: &Device,
        gradients: &mut dyn Gradients,
        ids: &Buffer,
        dx: Buffer,
        batch: Batch,
    ) -> Result<()> {
        let (dtable, write) = gradient(gradients, 0);
        let shape = RowShape { rows: batch.rows(), width: self.config.width };
        device.kernels().embedding_backward(EmbeddingBackward {
            dtable,
            write,
            dout: dx.view(),
            ids: ids.view(),
            vocabulary: self.config.vocabulary,
            shape,
        })
    }
}
