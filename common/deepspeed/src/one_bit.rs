//! 1-bit Adam (Tang et al., 2021). Its warm-up, the first `freeze_step` steps, is Adam without bias
//! correction that sends whole gradients; only later steps send momentum in 1 bit.

use crate::node::Node;
use crate::optimizer_defaults::OPTIMIZER;
use crate::read::Entries;
use crate::table;
use settings::cli::TrainArgs;

const FREEZE_STEP: &str = "optimizer.params.freeze_step";
/// The warm-up of a file that does not say how long it is.
const WARM_UP: u32 = 100_000;

/// Makes `args` train with the warm-up of 1-bit Adam if the file names that optimizer. Returns a
/// warning that says so.
///
/// # Errors
/// What stands in the way: a run that is longer than the warm-up, or sharded states.
pub(crate) fn settle(args: &mut TrainArgs, entries: &Entries) -> Result<Option<String>, String> {
    let name = entries.get(OPTIMIZER).and_then(Node::as_text).unwrap_or_default();
    if !name.eq_ignore_ascii_case(table::ONE_BIT_ADAM) {
        return Ok(None);
    }
    if let Some(stage) = args.file_only.stage.filter(|stage| stage.sharded().optimizer) {
        return Err(format!(
            "optimizer.type is \"{name}\", which DeepSpeed rejects beside {stage}\n\
             Remove zero_optimization, or write \"Adam\"."
        ));
    }
    let freeze = entries.get(FREEZE_STEP).and_then(Node::as_number).unwrap_or(f64::from(WARM_UP));
    let steps = args.training.steps;
    if f64::from(steps) > freeze {
        return Err(format!(
            "optimizer.type \"{name}\" sends 1-bit momentum after {freeze} steps (freeze_step), which is not \
             supported yet, and this run has {steps}\n\
             Train up to there with --steps {freeze}, or write \"Adam\"."
        ));
    }
    args.file_only.biased = true;
    Ok(Some(format!(
        "optimizer.type \"{name}\" is Adam without bias correction up to step {freeze} (freeze_step), \
         where this run has ended (DeepSpeed leaves out the very first update)"
    )))
}
