//! Runs each part of the check in a process of its own. After a kernel has broken a GPU's context,
//! every later call in that process fails, whatever it checks.

use crate::{Finding, in_words};
use device::cuda::Gpu;
use std::io;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// The outcome of a check. The process of a part exits with it as its code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All checks hold.
    Holds = 0,
    /// A check does not hold, or the process died.
    Fails = 1,
    /// Something could not be checked on this machine; everything else holds.
    Unchecked = 3,
}

impl Outcome {
    /// Returns the outcome for an exit status. `None` if the status does not stand for one.
    fn of(status: ExitStatus) -> Option<Self> {
        let all = [Outcome::Holds, Outcome::Fails, Outcome::Unchecked];
        all.into_iter().find(|&outcome| status.code() == Some(outcome as i32))
    }

    /// Returns the combined outcome of several findings. A failure outweighs an unchecked finding.
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

/// The work of a part. It returns findings, or the reason why it could not run.
type Check<'a> = dyn Fn() -> Result<Vec<Finding>, String> + 'a;

/// The checks that run in one process.
pub(crate) struct Part<'a> {
    /// Unique name of the part.
    pub(crate) name: String,
    check: Box<Check<'a>>,
}

/// Parts whose findings form one table.
pub(crate) struct Section<'a> {
    /// Heading of the table.
    pub(crate) title: &'static str,
    /// The parts, in order.
    pub(crate) parts: Vec<Part<'a>>,
}

impl<'a> Part<'a> {
    /// Returns a part that runs `check`.
    pub(crate) fn new<E: ToString>(
        name: impl Into<String>,
        check: impl Fn() -> Result<Vec<Finding>, E> + 'a,
    ) -> Self {
        let check = Box::new(move || check().map_err(|error| error.to_string()));
        Part { name: name.into(), check }
    }

    /// Runs the part in this process and prints its findings.
    pub(crate) fn run(&self) -> Outcome {
        let began = Instant::now();
        // Held to the end. Otherwise the driver would destroy its context between runs and create
        // it again.
        let checked = Gpu::open(0).map_err(in_words).and_then(|_gpu| (self.check)());
        let findings = checked.unwrap_or_else(|reason| vec![Finding::failed(self.name.clone(), &reason)]);
        print(&findings, began);
        Outcome::together(&findings)
    }

    /// Runs the part, number `number`, in a process of its own, which prints its findings. If that
    /// process dies or is killed at its `limit`, this process reports it.
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

/// Prints a row per finding. The last row shows the time since `began`.
fn print(findings: &[Finding], began: Instant) {
    let Some((last, others)) = findings.split_last() else { return };
    others.iter().for_each(|finding| events::say!("{}", finding.row("")));
    events::say!("{}", last.row(&format!("{:.1} s", began.elapsed().as_secs_f64())));
}

/// Starts this program again to run one part.
fn start(number: usize) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    Command::new(program).args(std::env::args_os().skip(1)).args(["--part", &number.to_string()]).spawn()
}

/// Time to wait after a kill. A process that hangs inside the driver may outlive even that.
const GRACE: Duration = Duration::from_secs(5);

/// Waits for the exit status of `process`. `None` if it was killed at its `limit`.
fn end(mut process: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = wait(&mut process, limit)?;
    if ended.is_none() {
        process.kill()?;
        wait(&mut process, GRACE)?;
    }
    Ok(ended)
}

/// Waits for the exit status of `process`. `None` if it does not end within `limit`.
fn wait(process: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        match process.try_wait()? {
            None if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            ended => return Ok(ended),
        }
    }
}
