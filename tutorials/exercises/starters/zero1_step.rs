    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let reduced = self.reductions.finish(&self.rank)?;
        self.reduced(reduced);
        let grad_norm = update.unscaled(self.norm()?);
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        // Your code here.
        Ok(StepOutcome { grad_norm, skipped: false })
    }
