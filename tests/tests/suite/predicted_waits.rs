//! A step that waits for slow places takes as long as predicted: what overlaps in the timeline
//! overlaps in a run.

use events::What;
use prediction::Stage;
use std::fmt::Write;
use tests::{recorded, train};
use timeline::{Calibration, Cluster, Costs, Efficiency, Gpu, H100, Machine, Software, estimate};

/// The stage, MB per second of each simulated link of a rank, so that computing takes little of a
/// step, and what is offloaded. If nothing is, the link between the ranks is slow.
const CASES: [(Stage, u32, &str); 10] = [
    (Stage::Zero1, 5, ""),
    (Stage::Zero2, 5, "--grad-accum 2"),
    (Stage::Zero3, 20, "--offload-optimizer disk"),
    (Stage::Zero3, 20, "--offload-optimizer disk --offload-parameters disk"),
    (Stage::Zero3, 10, "--offload-optimizer disk --offload-parameters disk --grad-accum 3"),
    (Stage::Zero3, 10, "--offload-optimizer cpu --offload-parameters cpu --grad-accum 3"),
    (Stage::Zero3, 20, "--offload-optimizer disk --offload-parameters cpu"),
    (Stage::Zero3, 20, "--offload-optimizer cpu --offload-parameters disk"),
    (Stage::Zero3, 20, "--offload-parameters disk"),
    (Stage::Zero3, 2, "--offload-activations disk --checkpoint-activations block"),
];

/// Returns the estimate of a step of two ranks with `flags`, if all but the links, of `rate` bytes
/// per second, takes no time.
fn predicted(stage: Stage, flags: &str, rate: f64) -> f64 {
    let job = settings::planned::job(stage, &tests::config(flags).unwrap());
    let link = if flags.contains(" --link ") { rate } else { f64::MAX };
    let gpu = Gpu { peak_flops: f64::MAX, memory_rate: f64::MAX, link, host_link: rate, ..H100 };
    // Two ranks share the disk, with half of its rate each.
    let machine =
        Machine { memory_rate: f64::MAX, cpu_rate: None, disk_read: 2.0 * rate, disk_write: 2.0 * rate };
    let cluster = Cluster { machine, ..Cluster::of(gpu, 2) };
    let efficiency = Efficiency { link: 1.0, host_link: 1.0, hop: 0.0, ..Calibration::ALL_RUNS.of(&gpu) };
    estimate(&job, &Costs::new(&job, cluster, Software::Fused, efficiency)).unwrap().total()
}

/// Runs a case. Returns the seconds of a usual step, measured and predicted.
fn run((stage, megabytes, case): (Stage, u32, &str)) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let rate = format!("0us,{megabytes}MB/s");
    let mut links = format!("--host-link {rate}");
    if !case.contains("offload") {
        links = format!("--link {rate}");
    } else if case.contains("disk") {
        links += &format!(" --disk-link {rate} --offload-dir {}", dir.path().display());
    }
    let flags = format!(
        "--gpus 2 --steps 4 --batch-size 2 --seq-len 64 --threads 1 --sub-group-size 50000 {links} \
         {case}"
    );
    let file = dir.path().join("run");
    train(stage, &format!("{flags} --record {}", file.display())).unwrap();
    let events = recorded(&file);
    // The first step waits for no update, and the last one ends its own.
    let steps = events.iter().filter_map(|event| match event.what {
        What::StepFinished { step: 1 | 2, seconds, .. } if event.rank == 0 => Some(seconds),
        _ => None,
    });
    (steps.fold(f64::MAX, f64::min), predicted(stage, &flags, 1e6 * f64::from(megabytes)))
}

/// Allows three runs: another program on the machine may slow one down.
#[test]
fn steps_wait_as_long_as_predicted() {
    let mut table = String::from("step, s: measured, waits predicted\n");
    for case in CASES {
        let holds = (0..3).any(|_| {
            let (measured, predicted) = run(case);
            writeln!(table, "{measured:.3}  {predicted:.3}  {} {}", case.0, case.2).unwrap();
            // A run also computes, beside other tests.
            (0.95..1.6).contains(&(measured / predicted))
        });
        assert!(holds, "{table}");
    }
    println!("{table}");
}
