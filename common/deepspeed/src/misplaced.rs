//! Keys about offload in places where DeepSpeed and Accelerate do not read them. A run that ignored
//! such a key would need more memory than the user intends.

use crate::nearest::nearest;
use crate::node::Node;
use crate::table;

/// Accelerate's key for FSDP's offload.
const FSDP: &str = "fsdp_config.fsdp_offload_params";
/// Last parts of the paths of keys and sections that say where data are stored.
const PLACING: [&str; 10] = [
    "device",
    "nvme_path",
    "offload_optimizer",
    "offload_param",
    "cpu_offload",
    "cpu_offload_param",
    "cpu_checkpointing",
    "offload_optimizer_device",
    "offload_param_device",
    "fsdp_offload_params",
];

/// A key that asks for offload in a place where it is not read.
pub(crate) struct Misplaced<'a> {
    pub path: String,
    pub value: &'a Node,
    /// The path that it should have.
    pub right: &'static str,
}

/// Returns the first key that asks for offload, in the unknown key or section at `path` of
/// Accelerate's or else DeepSpeed's file; `None` if there is none.
pub(crate) fn misplaced<'a>(path: &str, node: &'a Node, accelerate: bool) -> Option<Misplaced<'a>> {
    if let Node::Section(entries) = node {
        return entries
            .iter()
            .find_map(|(name, value)| misplaced(&format!("{path}.{name}"), value, accelerate));
    }
    let right = right_place(path, accelerate).filter(|_| asks(node))?;
    Some(Misplaced { path: path.into(), value: node, right })
}

/// Returns the key that the one at `path` probably means; `None` if that key does not say where
/// data are stored.
fn right_place(path: &str, accelerate: bool) -> Option<&'static str> {
    let about = ["offload", "nvme_path", "cpu_checkpointing"].iter().any(|word| path.contains(word));
    if !about {
        return None;
    }
    if path.contains("fsdp") {
        return Some(FSDP);
    }
    let parts: Vec<&str> = path.rsplit('.').take(2).collect();
    let flat = parts.iter().rev().copied().collect::<Vec<_>>().join("_");
    let accelerates = [parts[0], &flat].map(|name| table::find(&format!("deepspeed_config.{name}")));
    if let Some(key) = accelerates.into_iter().flatten().next().filter(|_| accelerate) {
        return Some(key.path);
    }
    let meant = nearest(path)?;
    let name = meant.rsplit('.').next().unwrap_or(meant);
    PLACING.contains(&name).then_some(meant)
}

/// True if `value` asks for anything: it is not a word, number or truth value that means none.
fn asks(value: &Node) -> bool {
    match value {
        Node::Null => false,
        Node::Number(number) => *number != 0.0,
        Node::List(items) => !items.is_empty(),
        value => value.as_flag().unwrap_or_else(|| {
            value.as_text().is_some_and(|text| !text.is_empty() && !text.eq_ignore_ascii_case("none"))
        }),
    }
}
