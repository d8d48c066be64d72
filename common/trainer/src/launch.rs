//! The ranks of this process as threads: starts them, turns panics into errors, and picks the error
//! that explains the others.

use crate::faults::RankFaults;
use crate::plan::{self, Plan};
use crate::rank_error::{self, RankError};
use crate::rank_failure::rank_failure;
use crate::run::{self, Observer, RunEvent};
use crate::witness::Milestone;
use collectives::local::{Options, groups};
use collectives::{Group, nccl};
use device::{Class, Device, Ledger, Place};
use events::lock;
use events::{Emitter, What};
use offload::{Transfers, WaitLimits};
use report::{LimitRow, Measured, Peaks, Report};
use settings::machine::not_started;
use settings::{Config, Failure, Result, link};
use sharding::{Mesh, Rank};
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Mutex, Once};
use std::thread::ScopedJoinHandle;

/// The ranks that run in this process.
pub(crate) enum Ranks {
    /// All ranks, as threads.
    Threads,
    /// One rank; the others are processes of their own.
    Process(Group),
}

/// Runs `ranks` as `plan` says, and writes the report if the plan names a file. Returns the report,
/// and the failure of writing it if there is one. The report of a failed run has its steps and its
/// error.
///
/// # Errors
/// The failure of the run; it also says if the report could not be written.
pub(crate) fn run(
    plan: &Plan,
    ranks: Ranks,
    emitters: Vec<Emitter>,
    observer: &Observer<'_>,
) -> Result<(Report, Option<Failure>)> {
    let done = Mutex::new(Measured::default());
    let recording = |rank: usize, event: RunEvent<'_>| {
        match (rank, event) {
            (0, RunEvent::Step(row, _)) => lock(&done).steps.push(*row),
            (0, RunEvent::Validation(step, loss)) => lock(&done).evaluations.push((step, loss)),
            _ => {}
        }
        observer(rank, event);
    };
    let observer: &Observer<'_> = if plan.config.output.report.is_some() { &recording } else { observer };
    let measured = match ranks {
        Ranks::Threads => run_all(plan, emitters, observer),
        Ranks::Process(mut group) => {
            emitters.into_iter().for_each(|emitter| group.attach(emitter));
            run_single(plan, group, observer)
        }
    };
    let measured =
        measured.map_err(|failure| report_failure(plan, std::mem::take(&mut *lock(&done)), failure))?;
    let mut report = plan::report(plan, &measured);
    let Some(path) = &plan.config.output.report else { return Ok((report, None)) };
    report.limit = report.gpu.is_empty().then(|| LimitRow::measure(&plan.config));
    let unwritten = report.write(path).err();
    Ok((report, unwritten))
}

/// Writes the report of a run that ended with `failure` after the steps in `done`, if one is asked
/// for. Returns the failure, with the reason if the report cannot be written.
fn report_failure(plan: &Plan, done: Measured, failure: Failure) -> Failure {
    let Some(path) = &plan.config.output.report else { return failure };
    let peaks = || Peaks { classes: vec![0; Class::ALL.len()], total: 0 };
    let memory = Place::ALL.iter().map(|_| peaks()).collect();
    let measured = vec![Measured { memory, ..done }];
    let report = plan::report(plan, &measured).failed(failure.to_string());
    match report.write(path) {
        Ok(()) => failure,
        Err(unwritten) => failure.with(unwritten),
    }
}

/// How one rank ended.
type Outcome = rank_error::Result<Measured>;

/// Runs all ranks as threads. Returns their measurements.
///
/// # Errors
/// The root cause of the failure.
fn run_all(plan: &Plan, emitters: Vec<Emitter>, observer: &Observer<'_>) -> Result<Vec<Measured>> {
    let outcomes = spawn_ranks(plan, emitters, observer);
    if let Some((rank, error)) = root_cause(&outcomes) {
        return Err(rank_failure(plan, rank, error));
    }
    Ok(outcomes.into_iter().flatten().collect())
}

/// Runs each rank on a thread. Returns how each of them ended.
fn spawn_ranks(plan: &Plan, emitters: Vec<Emitter>, observer: &Observer<'_>) -> Vec<Outcome> {
    silence_rank_panics();
    let Config { world_size, timeout, algorithm, link, .. } = &plan.config;
    let link = link.as_ref().map(|choice| choice.link);
    let options = Options { timeout: *timeout, algorithm: link::algorithm(*algorithm), link };
    let groups = groups(*world_size as u32, options);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = groups
            .into_iter()
            .zip(emitters)
            .enumerate()
            .map(|(number, (mut group, emitter))| {
                group.attach(emitter);
                std::thread::Builder::new().name(format!("rank {number}")).spawn_scoped(scope, move || {
                    run_rank(plan, group, |rank| run::train(plan, rank, observer))
                })
            })
            .collect();
        ranks.into_iter().map(join_rank).collect()
    })
}

/// Waits for a rank's thread. Returns the rank's outcome; an error if the rank panicked or its
/// thread could not be started.
fn join_rank<T>(thread: io::Result<ScopedJoinHandle<'_, rank_error::Result<T>>>) -> rank_error::Result<T> {
    match thread.map(|thread| thread.join()) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(payload)) => Err(RankError::Other(panic_message(&*payload))),
        Err(error) => Err(RankError::Other(not_started("the rank's thread", &error))),
    }
}

/// Runs the one rank of this process. Returns the measurements of all ranks.
///
/// # Errors
/// The rank's failure, or the group's.
pub(crate) fn run_single(plan: &Plan, group: Group, observer: &Observer<'_>) -> Result<Vec<Measured>> {
    silence_rank_panics();
    let number = group.rank();
    let body = move || {
        let all = |rank: &Rc<Rank>| {
            let measured = run::train(plan, rank.clone(), observer)?;
            plan.reached(plan.config.steps, rank.number(), Milestone::Sharing);
            let shared = run::share(rank, measured)?;
            plan.reached(plan.config.steps, rank.number(), Milestone::Shared);
            Ok(shared)
        };
        run_rank(plan, group, |rank| {
            let outcome = all(&rank);
            // Afterwards the rank leaves its group, and may linger for the others.
            plan.stop.note_rank_ended();
            outcome
        })
    };
    let outcome = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(format!("rank {number}"));
        join_rank(thread.spawn_scoped(scope, body))
    });
    outcome.map_err(|error| rank_failure(plan, number as usize, &error))
}

/// Opens the rank of `group` and runs `body` on it. Turns a panic into an error, and emits any
/// error as an event.
fn run_rank<T>(
    plan: &Plan,
    group: Group,
    body: impl FnOnce(Rc<Rank>) -> rank_error::Result<T>,
) -> rank_error::Result<T> {
    let emitter = group.emitter().clone();
    PANIC_EMITTER.set(Some(emitter.clone()));
    let memory = &plan.config.memory;
    let ledger = Ledger::new(emitter.clone(), memory.device_memory);
    let ledger = ledger.limited(Place::Host, memory.host_memory);
    let ledger = ledger.refusing(RankFaults::refused_allocation(&plan.config, group.rank()));
    if let Some(witness) = &plan.witness {
        witness.on_ledger(group.rank() as usize, &ledger);
    }
    let rank_emitter = emitter.clone();
    let outcome = catch_panics(|| body(Rc::new(open_rank(plan, group, ledger, rank_emitter)?)));
    outcome.inspect_err(|error| emit_failure(plan, &emitter, error))
}

/// Opens the device, groups and transfers of the rank of `group`. Tells its peers if that fails.
fn open_rank(plan: &Plan, group: Group, ledger: Ledger, emitter: Emitter) -> rank_error::Result<Rank> {
    let Config { threads, metered, ref hardware, .. } = plan.config;
    let with_meter = |device: Device| {
        if metered || device.gpu().is_none() { device.metered() } else { Ok(device) }
    };
    let device = hardware.device(&plan.gpus, group.rank() as usize, ledger, threads);
    let device = match device.and_then(with_meter) {
        Ok(device) => device,
        Err(error) => {
            group.poison("its setup".into(), error.to_string());
            return Err(error.into());
        }
    };
    let group = match device.gpu() {
        Some(gpu) if plan.config.nccl.is_some() => nccl::join(group, gpu, plan.config.timeout)?,
        _ => group,
    };
    let mesh = Mesh::new(&group, plan.config.mesh)?;
    let transfers = transfers(plan, &group, &device, &emitter)
        .inspect_err(|error| group.poison("its setup".into(), error.to_string()))?;
    Ok(Rank { device, mesh, group, transfers, emitter })
}

/// Runs `body` and turns a panic into an error.
fn catch_panics<T>(body: impl FnOnce() -> rank_error::Result<T>) -> rank_error::Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let location = PANIC_LOCATION.take().unwrap_or_default();
        Err(RankError::Other(format!("panic{location}: {}", panic_message(&*payload))))
    })
}

/// Emits the failure of the rank of `emitter`, and the rank that caused it.
fn emit_failure(plan: &Plan, emitter: &Emitter, error: &RankError) {
    let message = rank_failure(plan, emitter.rank() as usize, error).to_string();
    if let Some(culprit) = error.culprit(emitter.rank()) {
        emitter.emit(What::Blamed { culprit, heard: error.is_echo() });
    }
    emitter.emit(What::Failed { message });
}

/// Returns the transfers of a rank of `plan`'s run, which belongs to `group`.
fn transfers(
    plan: &Plan,
    group: &Group,
    device: &Device,
    emitter: &Emitter,
) -> rank_error::Result<Transfers> {
    let offload = &plan.config.offload;
    let limits = WaitLimits {
        group: Some(group.watch()),
        stop: Some(plan.stop.flag()),
        timeout: Some(plan.config.timeout),
    };
    let options = offload::Options {
        host: offload.host_link.as_ref().map(|link| link.link),
        disk: offload.disk_link.as_ref().map(|link| link.link),
        directory: offload.directory.as_deref(),
        reserved_bytes: plan.prediction.ranks[group.rank() as usize].disk.total_peak,
        storage: None,
        limits,
    };
    Ok(Transfers::new(device.clone(), emitter.clone(), options)?)
}

thread_local! {
    static PANIC_LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
    static PANIC_EMITTER: RefCell<Option<Emitter>> = const { RefCell::new(None) };
}

/// Silences the default message of panics in rank threads, which are reported as errors, and emits
/// an event before the panic unwinds and frees buffers. Call it before a screen is opened, whose
/// own hook calls this one.
pub(crate) fn silence_rank_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("rank ")) {
                let location = info.location().map(|l| format!(" at {}:{}", l.file(), l.line()));
                PANIC_LOCATION.set(location);
                // Emits nothing if the thread's locals are destroyed already.
                let _ = PANIC_EMITTER.try_with(|emitter| {
                    if let Some(emitter) = &*emitter.borrow() {
                        emitter.emit(What::Failing);
                    }
                });
            } else {
                default(info);
            }
        }));
    });
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Returns the error that is closest to the cause of the failure, with its rank. If a rank hung,
/// the errors of ranks that timed out on it come first, then its own error, then errors that blame
/// a third rank. Errors that only pass on another rank's failure come last.
fn root_cause(outcomes: &[Outcome]) -> Option<(usize, &RankError)> {
    let errors = || outcomes.iter().enumerate().filter_map(|(rank, o)| o.as_ref().err().map(|e| (rank, e)));
    let hung =
        errors().find(|(_, error)| matches!(error, RankError::Stalled(_))).map(|(rank, _)| rank as u32);
    let distance_from_cause = |(rank, error): &(usize, &RankError)| match (error, error.culprit(*rank as u32))
    {
        (RankError::Stalled(_), _) => 1,
        (error, _) if error.is_echo() => 3,
        (_, Some(culprit)) if hung.is_some_and(|hung| hung != culprit) => 2,
        _ => 0,
    };
    errors().min_by_key(distance_from_cause)
}
