//! Tests of pacing: ranks stop at the requested boundary, advance by exactly one step, and held
//! time is not run time.

use events::{Boundary, Control, Pace};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PROGRAM: [Boundary; 7] = [
    Boundary::Step,
    Boundary::Unit,
    Boundary::Collective,
    Boundary::Unit,
    Boundary::Collective,
    Boundary::Event,
    Boundary::Step,
];

struct Ranks {
    pace: Arc<Pace>,
    passed: Arc<Vec<AtomicUsize>>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts `count` ranks that go through [`PROGRAM`], held from the beginning.
fn held(count: usize) -> Ranks {
    told(count, |pace| pace.control(Control::Pause))
}

/// Starts `count` ranks that go through [`PROGRAM`] at the pace that `asked` sets before they
/// begin.
fn told(count: usize, asked: impl Fn(&Pace)) -> Ranks {
    let pace = Arc::new(Pace::default());
    asked(&pace);
    let passed: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
    let thread = |rank: usize| {
        let (pace, passed) = (pace.clone(), passed.clone());
        std::thread::spawn(move || {
            for boundary in PROGRAM {
                pace.pass(rank as u32, boundary);
                passed[rank].fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let threads = (0..count).map(thread).collect();
    Ranks { pace, passed, threads }
}

impl Ranks {
    /// Blocks until all ranks are held and have passed the `expected` numbers of boundaries.
    fn settle(&self, expected: &[usize]) {
        let passed = || self.passed.iter().map(|n| n.load(Ordering::SeqCst)).collect::<Vec<_>>();
        while self.pace.waiting() < self.threads.len() as u64 || passed() != expected {
            std::thread::yield_now();
        }
        // No rank advances without a request.
        (0..200).for_each(|_| std::thread::yield_now());
        assert_eq!(passed(), expected);
    }

    fn join(self) {
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn steps_end_at_the_boundary_asked_for() {
    let ranks = held(3);
    ranks.settle(&[0; 3]);
    ranks.pace.control(Control::Step(Boundary::Collective));
    ranks.settle(&[2; 3]);
    ranks.pace.control(Control::Step(Boundary::Unit));
    ranks.settle(&[3; 3]);
    ranks.pace.control(Control::Step(Boundary::Step));
    ranks.settle(&[6; 3]);
    ranks.pace.control(Control::Resume);
    ranks.join();
}

#[test]
fn an_event_step_moves_the_rank_that_is_furthest_behind() {
    let ranks = held(2);
    ranks.settle(&[0, 0]);
    ranks.pace.control(Control::Step(Boundary::Event));
    ranks.settle(&[1, 0]);
    ranks.pace.control(Control::Step(Boundary::Event));
    ranks.settle(&[1, 1]);
    ranks.pace.control(Control::Step(Boundary::Event));
    ranks.settle(&[2, 1]);
    ranks.pace.cancel();
    ranks.join();
}

/// A person may press a key faster than ranks compute.
#[test]
fn steps_requested_at_once_add_up() {
    let three_units = |pace: &Pace| (0..3).for_each(|_| pace.control(Control::Step(Boundary::Unit)));
    let ranks = told(3, three_units);
    ranks.settle(&[6; 3]);
    ranks.pace.cancel();
    ranks.join();
    let mixed = |pace: &Pace| {
        [Boundary::Unit, Boundary::Event, Boundary::Collective]
            .into_iter()
            .for_each(|b| pace.control(Control::Step(b)));
    };
    let ranks = told(1, mixed);
    // To the first unit, to the next collective, and one boundary further.
    ranks.settle(&[3]);
    ranks.pace.cancel();
    ranks.join();
}

#[test]
fn a_hold_begins_without_the_steps_of_the_one_before() {
    let again = |pace: &Pace| {
        (0..5).for_each(|_| pace.control(Control::Step(Boundary::Unit)));
        pace.control(Control::Step(Boundary::Event));
        pace.control(Control::Resume);
        pace.control(Control::Pause);
    };
    let ranks = told(2, again);
    ranks.settle(&[0; 2]);
    ranks.pace.control(Control::Step(Boundary::Unit));
    ranks.settle(&[1; 2]);
    ranks.pace.cancel();
    ranks.join();
}

#[test]
fn pausing_again_discards_steps_that_no_rank_has_begun() {
    let ranks = told(2, |pace| {
        (0..5).for_each(|_| pace.control(Control::Step(Boundary::Unit)));
        pace.control(Control::Pause);
    });
    ranks.settle(&[0; 2]);
    ranks.pace.cancel();
    ranks.join();
}

#[test]
fn cancelling_releases_all_ranks_for_good() {
    let ranks = held(4);
    ranks.settle(&[0; 4]);
    ranks.pace.cancel();
    ranks.pace.control(Control::Pause);
    ranks.join();
}

#[test]
fn held_time_grows_while_held_and_stays_afterwards() {
    let pace = Arc::new(Pace::default());
    assert_eq!(pace.paused(), Duration::ZERO);
    pace.control(Control::Pause);
    assert_eq!(pace.paused(), Duration::ZERO, "no rank is held yet");
    let rank = std::thread::spawn({
        let pace = pace.clone();
        move || pace.pass(0, Boundary::Unit)
    });
    while pace.paused() < Duration::from_millis(5) {
        std::thread::yield_now();
    }
    pace.control(Control::Resume);
    rank.join().unwrap();
    let held = pace.paused();
    assert!(held >= Duration::from_millis(5));
    assert_eq!(pace.paused(), held, "time runs again");
}

/// If a deadline saw less held time, it would expire at once.
#[test]
fn held_time_never_falls_when_a_rank_is_released() {
    let pace = Arc::new(Pace::default());
    for _ in 0..400 {
        let before = pace.paused();
        pace.control(Control::Pause);
        let rank = std::thread::spawn({
            let pace = pace.clone();
            move || pace.pass(0, Boundary::Unit)
        });
        let mut held = Duration::ZERO;
        while held < before + Duration::from_micros(300) {
            held = pace.paused();
        }
        pace.control(Control::Resume);
        while !rank.is_finished() {
            let now = pace.paused();
            assert!(now >= held, "{now:?} after {held:?}");
            held = now;
        }
        rank.join().unwrap();
    }
}

#[test]
fn with_several_processes_a_pause_is_held_time_even_where_no_rank_is_held() {
    let pace = Pace::default();
    pace.share_between_processes();
    assert_eq!(pace.paused(), Duration::ZERO);
    pace.control(Control::Pause);
    while pace.paused() < Duration::from_millis(5) {
        std::thread::yield_now();
    }
    pace.control(Control::Resume);
    let held = pace.paused();
    assert!(held >= Duration::from_millis(5));
    assert_eq!(pace.paused(), held, "time runs again");
}

#[test]
fn slow_motion_stretches_run_time() {
    let pace = Pace::default();
    pace.control(Control::Slow(0.1));
    let start = std::time::Instant::now();
    for _ in 0..5 {
        // The rank's own work, which slow motion stretches.
        let work = std::time::Instant::now();
        while work.elapsed() < Duration::from_millis(1) {}
        pace.pass(0, Boundary::Unit);
    }
    let (real, held) = (start.elapsed(), pace.paused());
    let run = real - held;
    assert!(run >= Duration::from_millis(5), "work is run time: {run:?}");
    assert!(real.as_secs_f64() >= 9.0 * 0.005, "5 ms of work took only {real:?} at a tenth of the speed");
}

/// Two stops are subtracted; a process that continues without having been stopped loses no time.
#[test]
fn the_next_read_of_the_time_subtracts_a_stop() {
    let pace = Pace::default();
    let continued = pace.continued();
    for stop in 1..=2 {
        pace.mark_running(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(60));
        let before = pace.paused();
        continued.store(true, Ordering::Release);
        pace.mark_running(Duration::ZERO);
        let left_out = pace.paused() - before;
        assert!(left_out >= Duration::from_millis(60), "stop {stop}: {left_out:?}");
        assert_eq!(pace.paused() - before, left_out, "once");
    }
    let before = pace.paused();
    pace.mark_running(Duration::from_secs(60));
    continued.store(true, Ordering::Release);
    assert_eq!(pace.paused(), before);
}
