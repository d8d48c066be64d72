//! A step that waits for slow places takes as long as predicted: what overlaps in the timeline
//! overlaps in a run.

use events::What;
use prediction::Stage;
use std::fmt::Write;
use tests::{recorded, train};
use timeline::{Calibration, Cluster, Costs, Efficiency, Gpu, H100, Machine, Software, estimate};

/// MB per second of each simulated link of a rank, so that computing takes little of a step, and
/// what is offloaded.
const CASES: [(u32, &str); 8] = [
    (20, "--offload-optimizer disk"),
    (20, "--offload-optimizer disk --offload-parameters disk"),
    (20, "--offload-optimizer disk --offload-parameters disk --grad-accum 3"),
    (20, "--offload-optimizer cpu --offload-parameters cpu --grad-accum 3"),
    (20, "--offload-optimizer disk --offload-parameters cpu"),
    (20, "--offload-optimizer cpu --offload-parameters disk"),
    (20, "--offload-parameters disk"),
    (2, "--offload-activations disk --checkpoint-activations block"),
];

/// Returns the estimate of a step of two ranks with `flags`, if all but the links, of `rate` bytes
/// per second, takes no time.
fn predicted(flags: &str, rate: f64) -> f64 {
    let job = settings::planned::job(Stage::Zero3, &tests::config(flags).unwrap());
    let gpu = Gpu { peak_flops: f64::MAX, memory_rate: f64::MAX, link: f64::MAX, host_link: rate, ..H100 };
    // Two ranks share the disk, with half of its rate each.
    let machine =
        Machine { memory_rate: f64::MAX, cpu_rate: None, disk_read: 2.0 * rate, disk_write: 2.0 * rate };
    let cluster = Cluster { machine, ..Cluster::of(gpu, 2) };
    let efficiency = Efficiency { host_link: 1.0, hop: 0.0, ..Calibration::ALL_RUNS.of(&gpu) };
    estimate(&job, &Costs::new(&job, cluster, Software::Fused, efficiency)).unwrap().total()
}

#[test]
fn steps_wait_as_long_as_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = String::from("step, s: measured, waits predicted\n");
    for (megabytes, case) in CASES {
        let disk = if case.contains("disk") {
            format!("--disk-link 0us,{megabytes}MB/s --offload-dir {}", dir.path().display())
        } else {
            String::new()
        };
        let flags = format!(
            "--gpus 2 --steps 4 --batch-size 2 --seq-len 64 --threads 1 --sub-group-size 50000 \
             --host-link 0us,{megabytes}MB/s {disk} {case}"
        );
        let file = dir.path().join("run");
        train(Stage::Zero3, &format!("{flags} --record {}", file.display())).unwrap();
        let events = recorded(&file);
        // The first step waits for no update, and the last one ends its own.
        let steps = events.iter().filter_map(|event| match event.what {
            What::StepFinished { step: 1 | 2, seconds, .. } if event.rank == 0 => Some(seconds),
            _ => None,
        });
        let measured = steps.fold(f64::MAX, f64::min);
        let predicted = predicted(&flags, 1e6 * f64::from(megabytes));
        writeln!(table, "{measured:.3}  {predicted:.3}  {case}").unwrap();
        // A run also computes, beside other tests.
        assert!((0.95..1.6).contains(&(measured / predicted)), "{case}\n{table}");
    }
    println!("{table}");
}
