//! Keys that only one of FSDP's two versions reads.

use crate::entries::{Entries, Entry, Written};
use crate::node::Node;
use crate::table;
use settings::findings::Findings;

/// The key that names the framework that Accelerate's file configures.
pub(crate) const KIND: &str = "distributed_type";
const VERSION: &str = "fsdp_config.fsdp_version";
const STRATEGY: &str = "fsdp_config.fsdp_sharding_strategy";
const RESHARD: &str = "fsdp_config.fsdp_reshard_after_forward";

/// True if the file configures FSDP.
pub(crate) fn is_in(entries: &Entries) -> bool {
    kind(entries).is_some() || entries.iter().any(|entry| entry.key.path.starts_with("fsdp_config."))
}

/// Returns the value of [`KIND`] if it is FSDP.
fn kind(entries: &Entries) -> Option<&Node> {
    entries.get(KIND).filter(|kind| kind.as_text().is_some_and(|kind| kind.eq_ignore_ascii_case("FSDP")))
}

/// Removes the key that the file's version of FSDP does not read. Warns unless its value is full
/// sharding, which is the default of both. If a file of Accelerate's leaves the other key out, it
/// asks for that default.
pub(crate) fn settle_version(entries: &mut Entries, findings: &mut Findings) {
    let second = entries.get(VERSION).and_then(Node::as_number) == Some(2.0);
    let (unread, read) = if second { (STRATEGY, RESHARD) } else { (RESHARD, STRATEGY) };
    if let (Some(kind), None, Some(key)) = (kind(entries), entries.get(read), table::find(read)) {
        let written = Written { path: KIND.into(), value: kind.clone() };
        entries.add(Entry { key, value: Node::text("FULL_SHARD"), alias: Some(written) });
    }
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
