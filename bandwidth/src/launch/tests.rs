#![allow(clippy::unwrap_used)]

use super::*;
use clap::Parser;

#[test]
fn a_rank_without_a_gpu_tells_the_others() {
    let flags = Flags::parse_from(["bandwidth"]);
    let run = |group: Group| {
        let found = if group.rank() == 1 { Err("no GPU here".into()) } else { Ok(None) };
        let body = |rank: &MeasuredRank| -> Result<Vec<Row>> {
            rank.group.barrier()?;
            Ok(Vec::new())
        };
        measure_on(group, Engine::Tcp, || found, &flags, &body).unwrap_err().to_string()
    };
    let errors: Vec<String> = std::thread::scope(|scope| {
        let groups = groups(2, Options::default()).into_iter();
        let ranks: Vec<_> = groups.map(|group| scope.spawn(|| run(group))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(errors[1], "no GPU here");
    assert!(errors[0].contains("rank 1 failed during its setup: no GPU here"), "{errors:?}");
}

#[test]
fn processes_with_different_engines_have_different_settings() {
    let flags = Flags::parse_from(["bandwidth", "--operation", "all-reduce,broadcast", "--max", "64"]);
    let expected = "--engine nccl\n--operation all-reduce,broadcast\n--min 1\n--max 64\n--factor 4";
    assert_eq!(settings(Engine::Nccl, &flags), expected);
    assert_ne!(settings(Engine::Tcp, &flags), expected);
}
