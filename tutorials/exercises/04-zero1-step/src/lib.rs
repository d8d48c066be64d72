//! # Chapter 4: ZeRO-1's update
//!
//! Goal: every rank updates its slice of each unit; then every rank has the full parameters again.
//! The remainder of the stage is `zero1/src/lib.rs`, unchanged.
//!
//! Check: `cargo run -p tutorials -- check zero1-step`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

impl Zero1 {
    /// Implements the stage's `step`. For each of `self.partition.units`,
    /// `self.optimizer.update_unit(&self.rank, unit, scaled, &mut self.parameters,
    /// &self.gradients)` updates this rank's slice. `self.gathers` queues units for the all-gather.
    fn written_step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let norm = global_norm(&self.rank, &self.optimizer.own(&self.gradients)?)?;
        let grad_norm = update.unscale_norm(norm);
        // `scaled` multiplies gradients by the factor that clips and unscales them. `None` after an
        // overflow: the step is skipped.
        let Some(scaled) = update.clip(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        // Your code here.
        Ok(StepOutcome { grad_norm, skipped: false })
    }
}
