//! The evidence solves every lab, and only the right answers are accepted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed expectation is a panic")]

use settings::fault::Kind;
use std::path::Path;
use tutorials::learn::lab::case::{Case, RANKS, STEPS};
use tutorials::learn::lab::finding::{Finding, find};
use tutorials::learn::lab::{Given, Patient};
use tutorials::learn::progress::Progress;

fn right(case: &Case) -> Finding {
    Finding { kind: case.fault.kind, rank: case.fault.rank, step: case.fault.step }
}

/// Runs a lab whose evidence shows the fault.
fn examined(case: &Case, folder: &Path) -> Patient {
    let patient = Patient::examine(case.clone(), folder).unwrap();
    assert_eq!(find(&patient.ill, &patient.healthy), Some(right(case)), "{}: {}", case.name, case.fault);
    patient
}

/// True if these answers solve the lab, as flags and as typed.
fn solves(patient: &mut Patient, Finding { kind, rank, step }: Finding, folder: &Path) -> bool {
    let file = folder.join("progress.json");
    let _ = std::fs::remove_file(&file);
    let given = Given { what: Some(kind), rank: Some(rank), step: Some(step) };
    let by_flags = patient.judge(&given, &mut Progress::at(file.clone())).is_ok();
    let kept = std::fs::read_to_string(&file).is_ok_and(|text| text.contains("lab/"));
    assert_eq!(by_flags, kept, "only solved labs are saved");
    let _ = std::fs::remove_file(&file);
    let typed = format!("{}\n{rank}\nstep {step}\n", kind.name());
    patient.ask(&mut typed.as_bytes(), &mut Progress::at(file.clone())).unwrap();
    assert_eq!(by_flags, file.exists(), "typed and given answers are judged alike");
    by_flags
}

fn only_the_right_answers_solve(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let mut patient = examined(case, folder.path());
    let sight = patient.sight();
    assert!(!sight.contains(&case.fault.to_string()) && !sight.contains("--inject"), "{sight}");
    assert!(sight.lines().all(|line| line.chars().count() <= 100 || line.contains("cargo run")), "{sight}");
    let right = right(case);
    assert!(solves(&mut patient, right, folder.path()), "{right:?}");
    for kind in Kind::SILENT.into_iter().filter(|kind| *kind != right.kind) {
        assert!(!solves(&mut patient, Finding { kind, ..right }, folder.path()), "{kind:?}");
    }
    for rank in (0..=RANKS).filter(|rank| *rank != right.rank) {
        assert!(!solves(&mut patient, Finding { rank, ..right }, folder.path()), "{rank}");
    }
    for step in (0..=STEPS).filter(|step| *step != right.step) {
        assert!(!solves(&mut patient, Finding { step, ..right }, folder.path()), "{step}");
    }
    // On a busy machine any rank may look slow; the numbers must accuse none.
    let accused = find(&patient.healthy, &patient.healthy);
    assert!(accused.is_none_or(|found| found.kind == Kind::Slow), "{}: {accused:?}", case.name);
}

#[test]
fn every_named_lab_is_solved_by_what_its_evidence_shows() {
    Case::named().for_each(|case| only_the_right_answers_solve(&case));
}

#[test]
fn labs_drawn_from_numbers_show_what_is_wrong() {
    for number in ["42", "59", "25", "15", "44", "38", "24", "72", "39"] {
        let case = Case::of(number).unwrap();
        examined(&case, tempfile::tempdir().unwrap().path());
    }
}

#[test]
fn hints_and_answers_are_there_for_the_asking() {
    let folder = tempfile::tempdir().unwrap();
    let mut patient = Patient::examine(Case::of("thin").unwrap(), folder.path()).unwrap();
    let mut progress = Progress::at(folder.path().join("progress.json"));
    patient.ask(&mut "h\nhint\nh\nh\nnonsense\n\n\n\n".as_bytes(), &mut progress).unwrap();
    assert!(!folder.path().join("progress.json").exists(), "an answer that was shown does not solve the lab");
    patient.ask(&mut "drop\nq\n".as_bytes(), &mut progress).unwrap();
    assert!(!folder.path().join("progress.json").exists());
}

#[test]
fn recordings_of_labs_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::of("halt").unwrap();
    let patient = Patient::examine(case, folder.path()).unwrap();
    assert!(patient.ill.outcome.is_err() && patient.healthy.outcome.is_ok());
    for name in ["halt.zero", "halt-healthy.zero"] {
        let recording = events::Recording::open(&folder.path().join(name)).unwrap();
        assert!(recording.is_complete() && !recording.is_empty(), "{name}");
    }
}

#[test]
fn labs_can_be_solved_by_flags() {
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tutorials"));
        command.args(flags.split_whitespace()).current_dir(folder.path());
        let output = command.env("TUTORIALS_PROGRESS", folder.path().join("progress.json")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text.into_owned())
    };
    let (code, text) = run("lab thin --what slow --rank 3 --step 4 --hints 1");
    assert!(code == Some(1) && text.contains("no: ") && text.contains("--hints 2"), "{text}");
    let (_, text) = run("lab thin --what slow --hints 4000000000");
    assert!(text.matches("hint: ").count() == 3 && text.contains("Enter shows"), "{text}");
    assert!(run("progress").1.contains("labs         0 of 7 solved\n"));
    let (code, text) = run("lab thin --what drop --rank 3 --step 4");
    assert!(code == Some(0) && text.matches("right: ").count() == 3, "{text}");
    assert!(
        text.contains("cargo run -p zero0-ddp -- ") && text.contains("--inject drop@rank3,step4"),
        "{text}"
    );
    assert!(text.contains("replay lab/thin.zero") && folder.path().join("lab/thin.zero").exists(), "{text}");
    assert!(run("progress").1.contains("labs         1 of 7 solved: thin\n"));
    let (code, text) = run("lab thinn");
    assert!(code == Some(2) && text.contains("thin, offbeat"), "{text}");
    assert!(Case::named().all(|case| run("lab").1.contains(&case.name)));
}
