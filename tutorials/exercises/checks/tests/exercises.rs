//! Every starter compiles and fails with a sentence; every solution passes and meets its target.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed expectation is a panic")]
// Solutions are `pub`, as readers write them.
#![allow(unreachable_pub)]

#[allow(unused_imports, reason = "what the stage uses and the solution replaces")]
#[path = "../../03-bucket/solution.rs"]
mod bucket_solution;
#[path = "../../11-hybrid-reduction/solution.rs"]
mod hybrid_reduction_solution;
#[path = "../../08-loss-scaler/solution.rs"]
mod loss_scaler_solution;
#[path = "../../16-overlap-a-read/solution.rs"]
mod overlap_a_read_solution;
#[path = "../../15-page-an-optimizer/solution.rs"]
mod page_an_optimizer_solution;
#[path = "../../04-partition/solution.rs"]
mod partition_solution;
#[path = "../../01-planner-formula/solution.rs"]
mod planner_formula_solution;
#[path = "../../17-reshard/solution.rs"]
mod reshard_solution;
#[path = "../../02-ring-all-reduce/solution.rs"]
mod ring_all_reduce_solution;
#[allow(unused_imports, reason = "what the stage uses and the solution replaces")]
#[path = "../../04-shard-norm/solution.rs"]
mod shard_norm_solution;
#[path = "../../04-zero1-step/solution.rs"]
mod zero1_step_solution;
#[path = "../../05-zero2-accumulate/solution.rs"]
mod zero2_accumulate_solution;
#[path = "../../06-zero3-gather/solution.rs"]
mod zero3_gather_solution;

#[path = "answers/wrong.rs"]
mod wrong;
#[path = "answers/wrong_stages.rs"]
mod wrong_stages;

use exercises::{Check, guarded, stage};
use std::path::{Path, PathBuf};

/// An exercise: its folder, the starter, the solution.
struct Exercise(&'static str, Check, Check);

/// An exercise that is a function.
macro_rules! function {
    ($folder:literal, $name:ident, $solution:ident, $function:ident) => {
        Exercise(
            $folder,
            || exercises::$name::check($name::$function),
            || exercises::$name::check($solution::$function),
        )
    };
}

const ALL: [Exercise; 13] = [
    function!("01-planner-formula", planner_formula, planner_formula_solution, model_states),
    function!("02-ring-all-reduce", ring_all_reduce, ring_all_reduce_solution, all_reduce),
    Exercise(
        "03-bucket",
        || exercises::bucket::check::<bucket::Ddp>(bucket::push),
        || exercises::bucket::check::<bucket_solution::Ddp>(bucket_solution::push),
    ),
    function!("04-partition", partition, partition_solution, slice),
    Exercise(
        "04-shard-norm",
        || exercises::shard_norm::check::<shard_norm::Zero1>(shard_norm::norm),
        || exercises::shard_norm::check::<shard_norm_solution::Zero1>(shard_norm_solution::norm),
    ),
    Exercise("04-zero1-step", stage::check::<zero1_step::Zero1>, stage::check::<zero1_step_solution::Zero1>),
    Exercise(
        "05-zero2-accumulate",
        stage::check::<zero2_accumulate::Zero2>,
        stage::check::<zero2_accumulate_solution::Zero2>,
    ),
    Exercise(
        "06-zero3-gather",
        stage::check::<zero3_gather::Zero3>,
        stage::check::<zero3_gather_solution::Zero3>,
    ),
    function!("08-loss-scaler", loss_scaler, loss_scaler_solution, next),
    function!("11-hybrid-reduction", hybrid_reduction, hybrid_reduction_solution, reduce),
    function!("15-page-an-optimizer", page_an_optimizer, page_an_optimizer_solution, step),
    function!("16-overlap-a-read", overlap_a_read, overlap_a_read_solution, pass),
    function!("17-reshard", reshard, reshard_solution, reads),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
}

#[test]
fn all_are_here() {
    let entries = std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut folders: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    folders.retain(|name| name != "checks");
    folders.sort();
    assert_eq!(folders, ALL.map(|Exercise(folder, ..)| folder));
}

#[test]
fn solutions_pass_and_cost_what_the_planner_says() {
    for Exercise(name, _, solution) in ALL {
        let score = guarded(solution).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(!score.does.is_empty());
        for figure in &score.figures {
            assert!(figure.target > 0, "{name}: {figure}");
            assert_eq!(figure.own, figure.target, "{name}: {}", figure.what);
        }
    }
}

#[test]
fn untouched_starters_fail_with_a_sentence() {
    for Exercise(name, starter, _) in ALL {
        let text = std::fs::read_to_string(folder(name).join("src/lib.rs")).unwrap();
        // A reader's answer may pass; an untouched starter must not.
        if text.contains("// Your code here.") {
            let problem = guarded(starter).expect_err(name);
            assert!(problem.len() > 20 && problem.lines().count() <= 12, "{name}: {problem}");
            assert!(!problem.contains("panicked"), "{name}: {problem}");
        }
    }
}

#[test]
fn a_starter_says_what_to_do_and_a_solution_is_short() {
    for Exercise(name, ..) in ALL {
        let read = |file: &str| std::fs::read_to_string(folder(name).join(file)).unwrap();
        let (number, plain) = name.split_once('-').unwrap();
        let (starter, manifest) = (read("src/lib.rs"), read("Cargo.toml"));
        let chapter = format!("//! # Chapter {}:", number.trim_start_matches('0'));
        let check = format!("cargo run -p tutorials -- check {plain}`");
        for part in [&chapter, "//! Goal:", &check, "--hints 1"] {
            assert!(starter.contains(part), "{name}: {part} is missing");
        }
        assert!(manifest.contains(&format!("name = \"{plain}\"\n")), "{name}");
        let written = written(&read("solution.rs"), &starter);
        assert!((1..=15).contains(&written), "{name}: {written} lines to write");
    }
}

/// Returns the number of lines to write: the solution's body lines that are not in the starter.
fn written(solution: &str, starter: &str) -> usize {
    let is_function =
        |line: &&str| line.trim_start_matches(' ').trim_start_matches("pub ").starts_with("fn ");
    let lines: Vec<&str> = solution.lines().collect();
    let at = lines.iter().rposition(is_function).unwrap();
    let indent = lines[at].len() - lines[at].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let body = lines[at + 1..].iter().take_while(|line| **line != end);
    body.filter(|line| !starter.lines().any(|given| given == **line)).count()
}

/// Correct answers that exceed the target cost.
#[test]
fn what_costs_more_than_is_needed_passes_and_says_so() {
    let padded = exercises::partition::check(|parameters, shards, rank| {
        let length = parameters.div_ceil(shards) + 1;
        rank * length..(rank + 1) * length
    });
    let flat = exercises::hybrid_reduction::check(|buffers, _, cluster| {
        let (ranks, length): (Vec<usize>, _) = ((0..buffers.len()).collect(), buffers[0].len());
        cluster.all_reduce(buffers, &ranks, 0..length);
    });
    let chatty = exercises::shard_norm::check_alone(|mine, over_ranks| {
        let squares = |values: &[f32]| values.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        let (first, rest) = mine.split_at(1);
        (over_ranks(squares(first)) + over_ranks(squares(rest))).sqrt()
    });
    // Nothing is transferred while a piece is updated.
    let serial = exercises::page_an_optimizer::check(|pager| {
        for piece in 0..pager.pieces() {
            pager.fetch(piece, 0);
            pager.wait(0);
            pager.update(0);
            pager.store(0);
            pager.wait(0);
        }
    });
    // Nothing is read while a unit computes.
    let late = exercises::overlap_a_read::check(|order, disk| {
        for &unit in order {
            disk.start(unit);
            disk.compute(unit);
        }
    });
    // Every element is read separately.
    let single = exercises::reshard::check(|elements, writers, readers, rank| {
        let reads = reshard_solution::reads(elements, writers, readers, rank);
        let each = |exercises::reshard::Read { file, range }| {
            range.map(move |at| exercises::reshard::Read { file, range: at..at + 1 })
        };
        reads.into_iter().flat_map(each).collect()
    });
    let costly = [
        (padded, "of the target"),
        (flat, "3.48x"),
        (chatty, "2.00x"),
        (serial, "1.64x"),
        (late, "1.44x"),
        (single, "runs of files"),
    ];
    for (score, times) in costly {
        let score = score.unwrap();
        assert!(!score.is_best() && score.to_string().contains(times), "{score}");
    }
}
