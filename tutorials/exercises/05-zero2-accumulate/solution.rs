//! ZeRO-2 keeps its slice of what comes back summed.

include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

impl Zero2 {
    /// Full buffers are freed where they go out of scope.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in units {
            let sum = full.slice(self.gradients.own(unit, &self.rank));
            self.rank.kernels().add(self.gradients.shard_mut(unit)?.view_mut(), sum)?;
        }
        Ok(())
    }
}
