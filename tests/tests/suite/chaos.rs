//! The whole trainer under faults that a seed draws. A run either finishes, or all of its ranks end
//! and the error names one of the faults. A broken run is then resumed, in another way, until it
//! finishes. It must have learned the bits of an undisturbed run.
//!
//! `ZERO_CHAOS` sets the number of seeds, `ZERO_FIRST` the first one (`scripts/chaos`). A seed
//! always draws the same case, but the interleaving of its threads varies.

mod case;

use crate::out_of_memory::Ledgers;
use case::{Attempt, Case, Injected, STEPS};
use checkpoint::Checkpoints;
use device::DType;
use model::{Layout, TrainingState};
use prediction::Stage;
use settings::Config;
use settings::fault::{Fault, Kind};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use storage::Effect;
use tests::random::Random;
use tests::{copy_directory, fixture};
use trainer::{Failure, Report};

/// Time within which all ranks of an attempt must have ended.
const LONGEST: Duration = Duration::from_secs(30);

/// The timeout of runs in which a rank or a disk hangs. The tests wait for it.
const SHORT: Duration = Duration::from_millis(800);

/// The timeout of all other runs. No test may wait for it.
const LONG: Duration = Duration::from_secs(120);

/// The totals over all cases.
#[derive(Default)]
struct Counts {
    attempts: AtomicU64,
    failures: AtomicU64,
    timed: AtomicU64,
    unsaved: AtomicU64,
    read: AtomicU64,
}

/// Prints the seed if its case panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: again with scripts/chaos 1 {}", self.0, self.0);
        }
    }
}

#[test]
fn whatever_fails_is_named_and_what_is_left_resumes_with_the_bits_of_one_run() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (count, first) = (number("ZERO_CHAOS").unwrap_or(40), number("ZERO_FIRST").unwrap_or(0));
    let (next, counts, wholes) = (AtomicU64::new(first), Counts::default(), Wholes::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let _seed = Seed(seed);
                    play(seed, &counts, &wholes);
                }
            });
        }
    });
    let [attempts, failures, timed, unsaved, read] =
        [&counts.attempts, &counts.failures, &counts.timed, &counts.unsaved, &counts.read]
            .map(|count| count.load(Ordering::Relaxed));
    println!(
        "{count} seeds in {:.1} s: {attempts} runs, of which {failures} failed and named their fault; {timed} waited \
         for a timeout, {unsaved} did not save their last checkpoint, {read} weights were read from a checkpoint",
        began.elapsed().as_secs_f64()
    );
}

/// Makes attempts until one finishes. Each failed attempt must name one of the faults, which is
/// then removed.
fn play(seed: u64, counts: &Counts, wholes: &Wholes) {
    let mut random = Random::new(seed);
    let case = Case::draw(&mut random);
    let (mut kept, mut faults) = (tempfile::tempdir().unwrap(), case.faults.clone());
    let learned = loop {
        let attempt = Attempt::draw(&mut random, &case);
        faults.retain(|fault| !matches!(fault, Injected::Run(fault) if !attempt.has(fault)));
        let what = format!("{} {} on {:?}, {attempt:?}, {faults:?}", seed, case.precision, case.ranks);
        let config = config(&case, &attempt, &faults, kept.path());
        counts.attempts.fetch_add(1, Ordering::Relaxed);
        counts.timed.fetch_add(u64::from(hangs(&faults)), Ordering::Relaxed);
        let failure = match run(attempt.stage, config.clone(), hangs(&faults), &what) {
            Ok(report) => {
                counts.unsaved.fetch_add(u64::from(report.unsaved.is_some()), Ordering::Relaxed);
                check_report(&report, &faults, &what);
                break report.weights_blake3;
            }
            Err(failure) => failure,
        };
        if hangs(&faults) {
            // A hung thread of this process may still hold the lock.
            let before = std::mem::replace(&mut kept, tempfile::tempdir().unwrap());
            copy_directory(before.path(), kept.path());
        }
        let published = verify(&config, kept.path(), &what);
        if failure.to_string().contains("nothing left to do") {
            counts.read.fetch_add(1, Ordering::Relaxed);
            break published.unwrap_or_else(|| panic!("{what}: nothing is published"));
        }
        counts.failures.fetch_add(1, Ordering::Relaxed);
        let culprit = faults.iter().position(|fault| is_named(fault, &failure, &case, &attempt));
        faults.remove(culprit.unwrap_or_else(|| panic!("{what}: no fault is named by: {failure}")));
    };
    assert_eq!(learned, wholes.of(&case), "{case:?}");
}

fn flags(case: &Case) -> String {
    format!(
        "--model {} --gpus {} --batch-size 1 --seq-len 8 --steps {STEPS} --threads 1 --device cpu --headless --precision \
         {} --val-fraction 0.1 --eval-every 3 --eval-batches 1",
        fixture("odd.json"),
        case.ranks,
        case.precision
    )
}

fn config(case: &Case, attempt: &Attempt, faults: &[Injected], kept: &Path) -> Config {
    let all = flags(case);
    // A flag that is given twice would be refused.
    let all = if attempt.flags.contains("--threads") { all.replace("--threads 1 ", "") } else { all };
    let mut config =
        tests::config(&format!("{all} {} --checkpoint {}", attempt.flags, kept.display())).unwrap();
    config.timeout = if hangs(faults) { SHORT } else { LONG };
    for fault in faults {
        match fault {
            Injected::Run(fault) => config.faults.push(*fault),
            Injected::Save(fault) => {
                let everywhere = (0..case.ranks).map(|rank| (rank, *fault));
                config.checkpoint_faults.extend(everywhere);
            }
        }
    }
    config.output.checkpoint_timeout = config.timeout;
    config
}

/// True if one of `faults` is detected only by a timeout.
fn hangs(faults: &[Injected]) -> bool {
    faults.iter().any(|fault| match fault {
        Injected::Run(fault) => matches!(fault.kind, Kind::Stall | Kind::DiskHang),
        Injected::Save(fault) => fault.effect == Effect::Hang,
    })
}

/// Trains; all ranks must end in time. Their ledgers, if observed, must balance, unless a hanging
/// disk keeps memory that it was given.
fn run(stage: Stage, config: Config, hangs: bool, what: &str) -> Result<Report, Failure> {
    let (ledgers, ranks) = (Arc::new(Ledgers::default()), config.world_size);
    let (done, ended) = channel();
    // Witnesses can read only fp32.
    let witness = (config.precision.parameters == DType::F32).then(|| ledgers.clone());
    let is_seen = witness.is_some() && !hangs;
    std::thread::spawn(move || {
        // After the deadline the receiver is gone.
        let _ = done.send(match witness {
            Some(witness) => stages::train_under(stage, config, witness),
            None => stages::train(stage, config),
        });
    });
    let outcome = ended.recv_timeout(LONGEST).unwrap_or_else(|_| panic!("{what}: not all ranks have ended"));
    let began = outcome.as_ref().err().is_none_or(|failure| failure.code() == 1);
    assert!(!is_seen || !began || ledgers.balance(ranks), "{what}: something is still live: {outcome:?}");
    outcome
}

fn check_report(report: &Report, faults: &[Injected], what: &str) {
    let saves_fail = faults.iter().any(|fault| matches!(fault, Injected::Save(_)));
    assert!(saves_fail || report.unsaved.is_none(), "{what}: {:?}", report.unsaved);
    // Memory that a hanging disk keeps is neither returned nor written.
    assert!(hangs(faults) || report.mispredictions().is_empty(), "{what}: {:?}", report.mispredictions());
}

/// True if `failure` names the rank and the action of `fault`.
fn is_named(fault: &Injected, failure: &Failure, case: &Case, attempt: &Attempt) -> bool {
    let Injected::Run(Fault { kind, rank, step, .. }) = fault else { return false };
    let text = failure.to_string();
    let own = |what: &str| text.starts_with(&format!("rank {rank}{what}"));
    // If two ranks differ, neither is the odd one out.
    let tied = case.ranks == 2 || attempt.has_pairs();
    let odd = |before: &str, after: &str| {
        text.contains(&format!("{before}rank {rank} {after}"))
            || tied && text.contains(&format!(" {after}")) && text.contains(before)
    };
    match kind {
        Kind::Panic => own(": panic at ") && text.contains("njected panic in "),
        Kind::Error => own(": injected error in "),
        Kind::Stall | Kind::Slow => {
            text.contains(&format!(" for rank {rank}, which ")) || own(": injected stall in ")
        }
        Kind::Seed => odd("", "starts from different weights than "),
        Kind::Skip => odd("differs between ranks: ", "issued "),
        Kind::Nan | Kind::Overflow => {
            text.contains("the gradient norm is ") && text.contains(&format!(" in step {step}"))
        }
        Kind::DiskError => own(": cannot ") && !text.contains("full"),
        Kind::DiskFull => own(": cannot "),
        Kind::DiskHang => own(": cannot ") && text.contains("has not answered"),
        Kind::OutOfMemory => own(" is out of "),
        _ => false,
    }
}

/// Verifies every element of every published checkpoint. Returns the hash of the weights in the
/// newest one.
fn verify(config: &Config, kept: &Path, what: &str) -> Option<String> {
    let (layout, mut newest) = (Layout::new(&config.model), None);
    let checkpoints = Checkpoints::new(kept, Arc::new(storage::Disk::new(1)));
    for name in checkpoints.names().unwrap() {
        let manifest = checkpoints.manifest(&name).unwrap_or_else(|error| panic!("{what}: {error}"));
        let checkpoint = checkpoints.open(&name, manifest, &layout).unwrap();
        let mut hasher = blake3::Hasher::new();
        for (id, tensor) in layout.tensors.iter().enumerate() {
            for state in TrainingState::ALL {
                let mut values = vec![0.0f32; tensor.elements()];
                let read = checkpoint.read(state, (id, tensor), 0..values.len(), &mut values);
                read.unwrap_or_else(|error| panic!("{what}: {error}"));
                if state == TrainingState::Weight {
                    values.iter().for_each(|value| {
                        hasher.update(&value.to_le_bytes());
                    });
                }
            }
        }
        newest = newest.or(Some(hasher.finalize().to_hex().to_string()));
    }
    newest
}

/// Weights that undisturbed runs have learned, by number of ranks and precision.
#[derive(Default)]
struct Wholes(Mutex<HashMap<(usize, &'static str), String>>);

impl Wholes {
    fn of(&self, case: &Case) -> String {
        let mut wholes = self.0.lock().unwrap();
        let learn = || tests::run(Stage::Ddp, &flags(case)).weights_blake3;
        wholes.entry((case.ranks, case.precision)).or_insert_with(learn).clone()
    }
}
