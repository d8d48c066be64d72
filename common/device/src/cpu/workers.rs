//! A rank's helper threads, which wait until a kernel has work for them.

use crate::Result;
use events::lock;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, yield_now};
use std::time::{Duration, Instant};

/// Number of elements that justify another thread.
const GRAIN: usize = 16 * 1024;

/// Time for which a thread waits awake before it sleeps. To wake it takes about 40 µs, as long as a
/// small kernel; most kernels of a step follow each other sooner than this.
const AWAKE: Duration = Duration::from_micros(200);

/// A job for the first `helpers` helpers: called once with each one's number, from 1.
///
/// The lifetime is erased; [`Helpers::run`] returns only after every helper is done with it.
#[derive(Clone, Copy)]
struct Job {
    work: &'static (dyn Fn(usize) + Sync),
    helpers: usize,
}

#[derive(Default)]
struct JobState {
    job: Option<Job>,
    panic: Option<Box<dyn Any + Send>>,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    /// Locked while `jobs` and `busy` change, so that no thread falls asleep at that moment.
    state: Mutex<JobState>,
    started: Condvar,
    finished: Condvar,
    /// Counts the jobs, so that a helper sees a new one.
    jobs: AtomicU64,
    /// Helpers that have not finished the job.
    busy: AtomicUsize,
}

impl Shared {
    /// Blocks until `done`, which `changed` announces: first awake, while other threads may use the
    /// processor, then asleep.
    fn wait(&self, changed: &Condvar, done: impl Fn() -> bool) -> MutexGuard<'_, JobState> {
        let start = Instant::now();
        while !done() && start.elapsed() < AWAKE {
            yield_now();
        }
        changed.wait_while(lock(&self.state), |_| !done()).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The helper threads of one device.
struct Helpers {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Locked while a job runs, so that kernels of one device that are called from two threads take
    /// turns.
    turn: Mutex<()>,
}

impl Helpers {
    fn new(helpers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let helpers = (1..=helpers)
            .filter_map(|number| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("kernel-{number}"))
                    .spawn(move || help(&shared, number))
                    .ok()
            })
            .collect();
        Helpers { shared, helpers, turn: Mutex::new(()) }
    }

    /// Calls `job` with 0 on this thread and with 1.. on at most `helpers` helpers, and blocks
    /// until all have returned.
    fn run(&self, helpers: usize, job: &(dyn Fn(usize) + Sync)) {
        let _turn = lock(&self.turn);
        let helpers = helpers.min(self.helpers.len());
        // SAFETY: only the lifetime changes. The helpers call the job while `busy` counts them, and
        // this function does not return, nor unwind, before `busy` is 0 and the job is taken back.
        let work =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job) };
        let shared = &*self.shared;
        {
            let mut state = lock(&shared.state);
            state.job = Some(Job { work, helpers });
            shared.busy.store(helpers, Ordering::Relaxed);
            shared.jobs.fetch_add(1, Ordering::Release);
        }
        shared.started.notify_all();
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut state = shared.wait(&shared.finished, || shared.busy.load(Ordering::Acquire) == 0);
        state.job = None;
        let panic = state.panic.take();
        drop(state);
        if let Some(panic) = own.err().or(panic) {
            resume_unwind(panic);
        }
    }
}

fn help(shared: &Shared, number: usize) {
    let mut seen = 0;
    while let Some(job) = next_job(shared, number, &mut seen) {
        let result = catch_unwind(AssertUnwindSafe(|| (job.work)(number)));
        let mut state = lock(&shared.state);
        state.panic = state.panic.take().or(result.err());
        if shared.busy.fetch_sub(1, Ordering::Release) == 1 {
            shared.finished.notify_one();
        }
    }
}

/// Blocks until there is a job after number `seen` for helper `number`; returns `None` if the
/// threads must end.
fn next_job(shared: &Shared, number: usize, seen: &mut u64) -> Option<Job> {
    loop {
        let state = shared.wait(&shared.started, || shared.jobs.load(Ordering::Acquire) != *seen);
        if state.closing {
            return None;
        }
        *seen = shared.jobs.load(Ordering::Relaxed);
        // The job of other helpers may be over by now.
        if let Some(job) = state.job.filter(|job| number <= job.helpers) {
            return Some(job);
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.closing = true;
            self.shared.jobs.fetch_add(1, Ordering::Release);
        }
        self.shared.started.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches its job's panics, so it has none of its own to report.
            let _ = helper.join();
        }
    }
}

/// The threads that one device's kernels may use. Helpers start with the first work for them.
pub(super) struct Workers {
    threads: usize,
    helpers: OnceLock<Helpers>,
}

impl Workers {
    pub(super) fn new(threads: usize) -> Self {
        Workers { threads: threads.max(1), helpers: OnceLock::new() }
    }

    /// Returns the number of threads that may work at once.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Cuts `rows` rows of `width` elements into one run for each thread that is worth waking; at
    /// least one.
    pub(super) fn runs(&self, rows: usize, width: usize) -> Vec<Range<usize>> {
        let worth = (rows * width).div_ceil(GRAIN);
        cut(rows, self.threads.min(worth).min(rows).max(1)).collect()
    }

    /// Cuts `rows` rows and `out`, which has `width` elements per row, into runs as
    /// [`Workers::runs`], and calls `work` with each.
    ///
    /// # Errors
    /// That of a run that failed.
    pub(super) fn each_run<S: Split + Send>(
        &self,
        out: S,
        rows: usize,
        width: usize,
        work: impl Fn(Range<usize>, S) -> Result<()> + Sync,
    ) -> Result<()> {
        let runs = self.runs(rows, width);
        let tasks = runs.iter().cloned().zip(out.runs(&runs, width)).collect();
        self.each(tasks, |(run, out)| work(run, out))
    }

    /// Calls `work` with each task, several at a time, until one fails.
    ///
    /// # Errors
    /// That of a task that failed.
    pub(super) fn each<T: Send>(&self, tasks: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
        if self.threads == 1 || tasks.len() < 2 {
            return tasks.into_iter().try_for_each(work);
        }
        let (most, helpers) = (tasks.len() - 1, self.helpers.get_or_init(|| Helpers::new(self.threads - 1)));
        let (queue, failure) = (Mutex::new(tasks.into_iter()), Mutex::new(None));
        let next = || lock(&queue).next();
        helpers.run(most, &|_| {
            while let Some(task) = next() {
                if let Err(error) = work(task) {
                    *lock(&failure) = Some(error);
                    return;
                }
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Data to write that can be cut into runs of rows, one for each thread.
pub(super) trait Split: Sized {
    /// Returns the first `len` elements, or all if there are fewer, and the rest.
    fn cut(self, len: usize) -> (Self, Self);

    /// Returns the elements of each of `runs`, which follow each other from 0, at `width` elements
    /// per row. The last row may be shorter.
    fn runs(self, runs: &[Range<usize>], width: usize) -> Vec<Self> {
        let mut parts = Vec::with_capacity(runs.len());
        let mut rest = self;
        for run in runs {
            let (part, next) = rest.cut(run.len() * width);
            parts.push(part);
            rest = next;
        }
        parts
    }
}

impl<T> Split for &mut [T] {
    fn cut(self, len: usize) -> (Self, Self) {
        self.split_at_mut(len.min(<[T]>::len(self)))
    }
}

impl<S: Split> Split for Option<S> {
    fn cut(self, len: usize) -> (Self, Self) {
        self.map(|data| data.cut(len)).unzip()
    }
}

impl<A: Split, B: Split> Split for (A, B) {
    fn cut(self, len: usize) -> (Self, Self) {
        let ((a, a_rest), (b, b_rest)) = (self.0.cut(len), self.1.cut(len));
        ((a, b), (a_rest, b_rest))
    }
}

/// Cuts `range` into blocks of `size`, of which the last may be shorter.
#[inline(always)]
pub(super) fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..(start + size).min(end))
}

/// Cuts `0..total` into `parts` ranges of nearly equal length.
pub(super) fn cut(total: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    (0..parts).map(move |part| total * part / parts..total * (part + 1) / parts)
}

/// Cuts `0..total` into the minimum number of ranges of at most `most`, of nearly equal length; one
/// empty range if `total` is 0.
pub(super) fn pieces(total: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    cut(total, total.div_ceil(most).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;

    #[test]
    fn every_task_is_done_once_and_panics_reach_the_caller() {
        let workers = Workers::new(3);
        // Two tasks leave one of the helpers out.
        for count in [0, 1, 2, 3, 50].into_iter().chain([2, 3].repeat(500)) {
            let done: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            workers
                .each((0..count).collect(), |task: usize| {
                    done[task].fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .unwrap();
            assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            workers.each(vec![0, 1, 2], |task| {
                assert!(task < 2);
                Ok(())
            })
        }));
        assert!(caught.is_err());
        let refused = DeviceError::Shape { kernel: "a", operand: "b", expected: 1, got: 2 };
        let fails = |task| if task == 7 { Err(refused.clone()) } else { Ok(()) };
        assert_eq!(workers.each((0..20).collect(), fails), Err(refused.clone()));
        assert_eq!(workers.each((8..20).collect(), fails), Ok(()));
    }
}
