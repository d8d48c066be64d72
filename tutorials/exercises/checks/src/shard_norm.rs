//! Checks the norm of a gradient that is sharded over ranks: on its own, then in ZeRO-1.

use crate::{Figure, Score, Verdict, stage};
use device::View;
use sharding::{Rank, global_norm};

/// The function under check: (a rank's slice, a function that sums a number over all ranks) to the
/// norm of the whole gradient.
pub type Norm = fn(&[f32], &mut dyn FnMut(f64) -> f64) -> f64;

/// Maximum number of exchanges per rank before the check fails.
const PATIENCE: usize = 100;

/// Checks norms of sharded gradients, then trains with `S`: ZeRO-1 that clips by this norm.
pub fn check<S: trainer::StageKind>(norm: Norm) -> Verdict {
    let alone = check_alone(norm)?;
    stage::keeps_the_contract::<S>(" --max-grad-norm 0.5")?;
    Ok(alone.and(Score::right("ZeRO-1 clips by it and learns what the real one learns")))
}

/// Checks norms of sharded gradients.
pub fn check_alone(norm: Norm) -> Verdict {
    let mut exchanged = Figure::of("numbers exchanged for two norms");
    for shards in [vec![vec![3.0], vec![4.0]], vec![vec![1.0, 2.0], vec![2.0, 4.0], vec![0.0, -2.0]]] {
        exchanged.add(run(norm, &shards)? as u64, 1);
    }
    Ok(Score::right("every rank gets the norm of the whole").with(exchanged))
}

/// Returns the number of exchanges per rank.
fn run(norm: Norm, shards: &[Vec<f32>]) -> Result<usize, String> {
    let mut sums: Vec<f64> = Vec::new();
    // Ranks run one after another. Each round yields the sum of one more exchange, until all are
    // known.
    while sums.len() < PATIENCE {
        let rounds: Vec<(Vec<f64>, f64)> = shards.iter().map(|shard| round(norm, shard, &sums)).collect();
        if let Some(odd) = rounds.iter().position(|(passed, _)| passed.len() != rounds[0].0.len()) {
            return Err(format!(
                "rank {odd} exchanges {} numbers and rank 0 {}: every rank takes part in every sum",
                rounds[odd].0.len(),
                rounds[0].0.len()
            ));
        }
        if rounds[0].0.len() <= sums.len() {
            return judge(shards, &rounds).map(|()| sums.len());
        }
        let next = sums.len();
        sums.push(rounds.iter().map(|(passed, _)| passed[next]).sum());
    }
    Err(format!("after {PATIENCE} exchanged numbers there is still no norm"))
}

/// Runs `norm` on one rank, answering the first exchanges with `sums`. Returns the numbers that the
/// rank contributes to the exchanges, and its norm.
fn round(norm: Norm, shard: &[f32], sums: &[f64]) -> (Vec<f64>, f64) {
    let mut passed = Vec::new();
    let returned = norm(shard, &mut |own| {
        passed.push(own);
        sums.get(passed.len() - 1).copied().unwrap_or(own)
    });
    (passed, returned)
}

fn judge(shards: &[Vec<f32>], rounds: &[(Vec<f64>, f64)]) -> Result<(), String> {
    let right = shards.iter().flatten().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
    match rounds.iter().position(|(_, own)| (own - right).abs() > 1e-9 * right) {
        None => Ok(()),
        Some(rank) => Err(format!(
            "slices {shards:?}: rank {rank} clips by a norm of {}, and the gradient's is {right}",
            rounds[rank].1
        )),
    }
}

/// Returns the norm that `norm` computes for a stage's slices. If it differs only by rounding,
/// returns the stage's own norm, which is summed in fixed point.
///
/// # Errors
/// If an exchange fails.
pub fn of_stage(norm: Norm, rank: &Rank, gradients: &[View<'_>]) -> sharding::Result<f64> {
    let mut mine = Vec::new();
    for view in gradients {
        mine.extend_from_slice(&rank.device.read::<f32>(view.clone())?);
    }
    let mut failed = None;
    let own = norm(&mine, &mut |number| match summed(rank, number) {
        Ok(sum) => sum,
        Err(error) => {
            failed.get_or_insert(error);
            f64::NAN
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let right = global_norm(rank, gradients)?;
    Ok(if (own - right).abs() <= 1e-9 * right { right } else { own })
}

fn summed(rank: &Rank, number: f64) -> sharding::Result<f64> {
    let all = rank.shard_group().exchange(&number.to_le_bytes())?;
    let read = |bytes: &Vec<u8>| <[u8; 8]>::try_from(bytes.as_slice()).map_or(f64::NAN, f64::from_le_bytes);
    Ok(all.iter().map(read).sum())
}
