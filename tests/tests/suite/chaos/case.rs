//! A seed's case: ranks, precision, faults, and the settings of each attempt.

use prediction::Stage;
use settings::fault::{Fault, Kind, Phase};
use std::io::ErrorKind;
use std::time::Duration;
use storage::Effect;
use tests::STAGES;
use tests::random::Random;

/// Steps of every run.
pub(crate) const STEPS: u32 = 4;

/// Phases in which a fault may strike. Validation follows the last two steps.
const PHASES: [Phase; 8] = [
    Phase::Setup,
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Recompute,
    Phase::Step,
    Phase::Evaluate,
    Phase::Save,
];

/// A fault in a rank's run, or in every rank's disk while it saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Injected {
    Run(Fault),
    Save(storage::DiskFault),
}

/// One case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) ranks: usize,
    pub(crate) precision: &'static str,
    pub(crate) faults: Vec<Injected>,
}

/// The settings of one attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) stage: Stage,
    pub(crate) flags: String,
}

impl Case {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let ranks = 1 + random.below(4);
        let precision = *random.pick(&["fp32", "bf16", "fp16 --initial-scale-power 9"]);
        let scaled = precision.starts_with("fp16");
        let faults = (0..random.below(4)).map(|_| fault(random, ranks, scaled)).collect();
        Case { ranks, precision, faults }
    }
}

fn fault(random: &mut Random, ranks: usize, scaled: bool) -> Injected {
    let rank = random.below(ranks);
    let phase = *random.pick(&PHASES);
    let first = if phase == Phase::Evaluate { 2 } else { 0 };
    let steps = if phase == Phase::Setup { 1 } else { STEPS };
    let step = first + random.below((steps - first) as usize) as u32;
    let at = |kind| Injected::Run(Fault { kind, rank, step, phase, allocation: 0 });
    let within = |kind| Injected::Run(Fault::silent(kind, rank, step));
    match random.below(100) {
        0..20 => at(Kind::Panic),
        20..35 => at(Kind::Error),
        35..40 => at(Kind::Stall),
        // If all ranks had one of these, they would agree and nothing would show, so only one rank
        // has it.
        40..44 if ranks > 1 => {
            Injected::Run(Fault { phase: Phase::Setup, ..Fault::silent(Kind::Seed, ranks - 1, 0) })
        }
        // With loss scaling, such a step is skipped. That is not a failure but changes the result.
        44..50 if !scaled => within(*random.pick(&[Kind::Nan, Kind::Overflow])),
        50..55 if ranks > 1 => Injected::Run(Fault::silent(Kind::Skip, ranks - 1, step)),
        55..57 => within(Kind::Slow),
        57..62 => at(Kind::DiskError),
        62..67 => at(Kind::DiskFull),
        67..70 => at(Kind::DiskHang),
        70..80 => Injected::Save(save_fault(random)),
        _ => {
            let allocation = 1 + random.below(600) as u64;
            Injected::Run(Fault { kind: Kind::OutOfMemory, rank, step: 0, phase: Phase::Setup, allocation })
        }
    }
}

fn save_fault(random: &mut Random) -> storage::DiskFault {
    use storage::CallKind::{Create, CreateDirectory, Flush, FlushDirectory, Rename, Write};
    let kinds = [Create, CreateDirectory, Flush, FlushDirectory, Rename, Write];
    let kind = if random.below(2) == 0 { None } else { Some(*random.pick(&kinds)) };
    let number = 1 + random.below(if kind.is_some() { 4 } else { 30 }) as u64;
    let effect = match random.below(8) {
        0..2 => Effect::Error(*random.pick(&[ErrorKind::Other, ErrorKind::PermissionDenied])),
        2 => Effect::Short(1 + random.below(5000)),
        3..5 => Effect::Full,
        5 => Effect::Delay(Duration::from_millis(1 + random.below(50) as u64)),
        6 => Effect::Crash,
        _ => Effect::Hang,
    };
    storage::DiskFault { kind, number, effect }
}

impl Attempt {
    pub(crate) fn draw(random: &mut Random, case: &Case) -> Self {
        let stage = *random.pick(&STAGES);
        let parts = [
            strategy(random, stage, case.ranks),
            word(random, &["", "", "--link 20us,1GB/s", "--threads 2"]),
            word(random, &["", "--checkpoint-every 1", "--checkpoint-every 2", "--checkpoint-every 1"]),
            word(random, &["", "--checkpoint-wait"]),
            word(random, &["", "--checkpoint-keep 1"]),
            word(random, &["", "", "--checkpoint-activations block", "--checkpoint-activations selective"]),
        ];
        let mut flags = parts.join(" ");
        flags += " ";
        flags += offload(random, stage, &flags);
        Attempt { stage, flags }
    }

    /// True if `fault` may be requested in this attempt.
    pub(crate) fn has(&self, fault: &Fault) -> bool {
        let recomputes = self.flags.contains("--checkpoint-activations");
        match fault.kind {
            Kind::DiskError | Kind::DiskFull | Kind::DiskHang if !self.flags.contains(" disk") => false,
            _ => fault.phase != Phase::Recompute || recomputes,
        }
    }

    /// True if ranks compare their work in groups of two, in which neither rank is the odd one out.
    pub(crate) fn has_pairs(&self) -> bool {
        self.flags.contains("-size 2")
    }
}

fn strategy(random: &mut Random, stage: Stage, ranks: usize) -> &'static str {
    let groups: &[&str] = match ranks {
        4 => &["--strategy hybrid-shard --shard-group-size 2", "--secondary-shard-size 2"],
        _ => &[""],
    };
    match stage {
        Stage::Ddp => "",
        Stage::Zero1 => word(random, &["", "--grad-sync all-reduce"]),
        Stage::Zero2 => word(random, &["", "--reduce-bucket 1000"]),
        Stage::Zero3 if random.below(2) == 0 => word(random, groups),
        Stage::Zero3 => word(random, &["", "--strategy shard-grad-op", "--param-persistence-threshold 1000"]),
    }
}

fn offload(random: &mut Random, stage: Stage, flags: &str) -> &'static str {
    let mut places = vec![
        "",
        "",
        "--offload-optimizer cpu",
        "--offload-optimizer disk",
        "--offload-optimizer disk --offload-buffers 1",
    ];
    if stage == Stage::Zero3 && !flags.contains("-size 2") {
        places.extend(["--offload-optimizer cpu --offload-parameters cpu"]);
        places.extend(["--offload-optimizer disk --offload-parameters disk --offload-buffers 2"; 2]);
    }
    if flags.contains("--checkpoint-activations block") {
        places.extend(["--offload-activations cpu", "--offload-activations disk --offload-optimizer disk"]);
    }
    word(random, &places)
}

fn word(random: &mut Random, words: &[&'static str]) -> &'static str {
    words[random.below(words.len())]
}
