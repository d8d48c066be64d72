//! Units and slices of models, and their names.

use super::*;
use model::ModelConfig;
use proptest::prelude::*;

fn layout(tied: bool) -> Layout {
    Layout::new(&ModelConfig { tied, layers: 2, ..ModelConfig::tiny() })
}

fn names(tied: bool, wrap: Wrap) -> Vec<String> {
    Partition::new(&layout(tied), wrap, 4).units.into_iter().map(|unit| unit.name).collect()
}

#[test]
fn a_tied_table_lives_in_the_first_unit_alone() {
    let layout = layout(true);
    let partition = Partition::new(&layout, Wrap::Block, 4);
    assert_eq!(partition.units.len(), 4);
    assert_eq!(partition.units[3].slots.len(), 1);
    let table = layout.layers[3].tensors[1];
    assert_eq!(partition.home(table).0, 0);
}

#[test]
fn units_are_named_after_what_they_hold() {
    assert_eq!(names(false, Wrap::Model), ["model"]);
    assert_eq!(names(false, Wrap::Block), ["embedding", "block 0", "block 1", "head"]);
    let module = names(false, Wrap::Module);
    let second = ["self_attn", "mlp", "input_layernorm", "post_attention_layernorm"];
    assert_eq!(module[5..9], second.map(|name| format!("block 1 {name}")));
    assert_eq!(module[9..], ["norm", "head"]);
    let parameter = names(false, Wrap::Parameter);
    assert_eq!(parameter.len(), layout(false).tensors.len());
    assert_eq!(
        parameter[8..11],
        ["block 0 input_layernorm", "block 0 post_attention_layernorm", "block 1 q_proj"]
    );
    assert_eq!(names(true, Wrap::Parameter).last().unwrap(), "norm");
}

#[test]
fn units_of_a_size_close_once_they_have_it() {
    let tiny = layout(false);
    let total: u64 = tiny.parameters();
    for size in [1, 20_000, 65_537, total, total + 1] {
        let units = Partition::new(&tiny, Wrap::Size(size), 1).units;
        for unit in &units[..units.len() - 1] {
            let last = unit.slots.last().unwrap().elements;
            assert!(unit.parameters as u64 >= size && ((unit.parameters - last) as u64) < size);
        }
    }
    assert_eq!(Partition::new(&tiny, Wrap::Size(1), 1).units.len(), tiny.tensors.len());
    assert_eq!(names(false, Wrap::Size(total)), ["part 0"]);
}

fn wraps() -> impl Strategy<Value = Wrap> {
    let coarse = [Wrap::Model, Wrap::Block, Wrap::Module, Wrap::Parameter];
    prop_oneof![proptest::sample::select(coarse.to_vec()), (1u64..50_000).prop_map(Wrap::Size)]
}

#[test]
fn small_tensors_persist_in_units_of_their_own() {
    let partition = |each, together| {
        let units = Partition::new(&layout(false), Wrap::Block, 4);
        units.with_persistent_tensors(PersistenceLimits { each, together })
    };
    let units = |each, together| -> Vec<(String, bool)> {
        partition(each, together).units.into_iter().map(|unit| (unit.name, unit.persistent)).collect()
    };
    assert_eq!(partition(0, usize::MAX), Partition::new(&layout(false), Wrap::Block, 4));
    let width = ModelConfig::tiny().width;
    let split = units(width, usize::MAX);
    let names: Vec<&str> = split.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        "embedding, block 0, block 0 persistent, block 1, block 1 persistent, head, head persistent";
    assert_eq!(names.join(", "), expected);
    assert!(split.iter().all(|(name, persistent)| *persistent == name.ends_with("persistent")));
    let kept = units(width, 3 * width).iter().filter(|(_, persistent)| *persistent).count();
    assert_eq!(kept, 2, "the rest has no room");
    let all = units(usize::MAX, usize::MAX);
    assert!(all.iter().all(|(name, persistent)| *persistent && !name.ends_with("persistent")));
    let split = partition(width, usize::MAX);
    for tensor in 0..layout(false).tensors.len() {
        let (unit, slot) = split.home(tensor);
        assert_eq!((slot.tensor, split.units[unit].slots.contains(&slot)), (tensor, true));
    }
}

proptest! {
    #[test]
    fn slices_cover_every_unit_once(
        shards in 1usize..9, width in 1usize..40, layers in 1usize..4, tied: bool, wrap in wraps(),
    ) {
        let config = ModelConfig { width, layers, tied, feed_forward: width * 2 + 1, ..ModelConfig::tiny() };
        let layout = Layout::new(&config);
        let partition = Partition::new(&layout, wrap, shards);
        let total: usize = partition.units.iter().map(|u| u.parameters).sum();
        prop_assert_eq!(total as u64, layout.parameters());
        // In the layout's order: saving unit by unit writes tensors as their file lists them.
        let tensors: Vec<TensorId> =
            partition.units.iter().flat_map(|unit| unit.slots.iter().map(|slot| slot.tensor)).collect();
        prop_assert_eq!(tensors, (0..layout.tensors.len()).collect::<Vec<_>>());
        for (id, unit) in partition.units.iter().enumerate() {
            prop_assert!(unit.padded - unit.parameters < shards);
            let mut end = 0;
            for shard in 0..shards {
                let slice = partition.slice(id, shard);
                prop_assert_eq!(slice.start, end);
                end = slice.end;
            }
            prop_assert_eq!(end, unit.padded);
        }
    }
}
