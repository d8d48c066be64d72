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

/// In every form that is accepted: of every kind, with and without a step and each phase.
#[test]
fn faults_are_written_as_they_are_read() {
    let phases = Phase::value_variants().iter().map(|phase| format!(",{}", word(phase)));
    let phases: Vec<String> = phases.chain([String::new(), ",allocation17".into()]).collect();
    let mut read = 0;
    for kind in Kind::value_variants() {
        let forms = ["", ",step0", ",step3"].into_iter();
        for form in forms.flat_map(|step| phases.iter().map(move |phase| format!("{step}{phase}"))) {
            let Ok(fault) = format!("{}@rank3{form}", kind.name()).parse::<Fault>() else { continue };
            assert_eq!(fault.to_string().parse(), Ok(fault), "{fault}");
            read += 1;
        }
    }
    assert!(read > 100, "{read}");
    for kind in Kind::SILENT {
        let fault = Fault::silent(kind, 3, if kind == Kind::Seed { 0 } else { 7 });
        assert_eq!(fault.to_string().parse(), Ok(fault), "{fault}");
    }
    for form in
        ["out-of-memory@rank1,allocation17", "seed@rank3", "seed@rank3,step0", "error@rank2,step3,step"]
    {
        assert_eq!(form.parse::<Fault>().unwrap().to_string(), form);
    }
}

#[test]
fn faults_of_steps_that_are_done_have_passed() {
    let passed = |form: &str| form.parse::<Fault>().unwrap().passed(3);
    for form in ["panic@rank1,step2", "error@rank1,step0,step", "nan@rank1,step2", "seed@rank1"] {
        assert!(passed(form), "{form}");
    }
    for form in [
        "panic@rank1,step3",
        "panic@rank1",
        "panic@rank1,save",
        "drop@rank1,step0",
        "out-of-memory@rank1,allocation1",
    ] {
        assert!(!passed(form), "{form}");
    }
}

/// A stale rank keeps the slices of the step before, so that step must be one of the run's.
#[test]
fn a_stale_rank_needs_the_step_before() {
    let passed = |step| Fault::silent(Kind::Stale, 1, step).passed(3);
    assert_eq!([2, 3, 4].map(passed), [true, true, false]);
    assert!(!Fault::silent(Kind::Stale, 1, 1).passed(0));
}
