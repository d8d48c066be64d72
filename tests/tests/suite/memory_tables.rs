//! Snapshots of the measured memory table of each stage on four ranks.

use events::Class;
use events::say::grouped;
use prediction::Stage;
use std::sync::LazyLock;
use tests::{STAGES, train};
use trainer::Report;

/// A run of every stage.
static REPORTS: LazyLock<[Report; 4]> =
    LazyLock::new(|| STAGES.map(|stage| train(stage, "--gpus 4 --steps 2 --threads 1").unwrap()));

fn of_every_stage() -> impl Iterator<Item = (Stage, &'static Report)> {
    STAGES.into_iter().zip(REPORTS.iter())
}

#[test]
fn measured_memory_of_every_stage_on_four_ranks() {
    for (stage, report) in of_every_stage() {
        assert!(report.predictions_hold());
        let mut table = format!("{stage}: peak bytes of rank 0, tiny, 4 ranks\n");
        for row in report.memory.iter().filter(|row| row.rank == 0) {
            table.push_str(&format!("{:<22} {:>12}\n", row.class, row.peak_bytes));
            let others = report.memory.iter().filter(|other| other.class == row.class);
            assert!(others.clone().all(|other| other.peak_bytes == row.peak_bytes), "ranks are alike");
        }
        table.push_str(&format!("{:<22} {:>12}\n", "all at once", report.total_peak_bytes[0].peak_bytes));
        insta::assert_snapshot!(stage.package(), table);
    }
}

#[test]
fn the_readme_shows_what_is_measured() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    for (stage, report) in of_every_stage() {
        let peak = |class: Class| report.memory.iter().find(|row| row.class == class).unwrap().peak_bytes;
        let temporary = peak(Class::GatheredParameters) + peak(Class::CommunicationBuckets);
        let cells = [peak(Class::Parameters), peak(Class::Gradients), peak(Class::Optimizer), temporary]
            .map(grouped)
            .join(" | ");
        let row = readme.lines().find(|line| line.starts_with(&format!("| {stage} |"))).unwrap();
        assert!(row.contains(&cells), "{row} should hold {cells}");
    }
    let [.., zero3] = &*REPORTS;
    for row in zero3.memory.iter().filter(|row| row.rank == 0) {
        let line = readme.lines().find(|line| line.starts_with(row.class.label())).unwrap();
        assert_eq!(line.matches(&grouped(row.peak_bytes)).count(), 2, "{line}");
    }
}
