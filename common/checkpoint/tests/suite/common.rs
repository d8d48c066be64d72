//! A small odd-shaped model with recognisable weights, and ways to save it.

use checkpoint::{Format, Reader, Writer};
use model::{Layout, ModelConfig};
use std::path::Path;

/// Returns the configuration of a model with two layers of odd sizes.
pub(crate) fn config() -> ModelConfig {
    ModelConfig {
        vocabulary: 19,
        width: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 6,
        feed_forward: 7,
        batch_size: 1,
        norm_eps: 1e-6,
        rope_theta: 500000.0,
        ..ModelConfig::tiny()
    }
}

/// Returns element `i` of tensor `tensor`. All elements differ, and all are exact in bf16 and f16.
pub(crate) fn value(tensor: usize, i: usize) -> f32 {
    let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * (128 + i % 128) as f32 * 2f32.powi((tensor % 8) as i32 - 10)
}

/// Returns all elements of a tensor.
pub(crate) fn values(layout: &Layout, tensor: usize) -> Vec<f32> {
    (0..layout.tensors[tensor].elements()).map(|i| value(tensor, i)).collect()
}

/// Saves the model of `config` with [`values`], the last tensor first.
pub(crate) fn save(directory: &Path, config: &ModelConfig) -> checkpoint::Result<()> {
    let layout = Layout::new(config);
    let mut writer = Writer::create(directory, config, &layout, Format::default())?;
    for tensor in (0..layout.tensors.len()).rev() {
        writer.write(tensor, &values(&layout, tensor))?;
    }
    writer.finish()
}

/// Asserts that every tensor of `layout` reads back as [`values`].
pub(crate) fn assert_reads_back(reader: &Reader, layout: &Layout) {
    reader.check(layout).unwrap();
    for (tensor, spec) in layout.tensors.iter().enumerate() {
        let mut found = vec![f32::NAN; spec.elements()];
        reader.read(spec, 0..spec.elements(), &mut found).unwrap();
        assert_eq!(found, values(layout, tensor), "{}", spec.name);
    }
}

/// Returns the names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Puts a named pipe at `path`, in the place of a file that may be there.
pub(crate) fn put_a_pipe_at(path: &Path) {
    // The file need not exist.
    let _ = std::fs::remove_file(path);
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Steele, Lea & Flood's SplitMix64: the same cases on every run.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// Returns the next number, uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}

/// Returns how many cases a test tries: `short`, or the value of the environment variable `CASES`.
pub(crate) fn cases(short: usize) -> usize {
    std::env::var("CASES").map_or(short, |cases| cases.parse().unwrap())
}
