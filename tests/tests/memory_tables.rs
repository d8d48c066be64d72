//! The measured memory table of each stage on four ranks, held by snapshots.

use tests::{STAGES, train};

#[test]
fn measured_memory_of_every_stage_on_four_ranks() {
    for stage in STAGES {
        let report = train(stage, "--gpus 4 --steps 2 --threads 1").unwrap();
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
