//! Jobs of several processes, for tests.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use std::io::Read;
use std::net::TcpStream;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A process of a job, and the folder for files that a killed run leaves behind. Dropping it
/// removes both.
pub struct Member(Child, #[allow(dead_code, reason = "held until then")] TempDir);

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code. `None` if it was killed.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub error: String,
    /// The time from the start of the wait to the end of the process, without stalls of the whole
    /// machine.
    pub after: Duration,
}

impl Ended {
    /// True if it says that a rank was late for the job's meeting.
    pub fn missed_the_meeting(&self) -> bool {
        let words = ["never came", "has not reached rank 0", "got no answer", "hung up on", "has not sent"];
        words.iter().any(|words| self.error.contains(words))
    }
}

/// The time between two looks at the clock of a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The most time from a look to the next that counts: if more has passed, the machine was stalled.
const MOST: Duration = Duration::from_millis(250);

/// The length of a wait, without stalls of the whole machine.
struct Stopwatch {
    looked: Instant,
    waited: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Stopwatch { looked: Instant::now(), waited: Duration::ZERO }
    }

    /// Looks at the clock. Returns the time waited so far.
    fn look(&mut self) -> Duration {
        let now = Instant::now();
        self.waited += (now - std::mem::replace(&mut self.looked, now)).min(MOST);
        self.waited
    }
}

/// Open MPI's variables for starting more processes than there are cores, and for running as root.
pub const OPEN_MPI: &str =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1";

/// A secret for jobs that meet beyond loopback.
pub const SECRET: &str = "ZERO_JOB_SECRET=not-a-secret-of-any-real-job";

/// Returns a free port of this machine that no other test of this program uses.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// Returns the first of `count` consecutive free ports that no other test of this program uses.
/// They are below the ports that systems assign to connections, so none is taken before it is used.
///
/// # Panics
/// If no such ports are free.
pub fn free_ports(count: u16) -> u16 {
    const PORTS: Range<u16> = 10_000..20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |first: &u16| (*first..first + count).all(is_free);
    let next = || {
        let turn = std::process::id().wrapping_add(NEXT.fetch_add(count.into(), Ordering::Relaxed));
        PORTS.start + (turn % u32::from(PORTS.end - PORTS.start)) as u16
    };
    std::iter::repeat_with(next).take(PORTS.len()).find(free).unwrap()
}

/// True if no process listens at `port` of this machine. It connects instead of binding, because a
/// child process between `fork` and `exec` would keep the listener open.
pub fn is_free(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}

/// Starts `program` with `flags` and the variables `set` (`NAME=value …`), but without any other
/// launcher variables.
///
/// # Panics
/// If it cannot be started.
pub fn start(program: &str, flags: &str, set: &str) -> Member {
    let mut command = Command::new(program);
    let ours = |name: &str| {
        let prefixes = [
            "RANK",
            "WORLD_SIZE",
            "LOCAL_",
            "MASTER_",
            "OMPI_",
            "PMI",
            "SLURM_",
            "TORCHELASTIC_",
            "ZERO_JOB_",
            "ZERO_TEST_",
        ];
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    let folder = tempfile::tempdir().unwrap();
    command.args(flags.split_whitespace()).env("XDG_RUNTIME_DIR", folder.path());
    command.envs(set.split_whitespace().filter_map(|pair| pair.split_once('=')));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    Member(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")), folder)
}

/// Starts `size` processes of `program` on this machine as torchrun would, each with `flags(rank)`.
pub fn launch(program: &str, size: usize, flags: impl Fn(usize) -> String) -> Vec<Member> {
    let port = free_port();
    let set = |rank| format!("RANK={rank} WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
    (0..size).map(|rank| start(program, &flags(rank), &set(rank))).collect()
}

/// Starts a job with `attempt`, which returns how its ranks ended if it did not begin. Tries again
/// if a rank was late: a machine that stalls may keep ranks from meeting within a short timeout.
///
/// # Panics
/// If the job did not begin for another reason, or did not in several attempts.
pub fn met<T>(mut attempt: impl FnMut() -> Result<T, Vec<Ended>>) -> T {
    for _ in 0..5 {
        match attempt() {
            Ok(job) => return job,
            Err(ended) => assert!(ended.iter().any(Ended::missed_the_meeting), "{ended:?}"),
        }
    }
    panic!("the ranks are always late");
}

/// Returns how long it took until all of these had ended, which were waited for one after the
/// other.
pub fn took(ended: &[Ended]) -> Duration {
    ended.iter().map(|ended| ended.after).sum()
}

/// Checks the error of one of at least three ranks after `culprit` has skipped an `operation`.
/// Returns the operation's number in the error.
///
/// # Panics
/// If the error says anything else.
pub fn desync(error: &str, culprit: u32, operation: &str) -> u64 {
    let (_, after) = error.split_once("collective #").unwrap_or_else(|| panic!("no collective in: {error}"));
    let (number, after) = after.split_once(' ').unwrap_or_default();
    let culprits = format!("differs between ranks: rank {culprit} issued ");
    assert!(after.starts_with(&culprits), "{error}");
    let others = format!(", rank {} issued {operation} of ", u32::from(culprit == 0));
    assert!(after.contains(&others) && after.contains("every rank must issue the same"), "{error}");
    assert!(error.lines().count() <= 24, "one screen: {error}");
    number.parse().unwrap_or_else(|_| panic!("no number in: {error}"))
}

impl Member {
    /// Sends the process a signal.
    ///
    /// # Panics
    /// If `kill` cannot be run.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the process has ended or been stopped, for at most `timeout`. Returns true if a
    /// signal did that.
    ///
    /// # Panics
    /// If it is still running then, or its state cannot be read.
    pub fn struck(&self, timeout: Duration) -> bool {
        let mut stopwatch = Stopwatch::start();
        loop {
            if let Some(status) = self.state(WaitIdOptions::EXITED | WaitIdOptions::STOPPED) {
                return !status.exited();
            }
            assert!(stopwatch.look() < timeout, "the process is not struck");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// True if the process has ended.
    ///
    /// # Panics
    /// If its state cannot be read.
    pub fn has_ended(&self) -> bool {
        self.state(WaitIdOptions::EXITED).is_some()
    }

    /// Returns the state of the process if it is one of `states`.
    fn state(&self, states: WaitIdOptions) -> Option<WaitIdStatus> {
        let look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.0)), states | look).unwrap()
    }

    /// Waits for the process to end, for at most `timeout`.
    ///
    /// # Panics
    /// If it is still running then.
    pub fn end(mut self, timeout: Duration) -> Ended {
        let mut stopwatch = Stopwatch::start();
        let read = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = stream.map(|mut stream| stream.read_to_string(&mut text));
                text
            })
        };
        let out = read(self.0.stdout.take().map(|stream| Box::new(stream) as _));
        let error = read(self.0.stderr.take().map(|stream| Box::new(stream) as _));
        let (status, after) = loop {
            let (status, after) = (self.0.try_wait().unwrap(), stopwatch.look());
            match status {
                Some(status) => break (status, after),
                None if after < timeout => std::thread::sleep(POLL_INTERVAL),
                None => {
                    let _ = self.0.kill();
                    panic!(
                        "still there after {timeout:?}: {} {}",
                        out.join().unwrap(),
                        error.join().unwrap()
                    );
                }
            }
        };
        Ended { code: status.code(), out: out.join().unwrap(), error: error.join().unwrap(), after }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
