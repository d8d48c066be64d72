//! Which ranks an out-of-memory error counts, and that no remedy is cut off.

use super::*;
use crate::samples::config;
use prediction::Stage;
use settings::planned::predict;

/// A remedy for the machine's memory must not exceed the run's own limit.
#[test]
fn no_remedy_breaks_another_limit() {
    let flags = "--gpus 2 --device cpu --offload-optimizer cpu --headless";
    let (job, prediction) = predict(Stage::Zero3, &config(flags)).unwrap();
    let said = |device| {
        let memory = MainMemory { bytes: 1_000_000, limit: None };
        let machine = Machine { memory: &memory, ranks: 2, rank: 0, on_gpus: true };
        check_machine(&job, &prediction, &machine, [device, None, None]).unwrap_err().to_string()
    };
    let back = "--offload-optimizer none";
    assert!(said(None).contains(back));
    let limited = said(Some(prediction.ranks[0].memory.total_peak));
    assert!(!limited.contains(back), "{limited}");
}

/// Only ranks on this machine count, to the byte; ranks on other machines do not.
#[test]
fn ranks_on_one_machine_are_added_up() {
    let (job, prediction) = predict(Stage::Zero3, &config("--gpus 4 --device cpu")).unwrap();
    let of = |rank: &RankPrediction| rank.memory.total_peak + rank.host.total_peak;
    let all: u64 = prediction.ranks.iter().map(of).sum();
    let least = prediction.ranks.iter().map(of).min().unwrap();
    let check = |ranks, on_gpus, bytes, limit: Option<&str>| {
        let memory = MainMemory { bytes, limit: limit.map(Into::into) };
        check_machine(
            &job,
            &prediction,
            &Machine { memory: &memory, ranks, rank: 0, on_gpus },
            Limits::default(),
        )
    };
    let pair = of(&prediction.ranks[0]) + least;
    let hosts: u64 = prediction.ranks.iter().map(|rank| rank.host.total_peak).sum();
    for (ranks, on_gpus, needs) in [(4, false, all), (2, false, pair), (4, true, hosts)] {
        assert_eq!(check(ranks, on_gpus, needs, None), Ok(()));
        let said = check(ranks, on_gpus, needs - 1, None).unwrap_err().to_string();
        assert!(said.contains(&format!("this machine's {ranks} ranks of ZeRO-3 would need")), "{said}");
        assert!(said.lines().count() <= SCREEN, "{said}");
    }
    let group = "/sys/fs/cgroup/job/memory.max";
    let said = check(4, false, 1_000_000, Some(group)).unwrap_err().to_string();
    assert!(said.contains(&format!("and {group} allows 1.00 MB")) && said.contains("sbatch --mem"), "{said}");
}

/// Whatever text precedes them, each remedy is named with its saving: in a row if there is room, or
/// in short form.
#[test]
fn no_remedy_is_cut_off() {
    for count in [1, 9, 14, 22] {
        let remedy = |saves: u64| {
            let how = format!("--flag-number-{saves} {saves}");
            Remedy { how, costs: "nothing".into(), total_peak: 900 - saves, saves, moves: 0 }
        };
        let alone: Vec<Remedy> = (1..=count).rev().map(remedy).collect();
        let text =
            on_one_screen("line\n".repeat(10), &Remedies { capacity: 1, alone, together: None }, "more");
        assert!(text.lines().count() <= SCREEN, "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for saves in 1..=count {
            let how = format!("--flag-number-{saves} {saves}");
            let [row, short] = [format!("{how} {saves} B"), format!("{how} ({saves} B)")];
            assert!(words.contains(&row) || words.contains(&short), "{how} is missing in\n{text}");
        }
    }
}

/// The system may refuse a rank's first allocation.
#[test]
fn a_rank_that_holds_nothing_lists_nothing() {
    let (job, prediction) = predict(Stage::Zero3, &config("--gpus 4 --device cpu")).unwrap();
    let said = |bytes| {
        let mut live = vec![0; Class::ALL.len()];
        live[0] = bytes;
        let place = Place::Device;
        let (class, requested, capacity) = (Class::Parameters, 1_000_000, 0);
        let oom = OutOfMemory {
            rank: 1,
            place,
            class,
            requested,
            capacity,
            live_total: bytes,
            live,
            by_system: true,
        };
        ran_out(&job, &prediction, (&oom, Moment::Setup), Limits::default()).to_string()
    };
    let nothing = said(0);
    assert!(nothing.contains("\n\nOf its device, 0 B are in use.\n"), "{nothing}");
    assert!(!nothing.contains("\n\n\n") && !nothing.contains("in use:"), "{nothing}");
    assert!(
        said(2000).contains(&format!("2.00 kB are in use:\n  {} 2.00 kB", Class::ALL[0])),
        "{}",
        said(2000)
    );
}

#[test]
fn a_limit_that_is_one_byte_short_is_told_from_the_need() {
    let (job, prediction) = predict(Stage::Zero3, &config("--gpus 4 --device cpu")).unwrap();
    let peak = prediction.ranks[0].memory.total_peak;
    let said = |capacity| check(&job, &prediction, [Some(capacity), None, None]).unwrap_err().to_string();
    let short = said(peak - 1);
    for bytes in [peak, peak - 1] {
        assert!(short.contains(&format!("{} bytes", grouped(bytes))), "{short}");
    }
    assert!(said(peak / 2).contains(&human(peak)));
}
