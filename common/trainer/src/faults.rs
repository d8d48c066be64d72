//! Failures on demand: refused where they cannot come, and played where they do.

use crate::run::RankError;
use device::DType;
use events::header::Sharded;
use model::Keep;
use settings::config::{Config, Evaluation};
use settings::fault::{Fault, Kind, Phase};
use settings::{Failure, Result};
use std::time::Duration;

/// Refuses faults that never come in `config`'s run of a stage called `name`, which shards `sharded`.
///
/// # Errors
/// A usage failure that says why.
pub(crate) fn check(config: &Config, (name, sharded): (&str, Sharded)) -> Result<()> {
    config.faults.iter().try_for_each(|fault| check_phase(fault, config))?;
    let first = |kind| config.faults.iter().find(|fault| fault.kind == kind);
    if let (Some(skip), 1) = (first(Kind::Skip), config.world_size) {
        return Err(Failure::usage(format!(
            "--inject {skip}: one rank alone has no peers: give --gpus 2 or more"
        )));
    }
    if let (Some(Fault { rank, .. }), Some(folder)) = (first(Kind::Seed), &config.init_from) {
        return Err(Failure::usage(format!(
            "--inject seed@rank{rank}: with --init-from {} no weight comes from a seed: leave one of them out",
            folder.display()
        )));
    }
    let Some(stale) = first(Kind::Stale) else { return Ok(()) };
    let why = if !sharded.optimizer {
        format!("no rank of {name} gathers parameters that others have updated: choose a stage that shards")
    } else if config.world_size == 1 {
        "one rank alone gathers nothing: give --gpus 2 or more".into()
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
    let evaluated = |every| (fault.step + 1).is_multiple_of(every) || fault.step + 1 == config.steps;
    let (phase, why) = match (fault.phase, config.evaluation) {
        (Phase::Recompute, _) if config.checkpointing.keep() == Keep::Everything => {
            ("recompute", "nothing is computed again without --checkpoint-activations block or selective")
        }
        (Phase::Evaluate, None) => {
            ("evaluate", "nothing is validated without --val-fraction 0.1 --eval-every 1")
        }
        (Phase::Evaluate, Some(Evaluation { every, .. })) if !evaluated(every) => {
            ("evaluate", "no validation follows that step: --eval-every says which have one")
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--inject {fault},{phase}: {why}")))
}

/// Whether `rank` has a fault of this kind here.
pub(crate) fn fault(config: &Config, rank: usize, step: u32, phase: Phase, kind: Kind) -> bool {
    config.faults.iter().any(|f| {
        f.kind == kind && f.rank == rank && f.phase == phase && (f.step == step || phase == Phase::Save)
    })
}

/// How much longer than the deadline a rank stalls, so that whoever waits for it gives up first.
const LONGER: Duration = Duration::from_secs(2);

/// A phase of a step; saving is no step's.
fn moment(phase: Phase, step: u32) -> String {
    match phase {
        Phase::Save => "Save".into(),
        _ => format!("{phase:?} of step {step}"),
    }
}

/// Fails here if the flags ask for it.
#[allow(clippy::panic)]
pub(crate) fn trip(
    config: &Config,
    number: usize,
    step: u32,
    phase: Phase,
) -> std::result::Result<(), RankError> {
    if fault(config, number, step, phase, Kind::Panic) {
        // The point of this fault: what happens when code that never should panics all the same.
        panic!("injected panic in {}", moment(phase, step));
    }
    if fault(config, number, step, phase, Kind::Error) {
        return Err(RankError::Other(format!("injected error in {}", moment(phase, step))));
    }
    if fault(config, number, step, phase, Kind::Stall) {
        std::thread::sleep(config.timeout + LONGER);
        return Err(RankError::Stalled(format!("injected stall in {}", moment(phase, step))));
    }
    Ok(())
}
