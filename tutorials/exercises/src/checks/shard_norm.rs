//! The norm of a gradient that is spread over ranks.

use crate::Verdict;

/// What is checked: (a rank's slice, the sum over ranks of what each of them passes) to the norm of the whole.
pub(crate) type Norm = fn(&[f32], &mut dyn FnMut(f64) -> f64) -> f64;

pub(crate) fn check(norm: Norm) -> Verdict {
    for shards in [vec![vec![3.0], vec![4.0]], vec![vec![1.0, 2.0], vec![2.0, 4.0], vec![0.0, -2.0]]] {
        run(norm, &shards)?;
    }
    Ok("one number per rank is exchanged, and every rank gets the norm of the whole".into())
}

fn run(norm: Norm, shards: &[Vec<f32>]) -> Result<(), String> {
    let mut passed = Vec::new();
    for shard in shards {
        norm(shard, &mut |own| {
            passed.push(own);
            own
        });
    }
    if passed.len() != shards.len() {
        return Err(format!("{} ranks exchange {} numbers: one each will do", shards.len(), passed.len()));
    }
    let total: f64 = passed.iter().sum();
    let right = shards.iter().flatten().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
    for (rank, shard) in shards.iter().enumerate() {
        let own = norm(shard, &mut |_| total);
        if (own - right).abs() > 1e-9 * right {
            return Err(format!(
                "slices {shards:?}: rank {rank} clips by a norm of {own}, and the gradient's is {right}"
            ));
        }
    }
    Ok(())
}
