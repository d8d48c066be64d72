//! Numbers that the host waits for: largest magnitudes and sums of squares, of many tensors with
//! one wait.

use super::GpuKernels;
use crate::Result;
use crate::cuda::kernels::{self, Operand};
use crate::cuda::{RESULT, RESULTS};
use crate::kernels::max_or_nan;
use crate::view::View;

impl GpuKernels {
    /// The largest magnitude of all tensors, which lie on the GPU; NaN if any element is NaN, 0 if
    /// there are none.
    pub(super) fn largest_of(&self, all: &[View<'_>]) -> Result<f32> {
        let launch = |result, x: Operand, len| kernels::max_magnitude(&*self.rank, result, x, len);
        let results = self.reduce("max_magnitude", all, launch)?;
        let value = |[a, b, c, d, ..]: [u8; RESULT]| f32::from_le_bytes([a, b, c, d]);
        Ok(results.into_iter().map(value).fold(0.0, max_or_nan))
    }

    /// The sum over all tensors, which lie on the GPU, of what [`crate::Kernels::sum_of_squares`]
    /// gives.
    pub(super) fn squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        let launch = |result, x: Operand, len| kernels::sum_of_squares(&*self.rank, result, x, exponent, len);
        Ok(self.reduce("sum_of_squares", all, launch)?.into_iter().map(u128::from_le_bytes).sum())
    }

    /// One result per tensor: as many are queued as there is room for results, then read at once.
    fn reduce(
        &self,
        kernel: &'static str,
        all: &[View<'_>],
        launch: impl Fn(u64, Operand, usize) -> Result<()>,
    ) -> Result<Vec<[u8; RESULT]>> {
        let mut results = vec![[0; RESULT]; all.len()];
        for (views, results) in all.chunks(RESULTS).zip(results.chunks_mut(RESULTS)) {
            for (index, view) in views.iter().enumerate() {
                let place = self.rank.result + (index * RESULT) as u64;
                let x = Operand { pointer: view.address(kernel, "x")?, dtype: view.dtype() };
                launch(place, x, view.len())?;
            }
            self.rank.download(self.rank.result, results.as_flattened_mut())?;
        }
        Ok(results)
    }
}
