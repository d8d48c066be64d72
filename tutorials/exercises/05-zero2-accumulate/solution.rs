//! ZeRO-2 keeps its slice of each summed buffer.

use device::Buffer;

include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

impl Zero2 {
    /// Adds this rank's slice of each sum to its shard. Full buffers are freed at the end of their
    /// scope.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in units {
            let sum = full.slice(self.gradients.own(unit, &self.rank));
            self.rank.kernels().add(self.gradients.shard_mut(unit)?.view_mut(), sum)?;
        }
        Ok(())
    }
}
