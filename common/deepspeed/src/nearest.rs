//! The known key nearest to an unknown one.

use crate::table::keys;

/// Returns the key or section of the table nearest to `path`: the one with dots for underscores
/// (`offload_optimizer_nvme_path`), else the same name in another section, else the fewest edits;
/// `None` if nothing is close.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let limit = (name.chars().count() / 3).max(1);
    let close = |path: &&'static str| last(path).len().abs_diff(name.len()) <= 3 * limit;
    let measured = paths().filter(close).map(|c| ((edits(name, last(c)), edits(path, c)), c));
    dotted(path).or_else(|| measured.filter(|((distance, _), _)| *distance <= limit).min().map(|(_, c)| c))
}

/// Lists every key's path, and those of its sections.
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

/// Levenshtein's distance, in characters; what is longer than any path is infinitely far.
fn edits(a: &str, b: &str) -> usize {
    const LONGEST: usize = 120;
    if a.len() > LONGEST {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
        assert_eq!([edits("", "abc"), edits("kitten", "sitting"), edits("a", "a")], [3, 3, 0]);
    }
}
