//! ZeRO-1's update: this rank updates its slice of every unit, then the slices are gathered.

include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

impl Zero1 {
    /// Updates this rank's slices, and gathers the updated parameters.
    fn written_update(&mut self, update: ScaledUpdate) -> Result<()> {
        for unit in 0..self.partition.units.len() {
            self.optimizer.update_unit(&self.rank, unit, update, &mut self.parameters, &self.gradients)?;
            let full = self.parameters.take(unit)?;
            let updated = self.gathers.push(&self.rank, unit, full)?;
            self.parameters.put_all(updated);
        }
        let updated = self.gathers.finish(&self.rank)?;
        self.parameters.put_all(updated);
        Ok(())
    }
}
