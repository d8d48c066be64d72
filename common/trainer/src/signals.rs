//! Ctrl-C, SIGTERM and SIGHUP, and the line that explains why a run has not ended yet.

use crate::plan::Plan;
use crate::stop::StopRequest;
use events::Pace;
use settings::machine::remedy_for_threads;
use settings::{Failure, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Signals closer than this to the first one count as the same Ctrl-C, which a launcher and the
/// terminal may both pass on.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// How long a run may take to end before a line explains why.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// How often the run is asked whether a stop has been requested.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Makes the first Ctrl-C, SIGTERM or SIGHUP request a stop, and release ranks that a viewer holds
/// at `pace`. Another one, after [`SAME_SIGNAL`], ends the process at once; so does the first, if a
/// stop is requested already because the screen was quit.
///
/// # Errors
/// If the system refuses to deliver signals.
pub(crate) fn stop_on_signal(plan: &Plan, pace: Option<Arc<Pace>>) -> Result<()> {
    stop_on(requests(), plan, pace)
}

/// Handles signals as [`stop_on_signal`] does, but ignores SIGHUP: the run continues when its
/// terminal is closed.
///
/// # Errors
/// As [`stop_on_signal`].
pub(crate) fn outlive_terminal(plan: &Plan, pace: Option<Arc<Pace>>) -> Result<()> {
    flag::register(SIGHUP, Arc::default()).map_err(failed)?;
    stop_on([SIGINT, SIGTERM].into_iter(), plan, pace)
}

/// Ignores SIGXFSZ: a write beyond `ulimit -f` then fails with an error that names the file.
pub(crate) fn ignore_file_size_signal() {
    // If the system refuses that, the limit still ends the process.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

fn failed(error: std::io::Error) -> Failure {
    Failure::run(format!("cannot listen for signals: {error}{}", remedy_for_threads(&error)))
}

fn stop_on(requests: impl Iterator<Item = i32>, plan: &Plan, pace: Option<Arc<Pace>>) -> Result<()> {
    let mut signals = Signals::new(requests).map_err(failed)?;
    let stop = Arc::clone(&plan.stop);
    let listen = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            let requested = stop.request(signal);
            if let Some(pace) = &pace {
                pace.cancel();
            }
            if requested && first.is_none_or(|first| first.elapsed() >= SAME_SIGNAL) {
                low_level::exit(128 + signal);
            }
            first.get_or_insert_with(Instant::now);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// Returns the signals that request a stop. A process that was started to ignore SIGHUP, as `nohup`
/// starts it, continues to.
fn requests() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangup = Some(SIGHUP).filter(|&signal| !ignores(&status, signal));
    [SIGINT, SIGTERM].into_iter().chain(hangup)
}

/// True if `status`, of a process in proc(5), says that it ignores `signal`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Runs `wait`, which returns once the run is over. If the run does not end soon after a stop is
/// requested, prints a line that says why: `unit` is what the run stops after. If the system starts
/// no thread to print it, there is no line.
pub(crate) fn explain_delay<T>(request: &StopRequest, unit: &str, wait: impl FnOnce() -> T) -> T {
    let (running, watched) = channel::<()>();
    let is_over = move |within| watched.recv_timeout(within) == Err(RecvTimeoutError::Disconnected);
    std::thread::scope(|scope| {
        // Dropped when `wait` returns or panics, which disconnects the channel.
        let _running = running;
        let _ = std::thread::Builder::new().spawn_scoped(scope, move || {
            while !request.is_set() {
                if is_over(POLL_INTERVAL) {
                    return;
                }
            }
            if !is_over(EXPLAIN_AFTER) {
                explain(request, unit);
            }
        });
        wait()
    })
}

fn explain(request: &StopRequest, unit: &str) {
    if request.is_training() {
        events::complain!("stopping after the current {unit}; Ctrl-C or SIGTERM ends the run at once");
    } else {
        events::complain!(
            "the run's results are being written; Ctrl-C or SIGTERM ends the run at once, without them"
        );
    }
}
