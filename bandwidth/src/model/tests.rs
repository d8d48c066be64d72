//! The link found in measured times is the one that made them.

use super::*;
use collectives::local::Algorithm;
use events::Operation;

/// Returns rows of calls that take the time that `link` predicts.
fn rows(engine: Engine, link: Link, sizes: &[usize]) -> Vec<Row> {
    let operations = [Operation::AllReduce, Operation::AllGather, Operation::Broadcast];
    let row = |(operation, size): (Operation, usize)| {
        let mut row =
            Row { operation, engine, size, ranks: 4, calls: 5, median: Duration::ZERO, best: Duration::ZERO };
        let algorithm = engine.algorithm();
        row.median = link.cost(operation, algorithm, 4, row.sent(algorithm) as u64);
        row
    };
    operations.into_iter().flat_map(|op| sizes.iter().map(move |&size| (op, size))).map(row).collect()
}

#[test]
fn a_link_is_found_in_what_it_costs() {
    let link = Link { latency: Duration::from_micros(20), bandwidth: 3e9 };
    for engine in [Engine::Local, Engine::Ring] {
        let found = &models(&rows(engine, link, &[1 << 10, 1 << 16, 1 << 24]))[0];
        assert_eq!(found.flag(), "20.0us,3.00GB/s", "{engine:?}");
        assert!(found.error < 1e-3, "{found}");
    }
}

#[test]
fn one_size_or_one_rank_tells_no_link() {
    let link = Link { latency: Duration::from_micros(20), bandwidth: 3e9 };
    assert!(models(&rows(Engine::Local, link, &[1 << 20])).is_empty());
    let alone = rows(Engine::Local, link, &[1 << 10, 1 << 20]).into_iter().map(|row| Row { ranks: 1, ..row });
    assert!(models(&alone.collect::<Vec<_>>()).is_empty());
}

#[test]
fn neither_part_is_negative() {
    assert_eq!(solve(&[(1e6, 1e3), (1e6, 1e5)]).1, 1e-15);
    let (alpha, beta) = solve(&[(1e6, 1e9), (1e3, 5e8)]);
    assert!(alpha == 0.0 && beta > 0.0, "{alpha} {beta}");
}

#[test]
fn the_root_of_a_direct_broadcast_sends_to_all() {
    let row = &rows(Engine::Local, Link { latency: Duration::ZERO, bandwidth: 1e9 }, &[400, 800])[4];
    assert_eq!((row.sent(Algorithm::Direct), row.sent(Algorithm::Ring)), (1200.0, 400.0));
}
