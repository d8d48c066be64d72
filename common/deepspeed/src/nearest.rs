//! Finds the key that a misspelled one probably means.

use crate::table::keys;
use strsim::levenshtein;

/// Maximum length in bytes of a name that may be a misspelled key.
const LONGEST: usize = 120;

/// Returns the key or section of the table closest to `path`: the one that is the same when written
/// with dots (`offload_optimizer_nvme_path`), else the same name in another section, else the
/// fewest edits; `None` if nothing is close.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let name = last(path);
    let limit = (name.chars().count() / 3).max(1);
    let close =
        |path: &&'static str| name.len() <= LONGEST && last(path).len().abs_diff(name.len()) <= 3 * limit;
    let measured = paths().filter(close).map(|c| (levenshtein(name, last(c)), c));
    let near = measured.filter(|(distance, _)| *distance <= limit);
    dotted(path)
        .or_else(|| near.min_by_key(|&(distance, c)| (distance, levenshtein(path, c), c)).map(|(_, c)| c))
}

/// Returns every key's path, and the paths of the sections that contain it.
fn paths() -> impl Iterator<Item = &'static str> {
    let up = |path: &&'static str| path.rsplit_once('.').map(|(section, _)| section);
    keys().flat_map(move |key| std::iter::successors(Some(key.path), up))
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Returns the key whose path ends in `path` once its dots are underscores.
fn dotted(path: &str) -> Option<&'static str> {
    let flat = path.replace('.', "_");
    let fits = |key: &str| key.contains('.') && key.replace('.', "_").ends_with(&flat);
    keys().map(|key| key.path).find(|key| flat.contains('_') && fits(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_lead_to_the_nearest_one() {
        for (slip, meant) in [
            ("zero_optimization.allreduce_bucket_size", "zero_optimization.reduce_bucket_size"),
            ("bf16.loss_scale", "fp16.loss_scale"),
            ("zero_optimization.offload_optimizer.max_in_cpu", "zero_optimization.offload_param.max_in_cpu"),
            ("offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"),
            ("grad_clipping", "gradient_clipping"),
            ("gradient_accumulation_step", "gradient_accumulation_steps"),
            ("overlap_comm", "zero_optimization.overlap_comm"),
            ("zero_optimisation", "zero_optimization"),
            ("zero_optimization.offload_params", "zero_optimization.offload_param"),
            ("optimiser", "optimizer"),
        ] {
            assert_eq!(nearest(slip), Some(meant), "{slip}");
        }
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest(&"x".repeat(9999)), None);
    }
}
