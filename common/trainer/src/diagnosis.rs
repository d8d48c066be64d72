//! Why a finished run was as slow as it was, from its report: where the time of a step went, and what would help.

use crate::report::{Report, TimeRow};
use crate::timing::Times;
use planner::Stage;
use planner::closed::Sweeps;
use planner::table::counted;

/// Shares of a step below this are not worth a remedy.
const NOTABLE: f64 = 0.01;
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
    /// Collectives: moving data.
    pub moving: f64,
    /// Collectives: waiting for a simulated link.
    pub exposed: f64,
    /// Collectives: waiting for other ranks.
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
        let (peers, exposed) = (mean(|row| training(&row.for_peers)), mean(|row| training(&row.for_link)));
        Account {
            step: mean(|row| row.seconds),
            data: mean(|row| row.phases.data),
            forward: mean(|row| row.phases.forward - row.waits.forward),
            backward: mean(|row| row.phases.backward - row.phases.recompute - row.waits.backward),
            recompute: mean(|row| row.phases.recompute),
            optimizer: mean(|row| row.phases.step - row.waits.step),
            moving: mean(|row| training(&row.waits)) - peers - exposed,
            exposed,
            peers,
        }
    }

    fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("forward", self.forward),
            ("backward", self.backward),
            ("blocks computed again", self.recompute),
            ("optimizer", self.optimizer),
            ("moving data", self.moving),
            ("exposed communication", self.exposed),
            ("waiting for other ranks", self.peers),
            ("fetching data", self.data),
        ]
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

/// Something that would make steps shorter.
#[derive(Clone)]
struct Help {
    how: String,
    seconds: f64,
}

/// The whole explanation, for a terminal.
pub fn diagnosis(report: &Report) -> String {
    if report.steps.is_empty() || report.time.is_empty() {
        return "The run has finished no step: there is nothing to explain.\n".into();
    }
    let account = Account::of(report);
    let mut text = heading(report, &account);
    let named = account.parts().into_iter().chain([("the rest", account.rest())]);
    for (name, seconds) in named.filter(|part| part.1 >= 0.0005 * account.step) {
        text.push_str(&row(name, seconds, account.step));
    }
    text.push_str(&utilisation(report, &account));
    text.push_str(&slowest(report, &account));
    text + &helps(report, &account)
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

fn helps(report: &Report, account: &Account) -> String {
    let mut helps = [communication(report, account), computation(report, account)].concat();
    helps.retain(|help| help.seconds >= NOTABLE * account.step);
    helps.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    if helps.is_empty() {
        return "\nNothing would help by a hundredth of a step: the time goes into computing.\n".into();
    }
    let mut text = String::from("\nWhat would help, each alone, at most (of a step)\n");
    for Help { how, seconds } in helps {
        text.push_str(&format!("  {:>9}  {:>5.1} %  {how}\n", time(seconds), 100.0 * seconds / account.step));
    }
    text
}

fn help(how: impl Into<String>, seconds: f64) -> Help {
    Help { how: how.into(), seconds }
}

/// What would shorten communication and waiting. What is not sent is saved in proportion.
fn communication(report: &Report, account: &Account) -> Vec<Help> {
    let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.label() == report.stage) else {
        return Vec::new();
    };
    let cost = account.exposed + account.moving;
    let micro_batches = report.model.micro_batches as u64;
    let sweeps = |stage, micro_batches| Sweeps::of(stage, micro_batches, false).total() as f64;
    let now = sweeps(stage, micro_batches);
    let mut helps = vec![help("ranks that are equally fast, on cores of their own", account.peers)];
    if let Some(link) = &report.link {
        let latency = latency_share(report, link.latency_seconds, link.bytes_per_second);
        helps.push(help("a link of twice the bandwidth", account.exposed * (1.0 - latency) / 2.0));
        helps.push(help(
            "larger buckets (--reduce-bucket, --prefetch-bucket, --wrap): fewer calls",
            account.exposed * latency,
        ));
    }
    let doubled = 2 * micro_batches;
    let per_token = 1.0 - sweeps(stage, doubled) / (2.0 * now);
    helps.push(help(format!("--grad-accum {doubled}: less communication per token"), cost * per_token));
    let lower = Stage::ALL.into_iter().filter(|other| *other < stage && sweeps(*other, micro_batches) < now);
    if let Some(lower) = lower.max() {
        let saved = 1.0 - sweeps(lower, micro_batches) / now;
        let how = format!("cargo run -p {}, if memory allows: it sends less", lower.package());
        helps.push(help(how, cost * saved));
    }
    if report.communicated_bytes == 4 {
        helps.push(help("--precision bf16: half the bytes", cost / 2.0));
    }
    helps
}

/// The share of the link's time that is latency rather than bytes, on rank 0.
fn latency_share(report: &Report, latency: f64, bandwidth: f64) -> f64 {
    let rows = report.traffic.iter().filter(|row| row.rank == 0);
    let (calls, bytes) = rows.fold((0, 0), |(c, b), row| (c + row.calls, b + row.bytes_sent));
    let (calls, bytes) = (calls as f64 * latency, bytes as f64 / bandwidth);
    if calls > 0.0 { calls / (calls + bytes) } else { 0.0 }
}

/// What would shorten the rank's own work.
fn computation(report: &Report, account: &Account) -> Vec<Help> {
    let mut helps = vec![
        help("--checkpoint-activations none, if memory allows", account.recompute),
        help("data that is nearer, or smaller", account.data),
    ];
    if report.stage == Stage::REPLICATED.label() {
        let others = 1.0 - 1.0 / report.world_size as f64;
        let package = Stage::SHARDS_OPTIMIZER.package();
        let how = format!("cargo run -p {package}: each rank updates its share alone");
        helps.push(help(how, account.optimizer * others));
    }
    helps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::one_step;

    /// Two ranks whose second computes longer, on a link that takes most of the step.
    fn slow_link() -> Report {
        let mut report = one_step("--gpus 2 --link 1ms,20MB/s --checkpoint-activations block");
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
