//! The order of the ranks' work: setup, forward, backward, update, validation.

use super::clockwork::{IssuedCollective, Simulation};
use events::{Class, Operation, Pass, Place, Route, What};

impl Simulation<'_> {
    pub(super) fn run(&mut self) {
        let sharded = self.header.sharded;
        for unit in 0..self.header.units.len() {
            for (class, bytes) in [
                (Class::Parameters, self.share(unit, sharded.parameters)),
                (Class::Gradients, self.share(unit, sharded.gradients)),
                (Class::Optimizer, 2 * self.share(unit, sharded.optimizer)),
            ] {
                self.memory_in(self.plan.place(class), class, bytes);
            }
        }
        self.scalars();
        for step in 0..self.plan.steps {
            self.all_ranks(|_| What::StepStarted { step });
            let began = self.clocks[0];
            if self.plan.fail_at == Some(step) {
                return self.fail();
            }
            for micro in 0..self.plan.micro_batches {
                self.forward(micro);
                self.backward(micro);
            }
            self.update();
            self.report_step(step, began);
        }
        self.evaluate();
    }

    fn fail(&mut self) {
        let rank = self.clocks.len() - 1;
        let message = format!(
            "rank {rank}: out of memory: activations of 4.7 MB do not fit: 61.2 MB of 64.0 MB are live.\n\
             Live: parameters 3.7 MB, gradients 3.7 MB, optimizer 7.3 MB, activations 46.5 MB.\n\
             Try a smaller --batch-size, or a stage that shards more."
        );
        self.emit(rank, self.clocks[rank], What::Failed { message });
    }

    /// Issues the all-gather of a unit. The unit after it is `next`.
    fn gather(&mut self, unit: usize, next: Option<usize>) -> Option<IssuedCollective> {
        self.fetched(unit, next);
        self.header.sharded.parameters.then(|| {
            self.memory(Class::GatheredParameters, self.bytes(unit) as i64);
            self.issue(Operation::AllGather, (unit as u16).into(), self.bytes(unit))
        })
    }

    fn release(&mut self, unit: usize) {
        if self.header.sharded.parameters {
            self.memory(Class::GatheredParameters, -(self.bytes(unit) as i64));
        }
    }

    fn forward(&mut self, micro: u16) {
        let count = self.header.units.len();
        let after = |unit: usize| Some(unit + 1).filter(|&next| next < count);
        let mut coming = self.gather(0, after(0));
        for unit in 0..count {
            let here = coming.take();
            if unit + 1 < count {
                coming = self.gather(unit + 1, after(unit + 1));
            }
            if let Some(issued) = here {
                self.wait(issued);
            }
            self.memory(Class::Activations, self.activations(unit));
            self.memory(Class::Workspace, 1 << 20);
            self.pass(Pass::Forward, unit, micro, self.cost(unit));
            self.memory(Class::Workspace, -(1 << 20));
            if unit > 0 && unit + 1 < count {
                self.store_activations(unit);
            }
            if unit + 1 < count {
                self.release(unit);
            }
        }
    }

    fn cost(&self, unit: usize) -> u64 {
        if unit == 0 || unit + 1 == self.header.units.len() { 700_000 } else { 2_400_000 }
    }

    fn backward(&mut self, micro: u16) {
        let count = self.header.units.len();
        let last_micro = micro + 1 == self.plan.micro_batches;
        let mut coming: Option<IssuedCollective> = None;
        let mut reducing: Vec<(usize, IssuedCollective)> = Vec::new();
        for unit in (0..count).rev() {
            let here = coming.take();
            if unit > 0 {
                coming = self.gather(unit - 1, unit.checked_sub(2));
            }
            if let Some(issued) = here {
                self.wait(issued);
            }
            if unit > 0 && unit + 1 < count {
                self.load_activations(unit);
            }
            if self.header.sharded.gradients {
                self.memory(Class::CommunicationBuckets, self.bytes(unit) as i64);
            }
            self.pass(Pass::Backward, unit, micro, 2 * self.cost(unit));
            self.memory(Class::Activations, -self.activations(unit));
            self.release(unit);
            if self.header.sharded.gradients || last_micro {
                let operation =
                    if self.plan.stage == 0 { Operation::AllReduce } else { Operation::ReduceScatter };
                let issued = self.issue(operation, (unit as u16).into(), self.bytes(unit));
                reducing.push((unit, issued));
            }
            if reducing.len() > 1 {
                let (unit, issued) = reducing.remove(0);
                self.reduced(unit, issued);
            }
        }
        reducing.into_iter().for_each(|(unit, issued)| self.reduced(unit, issued));
    }

    fn reduced(&mut self, unit: usize, issued: IssuedCollective) {
        self.wait(issued);
        if self.header.sharded.gradients {
            self.memory(Class::CommunicationBuckets, -(self.bytes(unit) as i64));
        }
        if self.plan.place(Class::Gradients) == Place::Host {
            self.travel(Route::DeviceToHost, Class::Gradients, unit, self.share(unit, true) as u64);
        }
    }

    fn update(&mut self) {
        self.scalars();
        let mut leaving = None;
        let refresh = self.header.sharded.optimizer && !self.header.sharded.parameters;
        for unit in 0..self.header.units.len() {
            let divisor = if self.header.sharded.optimizer { u64::from(self.plan.ranks) } else { 1 };
            self.page_in(unit);
            self.pass(Pass::Step, unit, 0, self.cost(unit) / 4 / divisor);
            let before = std::mem::replace(&mut leaving, self.page_out(unit));
            before.into_iter().for_each(|before| self.arrive(before));
            if refresh {
                let issued = self.issue(Operation::AllGather, (unit as u16).into(), self.bytes(unit));
                self.wait(issued);
            }
        }
        leaving.into_iter().for_each(|last| self.arrive(last));
    }

    fn report_step(&mut self, step: u32, began: u64) {
        let tokens = u64::from(self.plan.ranks * 1024) * u64::from(self.plan.micro_batches);
        let loss = 1.9 + 3.6 * (-f64::from(step) / 12.0).exp() + 0.05 * (f64::from(step) * 1.7).sin();
        let (grad_norm, lr) = (1.0 + 2.0 * (-f64::from(step) / 20.0).exp(), 3e-4);
        let seconds = (self.clocks[0] - began) as f64 * 1e-9;
        self.all_ranks(|_| What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
    }

    fn evaluate(&mut self) {
        let batches = 0..self.plan.validation_batches;
        for unit in batches.flat_map(|_| 0..self.header.units.len()).collect::<Vec<_>>() {
            if let Some(issued) = self.gather(unit, None) {
                self.wait(issued);
            }
            self.pass(Pass::Evaluate, unit, 0, self.cost(unit));
            self.release(unit);
        }
        let step = self.plan.steps;
        self.all_ranks(|_| What::Evaluated { step, loss: 2.03 });
    }
}
