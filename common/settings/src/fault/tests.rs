//! Faults are parsed from the form in which they are printed.

use super::*;

#[test]
fn faults_are_read_from_words() {
    let fault = |kind, rank, step, phase| Ok(Fault { kind, rank, step, phase, allocation: 0 });
    assert_eq!("panic@rank2,step3,backward".parse(), fault(Kind::Panic, 2, 3, Phase::Backward));
    assert_eq!("error@rank0,step1,step".parse(), fault(Kind::Error, 0, 1, Phase::Step));
    assert_eq!("stall@rank0,step1,recompute".parse(), fault(Kind::Stall, 0, 1, Phase::Recompute));
    assert_eq!("panic@rank2,step3".parse(), fault(Kind::Panic, 2, 3, Phase::Backward));
    assert_eq!("panic@rank2".parse(), fault(Kind::Panic, 2, 0, Phase::Setup));
    assert_eq!("panic@rank2,step0,setup".parse(), fault(Kind::Panic, 2, 0, Phase::Setup));
    assert_eq!("panic@rank1,save".parse(), fault(Kind::Panic, 1, 0, Phase::Save));
    assert_eq!("seed@rank1".parse(), fault(Kind::Seed, 1, 0, Phase::Setup));
    assert_eq!("seed@rank1,step0".parse(), fault(Kind::Seed, 1, 0, Phase::Backward));
    assert_eq!("overflow@rank1,step5".parse(), fault(Kind::Overflow, 1, 5, Phase::Backward));
    assert_eq!("skip@rank1,step5".parse(), fault(Kind::Skip, 1, 5, Phase::Backward));
    let never = [
        "panic@rank1,step2,setup",
        "panic@rank1,step4294967297",
        "seed@rank1,step2",
        "seed@rank1,forward",
        "seed@rank1,step0,setup",
        "slow@rank1,forward",
        "slow@rank1,allocation1",
        "out-of-memory@rank1",
        "out-of-memory@rank1,allocation0",
        "out-of-memory@rank1,step2,allocation1",
        "out-of-memory@rank1,forward,allocation1",
    ];
    for bad in ["panic", "melt@rank1", "panic@rank,step1", "panic@rank1,sideways"].iter().chain(&never) {
        assert!(bad.parse::<Fault>().is_err(), "{bad}");
    }
}

#[test]
fn an_allocation_is_written_as_it_is_read() {
    let fault: Fault = "out-of-memory@rank1,allocation17".parse().unwrap();
    assert_eq!((fault.kind, fault.rank, fault.allocation), (Kind::OutOfMemory, 1, 17));
    assert_eq!(fault.to_string(), "out-of-memory@rank1,allocation17");
    assert!(!fault.passed(9));
}

/// A stale rank keeps the slices of the step before, so that step must be one of the run's.
#[test]
fn a_stale_rank_needs_the_step_before() {
    let passed = |step| Fault::silent(Kind::Stale, 1, step).passed(3);
    assert_eq!([2, 3, 4].map(passed), [true, true, false]);
    assert!(!Fault::silent(Kind::Stale, 1, 1).passed(0));
}

#[test]
fn silent_faults_are_written_as_they_are_read() {
    for kind in Kind::SILENT {
        let begins = if kind == Kind::Seed { 0 } else { 7 };
        let fault = Fault::silent(kind, 3, begins);
        assert_eq!(fault.to_string().parse(), Ok(fault));
        assert_eq!((fault.kind, fault.rank, fault.step), (kind, 3, begins));
    }
}
