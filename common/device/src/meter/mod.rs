//! Measures a rank's computing time: every kernel's time, operations and bytes, by kind.
//!
//! On the CPU a kernel's time is the processor time of the rank's own thread: other ranks' work on
//! the same core does not count. On a GPU it is the time between two marks on the compute stream,
//! which are read later. Marks cost a few microseconds per kernel, so a GPU is metered only on
//! request.

mod clock;
mod kernels;

use crate::Result;
use crate::backend::Backend;
use crate::cuda::Lap;
use crate::kernels::Kernels;
use clock::processor_time;
use events::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// The kinds of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Products of matrices.
    Matmul,
    /// Attention, forward and backward.
    Attention,
    /// Root-mean-square normalisation.
    Norm,
    /// Rotary position embedding.
    Rope,
    /// The gated activation.
    Swiglu,
    /// Table look-up and its gradient.
    Embedding,
    /// Cross-entropy and its gradient.
    CrossEntropy,
    /// The optimizer.
    AdamW,
    /// Additions, copies, conversions.
    Copies,
    /// The gradients' norm, and the host's wait for it.
    GradientNorm,
    /// On a GPU: this rank's part in collectives, on a stream of its own. Bytes are those read plus
    /// written.
    Collectives,
}

events::labels! {
    Kind {
        Matmul => "matmul",
        Attention => "attention",
        Norm => "norm",
        Rope => "rope",
        Swiglu => "swiglu",
        Embedding => "embedding",
        CrossEntropy => "cross-entropy",
        AdamW => "AdamW",
        Copies => "copies",
        GradientNorm => "gradient norm",
        Collectives => "collectives",
    }
}

/// Calls, time, operations and bytes of the kernels of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls.
    pub calls: u64,
    /// Time, one call after another.
    pub time: Duration,
    /// Floating-point operations of products and attention: multiplications and additions; in
    /// attention only those that the causal mask leaves. 0 for other kinds.
    pub flops: u64,
    /// Bytes of the operands. Each counts once if it is read or written, twice if both.
    pub bytes: u64,
}

events::counters! { Spent [] calls, time, flops, bytes }

/// One call, before it is timed.
#[derive(Clone, Copy)]
struct Job {
    kind: Kind,
    flops: u64,
    bytes: usize,
}

/// Kernels with a stopwatch around each.
pub(crate) struct Meter {
    /// Before the backend, so that marks are freed before their context.
    totals: Mutex<Totals>,
    backend: Backend,
}

#[derive(Default)]
struct Totals {
    spent: [Spent; Kind::ALL.len()],
    /// On a GPU: calls whose time is not known yet, in order.
    pending: VecDeque<(Kind, Lap)>,
    /// Laps of calls whose time is known, for their marks.
    spare: Vec<Lap>,
}

impl Meter {
    pub(crate) fn new(backend: Backend) -> Result<Self> {
        if let Some(runtime) = backend.runtime() {
            runtime.time_collectives()?;
        }
        let meter = Meter { totals: Mutex::default(), backend };
        meter.reset()?;
        Ok(meter)
    }

    fn time<T>(&self, job: Job, work: impl FnOnce(&dyn Kernels) -> Result<T>) -> Result<T> {
        let Job { kind, flops, bytes } = job;
        let out = match &self.backend {
            Backend::Cpu(cpu) => {
                let before = processor_time();
                let out = work(cpu.as_ref());
                lock(&self.totals).spent[kind as usize].time += processor_time().saturating_sub(before);
                out?
            }
            Backend::Cuda(gpu) => {
                let spare = lock(&self.totals).spare.pop();
                let (out, lap) = gpu.runtime.lap(spare, || work(gpu.as_ref()))?;
                let mut totals = lock(&self.totals);
                totals.pending.push_back((kind, lap));
                totals.settle(false)?;
                out
            }
        };
        let spent = &mut lock(&self.totals).spent[kind as usize];
        (spent.calls, spent.flops) = (spent.calls + 1, spent.flops + flops);
        spent.bytes += bytes as u64;
        Ok(out)
    }

    /// Returns the counts of each kind, in [`Kind::ALL`]'s order. Blocks until queued work is done.
    pub(crate) fn spent(&self) -> Result<Vec<Spent>> {
        let mut totals = lock(&self.totals);
        if let Some(runtime) = self.backend.runtime() {
            runtime.synchronize()?;
            totals.settle(true)?;
            let (calls, time, bytes) = runtime.take_communicated()?;
            let spent = &mut totals.spent[Kind::Collectives as usize];
            (spent.calls, spent.time) = (spent.calls + calls, spent.time + time);
            spent.bytes += bytes;
        }
        Ok(totals.spent.to_vec())
    }

    /// Returns the counts of each kind on the CPU; zeros on a GPU, whose queued work is not done.
    pub(crate) fn spent_now(&self) -> [Spent; Kind::ALL.len()] {
        match &self.backend {
            Backend::Cpu(_) => lock(&self.totals).spent,
            Backend::Cuda(_) => Default::default(),
        }
    }

    /// Sets all counts to zero.
    pub(crate) fn reset(&self) -> Result<()> {
        self.return_to(&[Spent::default(); Kind::ALL.len()])
    }

    /// Sets all counts to those of `spent`, in [`Kind::ALL`]'s order. Blocks until queued work is
    /// done.
    pub(crate) fn return_to(&self, spent: &[Spent]) -> Result<()> {
        self.spent()?;
        lock(&self.totals).spent.copy_from_slice(spent);
        Ok(())
    }
}

impl Totals {
    /// Adds up the finished calls, oldest first. Queries each call, unless `all` are known to be
    /// finished.
    fn settle(&mut self, all: bool) -> Result<()> {
        while let Some((kind, lap)) = self.pending.front() {
            if !all && !lap.is_past()? {
                return Ok(());
            }
            self.spent[*kind as usize].time += lap.time()?;
            self.spare.extend(self.pending.pop_front().map(|(_, lap)| lap));
        }
        Ok(())
    }
}
