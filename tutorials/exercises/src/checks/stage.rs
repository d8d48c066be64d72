//! The contract that real stages pass: the same weights as the real one, and memory and traffic as the planner says.

use crate::Verdict;
use clap::Parser;
use trainer::cli::Cli;
use trainer::config::Config;
use trainer::{Report, Stage};

const FLAGS: &str =
    "program --gpus 4 --steps 3 --batch-size 1 --seq-len 16 --threads 1 --timeout 10 --device cpu";

/// ZeRO-1's contract.
pub(crate) fn zero1<S: Stage>() -> Verdict {
    contract::<S, zero1::Zero1>()
}

/// ZeRO-2's contract.
pub(crate) fn zero2<S: Stage>() -> Verdict {
    contract::<S, zero2::Zero2>()
}

/// ZeRO-3's contract.
pub(crate) fn zero3<S: Stage>() -> Verdict {
    contract::<S, zero3::Zero3>()
}

fn train<S: Stage>(more: &str) -> Result<Report, String> {
    let words = FLAGS.split_whitespace().chain(more.split_whitespace());
    let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
    Config::new(cli.train).and_then(trainer::train_quietly::<S>).map_err(|failure| failure.to_string())
}

fn contract<Own: Stage, Real: Stage>() -> Verdict {
    let mut score = String::new();
    for more in ["", "--grad-accum 2"] {
        let (own, real) = (train::<Own>(more)?, train::<Real>(more)?);
        agreement(&own, &real)?;
        predictions(&own)?;
        let sent: u64 = own.traffic.iter().filter(|row| row.rank == 0).map(|row| row.bytes_sent).sum();
        let peak = own.total_peak_bytes.first().map_or(0, |row| row.peak_bytes);
        score =
            format!("the same weights, a peak of {peak} bytes, {sent} bytes sent by rank 0: as predicted");
    }
    Ok(score)
}

fn agreement(own: &Report, real: &Report) -> Result<(), String> {
    for (own, real) in own.steps.iter().zip(&real.steps) {
        if own.loss != real.loss {
            return Err(format!(
                "the loss of step {} is {:.4}, and should be {:.4}: ranks compute with other parameters after the step before",
                own.step, own.loss, real.loss
            ));
        }
        if own.grad_norm != real.grad_norm {
            return Err(format!(
                "in step {} the gradient norm is {:.4}, and should be {:.4}: gradients are incomplete, or an earlier update was",
                own.step, own.grad_norm, real.grad_norm
            ));
        }
    }
    if own.weights_blake3 == real.weights_blake3 {
        return Ok(());
    }
    Err("losses agree and the last weights do not: the last update is incomplete".into())
}

fn predictions(own: &Report) -> Result<(), String> {
    for row in &own.memory {
        if row.predicted_bytes != row.peak_bytes {
            return Err(format!(
                "rank {} holds up to {} bytes of {}, and {} would do",
                row.rank, row.peak_bytes, row.class, row.predicted_bytes
            ));
        }
    }
    for row in &own.traffic {
        if row.predicted_bytes != row.bytes_sent {
            return Err(format!(
                "rank {} sends {} bytes in {}, and {} would do",
                row.rank, row.bytes_sent, row.operation, row.predicted_bytes
            ));
        }
    }
    Ok(())
}
