//! Step times that others have published: of decoders, with data parallelism alone, in 16 bits.
//!
//! What the sources leave open is assumed:
//!
//! * A network that is not published is usual for the GPU. Machines have eight GPUs.
//! * torchtitan reduces gradients in f32; its selective checkpointing recomputes half of a block.
//!   nanotron's gradients are f32, in buckets of torch's DDP, which close at 25 MiB. Others reduce
//!   gradients in 16 bits.
//! * MPT's feed-forward layers have two products where this project's have three: their width is
//!   such that operations and parameters are the same. Norms and activation functions of MPT are
//!   one kernel each, so its programs count as [`Software::Fused`].
//! * Updated parameters are gathered within the step.
//! * Offloaded states are DeepSpeed's. Its update ends within its step, and nothing overlaps. A800
//!   counts as A100. ZenFlow's blog does not name its checkpointing: none.

use crate::efficiency::Software;
use crate::hardware::{Cluster, GPUS, Gpu};
use events::Place;
use model::{Checkpointing, Family, ModelConfig, Wrap};
use prediction::recipe::{F32, Recipe};
use prediction::{Job, Placement, Stage, Strategy};

/// The runs: source, model, GPU, number of GPUs, Gbit/s of a machine of eight (empty if not
/// published), tokens per sequence, sequences per micro-batch, micro-batches, the stage's package
/// or `hybrid` or `shard-grad-op`, recomputed share of a block, software, what is offloaded to main
/// memory (nothing, the `optimizer`, or all `states`), seconds per step.
const ROWS: &str = include_str!("../data/published.csv");

/// The sources by the first word of the names that rows use, and where they are.
pub const SOURCES: [(&str, &str); 8] = [
    (
        "torchtitan",
        "github.com/pytorch/torchtitan, docs/performance.md at 1ea476e9f, and issue 929; github.com/pytorch/ao, \
         docs/source/workflows/training.md at 36027d82d, and eager_tutorials/pretraining.rst",
    ),
    (
        "fms-fsdp",
        "pytorch.org/blog/maximizing-training; github.com/foundation-model-stack/fms-fsdp, README.md at 5a296afe \
         (compiled) and 6dc80d2 (early)",
    ),
    ("llm-foundry", "github.com/mosaicml/llm-foundry, tables in scripts/train/benchmarking/README.md"),
    ("MaxText", "github.com/NVIDIA/JAX-Toolbox, docs/frameworks/maxtext/README.md at bcbbfa57"),
    ("nanotron", "huggingface.co/spaces/nanotron/ultrascale-playbook, benchmarks of 2025-08"),
    ("llm.q", "github.com/IST-DASLab/llmq, benchmarks at b77d9691"),
    ("ZenFlow", "github.com/deepspeedai/DeepSpeed, blogs/zenflow-corebinding/README.md at edaa722"),
    ("chenyaofo", "gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a, DeepSpeed 0.14.2"),
];

/// Name, vocabulary, width, layers, heads, key/value heads, feed-forward width, tied, biases.
type Shape = (&'static str, usize, usize, usize, usize, usize, usize, bool, bool);

/// The models of [`ROWS`] that are not presets.
#[rustfmt::skip]
const SHAPES: [Shape; 18] = [
    ("llama2-34b",    32_000, 8192, 48, 64,  8, 22016, false, false),
    ("llama2-70b",    32_000, 8192, 80, 64,  8, 28672, false, false),
    ("nanotron-1b",   32_768, 2048, 16, 32, 32,  8192, true,  false),
    ("nanotron-3b",   32_768, 3072, 28, 32, 32,  8192, true,  false),
    ("qwen2.5-0.5b", 151_936,  896, 24, 14,  2,  4864, true,  true),
    ("qwen2.5-1.5b", 151_936, 1536, 28, 12,  2,  8960, true,  true),
    ("qwen2.5-3b",   151_936, 2048, 36, 16,  2, 11008, true,  true),
    ("qwen2.5-7b",   152_064, 3584, 28, 28,  4, 18944, false, true),
    ("qwen2.5-14b",  152_064, 5120, 48, 40,  8, 13824, false, true),
    ("mpt-125m",      50_368,  768, 12, 12, 12,  2048, true,  false),
    ("mpt-350m",      50_368, 1024, 24, 16, 16,  2731, true,  false),
    ("mpt-760m",      50_368, 1536, 24, 12, 12,  4096, true,  false),
    ("mpt-1b",        50_368, 2048, 24, 16, 16,  5461, true,  false),
    ("mpt-3b",        50_368, 2560, 32, 20, 20,  6827, true,  false),
    ("mpt-7b",        50_368, 4096, 32, 32, 32, 10923, true,  false),
    ("mpt-13b",       50_368, 5120, 40, 40, 40, 13653, true,  false),
    ("mpt-30b",       50_368, 7168, 48, 56, 56, 19115, true,  false),
    ("mpt-70b",       50_368, 8192, 80, 64, 64, 21845, true,  false),
];

/// GPUs per machine in every published run of more than one machine.
const PER_NODE: usize = 8;

/// Elements of a bucket of torch's DDP: 25 MiB of f32.
const BUCKET: u64 = (25 << 20) / F32;

/// One published run.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The source's name in [`SOURCES`].
    pub source: &'static str,
    /// The model's name.
    pub model: &'static str,
    /// The GPU.
    pub gpu: Gpu,
    /// Bytes per second from a machine to others; `None` if the source does not say.
    pub network: Option<f64>,
    /// The job.
    pub job: Job,
    /// The part of a block's forward that backward recomputes.
    pub recomputed: f64,
    /// How its elements are computed.
    pub software: Software,
    /// Measured seconds per step.
    pub seconds: f64,
}

impl Published {
    /// Returns every run.
    pub fn all() -> impl Iterator<Item = Published> {
        ROWS.lines().skip(1).filter_map(Published::of)
    }

    fn of(row: &'static str) -> Option<Self> {
        let fields: Vec<&str> = row.split(',').collect();
        let [
            source,
            model,
            gpu,
            gpus,
            gigabits,
            tokens,
            batch,
            micro,
            sharding,
            recomputed,
            software,
            offload,
            seconds,
        ] = fields[..]
        else {
            return None;
        };
        let gpu = *GPUS.iter().find(|known| known.name == gpu)?;
        let (stage, strategy) = match sharding {
            "hybrid" => (Stage::SHARDS_PARAMETERS, Strategy::HybridShard),
            "shard-grad-op" => (Stage::SHARDS_PARAMETERS, Strategy::ShardGradOp),
            package => {
                (Stage::ALL.into_iter().find(|stage| stage.package() == package)?, Strategy::default())
            }
        };
        let recomputed: f64 = recomputed.parse().ok()?;
        let checkpointing = if recomputed > 0.0 { Checkpointing::Block } else { Checkpointing::None };
        let job = Job {
            batch_size: batch.parse().ok()?,
            tokens: tokens.parse().ok()?,
            micro_batches: micro.parse().ok()?,
            recipe: Recipe::MIXED,
            checkpointing,
            strategy,
            wrap: if source == "nanotron" { Wrap::Parameter } else { Wrap::default() },
            reduce_bucket: (source == "nanotron").then_some(BUCKET),
            converted_gradients: (source == "nanotron" || source.starts_with("torchtitan")).then_some(F32),
            shard_group: strategy.forms_groups().then_some(PER_NODE),
            placement: placement(offload)?,
            overlap: offload.is_empty(),
            overlaps_update: false,
            ..Job::new(config(model)?, stage, gpus.parse().ok()?)
        };
        let network = gigabits.parse().ok().map(|gigabits: f64| gigabits * 1e9 / 8.0);
        let (software, seconds) = (software.parse().ok()?, seconds.parse().ok()?);
        Some(Published { source, model, gpu, network, job, recomputed, software, seconds })
    }

    /// Returns the project that published it: those that share a name up to the first space.
    pub fn group(&self) -> &'static str {
        self.source.split(' ').next().unwrap_or(self.source)
    }

    /// True if it offloads states.
    pub fn offloads(&self) -> bool {
        self.job.placement.any()
    }

    /// Returns the machines on which it ran, with a usual network if the source does not say.
    pub fn cluster(&self) -> Cluster {
        let usual = Cluster::of(self.gpu, PER_NODE);
        Cluster { network: self.network.unwrap_or(usual.network), ..usual }
    }
}

/// Returns where states are stored if `offload` is offloaded.
fn placement(offload: &str) -> Option<Placement> {
    let optimizer = Placement { optimizer: Place::Host, ..Placement::default() };
    match offload {
        "" => Some(Placement::default()),
        "optimizer" => Some(optimizer),
        "states" => Some(Placement { parameters: Place::Host, ..optimizer }),
        _ => None,
    }
}

/// Returns the model called `name`; `None` if there is none.
fn config(name: &str) -> Option<ModelConfig> {
    let shape = SHAPES.iter().find(|shape| shape.0 == name);
    let Some(&(name, vocabulary, width, layers, heads, kv_heads, feed_forward, tied, has_biases)) = shape
    else {
        return ModelConfig::preset(name).ok();
    };
    Some(ModelConfig {
        name: name.into(),
        family: if has_biases { Family::Qwen2 } else { Family::Llama },
        vocabulary,
        width,
        layers,
        heads,
        kv_heads,
        head_dim: width / heads,
        feed_forward,
        tied,
        ..ModelConfig::tiny()
    })
}
