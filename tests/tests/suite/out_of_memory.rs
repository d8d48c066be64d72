//! Memory may run out anywhere. The error names the rank on one screen, the rank's peers end with
//! it, and the ledgers of all ranks balance.

use device::{Ledger, Place};
use prediction::Stage;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::{STAGES, config, fixture};
use trainer::Witness;

/// Maximum number of lines in an error.
const SCREEN: usize = 24;

/// Keeps the ledgers of all ranks for inspection after the run.
#[derive(Default)]
pub(crate) struct Ledgers(Mutex<Vec<Ledger>>);

impl Witness for Ledgers {
    fn on_ledger(&self, _: usize, ledger: &Ledger) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ledger.clone());
    }
}

impl Ledgers {
    /// True if nothing is live on any of `ranks` ranks.
    pub(crate) fn balance(&self, ranks: usize) -> bool {
        let ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |ledger: &Ledger| Place::ALL.iter().all(|&place| ledger.live_total(place) == 0);
        ledgers.len() == ranks && ledgers.iter().all(is_empty)
    }
}

/// Fails every `stride`-th allocation of rank 1, from `first` on, in a run of one step. Returns the
/// number of failed allocations.
fn fail_allocations(stage: Stage, flags: &str, first: u64, stride: usize) -> u64 {
    let mut failed = 0;
    for number in (first..).step_by(stride) {
        let case = format!(
            "--model {} --gpus 2 --batch-size 1 --grad-accum 2 --seq-len 16 --steps 1 --threads 1 --device cpu \
             --timeout 60 {flags} --inject out-of-memory@rank1,allocation{number}",
            fixture("odd-tied.json")
        );
        let (ledgers, began) = (Arc::new(Ledgers::default()), Instant::now());
        let outcome = stages::train_under(stage, config(&case).unwrap(), ledgers.clone());
        assert!(began.elapsed() < Duration::from_secs(5), "{stage} {case}: {:?}", began.elapsed());
        assert!(ledgers.balance(2), "{stage} {case}: something is still live");
        let Err(failure) = outcome else { return failed };
        let text = failure.to_string();
        assert!(text.starts_with("rank 1 is out of "), "{stage} {case}: {text}");
        assert!(text.contains("the system gives no more"), "{stage} {case}: {text}");
        assert!(failure.code() == 1 && text.lines().count() <= SCREEN, "{stage} {case}: {text}");
        failed += 1;
    }
    failed
}

/// Returns the flags that are tried with each stage.
fn cases(stage: Stage) -> Vec<&'static str> {
    let everywhere = ["", "--offload-optimizer cpu", "--offload-optimizer disk --offload-buffers 1"];
    let inputs = "--checkpoint-activations block --offload-activations cpu";
    let shards = [
        "--offload-optimizer cpu --offload-parameters cpu",
        "--offload-optimizer disk --offload-parameters disk --offload-activations disk --checkpoint-activations block",
        "--strategy hybrid-shard --shard-group-size 2",
    ];
    let shards: &[&str] = if stage == Stage::Zero3 { &shards } else { &[] };
    everywhere.into_iter().chain([inputs]).chain(shards.iter().copied()).collect()
}

/// Tries a sample; the test below tries every allocation.
#[test]
fn an_allocation_that_fails_anywhere_names_the_rank_and_leaves_nothing_live() {
    for (start, stage) in (1..).zip(STAGES) {
        for (index, case) in cases(stage).into_iter().enumerate() {
            let failed = fail_allocations(stage, case, start + 3 * index as u64, 29);
            assert!(failed > 2, "{stage} {case}: {failed} allocations");
        }
    }
}

#[test]
#[ignore = "takes minutes: every allocation of setup, step and saving"]
fn every_allocation_that_fails_names_the_rank_and_leaves_nothing_live() {
    for stage in STAGES {
        for case in cases(stage) {
            let failed = fail_allocations(stage, case, 1, 1);
            println!("{stage} {case}: {failed} allocations");
            assert!(failed > 50, "{stage} {case}: {failed} allocations");
        }
    }
}

/// Runs under a process's memory limit, which systems other than Linux do not enforce.
#[cfg(target_os = "linux")]
mod limits {
    use super::*;
    use std::process::{Command, Output};

    /// Runs the program of `stage` in a process that may map `mebibytes`. Its threads share one
    /// arena, because by default each may map 64 MiB for its own, whatever it needs.
    fn within(stage: Stage, mebibytes: u64, flags: &str) -> Output {
        let script = format!("ulimit -v {}; exec \"$0\" {} {flags}", mebibytes << 10, stage.package());
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_stage")]).env("MALLOC_ARENA_MAX", "1");
        command.output().unwrap()
    }

    /// A run that needs much memory, most of it for activations and scratch. Its limit starts at 90
    /// MiB and is raised by 25 until the run fits.
    #[test]
    fn a_limit_of_the_process_is_an_error_of_a_rank() {
        let run = "--gpus 2 --batch-size 3 --seq-len 512 --steps 1 --threads 2 --device cpu --timeout 60 --headless";
        for (stage, offset) in STAGES.into_iter().zip([0, 6, 12, 18]) {
            let mut refused = 0;
            for mebibytes in (90 + offset..500).step_by(25) {
                let output = within(stage, mebibytes, run);
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                let case = format!("{stage} in {mebibytes} MiB, {}", output.status);
                assert!([Some(0), Some(1)].contains(&output.status.code()), "{case}: {error}");
                if output.status.success() {
                    break;
                }
                assert!(error.starts_with("error: rank "), "{case}: {error}");
                assert!(error.contains("the system gives no more"), "{case}: {error}");
                assert!(error.lines().count() <= SCREEN, "{case}: {error}");
                refused += 1;
            }
            assert!(refused > 3, "{stage}: {refused}");
        }
    }

    /// 64 GiB of token ids in a sparse file, read by a process that gets 1 GiB.
    #[test]
    fn a_file_that_main_memory_cannot_hold_is_trained_on() {
        let dir = tempfile::tempdir().unwrap();
        let ids = dir.path().join("ids.bin");
        std::fs::File::create(&ids).unwrap().set_len(64 << 30).unwrap();
        let flags = "--gpus 1 --steps 1 --device cpu --headless --shuffle-seed 1 --data-format u16 --data";
        let output = within(Stage::Ddp, 1024, &format!("{flags} {}", ids.display()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
