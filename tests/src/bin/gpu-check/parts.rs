//! Parts of the check, each in a process of its own: after a kernel has broken a GPU's context,
//! every call in that process fails, whatever it was to check.

use crate::{Finding, in_words};
use device::cuda::Gpu;
use std::io;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// The outcome of a check. The process of a part exits with it as its code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that was checked holds.
    Holds = 0,
    /// Something does not hold, or the process broke off.
    Fails = 1,
    /// Something could not be checked on this machine; the rest holds.
    Unchecked = 3,
}

impl Outcome {
    /// Returns the outcome that an exit status stands for, if it is one.
    fn of(status: ExitStatus) -> Option<Self> {
        let all = [Outcome::Holds, Outcome::Fails, Outcome::Unchecked];
        all.into_iter().find(|&outcome| status.code() == Some(outcome as i32))
    }

    /// Returns the outcome of several findings together: a failure counts more than what could not
    /// be checked.
    fn together(findings: &[Finding]) -> Self {
        let has = |outcome| findings.iter().any(|finding| finding.outcome == outcome);
        [Outcome::Fails, Outcome::Unchecked]
            .into_iter()
            .find(|&outcome| has(outcome))
            .unwrap_or(Outcome::Holds)
    }
}

impl From<bool> for Outcome {
    fn from(holds: bool) -> Self {
        if holds { Outcome::Holds } else { Outcome::Fails }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        ExitCode::from(outcome as u8)
    }
}

/// What a part does: its findings, or why it could not be done.
type Check<'a> = dyn Fn() -> Result<Vec<Finding>, String> + 'a;

/// What is checked in one process.
pub(crate) struct Part<'a> {
    /// Tells it from every other.
    pub(crate) name: String,
    check: Box<Check<'a>>,
}

/// Parts whose findings make one table.
pub(crate) struct Section<'a> {
    /// What stands above it.
    pub(crate) title: &'static str,
    /// In order.
    pub(crate) parts: Vec<Part<'a>>,
}

impl<'a> Part<'a> {
    /// A part that does `check`.
    pub(crate) fn new<E: ToString>(
        name: impl Into<String>,
        check: impl Fn() -> Result<Vec<Finding>, E> + 'a,
    ) -> Self {
        let check = Box::new(move || check().map_err(|error| error.to_string()));
        Part { name: name.into(), check }
    }

    /// Runs it in this process and prints its findings.
    pub(crate) fn run(&self) -> Outcome {
        let began = Instant::now();
        // Held to the end: between runs the driver would take its context down and make it again.
        let checked = Gpu::open(0).map_err(in_words).and_then(|_gpu| (self.check)());
        let findings = checked.unwrap_or_else(|reason| vec![Finding::failed(self.name.clone(), &reason)]);
        print(&findings, began);
        Outcome::together(&findings)
    }

    /// Runs it, the `number`-th, in a process of its own, which prints. Of one that broke off or
    /// was killed at its `limit` this tells so.
    pub(crate) fn run_apart(&self, number: usize, limit: Duration) -> Outcome {
        let began = Instant::now();
        let broken = match start(number).and_then(|process| end(process, limit)) {
            Ok(Some(status)) => match Outcome::of(status) {
                Some(outcome) => return outcome,
                None => format!("the process that checked it broke off: {status}"),
            },
            Ok(None) => format!("did not end within {} s, killed", limit.as_secs()),
            Err(error) => format!("no process for it: {error}"),
        };
        print(&[Finding::failed(self.name.clone(), &broken)], began);
        Outcome::Fails
    }
}

/// A row each; the last says how long all took that `began` then.
fn print(findings: &[Finding], began: Instant) {
    let Some((last, others)) = findings.split_last() else { return };
    others.iter().for_each(|finding| events::say!("{}", finding.row("")));
    events::say!("{}", last.row(&format!("{:.1} s", began.elapsed().as_secs_f64())));
}

/// Starts this program again, for one part.
fn start(number: usize) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    Command::new(program).args(std::env::args_os().skip(1)).args(["--part", &number.to_string()]).spawn()
}

/// What is waited for after a kill: one that hangs within the driver may outlive that, too.
const GRACE: Duration = Duration::from_secs(5);

/// How `process` has ended; nothing of one that was killed at its `limit`.
fn end(mut process: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = wait(&mut process, limit)?;
    if ended.is_none() {
        process.kill()?;
        wait(&mut process, GRACE)?;
    }
    Ok(ended)
}

/// How `process` has ended, if it does so within `limit`.
fn wait(process: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        match process.try_wait()? {
            None if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            ended => return Ok(ended),
        }
    }
}
