//! Fault injection: refuses faults that could never fire, and fires the others.

use crate::rank_error::{self, RankError};
use crate::stage::StageFactory;
use collectives::Group;
use device::DType;
use model::Keep;
use offload::Effect;
use settings::fault::{Fault, Kind, Phase};
use settings::labels::word;
use settings::{Config, Failure, Result};
use std::io::ErrorKind;
use std::time::Duration;

/// Refuses faults that never fire in `config`'s run of `stage`.
///
/// # Errors
/// A usage failure that says why.
pub(crate) fn check(config: &Config, stage: StageFactory) -> Result<()> {
    config.faults.iter().try_for_each(|fault| check_phase(fault, config))?;
    let first = |kind| config.faults.iter().find(|fault| fault.kind == kind);
    if let (Some(skip), 1) = (first(Kind::Skip), config.world_size) {
        return Err(Failure::usage(format!(
            "--inject {skip}: a single rank has no peers: give --gpus 2 or more"
        )));
    }
    if let (Some(Fault { rank, .. }), Some(folder)) = (first(Kind::Seed), &config.init_from) {
        return Err(Failure::usage(format!(
            "--inject seed@rank{rank}: with --init-from {} no weight comes from a seed: leave one of them out",
            folder.display()
        )));
    }
    let disk = [Kind::DiskError, Kind::DiskFull, Kind::DiskHang].into_iter().find_map(first);
    if let Some(disk) = disk
        && !config.offload.placement().uses_disk()
    {
        return Err(Failure::usage(format!(
            "--inject {disk}: nothing is stored on disk: add --offload-optimizer disk"
        )));
    }
    let Some(stale) = first(Kind::Stale) else { return Ok(()) };
    let why = if !stage.sharded.optimizer {
        format!(
            "no rank of {} gathers parameters that others have updated: choose a stage that shards",
            stage.id
        )
    } else if config.world_size == 1 {
        "a single rank gathers nothing: give --gpus 2 or more".into()
    } else if stale.step == 0 {
        "in step 0 there is nothing older than the first weights: begin with step1 or later".into()
    } else if config.precision.parameters != DType::F32 {
        "it keeps old parameters in f32: leave --precision at fp32".into()
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--inject {stale}: {why}")))
}

/// Refuses a fault in a phase that its step does not have.
fn check_phase(fault: &Fault, config: &Config) -> Result<()> {
    let why = match (fault.phase, config.corpus.eval_every) {
        (Phase::Recompute, _) if config.memory.checkpoint_activations.keep() == Keep::Everything => {
            "nothing is recomputed without --checkpoint-activations block or selective"
        }
        (Phase::Evaluate, None) => "nothing is validated without --val-fraction 0.1 --eval-every 1",
        (Phase::Evaluate, Some(_)) if !config.validates_after(fault.step) => {
            "no validation follows that step: --eval-every says which have one"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--inject {fault}: {why}")))
}

/// A rank stalls for at most this much longer than the timeout, so that the ranks that wait for it
/// time out first.
const STALL_MARGIN: Duration = Duration::from_secs(10);

/// How often a rank that stalls checks whether its peers have failed.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The faults of one rank.
#[derive(Debug, Default)]
pub(crate) struct RankFaults {
    faults: Vec<Fault>,
    timeout: Duration,
}

impl RankFaults {
    /// Returns the faults of `rank`.
    pub(crate) fn new(config: &Config, rank: usize) -> Self {
        let faults = config.faults.iter().filter(|fault| fault.rank == rank).copied().collect();
        RankFaults { faults, timeout: config.timeout }
    }

    /// True if a lasting fault of this kind fires in `step` or fired in an earlier one.
    pub(crate) fn is_active(&self, kind: Kind, step: u32) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.step <= step)
    }

    /// True if a fault of this kind fires, or a lasting one starts, in `step`.
    pub(crate) fn fires(&self, kind: Kind, step: u32) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.step == step)
    }

    /// True if a fault of this kind fires in this phase of `step`. Saving belongs to no step.
    pub(crate) fn fires_in(&self, phase: Phase, kind: Kind, step: u32) -> bool {
        let now = |fault: &Fault| fault.step == step || phase == Phase::Save;
        self.faults.iter().any(|fault| fault.kind == kind && fault.phase == phase && now(fault))
    }

    /// Fires the rank's faults in `phase` of `step`: panics, fails or stalls. A stall ends once
    /// `group` has failed, or a while after its timeout.
    ///
    /// # Errors
    /// The injected one.
    #[allow(clippy::panic)]
    pub(crate) fn fire(&self, phase: Phase, step: u32, group: &Group) -> rank_error::Result<()> {
        let fires = |kind| self.fires_in(phase, kind, step);
        let place = || place(phase, step);
        if fires(Kind::Panic) {
            // The point of this fault: how the run ends when code panics.
            panic!("injected panic in {}", place());
        }
        if fires(Kind::Error) {
            return Err(RankError::Other(format!("injected error in {}", place())));
        }
        if fires(Kind::Stall) {
            // Counts polls, not time: while the process is stopped, the timeouts of other ranks
            // pause, too.
            let polls = (self.timeout + STALL_MARGIN).div_duration_f64(POLL_INTERVAL) as u64;
            let watch = group.watch();
            for _ in (0..polls).take_while(|_| watch.failure().is_none()) {
                std::thread::sleep(POLL_INTERVAL);
            }
            return Err(RankError::Stalled(format!("injected stall in {}", place())));
        }
        Ok(())
    }

    /// Returns the number of the allocation of `rank` that fails, from 1; `None` if no fault says
    /// so.
    pub(crate) fn refused_allocation(config: &Config, rank: u32) -> Option<u64> {
        let of_rank = |fault: &&Fault| fault.kind == Kind::OutOfMemory && fault.rank == rank as usize;
        config.faults.iter().find(of_rank).map(|fault| fault.allocation)
    }

    /// Returns the effect on the rank's disk in `phase` of `step`; `None` if no fault fires there.
    pub(crate) fn disk(&self, phase: Phase, step: u32) -> Option<Effect> {
        let fires = |kind| self.fires_in(phase, kind, step);
        let error = fires(Kind::DiskError).then_some(Effect::Error(ErrorKind::Other));
        error
            .or(fires(Kind::DiskFull).then_some(Effect::Full))
            .or(fires(Kind::DiskHang).then_some(Effect::Hang))
    }
}

/// Returns `phase` in words, with the step that it belongs to.
fn place(phase: Phase, step: u32) -> String {
    match phase {
        Phase::Save => "save".into(),
        _ => format!("{} of step {step}", word(&phase)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use settings::cli::Cli;

    #[test]
    fn silent_faults_last_on_their_rank_from_their_step_on() {
        for kind in Kind::SILENT {
            let mut config = Config::new(Cli::parse_from(["zero", "--gpus", "4"]).train).unwrap();
            config.faults = vec![Fault::silent(kind, 3, 7)];
            let (faulty, healthy) = (RankFaults::new(&config, 3), RankFaults::new(&config, 2));
            let at = |step| (faulty.fires(kind, step), faulty.is_active(kind, step));
            assert_eq!([6, 7, 9].map(at), [(false, false), (true, true), (false, true)]);
            assert!(!healthy.is_active(kind, 9));
        }
    }
}
