//! Parameters of the optimizer and of the scheduler, which DeepSpeed passes to the class that
//! `type` names.

use crate::entries::Entries;
use crate::keys::Fate;
use crate::node::Node;
use crate::table::keys;
use settings::findings::Findings;

/// Parameters that a scheduler takes in addition to those in [`OF_ALL`].
const OF_EACH: [(&str, &[&str]); 3] = [
    ("WarmupLR", &["warmup_min_lr", "warmup_max_lr"]),
    ("WarmupDecayLR", &["total_num_steps", "warmup_min_lr", "warmup_max_lr"]),
    ("WarmupCosineLR", &["total_num_steps", "warmup_min_ratio", "cos_min_ratio"]),
];

const OF_ALL: [&str; 3] = ["warmup_num_steps", "warmup_type", "last_batch_iteration"];

/// Returns the error that `kind`, the type that `section` names, does not take the parameter at
/// `path`, with the parameters that it takes.
pub(crate) fn refusal(path: &str, section: &str, kind: &str) -> String {
    let taken = match OF_EACH.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind)) {
        Some((_, own)) => [&OF_ALL[..], own].concat(),
        None => {
            let honoured = keys().filter(|key| matches!(key.fate, Fate::Honoured { .. }));
            honoured.filter_map(|key| key.path.strip_prefix(&format!("{section}.params."))).collect()
        }
    };
    format!("{path} is no parameter of {kind}, which takes {}", taken.join(", "))
}

/// Removes parameters that DeepSpeed does not read because their section has no `type`, with a
/// warning. Refuses those that the scheduler does not take, as DeepSpeed does.
pub(crate) fn check(entries: &mut Entries, findings: &mut Findings) {
    for section in ["optimizer", "scheduler"] {
        if entries.get(&format!("{section}.type")).is_some() {
            continue;
        }
        let params = format!("{section}.params");
        let unread =
            entries.remove_all(|path| path.strip_prefix(&params).is_some_and(|p| p.starts_with('.')));
        if !unread.is_empty() {
            let (file, change) = (&findings.file, if unread.len() == 1 { "changes" } else { "change" });
            let why = format!("DeepSpeed reads {params} only together with {section}.type");
            findings.warnings.push(format!("{file}: {} {change} nothing: {why}", unread.join(", ")));
        }
    }
    let scheduler = entries.get("scheduler.type").and_then(Node::as_text).unwrap_or_default();
    let Some((name, own)) = OF_EACH.iter().find(|(name, _)| name.eq_ignore_ascii_case(scheduler)) else {
        return;
    };
    for entry in entries.iter() {
        let Some(parameter) = entry.key.path.strip_prefix("scheduler.params.") else { continue };
        if !own.contains(&parameter) && !OF_ALL.contains(&parameter) {
            let refusal = refusal(entry.key.path, "scheduler", name);
            findings.errors.push(format!("{}: {refusal}", findings.file));
        }
    }
}
