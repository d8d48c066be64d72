//! ZeRO-1's update: of every unit this rank updates its slice, then the slices are gathered.

include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

impl Zero1 {
    /// Clips, updates, and makes the full parameters whole again.
    fn written_step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let grad_norm = update.unscaled(self.norm()?);
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for unit in 0..self.optimizer.len() {
            let slice = self.slice(unit);
            let mut full = self.parameters.take(unit)?;
            let gradients = self.gradients.get(unit)?.slice(slice.clone());
            self.optimizer[unit].update(&self.rank, full.slice_mut(slice), gradients, update, scale)?;
            let updated = self.gathers.push(&self.rank, unit, full)?;
            self.parameters.put_all(updated);
        }
        let updated = self.gathers.finish(&self.rank)?;
        self.parameters.put_all(updated);
        Ok(StepOutcome { grad_norm, skipped: false })
    }
}
