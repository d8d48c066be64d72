//! Reports are read back unchanged, and a failing disk leaves a complete one.

use super::*;
use crate::samples::one_step;
use storage::{CallKind, DiskFault, Effect};

#[test]
fn a_report_reads_back_as_it_was() {
    let report = one_step("--link ethernet25g --precision bf16 --gpus 1");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    report.write(&path).unwrap();
    assert_eq!(Report::read(&path).unwrap(), report);
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace("bf16", "fp17")).unwrap();
    assert!(Report::read(&path).unwrap_err().to_string().contains("fp17"));
    Report { schema: SCHEMA + 1, ..report }.write(&path).unwrap();
    let error = Report::read(&path).unwrap_err().to_string();
    assert!(error.contains("not a report of this version") && error.contains("--report"), "{error}");
    let error = Report::read(std::path::Path::new("/dev/null")).unwrap_err().to_string();
    assert_eq!(error, "/dev/null: cannot be read: it is not a regular file");
}

#[test]
fn a_wrong_prediction_is_named_with_its_place_and_unit() {
    let mut report = one_step("--gpus 1 --offload-optimizer cpu");
    report.memory.truncate(1);
    report.memory[0].peak_bytes += 1;
    report.total_peak_bytes.truncate(2);
    report.total_peak_bytes[1].peak_bytes += 2;
    report.traffic.truncate(1);
    report.traffic[0].predicted_bytes += 8;
    report.traffic[0].calls += 1;
    report.transfers.truncate(1);
    report.transfers[0].predicted_bytes += 4;
    report.transfers[0].calls += 1;
    report.traffic_to_neighbours = vec![NeighbourRow { rank: 0, predicted_bytes: 2, bytes_sent: 1 }];
    insta::assert_snapshot!(report.mispredictions().join("\n"));
}

/// In fp16, activations may overflow although the run continues.
#[test]
fn a_loss_that_is_no_number_reads_back() {
    let mut report = one_step("--gpus 1 --precision fp16");
    report.steps[0].loss = f64::NAN;
    report.evaluations[0].loss = f64::NAN;
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.matches(r#""loss":null"#).count() == 2, "{text}");
    let back: Report = serde_json::from_str(&text).unwrap();
    assert!(back.steps[0].loss.is_nan() && back.evaluations[0].loss.is_nan(), "{back:?}");
    assert!(!crate::diagnosis(&back).is_empty());
}

/// An error, a full disk or a crash at every call leaves either the old report or the new one,
/// complete.
#[test]
fn a_disk_that_fails_at_any_call_leaves_a_whole_report() {
    let report = one_step("--gpus 1");
    let effects = [Effect::Error(std::io::ErrorKind::Other), Effect::Full, Effect::Crash];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let disk = Arc::new(Disk::recording(1, Vec::new()));
    report.write_on(&disk, &path).unwrap();
    let calls = disk.record().len() as u64;
    assert!(calls >= 5, "created, written, flushed, renamed, the directory flushed: {calls}");
    for (effect, number) in effects.iter().flat_map(|&effect| (1..=calls).map(move |n| (effect, n))) {
        std::fs::write(&path, "an older one").unwrap();
        let disk = Arc::new(Disk::with_faults(1, vec![DiskFault { kind: None, number, effect }]));
        let outcome = report.write_on(&disk, &path);
        let is_old = std::fs::read(&path).unwrap() == b"an older one";
        assert!(is_old || Report::read(&path).unwrap() == report, "{effect:?} at call {number}");
        let Err(failure) = outcome else { continue };
        let said = failure.to_string();
        assert!(said.contains("cannot write --report") && said.contains("report.json: "), "{said}");
        // A crashed machine removes nothing.
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert!(left == 1 || effect == Effect::Crash, "{effect:?} at call {number} leaves files");
        let _ = std::fs::remove_file(folder.path().join("report.json.partial"));
    }
    let short = DiskFault { kind: Some(CallKind::Write), number: 1, effect: Effect::Short(7) };
    report.write_on(&Arc::new(Disk::with_faults(1, vec![short])), &path).unwrap();
    assert_eq!(Report::read(&path).unwrap(), report, "a short write is continued");
}

#[test]
fn a_report_takes_the_place_of_another_whole() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    std::fs::write(&path, "an older one").unwrap();
    // A reader that has the old file open still reads the old text: the file is replaced, not
    // overwritten.
    let mut old = std::fs::File::open(&path).unwrap();
    one_step("--gpus 1").write(&path).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "an older one");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left there");
}
