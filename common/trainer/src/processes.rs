//! Ranks that are processes: how a process joins the others, and runs one rank of the job.
//!
//! Rank 0 leads: only rank 0 prints, records and writes the report. The other ranks send it their
//! events while they run, and their measurements at the end. Every rank prints its own error, and
//! keeps a log if asked to.

use crate::line_file::{LineFile, OpenMode};
use crate::plan::Plan;
use crate::run::RunEvent;
use crate::watch::RING;
use crate::{launch, outputs, progress, signals};
use collectives::tcp::Joined;
use collectives::{Group, Topic};
use events::{Outlet, Pace, channel, relay};
use report::StepRow;
use settings::findings::Findings;
use settings::process::Process;
use settings::{Failure, Result};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Returns the settings that must be the same in all processes: all except files and settings of
/// one machine. Training data are represented by their number of tokens and a hash of samples.
fn settings(plan: &Plan) -> String {
    let mut shared = plan.config.clone();
    let output = &mut shared.output;
    (output.record, output.report, output.save, output.metrics) = (None, None, None, None);
    (output.log_every, output.log_dir, output.format) = (None, None, Default::default());
    if let Some(directory) = &mut output.checkpoint {
        *directory = "DIR".into();
    }
    shared.save_format = Default::default();
    (shared.screen, shared.process) = (None, None);
    (shared.corpus.source.path, shared.corpus.source.tokenizer) = (None, None);
    if shared.init_from.is_some() || shared.config_json.is_some() {
        // The name of a directory or a file; a preset's is a setting.
        shared.model.name.clear();
    }
    (shared.init_from, shared.config_json) = (None, None);
    (shared.threads, shared.findings) = (0, Findings::default());
    shared.offload.directory = None;
    shared.hardware = shared.hardware.kind();
    let data = &plan.identity["data"];
    let lines = setting_lines(&format!("{shared:#?}"));
    format!("{} {}\n{lines}data: {data}", plan.stage.id, env!("CARGO_PKG_VERSION"))
}

/// Rewrites a `{:#?}` dump of a struct as one line per setting that names the fields around it,
/// such as `corpus.eval_every: Some(2)`. Rank 0 shows the first line that differs.
fn setting_lines(dump: &str) -> String {
    let mut fields: Vec<&str> = Vec::new();
    let mut settings = String::new();
    let mut lines = dump.lines();
    while let Some(line) = lines.next() {
        let (indent, text) = split_indent(line);
        if text.starts_with('}') {
            fields.pop();
            continue;
        }
        let mut value = text.to_string();
        if text.ends_with(['(', '[']) {
            for line in lines.by_ref() {
                let (depth, text) = split_indent(line);
                append_line(&mut value, text);
                if depth == indent {
                    break;
                }
            }
        }
        let path: String = fields.iter().map(|field| format!("{field}.")).collect();
        if let Some(opening) = text.strip_suffix(" {") {
            // The dump's own name stands before no field.
            let Some((field, _)) = opening.split_once(": ") else { continue };
            fields.push(field);
            value = opening.to_string();
        }
        let value = value.strip_suffix(',').unwrap_or(&value);
        settings += &format!("{path}{value}\n");
    }
    settings
}

/// Splits a line into the width of its indentation and the rest.
fn split_indent(line: &str) -> (usize, &str) {
    let text = line.trim_start();
    (line.len() - text.len(), text)
}

/// Appends the next line of a dump to `value`, which a bracket encloses.
fn append_line(value: &mut String, line: &str) {
    if line.starts_with([')', ']', '}']) && value.ends_with(',') {
        value.pop();
    } else if value.ends_with([',', '{']) {
        value.push(' ');
    }
    value.push_str(line);
}

/// Joins the other processes.
///
/// # Errors
/// If they do not connect before the timeout, or have different settings.
pub(crate) fn join(plan: &Plan, process: &Process) -> Result<Joined> {
    process.engine.join(&process.position, plan.config.timeout, settings(plan))
}

/// Returns `plan`, resumed from the checkpoint that all processes agree on, or, with no checkpoint,
/// unchanged.
///
/// # Errors
/// If the run may resume none of the checkpoints, a disk has no room for its files, or the group
/// fails.
pub(crate) fn resumed(plan: Plan, group: &Group) -> Result<Plan> {
    let (rank, channel) = (group.rank() as usize, group.control_channel(Topic::Resuming));
    plan.resumed(rank..rank + 1, &|mine| {
        let all = channel.exchange(mine.as_bytes()).map_err(Failure::run)?;
        Ok(all.into_iter().map(|words| String::from_utf8_lossy(&words).into_owned()).collect())
    })
}

/// Trains as a rank other than 0. Returns the number of steps that are done.
///
/// # Errors
/// This rank's failure, or the group's.
pub(crate) fn follow(plan: &Plan, joined: Joined, logs: &Logs) -> Result<usize> {
    let Joined { mut group, mut links } = joined;
    let outlet = match links.pop() {
        Some((_, link)) => {
            let (emitter, outlet) = emitter_to_rank_0(plan, &group, link)?;
            group.attach(emitter);
            Some(outlet)
        }
        None => None,
    };
    signals::stop_on_signal(plan, None)?;
    let outcome = launch::run_single(plan, group, &|rank, event| logs.report(rank, event));
    drop(outlet);
    Ok(outcome?.iter().map(|measured| measured.steps.len()).max().unwrap_or(0))
}

/// Returns an emitter whose events go to rank 0.
///
/// # Errors
/// If rank 0 does not send its clock, which all ranks then learn, or a thread cannot be started.
fn emitter_to_rank_0(plan: &Plan, group: &Group, link: TcpStream) -> Result<(events::Emitter, Outlet)> {
    let start = relay::clock(&link, plan.config.timeout).map_err(|error| {
        let why = no_clock_message(&error, group.rank(), plan.config.timeout);
        group.blame(Some(0), "its setup".into(), why.clone());
        Failure::run(why)
    })?;
    let pace = Arc::new(Pace::default());
    let (emitter, receiver) = channel(group.rank(), RING, start, Some(pace.clone()));
    let outlet = Outlet::start(link, receiver, pace);
    Ok((emitter, outlet.map_err(|error| Failure::run(format!("cannot send events to rank 0: {error}")))?))
}

/// Returns why rank 0's clock is unknown.
fn no_clock_message(error: &io::Error, rank: u32, timeout: Duration) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("rank {rank} waited {timeout:?} for rank 0's clock and received none")
        }
        _ => format!(
            "rank {rank} lost its connection with rank 0 ({error}): rank 0's process has ended, or its machine is out \
             of reach"
        ),
    }
}

/// A log file per rank of this process.
pub(crate) struct Logs(Vec<(usize, LineFile)>);

impl Logs {
    /// Creates the files in `config.output.log_dir`; none if it is not set.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub(crate) fn open(plan: &Plan) -> Result<Self> {
        let Some(dir) = &plan.config.output.log_dir else { return Ok(Logs(Vec::new())) };
        let failed = |error: io::Error| {
            Failure::run(format!("cannot write logs to --log-dir {}: {error}", dir.display()))
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let ranks = match &plan.config.process {
            Some(process) => process.position.rank..process.position.rank + 1,
            None => 0..plan.config.world_size,
        };
        // A run that resumes appends to the log, which says why the previous run ended.
        let resumes =
            plan.checkpoints.as_ref().is_some_and(|kept| kept.names().is_ok_and(|names| !names.is_empty()));
        let mode = OpenMode::of_run(resumes);
        let open = |rank: usize| Ok((rank, LineFile::open(outputs::log_path(dir, rank), mode)?));
        let logs = Logs(ranks.map(open).collect::<io::Result<_>>().map_err(failed)?);
        logs.say(progress::opening(plan).trim_end());
        Ok(logs)
    }

    /// Logs an event of `rank`.
    pub(crate) fn report(&self, rank: usize, event: RunEvent<'_>) {
        let Some((_, log)) = self.0.iter().find(|(number, _)| *number == rank) else { return };
        let text = match event {
            RunEvent::Step(StepRow { step, loss, grad_norm, seconds, .. }, _) => {
                format!("step {step}  loss {loss:.6}  grad norm {grad_norm:.6}  {seconds:.3} s")
            }
            RunEvent::Validation(steps, loss) => format!("validation loss {loss:.6} after {steps} steps"),
            RunEvent::Checkpoint(steps, None) => format!("checkpoint after {steps} steps"),
            RunEvent::Checkpoint(steps, Some(why)) => format!("no checkpoint after {steps} steps: {why}"),
        };
        log.write(&text);
    }

    /// Logs a text for all ranks of this process.
    pub(crate) fn say(&self, text: &str) {
        self.0.iter().for_each(|(_, log)| log.write(text));
    }

    /// Logs how the run ended, and blocks until the logs are on disk. `outcome` holds the signal
    /// that ended the run early. Returns `outcome`.
    ///
    /// # Errors
    /// That of `outcome`, and which logs are incomplete.
    pub(crate) fn end(&self, outcome: Result<Option<i32>>) -> Result<Option<i32>> {
        match &outcome {
            Ok(None) => self.say("finished"),
            Ok(Some(signal)) => self.say(&format!("ended early, as asked (signal {signal})")),
            Err(failure) => self.say(&format!("error: {failure}")),
        }
        let problems = self.0.iter().filter_map(|(_, log)| log.problem());
        let incomplete: Vec<String> = problems.map(|problem| format!("its log {problem}")).collect();
        match outcome {
            Ok(done) if incomplete.is_empty() => Ok(done),
            Ok(_) => Err(Failure::run(format!("the run is done, but {}", incomplete.join("\n")))),
            Err(failure) => Err(incomplete.into_iter().fold(failure, Failure::with)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn logs_that_find_no_room_do_not_hide_why_a_run_failed() {
        let full = || LineFile::open("/dev/full".into(), OpenMode::Append).unwrap();
        let end = |outcome| {
            let logs = Logs(vec![(0, full()), (1, full())]);
            logs.end(outcome).map_err(|failure| failure.to_string())
        };
        let log = "its log /dev/full is incomplete: No space left on device (os error 28)";
        assert_eq!(end(Ok(None)), Err(format!("the run is done, but {log}\n{log}")));
        assert_eq!(end(Err(Failure::run("rank 1: lost"))), Err(format!("rank 1: lost\n{log}\n{log}")));
    }

    #[test]
    fn a_line_names_the_fields_around_a_setting() {
        #[derive(Debug)]
        #[allow(dead_code, reason = "read by Debug")]
        struct Corpus {
            eval_every: Option<u32>,
            seeds: Vec<(u32, Option<&'static str>)>,
        }
        #[derive(Debug)]
        #[allow(dead_code, reason = "read by Debug")]
        struct Run {
            steps: u32,
            corpus: Corpus,
            other: Option<Corpus>,
            last: bool,
        }
        let corpus = |eval_every| Corpus { eval_every, seeds: vec![(1, None), (2, Some("a,(\n"))] };
        let run = Run { steps: 1, corpus: corpus(Some(2)), other: Some(corpus(None)), last: true };
        let named = [
            "steps: 1",
            "corpus: Corpus",
            "corpus.eval_every: Some(2)",
            r#"corpus.seeds: [(1, None), (2, Some("a,(\n"))]"#,
            r#"other: Some(Corpus { eval_every: None, seeds: [(1, None), (2, Some("a,(\n"))]})"#,
            "last: true",
        ];
        assert_eq!(setting_lines(&format!("{run:#?}")).lines().collect::<Vec<_>>(), named);
    }
}
