//! Why a finished run was as slow as it was, from its report: where the time of a step went, and what would help.

mod helps;
mod sending;
mod settings;
mod wire;

pub use helps::{Help, helps};

use crate::report::{Report, TimeRow, Times};
use planner::table::counted;

/// Shares of a step below this are not worth a remedy.
const NOTABLE: f64 = 0.01;
/// What a rank waits for although nobody is late.
const EXPOSED: &str = "exposed communication";
/// Characters of a bar that is the whole step.
const BAR: f64 = 30.0;

/// Seconds of a step, the mean over ranks and steps.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// All of it.
    pub step: f64,
    /// Fetching tokens.
    pub data: f64,
    /// Forward, without waits.
    pub forward: f64,
    /// Backward, without waits and without what is computed again.
    pub backward: f64,
    /// What backward computes again.
    pub recompute: f64,
    /// The optimizer, without waits.
    pub optimizer: f64,
    /// Waits for collectives that all ranks have issued: communication that no computation hides.
    pub exposed: f64,
    /// Of it, waiting for a simulated link; the rest is moving data.
    pub link: f64,
    /// Waits for collectives that other ranks have not issued.
    pub peers: f64,
}

/// The phases of an optimizer step.
fn training(times: &Times) -> f64 {
    times.forward + times.backward + times.step
}

/// What a rank computes in a run, without its waits.
fn computed(row: &TimeRow) -> f64 {
    training(&row.phases) - training(&row.waits)
}

impl Account {
    /// Where the time of `report`'s run went.
    pub fn of(report: &Report) -> Self {
        let each = (report.time.len().max(1) * report.steps.len().max(1)) as f64;
        let mean = |seconds: fn(&TimeRow) -> f64| report.time.iter().map(seconds).sum::<f64>() / each;
        let peers = mean(|row| training(&row.for_peers));
        Account {
            step: mean(|row| row.seconds),
            data: mean(|row| row.phases.data),
            forward: mean(|row| row.phases.forward - row.waits.forward),
            backward: mean(|row| row.phases.backward - row.phases.recompute - row.waits.backward),
            recompute: mean(|row| row.phases.recompute),
            optimizer: mean(|row| row.phases.step - row.waits.step),
            exposed: mean(|row| training(&row.waits)) - peers,
            link: mean(|row| training(&row.for_link)),
            peers,
        }
    }

    fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("forward", self.forward),
            ("backward", self.backward),
            ("blocks computed again", self.recompute),
            ("optimizer", self.optimizer),
            (EXPOSED, self.exposed),
            ("waiting for other ranks", self.peers),
            ("fetching data", self.data),
        ]
    }

    /// What `part` consists of, where that is more than one thing.
    fn inside(&self, part: &str) -> Vec<(&'static str, f64)> {
        match part {
            EXPOSED if self.link > 0.0 => {
                vec![("  moving data", self.exposed - self.link), ("  waiting for the link", self.link)]
            }
            _ => Vec::new(),
        }
    }

    /// The parts and what is inside them, in order.
    fn rows(&self) -> Vec<(&'static str, f64)> {
        let named = self.parts().into_iter().chain([("the rest", self.rest())]);
        named.flat_map(|part| [vec![part], self.inside(part.0)].concat()).collect()
    }

    /// Whatever has no name: mostly telling watchers.
    fn rest(&self) -> f64 {
        (self.step - self.parts().iter().map(|part| part.1).sum::<f64>()).max(0.0)
    }

    /// Seconds in which a rank computes what teaches the model something.
    fn useful(&self) -> f64 {
        self.forward + self.backward
    }
}

/// What activation checkpointing adds to a rank's forward and backward, in a step.
pub(crate) struct Recomputed {
    /// Floating-point operations that are done again, as predicted.
    pub operations: u64,
    /// Their share of all, theirs included.
    pub of_operations: f64,
    /// Seconds that this takes, as measured.
    pub seconds: f64,
    /// Their share of all, theirs included, waits aside.
    pub of_seconds: f64,
}

impl Recomputed {
    /// Of `report`'s run, if it recomputes anything.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        let (model, speed) = (&report.model, &report.throughput);
        let again = speed.recomputed_flops_per_token;
        let account = Account::of(report);
        (again > 0).then(|| Recomputed {
            operations: again * (model.micro_batches * model.batch_size * model.sequence_length) as u64,
            of_operations: again as f64 / (again + speed.flops_per_token) as f64,
            seconds: account.recompute,
            of_seconds: account.recompute / (account.recompute + account.useful()),
        })
    }

    /// The number of operations in words.
    pub(crate) fn operations(&self) -> String {
        match self.operations as f64 {
            n if n < 1e6 => format!("{:.2} kFLOP", n / 1e3),
            n if n < 1e9 => format!("{:.2} MFLOP", n / 1e6),
            n if n < 1e12 => format!("{:.2} GFLOP", n / 1e9),
            n => format!("{:.2} TFLOP", n / 1e12),
        }
    }
}

/// The whole explanation, for a terminal.
pub fn diagnosis(report: &Report) -> String {
    if report.steps.is_empty() || report.time.is_empty() {
        return "The run has finished no step: there is nothing to explain.\n".into();
    }
    let account = Account::of(report);
    let mut text = heading(report, &account);
    for (name, seconds) in account.rows().into_iter().filter(|row| row.1 >= 0.0005 * account.step) {
        text.push_str(&row(name, seconds, account.step));
    }
    text.push_str(&utilisation(report, &account));
    text.extend(Recomputed::of(report).map(|recomputed| again(&recomputed)));
    text.push_str(&slowest(report, &account));
    text + &helping(report, &account)
}

fn heading(report: &Report, account: &Account) -> String {
    let link =
        report.link.as_ref().map(|link| format!(" · SIMULATED link ({})", link.name)).unwrap_or_default();
    format!(
        "{} · {} · {} · {} of {} × {} tokens{link}\n\
         A step takes {}, the mean of {}. Where a rank's time goes, the mean of all ranks:\n\n",
        report.stage,
        report.model.name,
        counted(report.world_size, "rank", "ranks"),
        counted(report.model.micro_batches, "micro-batch", "micro-batches"),
        report.model.batch_size,
        report.model.sequence_length,
        time(account.step),
        report.steps.len(),
    )
}

fn row(name: &str, seconds: f64, step: f64) -> String {
    let share = seconds / step;
    let bar = "█".repeat((share * BAR).round() as usize);
    let line = format!("  {name:<24} {:>9}  {:>5.1} %  {bar}", time(seconds), 100.0 * share);
    format!("{}\n", line.trim_end())
}

/// `12.3 ms`, in three digits.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

fn utilisation(report: &Report, account: &Account) -> String {
    let model = &report.model;
    let tokens = (model.micro_batches * model.batch_size * model.sequence_length) as f64;
    let operations = tokens * report.throughput.flops_per_token as f64 / 1e9;
    format!(
        "\nUtilisation {:.0} %: a rank does {:.1} GFLOP/s while it computes forward and backward, {:.1} over the whole \
         step.\n",
        100.0 * account.useful() / account.step,
        operations / account.useful(),
        operations / account.step,
    )
}

fn again(recomputed: &Recomputed) -> String {
    format!(
        "Computed again, of forward and backward: {:.1} % of the FLOPs predicted ({}), {:.1} % of the time measured ({}).\n",
        100.0 * recomputed.of_operations,
        recomputed.operations(),
        100.0 * recomputed.of_seconds,
        time(recomputed.seconds),
    )
}

/// The rank that others wait for, if one is clearly slower.
fn slowest(report: &Report, account: &Account) -> String {
    let rows = &report.time;
    let Some(slow) = rows.iter().max_by(|a, b| computed(a).total_cmp(&computed(b))) else {
        return String::new();
    };
    let others = rows.iter().filter(|row| row.rank != slow.rank);
    let mean = others.clone().map(computed).sum::<f64>() / (rows.len() - 1).max(1) as f64;
    if rows.len() < 2 || computed(slow) < 1.05 * mean || account.peers < NOTABLE * account.step {
        return String::new();
    }
    let steps = report.steps.len() as f64;
    let waited = others.map(|row| training(&row.for_peers)).sum::<f64>() / (rows.len() - 1) as f64 / steps;
    format!(
        "Rank {} computes for {}, {:.0} % longer than the others' mean; they wait {} of a step for their peers.\n",
        slow.rank,
        time(computed(slow) / steps),
        100.0 * (computed(slow) / mean - 1.0),
        time(waited),
    )
}

fn helping(report: &Report, account: &Account) -> String {
    let mut helps = helps(report);
    helps.retain(|help| help.seconds >= NOTABLE * account.step);
    let unknown = match report.communication {
        Some(_) => "",
        None => "What would save traffic is not known: the report is older than the settings in it.\n",
    };
    if helps.is_empty() {
        return format!(
            "\nNothing would help by a hundredth of a step: the time goes into computing.\n{unknown}"
        );
    }
    let mut text = String::from("\nWhat would help, each alone, at most (of a step)\n");
    for help in helps {
        let share = 100.0 * help.seconds / account.step;
        text.push_str(&format!("  {:>9}  {share:>5.1} %  {}: {}\n", time(help.seconds), help.how, help.why));
    }
    text + unknown
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::tests::one_step;

    /// Two ranks whose second computes longer, on a link that takes most of the step.
    fn slow_link() -> Report {
        waiting("--gpus 2 --link 1ms,20MB/s --checkpoint-activations block")
    }

    /// A run of two ranks with `flags`, in which communication takes most of the step and rank 0 waits for rank 1.
    pub(crate) fn waiting(flags: &str) -> Report {
        let mut report = one_step(flags);
        let phases =
            Times { forward: 0.3, backward: 0.5, recompute: 0.04, step: 0.1, data: 0.01, evaluate: 0.0 };
        let link = Times { forward: 0.2, backward: 0.3, step: 0.05, ..Times::default() };
        for row in &mut report.time {
            row.seconds = 0.95;
            row.phases = phases;
            (row.for_link, row.waits) = (link, link);
        }
        let waiting = &mut report.time[0];
        (waiting.for_peers.backward, waiting.waits.backward) = (0.05, 0.35);
        report
    }

    #[test]
    fn a_run_on_a_slow_link() {
        insta::assert_snapshot!(diagnosis(&slow_link()));
    }

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        let account = Account::of(&slow_link());
        let sum = account.parts().iter().map(|part| part.1).sum::<f64>() + account.rest();
        assert!((sum - account.step).abs() < 1e-9, "{sum} of {}", account.step);
    }

    #[test]
    fn a_run_without_steps_has_nothing_to_explain() {
        let mut report = slow_link();
        report.steps.clear();
        assert!(diagnosis(&report).contains("no step"));
    }
}
