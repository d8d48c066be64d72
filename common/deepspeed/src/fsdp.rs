//! What only one of FSDP's two versions reads.

use crate::entries::Entries;
use crate::node::Node;
use settings::findings::Findings;

const VERSION: &str = "fsdp_config.fsdp_version";
const STRATEGY: &str = "fsdp_config.fsdp_sharding_strategy";
const RESHARD: &str = "fsdp_config.fsdp_reshard_after_forward";

/// True if the file configures FSDP.
pub(crate) fn is_in(entries: &Entries) -> bool {
    let is_fsdp = |kind: &Node| kind.as_text().is_some_and(|kind| kind.eq_ignore_ascii_case("FSDP"));
    entries.get("distributed_type").is_some_and(is_fsdp)
        || entries.iter().any(|entry| entry.key.path.starts_with("fsdp_config."))
}

/// Removes the key that the file's version of FSDP does not read. Warns unless its value is full
/// sharding, which is the default of both.
pub(crate) fn remove_unread(entries: &mut Entries, findings: &mut Findings) {
    let second = entries.get(VERSION).and_then(Node::as_number) == Some(2.0);
    let (unread, read) = if second { (STRATEGY, RESHARD) } else { (RESHARD, STRATEGY) };
    let Some(value) = entries.get(unread).cloned() else { return };
    entries.remove_all(|path| path == unread);
    let full =
        ["true", "full_shard", "1"].contains(&value.word().unwrap_or_default().to_ascii_lowercase().as_str());
    if !full {
        let version = if second { 2 } else { 1 };
        findings.warnings.push(format!(
            "{}: {unread} {value} changes nothing: Accelerate reads {read} with fsdp_version {version}",
            findings.file
        ));
    }
}
