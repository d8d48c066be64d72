//! Compares every stage on the GPU with the CPU, the other stages, and itself.

use crate::parts::{Outcome, Part};
use crate::{Arguments, Finding};
use prediction::Stage;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use tests::{STAGES, STEADY_RATE, farthest_step, losses, train};
use trainer::Report;

/// A model and how it is trained.
struct Setup {
    what: String,
    flags: String,
    precision: &'static str,
    /// Keeps the model's file open.
    _model: Option<WideHeads>,
}

/// Returns a part per setup.
pub(crate) fn parts(arguments: &Arguments, bf16: bool) -> Vec<Part<'_>> {
    let worlds = [1, 2, 4].into_iter().filter(|&world| world <= arguments.ranks);
    let wide = bf16.then_some((arguments.ranks, "bf16"));
    let runs = worlds.map(|world| (world, "fp32")).chain(wide);
    let setups = runs.map(|(world, precision)| Setup::of_arguments(arguments, world, precision));
    let part = |setup: Setup| Part::new(setup.what.clone(), move || stages(&setup));
    setups.chain(bf16.then(|| WideHeads::new().setup(arguments))).map(part).collect()
}

/// Returns the flags for training the command line's model.
pub(crate) fn flags(arguments: &Arguments, world: usize, precision: &str) -> String {
    let Arguments { model, steps, sequences, seq_len, .. } = arguments;
    format!(
        "--model {model} --gpus {world} --batch-size {} --seq-len {seq_len} --steps {steps} --lr {STEADY_RATE} \
         --precision {precision}",
        sequences / world
    )
}

impl Setup {
    fn of_arguments(arguments: &Arguments, world: usize, precision: &'static str) -> Self {
        let flags = flags(arguments, world, precision);
        Setup { what: format!("{precision}, {world} ranks"), flags, precision, _model: None }
    }

    fn run(&self, stage: Stage, more: &str) -> Result<Report, String> {
        train(stage, &format!("{} {more}", self.flags))
            .map_err(|failure| format!("{stage} {more}: {failure}"))
    }
}

/// A small model with heads of 64, which suit tensor cores in 16 bits, and sequences of several
/// tiles. Its file has no name, so that it disappears however this program ends.
struct WideHeads(io::Result<File>);

impl WideHeads {
    const CONFIG: &str = r#"{
        "model_type": "llama", "vocab_size": 257, "hidden_size": 128, "intermediate_size": 192,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false
    }"#;

    fn new() -> Self {
        let written = |mut file: File| file.write_all(Self::CONFIG.as_bytes()).map(|()| file);
        WideHeads(tempfile::tempfile().and_then(written))
    }

    /// Returns the file's path. If there is none, returns the reason, which then fails the runs as
    /// an unknown model.
    fn path(&self) -> String {
        match &self.0 {
            Ok(file) => format!("/proc/self/fd/{}", file.as_raw_fd()),
            Err(error) => error.to_string().replace(' ', "-"),
        }
    }

    fn setup(self, arguments: &Arguments) -> Setup {
        let world = arguments.ranks.min(2);
        Setup {
            what: format!("bf16, {world} ranks, heads of 64"),
            flags: format!(
                "--model {} --gpus {world} --batch-size 1 --seq-len {} --steps 2 --precision bf16",
                self.path(),
                arguments.longest.min(256)
            ),
            precision: "bf16",
            _model: Some(self),
        }
    }
}

/// Flags that change the places of tensors and how many are gathered at once, but no bit of the
/// result.
const WRAPPINGS: [&str; 2] = ["--wrap parameter", "--param-persistence-threshold 2000"];

fn stages(setup: &Setup) -> Result<Vec<Finding>, String> {
    let cpu = setup.run(Stage::Ddp, "--device cpu")?;
    let reports: Vec<Report> =
        STAGES.into_iter().map(|stage| setup.run(stage, "--device cuda")).collect::<Result<_, _>>()?;
    let what = |check: &str| format!("{}: {check}", setup.what);
    let mut findings: Vec<Finding> = reports.iter().map(|report| follows(setup, &cpu, report)).collect();
    let agree = |what: String, report: &Report, others: &[Report]| Finding {
        what,
        result: report.weights_blake3[..16].into(),
        outcome: Outcome::from(others.iter().all(|other| same(report, other))),
    };
    findings.push(agree(what("stages agree bit for bit"), &reports[0], &reports));
    let zero3 = &reports[reports.len() - 1..];
    findings.push(agree(what("ZeRO-3 again"), &setup.run(Stage::Zero3, "--device cuda")?, zero3));
    for wrapping in WRAPPINGS {
        let wrapped = setup.run(Stage::Zero3, &format!("--device cuda {wrapping}"))?;
        findings.push(agree(what(wrapping), &wrapped, zero3));
    }
    let wrong: Vec<String> = reports.iter().flat_map(|report| report.mispredictions()).collect();
    findings.push(Finding {
        what: what("predicted bytes are measured bytes"),
        result: wrong.first().cloned().unwrap_or_else(|| "in every class and operation".into()),
        outcome: Outcome::from(wrong.is_empty()),
    });
    Ok(findings)
}

/// Checks how closely a stage's losses follow the CPU's.
fn follows(setup: &Setup, cpu: &Report, report: &Report) -> Finding {
    let (result, holds) = apart(setup.precision, cpu, report);
    Finding {
        what: format!("{}: {}, losses from the CPU's", setup.what, report.stage),
        result,
        outcome: Outcome::from(holds),
    }
}

/// Returns the largest difference of losses, step by step, in words, and whether it is permitted:
/// up to 1e-4 in f32, and up to 2 % of the step's loss in 16 bits. Losses that do not fall would
/// also agree, so the words say how far they fell.
pub(crate) fn apart(precision: &str, expected: &Report, got: &Report) -> (String, bool) {
    let (allowed, relative) = if precision == "fp32" { (1e-4, false) } else { (0.02, true) };
    let (expected, got) = (losses(expected), losses(got));
    let most = farthest_step(&expected, &got, relative);
    let [first, last] = [got.first(), got.last()].map(|loss| loss.copied().unwrap_or(f64::NAN));
    let unit = if relative { " of a step's" } else { "" };
    let words = format!("{most:.1e}{unit} (at most {allowed:.0e}); loss {first:.2} to {last:.2}");
    (words, most <= allowed)
}

/// True if both runs have learnt the same bits.
pub(crate) fn same(a: &Report, b: &Report) -> bool {
    losses(a) == losses(b) && a.weights_blake3 == b.weights_blake3
}
