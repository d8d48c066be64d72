//! Step times that others have published: runs of this project's model families, with data
//! parallelism alone, in 16 bits, with nothing offloaded and all settings known.

use crate::efficiency::Software::{self, Eager, Fused};
use crate::hardware::{A100, Cluster, Gpu, H100, RTX_4090, RTX_PRO_6000};
use Sharding::{Ddp, Hybrid, Zero1, Zero3};
use model::{Checkpointing, Family, ModelConfig, Wrap};
use prediction::recipe::{F32, Recipe};
use prediction::{Job, Stage, Strategy};

/// How a run shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharding {
    Ddp,
    Zero1,
    Zero3,
    /// ZeRO-3 in machines of eight, which are copies of each other.
    Hybrid,
}

/// A source, model, GPU, number of GPUs, Gbit/s of a machine of eight (0 if not published), tokens
/// per sequence, sequences per micro-batch, micro-batches, how it shards, recomputed share of a
/// block, software, seconds per step.
type Row = (&'static str, &'static str, Gpu, usize, u32, usize, usize, usize, Sharding, f64, Software, f64);

/// The sources by the first word of the names that rows use, and where they are.
pub const SOURCES: [(&str, &str); 5] = [
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
    ("MaxText", "github.com/NVIDIA/JAX-Toolbox, docs/frameworks/maxtext/README.md at bcbbfa57"),
    ("nanotron", "huggingface.co/spaces/nanotron/ultrascale-playbook, benchmarks of 2025-08"),
    ("llm.q", "github.com/IST-DASLab/llmq, benchmarks at b77d9691"),
];

#[rustfmt::skip]
#[allow(clippy::approx_constant, reason = "a measured time may be near one")]
const ROWS: [Row; 83] = [
    ("torchtitan 2024",   "llama3-8b",    A100,          64,    0, 8192,  1,   1, Zero3,  0.5, Eager,  2.8209),
    ("torchtitan 2024",   "llama3-8b",    A100,          64,    0, 8192,  1,   1, Zero3,  0.5, Eager,  2.7555),
    ("torchtitan 2024",   "llama3-70b",   A100,          64,    0, 8192,  1,   1, Zero3,  1.0, Eager, 24.7492),
    ("torchtitan 2024",   "llama2-13b",   A100,          64,    0, 4096,  2,   1, Zero3,  0.0, Eager,  3.7891),
    ("torchtitan 2024",   "llama2-13b",   A100,          64,    0, 4096,  2,   1, Zero3,  0.5, Eager,    4.28),
    ("torchtitan 2024",   "llama2-13b",   A100,          64,    0, 4096,  2,   1, Zero3,  0.5, Eager,  4.3025),
    ("torchtitan 2024",   "llama2-70b",   A100,          64,    0, 4096,  1,   1, Zero3,  0.5, Eager,  11.538),
    ("torchtitan 2024",   "llama2-70b",   A100,          64,    0, 4096,  2,   1, Zero3,  1.0, Eager, 23.2068),
    ("torchtitan ao",      "llama3-8b",    H100,           8,    0, 8192,  1,   1, Zero3,  0.5, Fused,   1.332),
    ("torchtitan ao log",  "llama3-8b",    H100,           8,    0, 8192,  1,   1, Zero3,  0.5, Fused,  1.3003),
    ("torchtitan 929",    "llama3-8b",    A100,           8,    0, 8192,  1,   1, Zero3,  0.5, Fused,   2.795),
    ("torchtitan 929",    "llama3-8b",    H100,           8,    0, 8192,  1,   1, Zero3,  0.5, Fused,  1.2603),
    ("fms-fsdp 2024-03",  "llama2-7b",    A100,         128,  400, 4096,  2,   1, Hybrid, 0.0, Eager,  2.2141),
    ("fms-fsdp 2024-03",  "llama2-7b",    H100,          96,  800, 4096,  2,   1, Hybrid, 0.0, Eager,  1.0923),
    ("fms-fsdp 2024-03",  "llama2-34b",   A100,         128,  400, 4096,  2,   1, Zero3,  1.0, Eager, 11.7029),
    ("fms-fsdp 2024-03",  "llama2-34b",   H100,          96,  800, 4096,  2,   1, Zero3,  1.0, Eager,  5.2852),
    ("fms-fsdp 2024-03",  "llama2-70b",   A100,         128,  400, 4096,  2,   1, Zero3,  1.0, Eager, 22.1405),
    ("fms-fsdp 2024-03",  "llama2-70b",   H100,          96,  800, 4096,  2,   1, Zero3,  1.0, Eager,   10.24),
    ("fms-fsdp compiled", "llama2-7b",    A100,         128,  400, 4096,  2,   1, Hybrid, 0.0, Fused,  1.8004),
    ("fms-fsdp compiled", "llama2-7b",    H100,          96,  800, 4096,  2,   1, Hybrid, 0.0, Fused,  0.8533),
    ("fms-fsdp early",    "llama2-7b",    A100,         128,  400, 4096,  2,   1, Zero3,  0.0, Eager,  2.1787),
    ("fms-fsdp early",    "llama2-7b",    H100,          96,  800, 4096,  2,   1, Zero3,  0.0, Eager,  1.0923),
    ("fms-fsdp early",    "llama2-13b",   A100,         128,  400, 4096,  1,   1, Zero3,  0.0, Eager,  2.4094),
    ("fms-fsdp early",    "llama2-13b",   H100,          96,  800, 4096,  1,   1, Zero3,  0.0, Eager,   1.107),
    ("fms-fsdp early",    "llama2-34b",   A100,         128,  400, 4096,  8,   1, Zero3,  1.0, Eager, 42.4456),
    ("fms-fsdp early",    "llama2-34b",   H100,          96,  800, 4096,  8,   1, Zero3,  1.0, Eager, 19.2753),
    ("fms-fsdp early",    "llama2-70b",   A100,         128,  400, 4096,  6,   1, Zero3,  1.0, Eager, 64.6737),
    ("fms-fsdp early",    "llama2-70b",   H100,          96,  800, 4096,  6,   1, Zero3,  1.0, Eager, 28.9129),
    ("MaxText",           "llama2-7b",    H100,           8,    0, 4096,  2,   1, Zero3,  0.0, Fused,   0.721),
    ("nanotron",          "nanotron-1b",  H100,           8, 3200, 4096,  2,  16, Ddp,    0.0, Eager,  3.2646),
    ("nanotron",          "nanotron-1b",  H100,           8, 3200, 4096,  1,  32, Ddp,    0.0, Eager,  3.3375),
    ("nanotron",          "nanotron-1b",  H100,           8, 3200, 4096,  1,  32, Zero1,  0.0, Eager,  3.3603),
    ("nanotron",          "nanotron-1b",  H100,          16, 3200, 4096,  2,   8, Zero1,  0.0, Eager,  1.6873),
    ("nanotron",          "nanotron-1b",  H100,          16, 3200, 4096,  1,  16, Zero1,  0.0, Eager,  1.7384),
    ("nanotron",          "nanotron-1b",  H100,          16, 3200, 4096,  1,  16, Ddp,    0.0, Eager,  1.7425),
    ("nanotron",          "nanotron-1b",  H100,          32, 3200, 4096,  2,   4, Zero1,  0.0, Eager,  0.8859),
    ("nanotron",          "nanotron-1b",  H100,          32, 3200, 4096,  1,   8, Zero1,  0.0, Eager,  0.9115),
    ("nanotron",          "nanotron-1b",  H100,          32, 3200, 4096,  1,   8, Ddp,    0.0, Eager,  0.9265),
    ("nanotron",          "nanotron-1b",  H100,          64, 3200, 4096,  1,   4, Zero1,  0.0, Eager,  0.5235),
    ("nanotron",          "nanotron-1b",  H100,          64, 3200, 4096,  1,   4, Ddp,    0.0, Eager,  0.5266),
    ("nanotron",          "nanotron-1b",  H100,          64, 3200, 4096,  2,   2, Zero1,  0.0, Eager,  0.5312),
    ("nanotron",          "nanotron-1b",  H100,          64, 3200, 4096,  2,   2, Ddp,    0.0, Eager,  1.0204),
    ("nanotron",          "nanotron-1b",  H100,         128, 3200, 4096,  2,   1, Ddp,    0.0, Eager,  0.3098),
    ("nanotron",          "nanotron-1b",  H100,         128, 3200, 4096,  1,   2, Ddp,    0.0, Eager,  0.3344),
    ("nanotron",          "nanotron-1b",  H100,         128, 3200, 4096,  2,   1, Zero1,  0.0, Eager,  0.3594),
    ("nanotron",          "nanotron-1b",  H100,         128, 3200, 4096,  1,   2, Zero1,  0.0, Eager,  0.3717),
    ("nanotron",          "nanotron-1b",  H100,         256, 3200, 4096,  1,   1, Ddp,    0.0, Eager,  0.2609),
    ("nanotron",          "nanotron-1b",  H100,         256, 3200, 4096,  1,   1, Zero1,  0.0, Eager,  0.3616),
    ("nanotron",          "nanotron-3b",  H100,           8, 3200, 4096,  1,  32, Zero1,  0.0, Eager,  8.0211),
    ("nanotron",          "nanotron-3b",  H100,           8, 3200, 4096,  2,  16, Zero1,  0.0, Eager,  8.1935),
    ("nanotron",          "nanotron-3b",  H100,          16, 3200, 4096,  2,   8, Zero1,  0.0, Eager,  3.9998),
    ("nanotron",          "nanotron-3b",  H100,          16, 3200, 4096,  1,  16, Zero1,  0.0, Eager,  4.1492),
    ("nanotron",          "nanotron-3b",  H100,          32, 3200, 4096,  2,   4, Zero1,  0.0, Eager,  2.1296),
    ("nanotron",          "nanotron-3b",  H100,          32, 3200, 4096,  1,   8, Zero1,  0.0, Eager,  2.1781),
    ("nanotron",          "nanotron-3b",  H100,          64, 3200, 4096,  1,   4, Zero1,  0.0, Eager,  1.2308),
    ("nanotron",          "nanotron-3b",  H100,          64, 3200, 4096,  2,   2, Zero1,  0.0, Eager,   1.231),
    ("nanotron",          "nanotron-3b",  H100,         128, 3200, 4096,  2,   1, Zero1,  0.0, Eager,  0.8098),
    ("nanotron",          "nanotron-3b",  H100,         128, 3200, 4096,  1,   2, Zero1,  0.0, Eager,  0.8266),
    ("nanotron",          "nanotron-3b",  H100,         256, 3200, 4096,  1,   1, Zero1,  0.0, Eager,  0.7423),
    ("llm.q",             "qwen2.5-0.5b", RTX_4090,       1,    0, 1024, 16,  32, Ddp,    0.0, Fused,  13.158),
    ("llm.q",             "qwen2.5-1.5b", RTX_4090,       1,    0, 1024,  4, 128, Ddp,    0.0, Fused,  37.257),
    ("llm.q",             "qwen2.5-0.5b", RTX_4090,       4,    0, 1024, 16,   8, Zero1,  0.0, Fused,   3.387),
    ("llm.q",             "qwen2.5-0.5b", H100,           1,    0, 1024, 32,  16, Ddp,    0.0, Fused,   3.504),
    ("llm.q",             "qwen2.5-1.5b", H100,           1,    0, 1024, 32,  16, Ddp,    0.0, Fused,   8.906),
    ("llm.q",             "qwen2.5-3b",   H100,           1,    0, 1024, 16,  32, Ddp,    0.0, Fused,  16.959),
    ("llm.q",             "qwen2.5-7b",   H100,           1,    0, 1024,  4, 128, Ddp,    0.0, Fused,  37.942),
    ("llm.q",             "qwen2.5-0.5b", H100,           8,    0, 1024, 32,   2, Zero1,  0.0, Fused,   0.446),
    ("llm.q",             "qwen2.5-1.5b", H100,           8,    0, 1024, 32,   2, Zero1,  0.0, Fused,   1.146),
    ("llm.q",             "qwen2.5-3b",   H100,           8,    0, 1024, 16,   4, Zero1,  0.0, Fused,   2.185),
    ("llm.q",             "qwen2.5-7b",   H100,           8,    0, 1024,  8,   8, Zero1,  0.0, Fused,   4.673),
    ("llm.q",             "qwen2.5-0.5b", RTX_PRO_6000,   1,    0, 1024, 32,  16, Ddp,    0.0, Fused,   6.081),
    ("llm.q",             "qwen2.5-1.5b", RTX_PRO_6000,   1,    0, 1024, 32,  16, Ddp,    0.0, Fused,  16.171),
    ("llm.q",             "qwen2.5-3b",   RTX_PRO_6000,   1,    0, 1024, 16,  32, Ddp,    0.0, Fused,  30.512),
    ("llm.q",             "qwen2.5-7b",   RTX_PRO_6000,   1,    0, 1024,  8,  64, Ddp,    0.0, Fused,  64.891),
    ("llm.q",             "qwen2.5-0.5b", RTX_PRO_6000,   4,    0, 1024, 32,   4, Zero1,  0.0, Fused,   1.536),
    ("llm.q",             "qwen2.5-1.5b", RTX_PRO_6000,   4,    0, 1024, 32,   4, Zero1,  0.0, Fused,   4.062),
    ("llm.q",             "qwen2.5-3b",   RTX_PRO_6000,   4,    0, 1024, 16,   8, Zero1,  0.0, Fused,   7.666),
    ("llm.q",             "qwen2.5-7b",   RTX_PRO_6000,   4,    0, 1024,  8,  16, Zero1,  0.0, Fused,  16.391),
    ("llm.q",             "qwen2.5-0.5b", RTX_PRO_6000,   8,    0, 1024, 32,   2, Zero1,  0.0, Fused,   0.777),
    ("llm.q",             "qwen2.5-1.5b", RTX_PRO_6000,   8,    0, 1024, 32,   2, Zero1,  0.0, Fused,   2.044),
    ("llm.q",             "qwen2.5-3b",   RTX_PRO_6000,   8,    0, 1024, 16,   4, Zero1,  0.0, Fused,   3.859),
    ("llm.q",             "qwen2.5-7b",   RTX_PRO_6000,   8,    0, 1024,  8,   8, Zero1,  0.0, Fused,   8.385),
    ("llm.q",             "qwen2.5-14b",  RTX_PRO_6000,   8,    0, 1024,  4,  16, Zero1,  0.0, Fused,  17.249),
];

/// Name, vocabulary, width, layers, heads, key/value heads, feed-forward width, tied, biases.
type Shape = (&'static str, usize, usize, usize, usize, usize, usize, bool, bool);

/// The models of [`ROWS`] that are no presets.
#[rustfmt::skip]
const SHAPES: [Shape; 10] = [
    ("llama2-34b",    32_000, 8192, 48, 64,  8, 22016, false, false),
    ("llama2-70b",    32_000, 8192, 80, 64,  8, 28672, false, false),
    ("nanotron-1b",   32_768, 2048, 16, 32, 32,  8192, true,  false),
    ("nanotron-3b",   32_768, 3072, 28, 32, 32,  8192, true,  false),
    ("qwen2.5-0.5b", 151_936,  896, 24, 14,  2,  4864, true,  true),
    ("qwen2.5-1.5b", 151_936, 1536, 28, 12,  2,  8960, true,  true),
    ("qwen2.5-3b",   151_936, 2048, 36, 16,  2, 11008, true,  true),
    ("qwen2.5-7b",   152_064, 3584, 28, 28,  4, 18944, false, true),
    ("qwen2.5-14b",  152_064, 5120, 48, 40,  8, 13824, false, true),
    ("qwen2.5-32b",  152_064, 5120, 64, 40,  8, 27648, false, true),
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
        ROWS.into_iter().map(Published::of)
    }

    fn of(row: Row) -> Self {
        let (
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
            seconds,
        ) = row;
        let (stage, strategy) = match sharding {
            Ddp => (Stage::Ddp, Strategy::default()),
            Zero1 => (Stage::Zero1, Strategy::default()),
            Zero3 => (Stage::Zero3, Strategy::default()),
            Hybrid => (Stage::Zero3, Strategy::HybridShard),
        };
        let checkpointing = if recomputed > 0.0 { Checkpointing::Block } else { Checkpointing::None };
        let job = Job {
            batch_size: batch,
            tokens,
            micro_batches: micro,
            recipe: Recipe::MIXED,
            checkpointing,
            strategy,
            wrap: if source == "nanotron" { Wrap::Parameter } else { Wrap::default() },
            reduce_bucket: (source == "nanotron").then_some(BUCKET),
            converted_gradients: (source == "nanotron" || source.starts_with("torchtitan")).then_some(F32),
            shard_group: (sharding == Hybrid).then_some(PER_NODE),
            ..Job::new(config(model), stage, gpus)
        };
        let network = (gigabits > 0).then_some(f64::from(gigabits) * 1e9 / 8.0);
        Published { source, model, gpu, network, job, recomputed, software, seconds }
    }

    /// Returns the project that published it: those that share a name up to the first space.
    pub fn group(&self) -> &'static str {
        self.source.split(' ').next().unwrap_or(self.source)
    }

    /// Returns the machines on which it ran.
    pub fn cluster(&self) -> Cluster {
        let usual = Cluster::of(self.gpu, PER_NODE);
        Cluster { network: self.network.unwrap_or(usual.network), ..usual }
    }
}

/// Returns the model called `name`.
fn config(name: &str) -> ModelConfig {
    let shape = SHAPES.iter().find(|shape| shape.0 == name);
    let Some(&(name, vocabulary, width, layers, heads, kv_heads, feed_forward, tied, has_biases)) = shape
    else {
        return ModelConfig::preset(name).unwrap_or_else(|_| unreachable!("rows name presets or shapes"));
    };
    ModelConfig {
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
    }
}
