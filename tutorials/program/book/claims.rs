//! Claims about ZeRO, with the formulas' results and measurements of the default model.

use crate::learn::pages::number;
use crate::learn::question::Figure;
use crate::learn::runs::{Run, Runs};
use events::say::grouped;
use events::{Class, Operation};
use planner::claims::claims;
use prediction::Stage::{self, Ddp, Zero1, Zero2, Zero3};
use trainer::{Failure, Result};

// Chapters also ask about many of these runs. Runs with the same flags are executed only once.

/// Four ranks, two short steps.
const TWO: &str = "--gpus 4 --steps 2 --batch-size 2 --headless";
/// Four ranks, two steps of four micro-batches.
const ACCUMULATED: &str = "--gpus 4 --steps 2 --batch-size 2 --grad-accum 4 --headless";
/// ZeRO-1 with the textbook's reduction.
const TEXTBOOK: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --grad-sync all-reduce";
/// The whole model is one unit.
const ONE_UNIT: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --wrap model";
/// The whole model fits into one bucket.
const ONE_BUCKET: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --reduce-bucket 1000000";
/// 16-bit weights and gradients with fp32 masters: the recipe `mixed`.
const BF16: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16";
/// The recipe `mixed` on eight ranks.
const BF16_OF_EIGHT: &str = "--gpus 8 --steps 2 --batch-size 2 --headless --precision bf16";
const KEPT: &str = "--gpus 16 --steps 2 --batch-size 2 --headless --precision bf16 --strategy shard-grad-op";
const KEPT_BY_NONE: &str = "--gpus 16 --steps 2 --batch-size 2 --headless --precision bf16";
const ONE_BUCKET_16: &str =
    "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --reduce-bucket 1000000";

/// Returns all claims as items of a list.
///
/// # Errors
/// If a run fails, a claim has no measurement, or a measurement has no claim.
pub(super) fn text(runs: &Runs) -> Result<String> {
    let bench = Bench { runs };
    let claims = claims();
    let unknown = MEASURED.iter().find(|(says, _)| claims.iter().all(|claim| claim.says != *says));
    if let Some((says, _)) = unknown {
        return Err(Failure::run(format!("no claim says {says:?}")));
    }
    let mut text = String::new();
    for (index, claim) in claims.iter().enumerate() {
        let measured = MEASURED.iter().find(|(says, _)| *says == claim.says);
        let (_, measure) =
            measured.ok_or_else(|| Failure::run(format!("nothing measures {:?}", claim.says)))?;
        let number = format!("{}.", index + 1);
        let indent = " ".repeat(number.len() + 1);
        text += &format!("{number} **{}** ({})\n\n", claim.says, claim.source.label());
        text += &format!("{indent}{}\n\n{indent}*Measured:* {}\n\n", claim.holds, measure(&bench)?);
    }
    Ok(text)
}

type Measure = fn(&Bench<'_>) -> Result<String>;

/// The measurement of each claim.
const MEASURED: &[(&str, Measure)] = &[
    ("ZeRO-1 saves 4×", |b| b.savings(Zero1)),
    ("ZeRO-2 saves 8×", |b| b.savings(Zero2)),
    ("ZeRO-3 saves 10× or more", |b| b.savings(Zero3)),
    ("The stages save 33 %, 50 % and 75 %", |b| b.shares()),
    ("Optimizer states take 32 bytes per parameter", |b| b.optimizer()),
    ("A bucket of 5e8 is 500 MB", |b| b.bucket()),
    ("7B with DDP takes 70 GB: 14 + 14 + 56", |b| b.scaled(Ddp, BF16, 7)),
    ("In ZeRO-2 on 4 GPUs, gradients and optimizer take 14 + 14 = 28 GB", |b| b.drained()),
    ("7B with ZeRO-3 on 4 GPUs takes about 21 GB", |b| b.scaled(Zero3, BF16, 7)),
    ("SHARD_GRAD_OP takes about 2/N of the memory", |b| b.kept()),
    ("7B without ZeRO takes 136 to 166 GB", |b| b.replicated()),
    ("ZeRO-3's peak of 48.5 GB includes the whole model, gathered", |b| b.units()),
    ("Each GPU holds some of the layers", |b| b.slices()),
    ("ZeRO-2 all-reduces gradients", |b| b.sweeps(Zero2)),
    ("ZeRO-3 all-reduces gradients in backward", |b| b.sweeps(Zero3)),
    ("ZeRO-1 all-reduces gradients, gathers parameters, and sends as much as DDP", |b| b.textbook()),
    ("One would never use ZeRO-1: ZeRO-2 costs the same", |b| b.accumulated()),
    ("ShardedLinear is FSDP in miniature", |b| b.gathers()),
    ("13B needs ZeRO-3 on 8 GPUs of 80 GB", |b| b.scaled(Zero2, BF16_OF_EIGHT, 13)),
    ("7B to 30B: ZeRO-2", |b| {
        Ok(format!("{} {}", b.scaled(Zero2, BF16_OF_EIGHT, 30)?, b.scaled(Zero3, BF16_OF_EIGHT, 30)?))
    }),
    ("13B on 8 GPUs: 108.96, 87.78 and 24.21 GB", |b| {
        let stages = [Zero1, Zero2, Zero3].map(|stage| b.scaled(stage, BF16_OF_EIGHT, 13));
        Ok(stages.into_iter().collect::<Result<Vec<_>>>()?.join(" "))
    }),
    ("ZeRO-3 moves 89.41 GB for 24 layers of 1B", |b| b.sweeps(Zero3)),
];

/// Runs of the default model, measured on rank 0.
struct Bench<'a> {
    runs: &'a Runs,
}

impl Bench<'_> {
    fn measured(&self, stage: Stage, flags: &str, figure: Figure) -> Result<u64> {
        Ok(figure.of(&*self.runs.report(&Run::new(stage, flags))?).1)
    }

    fn peak(&self, stage: Stage, flags: &str, class: Class) -> Result<u64> {
        self.measured(stage, flags, Figure::Peak(class))
    }

    fn sent(&self, stage: Stage, flags: &str, operation: Operation) -> Result<u64> {
        self.measured(stage, flags, Figure::Sent(operation))
    }

    /// Returns the bytes of parameters, gradients and optimizer states.
    fn states(&self, stage: Stage, flags: &str) -> Result<u64> {
        let peaks = [Class::Parameters, Class::Gradients, Class::Optimizer]
            .map(|class| self.peak(stage, flags, class));
        peaks.into_iter().sum()
    }

    fn parameters(&self) -> Result<f64> {
        Ok(self.runs.report(&Run::new(Ddp, BF16))?.model.parameters as f64)
    }

    /// Returns the bytes per parameter.
    fn each(&self, bytes: u64) -> Result<String> {
        Ok(number(bytes as f64 / self.parameters()?))
    }

    fn savings(&self, stage: Stage) -> Result<String> {
        let replicated = self.states(Ddp, BF16)?;
        let of = |flags| self.states(stage, flags);
        let (four, eight) = (of(BF16)?, of(BF16_OF_EIGHT)?);
        let times = |bytes: u64| replicated as f64 / bytes as f64;
        Ok(format!(
            "{} bytes of model states in DDP; in {stage} {} on 4 ranks ({}×), {} on 8 ({}×).",
            grouped(replicated),
            grouped(four),
            number(times(four)),
            grouped(eight),
            number(times(eight))
        ))
    }

    fn shares(&self) -> Result<String> {
        let all = self.states(Ddp, TWO)? as f64;
        let saved = |stage| Ok(number(100.0 * (1.0 - self.states(stage, TWO)? as f64 / all)));
        let saved: Result<Vec<String>> = [Zero1, Zero2, Zero3].into_iter().map(saved).collect();
        let saved = saved?;
        Ok(format!("{} %, {} % and {} % on 4 ranks in fp32.", saved[0], saved[1], saved[2]))
    }

    fn optimizer(&self) -> Result<String> {
        let of = |flags| self.each(self.peak(Ddp, flags, Class::Optimizer)?);
        let (mixed, fp32) = (of(BF16)?, of(TWO)?);
        Ok(format!("{mixed} bytes per parameter in bf16 with fp32 masters, {fp32} in fp32 (DDP)."))
    }

    fn bucket(&self) -> Result<String> {
        let of = |flags| self.peak(Zero2, flags, Class::CommunicationBuckets);
        let (fp32, half) = (of(ONE_BUCKET)?, of(ONE_BUCKET_16)?);
        Ok(format!(
            "a bucket that holds all {} elements takes {} bytes in fp32, {} each, and {} in bf16, {} each.",
            grouped(self.parameters()? as u64),
            grouped(fp32),
            self.each(fp32)?,
            grouped(half),
            self.each(half)?
        ))
    }

    /// Returns a sentence with the bytes per parameter, and the bytes of a larger model at that
    /// rate.
    fn scaled(&self, stage: Stage, flags: &str, billions: u64) -> Result<String> {
        let ranks = self.runs.report(&Run::new(stage, flags))?.world_size;
        let states = self.states(stage, flags)?;
        let scaled = states as f64 / self.parameters()? * billions as f64;
        Ok(format!(
            "{stage} on {ranks} ranks holds {} bytes of model states per parameter; {billions}e9 of them take {} GB.",
            self.each(states)?,
            number(scaled)
        ))
    }

    fn drained(&self) -> Result<String> {
        let of = |class| self.each(self.peak(Zero2, BF16, class)?);
        let (gradients, optimizer) = (of(Class::Gradients)?, of(Class::Optimizer)?);
        Ok(format!(
            "{gradients} bytes of gradients per parameter and {optimizer} of optimizer states, fp32 masters \
             included; a quarter of 2 and of 12."
        ))
    }

    fn kept(&self) -> Result<String> {
        let held = self.states(Zero3, KEPT)? + self.peak(Zero3, KEPT, Class::GatheredParameters)?;
        let full =
            self.states(Zero3, KEPT_BY_NONE)? + self.peak(Zero3, KEPT_BY_NONE, Class::GatheredParameters)?;
        let replicated = self.states(Ddp, BF16)? as f64;
        let share = |bytes: u64| number(bytes as f64 / replicated);
        Ok(format!(
            "on 16 ranks model states and gathered parameters peak at {} of DDP's model states, full-shard's at {}; \
             2/N would be {}.",
            share(held),
            share(full),
            2.0 / 16.0
        ))
    }

    fn replicated(&self) -> Result<String> {
        let of = |flags| self.each(self.states(Ddp, flags)?);
        let (mixed, fp32) = (of(BF16)?, of(TWO)?);
        Ok(format!("{mixed} bytes of model states per parameter in bf16, {fp32} in fp32."))
    }

    fn units(&self) -> Result<String> {
        let of = |flags| self.peak(Zero3, flags, Class::GatheredParameters).map(grouped);
        let (model, block) = (of(ONE_UNIT)?, of(TWO)?);
        Ok(format!("{model} bytes gathered at once with `--wrap model`, {block} with a unit per block."))
    }

    fn slices(&self) -> Result<String> {
        let report = self.runs.report(&Run::new(Zero3, TWO))?;
        let rows = report.memory.iter().filter(|row| row.class == Class::Parameters);
        let bytes: Vec<String> = rows.map(|row| grouped(row.peak_bytes)).collect();
        Ok(format!(
            "the four ranks hold {} bytes of parameters. Four blocks, an embedding and a head cannot be dealt out so \
             evenly.",
            bytes.join(", ")
        ))
    }

    /// Returns a sentence with the data that a stage's collectives send, in multiples of the model
    /// size.
    fn sweeps(&self, stage: Stage) -> Result<String> {
        let sweep = 2.0 * self.parameters()? * 2.0 * 3.0 / 4.0;
        let of = |operation| self.sent(stage, BF16, operation).map(|sent| number(sent as f64 / sweep));
        let (reduced, scattered, gathered): (String, String, String) =
            (of(Operation::AllReduce)?, of(Operation::ReduceScatter)?, of(Operation::AllGather)?);
        Ok(format!(
            "per step {stage} sends {scattered} times the model in reduce-scatters, {gathered} in all-gathers and \
             {reduced} in all-reduces."
        ))
    }

    fn textbook(&self) -> Result<String> {
        let of = |stage, flags| self.measured(stage, flags, Figure::SentInAll).map(grouped);
        let (reduced, scattered, ddp) = (of(Zero1, TEXTBOOK)?, of(Zero1, TWO)?, of(Ddp, TWO)?);
        Ok(format!(
            "{reduced} bytes in two steps with the all-reduce, {scattered} with the reduce-scatter; DDP {ddp}."
        ))
    }

    fn accumulated(&self) -> Result<String> {
        let of = |stage, flags| self.measured(stage, flags, Figure::SentInAll).map(grouped);
        let (first, second) = (of(Zero1, TWO)?, of(Zero2, TWO)?);
        let more = format!("{} and {}", of(Zero1, ACCUMULATED)?, of(Zero2, ACCUMULATED)?);
        Ok(format!(
            "two steps of one micro-batch: {first} bytes in ZeRO-1 and {second} in ZeRO-2; of four: {more}."
        ))
    }

    fn gathers(&self) -> Result<String> {
        Ok(format!(
            "ZeRO-3 gathers full weights: {} bytes sent in all-gathers in two steps, {} held at once.",
            grouped(self.sent(Zero3, TWO, Operation::AllGather)?),
            grouped(self.peak(Zero3, TWO, Class::GatheredParameters)?)
        ))
    }
}
