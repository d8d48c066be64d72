//! Files from other programs: weights, checkpoints, architectures, configurations.

use crate::mutate::{Random, damaged};
use crate::{Bound, attack};
use checkpoint::{Checkpoints, FileRecord, Manifest, Reader, Writer};
use clap::Parser;
use model::{Layout, ModelConfig, TensorSpec};
use std::sync::Arc;
use tempfile::TempDir;
use tests::fixture;

/// A parsed text occupies many times its size.
const TEXT: Bound = Bound { constant: 16 << 20, factor: 256 };

/// Returns a folder in main memory, if the system has one.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns a small model.
fn architecture() -> ModelConfig {
    let preset = ModelConfig::preset("tiny").unwrap();
    ModelConfig {
        vocabulary: 8,
        width: 4,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 2,
        feed_forward: 4,
        ..preset
    }
}

/// Returns the folder of a model's weights, the model's tensors, and the file's bytes.
fn saved() -> (TempDir, Layout, Vec<u8>) {
    let (config, folder) = (architecture(), folder());
    let layout = Layout::new(&config);
    let mut writer = Writer::create(folder.path(), &config, &layout, checkpoint::Format::default()).unwrap();
    for (id, tensor) in layout.tensors.iter().enumerate() {
        writer.write(id, &vec![0.5; tensor.elements()]).unwrap();
    }
    writer.finish().unwrap();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    (folder, layout, bytes)
}

#[test]
fn weights() {
    let (folder, layout, sample) = saved();
    let path = folder.path().join("model.safetensors");
    let read = |bytes: &[u8]| -> checkpoint::Result<()> {
        std::fs::write(&path, bytes).unwrap();
        let reader = Reader::open(&path)?;
        reader.check(&layout)?;
        let read = |tensor: &TensorSpec| {
            reader.read(tensor, 0..tensor.elements(), &mut vec![0.0; tensor.elements()])
        };
        layout.tensors.iter().try_for_each(read)
    };
    read(&sample).unwrap();
    let samples = [sample];
    let make = |random: &mut Random| damaged(&samples, true, random);
    attack("safetensors", 2_000, TEXT, make, |input, _| read(input).is_ok());
}

/// Damages a manifest's content, and usually makes its hash match again.
fn damaged_manifest(content: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let content = damaged(content, true, random);
    let hash = match random.below(8) {
        0 => "0".repeat(64),
        _ => blake3::hash(&[b"1 ", &content[..]].concat()).to_hex().to_string(),
    };
    [format!("{{\"format\":1,\"blake3\":\"{hash}\",\"manifest\":").as_bytes(), &content, b"}"].concat()
}

#[test]
fn manifests() {
    let (folder, layout) = (folder(), Layout::new(&architecture()));
    let checkpoints = Checkpoints::new(folder.path(), Arc::new(storage::Disk::new(1)));
    let partial = checkpoints.partial(4, 0);
    std::fs::create_dir(&partial).unwrap();
    let files = vec![FileRecord { name: "rank-0".into(), bytes: 7, blocks: vec!["ab".repeat(32)] }];
    let model_files = vec![FileRecord { name: "config.json".into(), ..files[0].clone() }];
    let [progress, identity, record] = ["steps", "layers", "stage"].map(|key| serde_json::json!({key: 4}));
    let manifest = Manifest { progress, identity, record, block_bytes: 1 << 20, files, model_files };
    let name = checkpoints.publish(&partial, 4, &manifest).unwrap();
    assert_eq!(checkpoints.manifest(&name).unwrap(), manifest);
    let path = folder.path().join(&name).join("manifest.json");
    let content = [serde_json::to_vec(&manifest).unwrap()];
    let make = |random: &mut Random| damaged_manifest(&content, random);
    attack("manifests", 2_000, TEXT, make, |input, _| {
        std::fs::write(&path, input).unwrap();
        let found = checkpoints.manifest(&name);
        found.is_ok_and(|manifest| checkpoints.open(&name, manifest, &layout).is_err())
    });
}

#[test]
fn architectures() {
    let text = |config: &ModelConfig| config.to_hugging_face().to_string().into_bytes();
    let files = ["odd.json", "wide-heads.json"].map(|name| std::fs::read(fixture(name)).unwrap());
    let samples = [text(&architecture()), files[0].clone(), files[1].clone()];
    assert!(ModelConfig::from_hugging_face(std::str::from_utf8(&samples[0]).unwrap(), "x").is_ok());
    attack(
        "config.json",
        10_000,
        TEXT,
        |random| damaged(&samples, true, random),
        |input, _| {
            let text = String::from_utf8_lossy(input);
            ModelConfig::from_hugging_face(&text, "x").map(|config| Layout::new(&config)).is_ok()
        },
    );
}

const DEEPSPEED: [&str; 3] = [
    r#"{"train_batch_size": 48, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3,
  "gradient_clipping": 0.5, "steps_per_print": 10, "wall_clock_breakdown": false,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.01}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 1e-3,
    "warmup_num_steps": 5, "warmup_type": "linear", "total_num_steps": 50}},
  "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e4, "reduce_scatter": false}}"#,
    r#"{"zero_optimization": {"stage": 3, "overlap_comm": false, "contiguous_gradients": false,
  "reduce_bucket_size": 7, "allgather_bucket_size": 8, "sub_group_size": 9, "stage3_prefetch_bucket_size": 0,
  "stage3_param_persistence_threshold": 11, "stage3_max_live_parameters": 1e9,
  "offload_optimizer": {"device": "cpu", "buffer_count": 4}}, "bf16": {"enabled": true}}"#,
    r#"{"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2}, "train_batch_size": "auto"}"#,
];

const ACCELERATE: [&str; 2] = [
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  \
     gradient_accumulation_steps: 2\n  offload_optimizer_device: cpu\n  zero3_init_flag: true\nmixed_precision: bf16\n\
     num_processes: 4\nnum_machines: 1\n",
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_backward_prefetch: BACKWARD_PRE\n  \
     fsdp_offload_params: false\nmixed_precision: 'no'\nnum_processes: 2\n",
];

/// Reads `samples`, damaged, as `--config` of a run.
fn configurations(name: &str, file: &str, samples: &[&str]) {
    let (folder, samples) =
        (folder(), samples.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
    let path = folder.path().join(file);
    let words = ["zero", "--device", "cpu", "--config", path.to_str().unwrap()];
    let args = settings::cli::Cli::try_parse_from(words).unwrap().train;
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        deepspeed::configure(args.clone())
    };
    samples.iter().for_each(|sample| drop(read(sample).unwrap()));
    attack(name, 1_000, TEXT, |random| damaged(&samples, true, random), |input, _| read(input).is_ok());
}

#[test]
fn deepspeed_files() {
    configurations("DeepSpeed's JSON", "ds.json", &DEEPSPEED);
}

#[test]
fn accelerate_files() {
    configurations("YAML", "accelerate.yaml", &ACCELERATE);
}
