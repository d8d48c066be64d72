//! The command line.

use crate::claims;
use crate::estimators;
use crate::published;
use crate::report::{Report, Request, Subject};
use crate::times::{Recording, TimeArgs};
use clap::error::ErrorKind;
use clap::{ArgGroup, Parser};
use events::Place;
use model::{Checkpointing, Layout, ModelConfig, Wrap};
use prediction::job::Job;
use prediction::placement::{MOST_BUFFERS, NOWHERE, Placement, place_parser};
use prediction::recipe::{F32, Recipe};
use prediction::{Stage, Strategy, invalid};
use shell::table::Format;
use shell::{ShellCommand, whole};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use timeline::PredictedRun;

/// Largest number of GPUs, and of micro-batches per step.
const MOST: u64 = invalid::MOST as u64;
/// Largest number of sequences, and of tokens per sequence.
const LARGEST: u64 = u32::MAX as u64;

/// The flags that describe a job, which the tables of claims and of published runs do not take.
const JOB: [&str; 19] = [
    "gpus",
    "recipe",
    "batch_size",
    "seq_len",
    "grad_accum",
    "activations",
    "checkpoint_activations",
    "wrap",
    "strategy",
    "shard_group_size",
    "secondary_shard_size",
    "grad_sync",
    "offload_optimizer",
    "offload_parameters",
    "offload_activations",
    "offload_buffers",
    "gpus_per_node",
    "estimators",
    "on",
];

/// Predict what a model needs in every stage of ZeRO, before anything runs: memory, traffic, and
/// which stage fits on which GPU.
#[derive(Parser, Debug)]
#[command(name = "planner", version = env!("VERSION"), arg_required_else_help = true, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = ArgGroup::new("subject").args(["model", "parameters", "claims", "published"]).required(true))]
struct Arguments {
    /// Shell completions and manual pages.
    #[command(subcommand)]
    shell: Option<ShellCommand>,
    /// A model: a preset, a config.json, or a directory with one
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Or just a number of parameters, such as 7e9 or 7B
    #[arg(long = "params", value_name = "COUNT", value_parser = parse_count)]
    parameters: Option<u64>,
    /// Number of GPUs
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<usize>(1..=MOST))]
    gpus: usize,
    /// Bytes per parameter: mixed, fp32, mixed-fp32-grads, no-master or notebook
    #[arg(long, value_name = "NAME", default_value = "mixed", value_parser = parse_recipe)]
    recipe: Recipe,
    /// Sequences per micro-batch [default: the model's]
    #[arg(long, value_name = "B", value_parser = whole::<usize>(1..=LARGEST))]
    batch_size: Option<usize>,
    /// Tokens per sequence [default: the model's]
    #[arg(long, value_name = "T", value_parser = whole::<usize>(1..=LARGEST))]
    seq_len: Option<usize>,
    /// Micro-batches per step
    #[arg(long, value_name = "M", default_value = "1", value_parser = whole::<usize>(1..=MOST))]
    grad_accum: usize,
    /// Bytes of activations to add, such as 10e9 (with --params; the planner computes a model's)
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    activations: Option<u64>,
    /// Activations that blocks recompute in backward rather than keep: none, block or selective
    /// (with --model)
    #[arg(long, value_name = "WHAT", default_value_t)]
    checkpoint_activations: Checkpointing,
    /// What forms a unit, to be gathered, reduced and released as one: model, block, module,
    /// parameter, or size:N parameters (with --model)
    #[arg(long, value_name = "WHAT", default_value_t)]
    wrap: Wrap,
    /// How ZeRO-3 shards, in FSDP's words: full-shard, shard-grad-op or hybrid-shard (with --model)
    #[arg(long, value_name = "HOW", default_value_t)]
    strategy: Strategy,
    /// Hybrid sharding: neighbouring GPUs that share one copy of the model states [default: all]
    #[arg(long, value_name = "GPUS", value_parser = whole::<usize>(1..=MOST))]
    shard_group_size: Option<usize>,
    /// ZeRO-3: neighbouring GPUs that share a second copy of the parameters, for backward to gather
    /// from (hpZ)
    #[arg(long, value_name = "GPUS", value_parser = whole::<usize>(1..=MOST))]
    secondary_shard_size: Option<usize>,
    /// How ZeRO-1 sums gradients: reduce-scatter, or the textbook version's all-reduce
    #[arg(long, value_name = "HOW", default_value = "reduce-scatter", value_parser = ["reduce-scatter", "all-reduce"])]
    grad_sync: String,
    /// Where master weights, momentum and variance are stored: in main memory (cpu) or on disk
    #[arg(long, value_name = "WHERE", default_value = NOWHERE, value_parser = place_parser())]
    offload_optimizer: Place,
    /// Where ZeRO-3's shards of parameters are stored between gathers
    #[arg(long, value_name = "WHERE", default_value = NOWHERE, value_parser = place_parser())]
    offload_parameters: Place,
    /// Where the inputs of blocks are stored from forward to backward; needs
    /// --checkpoint-activations block
    #[arg(long, value_name = "WHERE", default_value = NOWHERE, value_parser = place_parser())]
    offload_activations: Place,
    /// Number of staging buffers of each kind for states and parameters, from 1 to 16.
    /// [default: 3; for an update of optimizer states on disk the number of its pieces minus 3, at
    /// least 3 and at most 6]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST_BUFFERS))]
    offload_buffers: Option<usize>,
    /// GPUs per machine: they share its main memory, disk, links and network
    #[arg(long, value_name = "N", default_value = "8", value_parser = whole::<usize>(1..=MOST))]
    gpus_per_node: usize,
    #[command(flatten)]
    times: TimeArgs,
    /// Print how far estimates are from published step times; with --json, run by run
    #[arg(long, conflicts_with_all = JOB)]
    published: bool,
    /// Print DeepSpeed's estimates as well (with --model)
    #[arg(long, conflicts_with_all = ["parameters", "json"])]
    estimators: bool,
    /// Print popular claims about ZeRO, and what holds according to the planner
    #[arg(long, conflicts_with_all = JOB)]
    claims: bool,
    /// Print JSON: sizes are whole bytes
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown tables
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "Examples:
  planner --model llama2-7b --gpus 4
  planner --model tiny --gpus 4 --recipe fp32 --batch-size 16
  planner --params 7e9 --gpus 8 --recipe fp32
  planner --model llama3-70b --gpus 8 --offload-optimizer cpu
  planner --model llama3-8b --gpus 64 --on h100
  planner --claims";

/// Returns the definition of the program's command line.
pub fn command() -> clap::Command {
    shell::command::<Arguments>()
}

/// Runs the program with `arguments`, the program's name first, and prints. On help, version or a
/// usage error, prints the text and exits the process.
pub fn main_from<T: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let answer = answer(arguments).unwrap_or_else(|problem| shell::exit(&problem));
    if let Some(Err(problem)) = answer.recording.map(Recording::write) {
        events::complain!("error: {problem}");
        return ExitCode::FAILURE;
    }
    events::say!("{}", answer.text.trim_end());
    events::say::code()
}

/// Returns what the program prints with `arguments`, the program's name first. Writes no file.
///
/// # Errors
/// Returns what to print in place of a result: a usage error with its remedy, or the requested help
/// or version.
pub fn run<T>(arguments: impl IntoIterator<Item = T>) -> Result<String, clap::Error>
where
    T: Into<OsString> + Clone,
{
    Ok(answer(arguments)?.text)
}

/// Returns the predicted run that the program would record with `arguments`, the program's name
/// first; `None` without `--record`. Writes no file.
///
/// # Errors
/// As [`run`].
pub fn predicted_run<T>(arguments: impl IntoIterator<Item = T>) -> Result<Option<PredictedRun>, clap::Error>
where
    T: Into<OsString> + Clone,
{
    Ok(answer(arguments)?.recording.map(|recording| recording.run))
}

/// What the program prints, and the file that it writes first.
struct Answer {
    text: String,
    recording: Option<Recording>,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Answer { text, recording: None }
    }
}

fn answer<T>(arguments: impl IntoIterator<Item = T>) -> Result<Answer, clap::Error>
where
    T: Into<OsString> + Clone,
{
    let arguments: Arguments = shell::try_parse_from(arguments)?;
    if let Some(shell) = &arguments.shell {
        let text = shell.text(command());
        return Ok(text.map_err(|problem| invalid(problem.to_string()))?.into());
    }
    if arguments.claims {
        return Ok(claims_text(&arguments)?.into());
    }
    if arguments.published {
        return Ok(published_text(&arguments)?.into());
    }
    let request = request(&arguments)?;
    let report = Report::new(&request).map_err(|problem| invalid(problem.to_string()))?;
    let recorded = |timing| arguments.times.recording(&request.job, timing);
    let recording = request.timing.as_ref().map(recorded).transpose().map_err(invalid)?.flatten();
    if arguments.json {
        return Ok(Answer { text: json(&report)?, recording });
    }
    let mut text = report.render(arguments.format());
    if arguments.estimators && request.subject == Subject::Model {
        let largest = estimators::largest_layer(&Layout::new(&request.job.config));
        let table = estimators::comparison(report.parameters, largest, request.job.world_size as u64);
        text.push('\n');
        text.push_str(&table.render(arguments.format()));
    }
    text.extend(recording.iter().map(Recording::notice));
    Ok(Answer { text, recording })
}

impl Arguments {
    /// True if a flag gives ZeRO-3 another strategy or groups.
    fn groups(&self) -> bool {
        let sizes = self.shard_group_size.or(self.secondary_shard_size);
        self.strategy != Strategy::default() || sizes.is_some()
    }

    fn placement(&self) -> Placement {
        Placement {
            optimizer: self.offload_optimizer,
            parameters: self.offload_parameters,
            activations: self.offload_activations,
            buffers: self.offload_buffers.map(|count| count as u64),
            ..Placement::default()
        }
    }

    fn format(&self) -> Format {
        if self.markdown { Format::Markdown } else { Format::Terminal }
    }
}

fn claims_text(arguments: &Arguments) -> Result<String, clap::Error> {
    if arguments.json { json(&claims::claims()) } else { Ok(claims::table().render(arguments.format())) }
}

fn published_text(arguments: &Arguments) -> Result<String, clap::Error> {
    let runs = published::runs();
    if arguments.json { json(&runs) } else { Ok(published::render(&runs, arguments.format())) }
}

fn json(value: &impl serde::Serialize) -> Result<String, clap::Error> {
    let text = serde_json::to_string_pretty(value).map_err(|problem| invalid(problem.to_string()))?;
    Ok(text + "\n")
}

fn request(arguments: &Arguments) -> Result<Request, clap::Error> {
    check(arguments)?;
    let (subject, config) = match &arguments.model {
        Some(name) => (Subject::Model, model_named(name)?),
        None => {
            let (count, activations) = (arguments.parameters, arguments.activations);
            let (count, activations) = (count.unwrap_or_default(), activations.unwrap_or_default());
            (Subject::Parameters { count, activations }, ModelConfig::tiny())
        }
    };
    let job = Job {
        batch_size: arguments.batch_size.unwrap_or(config.batch_size),
        tokens: arguments.seq_len.unwrap_or(config.sequence_length),
        micro_batches: arguments.grad_accum,
        recipe: arguments.recipe,
        checkpointing: arguments.checkpoint_activations,
        wrap: arguments.wrap,
        strategy: arguments.strategy,
        shard_group: arguments.shard_group_size,
        secondary_shards: arguments.secondary_shard_size.filter(|&size| size > 1),
        textbook_all_reduce: arguments.grad_sync == "all-reduce",
        placement: arguments.placement(),
        ..Job::new(config, arguments.strategy.stage(), arguments.gpus)
    };
    let timing = arguments.times.timing(arguments.gpus_per_node);
    Ok(Request { subject, job, gpus_per_node: arguments.gpus_per_node, timing })
}

const NO_MODEL: &str = "a number of parameters has no activations to compute from --batch-size and --seq-len: \
                        give --model NAME, or say how many bytes with --activations";
const NO_BLOCKS: &str = "a number of parameters has no blocks whose activations --checkpoint-activations could save: \
                         give --model NAME";
const NO_INPUTS: &str = "--offload-activations moves the one tensor that a checkpointed block keeps, its input: \
                         give --model NAME and --checkpoint-activations block";
const NOT_OFFLOADED: &str = "--offload-buffers: neither optimizer states nor parameters are offloaded: \
                         add --offload-optimizer or --offload-parameters";
const NO_RECIPE: &str = "--offload-optimizer: an offloaded optimizer always has master weights, sharded as its moments \
                         are: leave it out, or choose --recipe mixed or fp32";
const NO_UNITS: &str = "a number of parameters has no tensors to make units of, as --wrap, --strategy and groups need: \
                        give --model NAME";
const ONE_STRATEGY: &str =
    "--shard-group-size belongs to --strategy hybrid-shard, --secondary-shard-size to full-shard";
const REPLICATED: &str =
    "--strategy no-shard is the column DDP: choose full-shard, shard-grad-op or hybrid-shard";

const NO_TIMES: &str = "--on: a number of parameters has no layers to time: give --model NAME";
const F32_TIMES: &str = "--on: times are of 16-bit training: leave --on out, or choose --recipe mixed";
const UNUSED_RATE: &str =
    "--cpu-rate needs --offload-optimizer, --disk-read and --disk-write a state on disk";
const COMPUTED: &str = "a model's activations are computed: leave --activations out, \
                        or give --params COUNT in place of --model";

/// Refuses flags that do not go together. [`Job::validate`](prediction::Job::validate) checks that
/// sizes of groups divide the GPUs.
fn check(arguments: &Arguments) -> Result<(), clap::Error> {
    let (model, count) = (arguments.model.is_some(), arguments.parameters.is_some());
    let (strategy, checkpointing) = (arguments.strategy, arguments.checkpoint_activations);
    let offloaded = arguments.offload_activations != Place::Device;
    let secondary = arguments.secondary_shard_size.is_some_and(|size| size > 1);
    let placement = arguments.placement();
    let reasons = [
        (count && arguments.batch_size.or(arguments.seq_len).is_some(), NO_MODEL),
        (model && arguments.activations.is_some(), COMPUTED),
        (count && checkpointing != Checkpointing::None, NO_BLOCKS),
        (count && (arguments.wrap != Wrap::default() || arguments.groups()), NO_UNITS),
        (offloaded && checkpointing != Checkpointing::Block, NO_INPUTS),
        (count && arguments.times.on.is_some(), NO_TIMES),
        (arguments.recipe.weights == F32 && arguments.times.on.is_some(), F32_TIMES),
        (arguments.times.names_unused(&placement), UNUSED_RATE),
        (placement.buffers.is_some() && !placement.any_states(), NOT_OFFLOADED),
        (placement.optimizer != Place::Device && !arguments.recipe.is_trainable(), NO_RECIPE),
        (strategy.stage() == Stage::REPLICATED, REPLICATED),
        (arguments.shard_group_size.is_some() && !strategy.forms_groups(), ONE_STRATEGY),
        (secondary && !strategy.takes_secondary_shards(), ONE_STRATEGY),
    ];
    let found = reasons.into_iter().find(|(refused, _)| *refused);
    match found {
        Some((_, reason)) => Err(invalid(reason.into())),
        None => Ok(()),
    }
}

fn model_named(name: &str) -> Result<ModelConfig, clap::Error> {
    let unknown = match ModelConfig::preset(name) {
        Ok(preset) => return Ok(preset),
        Err(unknown) => unknown,
    };
    let path = Path::new(name);
    let file = if path.is_file() { path.into() } else { path.join("config.json") };
    if !file.is_file() {
        return Err(invalid(format!(
            "{unknown}\nor give a config.json or a directory that holds one, or --params COUNT"
        )));
    }
    let text = std::fs::read_to_string(&file)
        .map_err(|problem| invalid(format!("cannot read {}: {problem}", file.display())))?;
    ModelConfig::sizes_from_hugging_face(&text, name).map_err(|problem| invalid(problem.to_string()))
}

fn invalid(problem: String) -> clap::Error {
    shell::command::<Arguments>().error(ErrorKind::ValueValidation, problem)
}

fn parse_recipe(text: &str) -> Result<Recipe, String> {
    Recipe::ALL.into_iter().find(|recipe| recipe.name == text).ok_or_else(|| {
        let names = Recipe::ALL.map(|recipe| recipe.name).join(", ");
        format!("there is no such recipe; choose one of {names}")
    })
}

/// Parses a count in any of its usual forms: `7e9`, `7B`, `135M`, `6738415616`, `6_738_415_616`.
fn parse_count(text: &str) -> Result<u64, String> {
    let advice = "give a number such as 7e9, 7B, 135M or 6738415616";
    let plain = text.replace('_', "");
    let (digits, scale) = match plain.char_indices().last() {
        Some((end, 'k' | 'K')) => (&plain[..end], 1e3),
        Some((end, 'm' | 'M')) => (&plain[..end], 1e6),
        Some((end, 'b' | 'B' | 'g' | 'G')) => (&plain[..end], 1e9),
        Some((end, 't' | 'T')) => (&plain[..end], 1e12),
        _ => (plain.as_str(), 1.0),
    };
    if let (Ok(whole), true) = (digits.parse::<u64>(), scale == 1.0) {
        return if whole > 0 { Ok(whole) } else { Err(format!("it must be at least 1; {advice}")) };
    }
    let value = digits.parse::<f64>().map_err(|_| advice)? * scale;
    let whole = value.round();
    if (1.0..1e18).contains(&whole) { Ok(whole as u64) } else { Err(format!("it is out of range; {advice}")) }
}
