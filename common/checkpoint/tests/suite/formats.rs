//! Weights in several files, and in 16 bits.

use crate::common::{assert_reads_back, config, names, values};
use checkpoint::{CheckpointError, ElementType, Format, Reader, Writer};
use half::{bf16, f16};
use model::{Layout, TrainingState};
use safetensors::SafeTensors;
#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn save_as(out: &Path, format: Format, value: impl Fn(usize) -> Vec<f32>) -> checkpoint::Result<()> {
    let layout = Layout::new(&config());
    let mut writer = Writer::create(out, &config(), &layout, format)?;
    (0..layout.tensors.len()).rev().try_for_each(|id| writer.write(id, &value(id)))?;
    writer.finish()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn shards_are_at_most_as_large_as_allowed_and_read_back() {
    let layout = Layout::new(&config());
    for (element_type, bytes) in ElementType::ALL.into_iter().zip([4, 2, 2]) {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        // The embedding, with 228 elements, is larger.
        let most = 200 * bytes;
        let format = Format { element_type: Some(element_type), max_shard: Some(most), ..Format::default() };
        save_as(&out, format, |id| values(&layout, id)).unwrap();
        assert_reads_back(&Reader::open(&out).unwrap(), &layout);
        let index = json(&out.join("model.safetensors.index.json"));
        let all = layout.tensors.iter().map(|tensor| tensor.elements() as u64 * bytes);
        assert_eq!(index["metadata"]["total_size"], all.sum::<u64>());
        let found = names(&out);
        let shards: Vec<_> = found.iter().filter(|name| name.ends_with(".safetensors")).collect();
        for (number, name) in shards.iter().enumerate() {
            assert_eq!(**name, format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len()));
            let file = fs::read(out.join(name)).unwrap();
            let file = SafeTensors::deserialize(&file).unwrap();
            let size: u64 = file.tensors().iter().map(|(_, tensor)| tensor.data().len() as u64).sum();
            assert!(size <= most || file.len() == 1, "{name} has {size} bytes");
            for tensor in file.names() {
                assert_eq!(index["weight_map"][tensor], **name, "{tensor}");
            }
        }
        assert!(shards.len() > 3, "{shards:?}");
        assert_eq!(index["weight_map"].as_object().unwrap().len(), layout.tensors.len());
    }
}

/// A save of a large model may have more files than a process may open.
#[cfg(target_os = "linux")]
#[test]
fn a_save_has_no_more_files_open_than_it_has_states() {
    let layout = Layout::new(&config());
    let parent = tempfile::tempdir().unwrap();
    let above = parent.path().canonicalize().unwrap();
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
        let files: BTreeSet<_> =
            links.flatten().filter(|to| to.starts_with(&above) && to.is_file()).collect();
        files.len()
    };
    let format = Format { max_shard: Some(1), moments: true, ..Format::default() };
    let out = above.join("out");
    let mut writer = Writer::create(&out, &config(), &layout, format).unwrap();
    assert_eq!(open(), 0);
    for (round, id) in (0..2).flat_map(|round| (0..layout.tensors.len()).map(move |id| (round, id))) {
        for state in TrainingState::ALL {
            // The second round reopens each file.
            let written =
                if round == 0 { vec![0.5; layout.tensors[id].elements()] } else { values(&layout, id) };
            writer.write_state(state, id, &written).unwrap();
            assert!(open() <= TrainingState::ALL.len(), "{}", open());
        }
    }
    writer.finish().unwrap();
    assert_eq!(names(&out).len(), 3 * (layout.tensors.len() + 1) + 1);
    assert_reads_back(&Reader::open(&out).unwrap(), &layout);
}

#[test]
fn what_fits_into_one_file_needs_no_index() {
    let (parent, layout) = (tempfile::tempdir().unwrap(), Layout::new(&config()));
    let out = parent.path().join("out");
    for most in [100, 1 << 30] {
        let format = Format { max_shard: Some(most), ..Format::default() };
        save_as(&out, format, |id| values(&layout, id)).unwrap();
    }
    assert_eq!(names(&out), ["config.json", "model.safetensors"]);
    assert_reads_back(&Reader::open(&out).unwrap(), &layout);
}

#[test]
fn weights_are_rounded_to_the_nearest_and_the_configuration_says_their_type() {
    let layout = Layout::new(&config());
    let exact = |id: usize| -> Vec<f32> {
        (0..layout.tensors[id].elements()).map(|i| (id * 1000 + i) as f32 * 0.001_234_567 - 3.0).collect()
    };
    for (element_type, word) in ElementType::ALL.into_iter().zip(["float32", "bfloat16", "float16"]) {
        let round = |value: f32| match element_type {
            ElementType::F32 => value,
            ElementType::Bf16 => f32::from(bf16::from_f32(value)),
            ElementType::F16 => f32::from(f16::from_f32(value)),
        };
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        save_as(&out, Format { element_type: Some(element_type), ..Format::default() }, exact).unwrap();
        assert_eq!(json(&out.join("config.json"))["torch_dtype"], word);
        let reader = Reader::open(&out).unwrap();
        assert_eq!(reader.config().unwrap().width, config().width);
        for (id, spec) in layout.tensors.iter().enumerate() {
            let mut found = vec![0.0; spec.elements()];
            reader.read(spec, 0..spec.elements(), &mut found).unwrap();
            assert_eq!(found, exact(id).into_iter().map(round).collect::<Vec<_>>(), "{word} {}", spec.name);
        }
    }
}

#[test]
fn a_weight_beyond_the_range_of_f16_is_an_error_that_changes_nothing() {
    let layout = Layout::new(&config());
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let large = |id: usize| vec![if id == 1 { 65_520.0 } else { 1.0 }; layout.tensors[id].elements()];
    let format = Format { element_type: Some(ElementType::F16), ..Format::default() };
    let error = save_as(&out, format, large).unwrap_err();
    assert!(matches!(error, CheckpointError::OutOfRange { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains(&layout.tensors[1].name) && said.contains("65520") && said.contains("bf16"),
        "{said}"
    );
    assert!(names(&out).is_empty());
    save_as(&out, Format { element_type: Some(ElementType::Bf16), ..format }, large).unwrap();
}

/// A run whose weights are lost must not destroy an earlier run's weights.
#[test]
fn a_weight_that_is_not_finite_is_an_error_that_changes_nothing() {
    let layout = Layout::new(&config());
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    save_as(&out, Format::default(), |id| vec![1.0; layout.tensors[id].elements()]).unwrap();
    let before = std::fs::read(out.join("model.safetensors")).unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let lost = |id: usize| vec![if id == 1 { bad } else { 2.0 }; layout.tensors[id].elements()];
        let error = save_as(&out, Format::default(), lost).unwrap_err();
        assert!(matches!(error, CheckpointError::WeightNotFinite { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(&layout.tensors[1].name) && said.contains("--lr"), "{said}");
        assert_eq!(std::fs::read(out.join("model.safetensors")).unwrap(), before);
    }
}

#[test]
fn moments_have_files_of_their_own_in_f32() {
    let layout = Layout::new(&config());
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let format = Format { element_type: Some(ElementType::Bf16), moments: true, ..Format::default() };
    let mut writer = Writer::create(&out, &config(), &layout, format).unwrap();
    for state in TrainingState::ALL {
        for id in 0..layout.tensors.len() {
            let elements = layout.tensors[id].elements();
            writer.write_state(state, id, &vec![1.001 + state as usize as f32; elements]).unwrap();
        }
    }
    writer.finish().unwrap();
    let files = ["config.json", "exp_avg.safetensors", "exp_avg_sq.safetensors", "model.safetensors"];
    assert_eq!(names(&out), files);
    for (name, expected) in [("exp_avg", 2.001f32), ("exp_avg_sq", 3.001), ("model", 1.0)] {
        let reader = Reader::open(out.join(format!("{name}.safetensors"))).unwrap();
        let mut found = vec![0.0; layout.tensors[0].elements()];
        reader.read(&layout.tensors[0], 0..found.len(), &mut found).unwrap();
        assert_eq!(found[0], expected, "{name}");
    }
}
