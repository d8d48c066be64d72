//! ZeRO-1's update: this rank updates its slice of every unit, then the slices are gathered.

include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

impl Zero1 {
    /// Clips the gradients, updates this rank's slices, and gathers the updated parameters.
    fn written_step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let norm = global_norm(&self.rank, &self.optimizer.own(&self.gradients)?)?;
        let grad_norm = update.unscale_norm(norm);
        let Some(scaled) = update.clip(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for unit in 0..self.partition.units.len() {
            self.optimizer.update_unit(&self.rank, unit, scaled, &mut self.parameters, &self.gradients)?;
            let full = self.parameters.take(unit)?;
            let updated = self.gathers.push(&self.rank, unit, full)?;
            self.parameters.put_all(updated);
        }
        let updated = self.gathers.finish(&self.rank)?;
        self.parameters.put_all(updated);
        Ok(StepOutcome { grad_norm, skipped: false })
    }
}
