//! Published tables of model states and traffic, recomputed.

use events::Operation;
use model::ModelConfig;
use planner::estimators::{EstimatedOffload, comparison, largest_layer, zero2_gpu, zero3_gpu};
use planner::report::{Report, Request, Subject};
use planner::{paper, sweeps};
use prediction::closed::{Sweeps, bus_bandwidth_factor};
use prediction::{Job, Recipe, Stage};
use shell::table::Format;

const BILLION: u64 = 1_000_000_000;

fn request(parameters: u64, gpus: usize, recipe: Recipe) -> Request {
    let job = Job { recipe, ..Job::new(ModelConfig::tiny(), Stage::Zero3, gpus) };
    let subject = Subject::Parameters { count: parameters, activations: 0 };
    Request { subject, job, gpus_per_node: 8, timing: None }
}

fn report(request: &Request) -> Report {
    Report::new(request).unwrap()
}

/// Returns the model states per stage, in the unit of the recipe's source, rounded to `decimals`.
fn states(parameters: u64, gpus: usize, recipe: Recipe, decimals: i32) -> [f64; 4] {
    let scale = 10f64.powi(decimals);
    Stage::ALL.map(|stage| {
        let bytes = recipe.model_states(&[parameters], gpus, stage).total() as f64;
        (bytes / recipe.unit.bytes() * scale).round() / scale
    })
}

#[test]
fn mixed_7b_on_4() {
    assert_eq!(states(7 * BILLION, 4, Recipe::MIXED, 2), [112.0, 49.0, 38.5, 28.0]);
    let report = report(&request(7 * BILLION, 4, Recipe::MIXED));
    let ddp = report.stages[0].model_states;
    let split = [ddp.weights, ddp.gradients, ddp.master, ddp.momentum, ddp.variance];
    assert_eq!(split, [14, 14, 28, 28, 28].map(|gb| gb * BILLION));
    let fits =
        |capacity: usize| report.stages.iter().map(|stage| stage.fits[capacity].fits).collect::<Vec<_>>();
    assert_eq!(fits(1), [false, false, true, true], "40 GB");
    assert_eq!(fits(2), [false, true, true, true], "80 GB");
    insta::assert_snapshot!(report.render(Format::Terminal));
}

#[test]
fn fp32_7b() {
    assert_eq!(states(7 * BILLION, 8, Recipe::FP32, 2), [112.0, 63.0, 38.5, 14.0]);
    assert_eq!(states(7 * BILLION, 4, Recipe::FP32, 2), [112.0, 70.0, 49.0, 28.0]);
    let tables = [8, 4].map(|gpus| report(&request(7 * BILLION, gpus, Recipe::FP32)).memory());
    insta::assert_snapshot!(tables.map(|table| table.render(Format::Terminal)).join("\n"));
}

#[test]
fn mixed_fp32_grads_7b_with_activations() {
    let subject = Subject::Parameters { count: 7 * BILLION, activations: 10 * BILLION };
    let report = report(&Request { subject, ..request(7 * BILLION, 4, Recipe::MIXED_FP32_GRADIENTS) });
    let totals = report.stages.iter().map(|stage| stage.total as f64 / 1e9).collect::<Vec<_>>();
    assert_eq!([totals[0], totals[2], totals[3]], [108.0, 45.0, 34.5]);
    let whole_model_gathered = totals[3] + 2.0 * 7.0;
    assert_eq!(whole_model_gathered, 48.5);
    insta::assert_snapshot!(report.memory().render(Format::Terminal));
}

#[test]
fn no_master_7b() {
    assert_eq!(states(7 * BILLION, 4, Recipe::NO_MASTER, 2), [84.0, 42.0, 31.5, 21.0]);
    insta::assert_snapshot!(
        report(&request(7 * BILLION, 4, Recipe::NO_MASTER)).memory().render(Format::Terminal)
    );
}

#[test]
fn notebook_13b_on_8() {
    let [_, one, two, three] = states(13 * BILLION, 8, Recipe::NOTEBOOK, 2);
    assert_eq!([one, two, three], [108.96, 87.78, 24.21]);
    let [_, one, two, three] = states(13 * BILLION, 8, Recipe::MIXED, 2);
    assert_eq!([one, two, three], [71.5, 48.75, 26.0]);
    let tables = [Recipe::NOTEBOOK, Recipe::MIXED].map(|recipe| report(&request(13 * BILLION, 8, recipe)));
    insta::assert_snapshot!(tables.map(|report| report.memory().render(Format::Terminal)).join("\n"));
}

#[test]
fn the_papers_table_1() {
    assert_eq!(states(7_500_000_000, 64, Recipe::MIXED, 1)[..3], [120.0, 31.4, 16.6]);
    assert_eq!(states(7_500_000_000, 64, Recipe::MIXED, 2)[3], 1.88);
    // Every entry as the paper prints it: it rounds some entries and truncates others.
    let printed: [[[f64; 6]; 3]; 3] = [
        [
            [120.0, 52.5, 35.6, 31.4, 30.4, 30.1],
            [120.0, 41.3, 21.6, 16.6, 15.4, 15.1],
            [120.0, 30.0, 7.5, 1.88, 0.47, 0.12],
        ],
        [
            [2048.0, 896.0, 608.0, 536.0, 518.0, 513.0],
            [2048.0, 704.0, 368.0, 284.0, 263.0, 257.0],
            [2048.0, 512.0, 128.0, 32.0, 8.0, 2.0],
        ],
        [
            [16000.0, 7000.0, 4750.0, 4187.0, 4046.0, 4011.0],
            [16000.0, 5500.0, 2875.0, 2218.0, 2054.0, 2013.0],
            [16000.0, 4000.0, 1000.0, 250.0, 62.5, 15.6],
        ],
    ];
    for (parameters, stages) in paper::PARAMETERS.into_iter().zip(printed) {
        for (stage, row) in [Stage::Zero1, Stage::Zero2, Stage::Zero3].into_iter().zip(stages) {
            for (gpus, printed) in paper::GPUS.into_iter().zip(row) {
                let computed = Recipe::MIXED.gigabytes(parameters, gpus, stage);
                let last_digit = if printed >= 100.0 { 1.0 } else { (0.1 * printed).min(0.1) };
                assert!(
                    (computed - printed).abs() < last_digit,
                    "{stage}, {gpus} GPUs: {computed}, {printed}"
                );
            }
        }
    }
    insta::assert_snapshot!(paper::table_1().render(Format::Terminal));
}

/// The general formulas, for a count that every N divides.
#[test]
fn the_papers_formulas() {
    for (parameters, n) in [(1u64 << 30, 1u64), (1 << 30, 16), (3 << 20, 64)] {
        let total = |stage| Recipe::MIXED.model_states(&[parameters], n as usize, stage).total();
        let psi = parameters;
        let closed = [16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n, 16 * psi / n];
        assert_eq!(Stage::ALL.map(total), closed);
    }
    let mut table = String::from("bytes per parameter, mixed\n");
    for (gpus, stage) in [1, 2, 4, 8, 64, 1024].iter().flat_map(|&n| Stage::ALL.map(|stage| (n, stage))) {
        let bytes = Recipe::MIXED.model_states(&[1 << 30], gpus, stage).total() as f64 / (1u64 << 30) as f64;
        table.push_str(&format!("N = {gpus:<5} {stage:<7} {bytes:>9.5}\n"));
    }
    insta::assert_snapshot!(table);
}

/// 7B in 16 bits on 4 GPUs without offloading: 14 + 31.5 GB and 4L + 31.5 GB.
#[test]
fn deepspeeds_estimators() {
    let (parameters, layer) = (7 * BILLION, 131_072_000);
    let (none, optimizer, both) =
        (EstimatedOffload::None, EstimatedOffload::Optimizer, EstimatedOffload::OptimizerAndParameters);
    assert_eq!(zero2_gpu(parameters, 4, none), 45_500_000_000);
    assert_eq!(zero2_gpu(parameters, 4, optimizer), 14_000_000_000);
    assert_eq!(zero3_gpu(parameters, layer, 4, none), 32_024_288_000);
    assert_eq!(zero3_gpu(parameters, layer, 4, optimizer), 4_024_288_000);
    assert_eq!(zero3_gpu(parameters, layer, 4, both), 524_288_000);
    let config = model::ModelConfig::preset("llama2-7b").unwrap();
    assert_eq!(largest_layer(&model::Layout::new(&config)), layer);
    // DeepSpeed's documentation: T5-large on 4 GPUs, in MiB.
    let mib = [none, both, optimizer].map(|offload| zero3_gpu(737_670_000, 32_900_000, 4, offload) >> 20);
    assert_eq!(mib, [3291, 125, 477]);
    insta::assert_snapshot!(comparison(parameters, layer, 4).render(Format::Terminal));
}

#[test]
fn sweeps_per_step() {
    for m in [1, 4, 8] {
        let total = |stage, textbook| Sweeps::of(stage, m, textbook).total();
        assert_eq!(Stage::ALL.map(|stage| total(stage, false)), [2, 2, m + 1, 3 * m]);
        assert_eq!(total(Stage::Zero1, true), 3);
    }
    insta::assert_snapshot!(sweeps::table(&[1, 2, 4, 8]).render(Format::Terminal));
}

/// Bytes follow from sweeps, dtype and (N−1)/N: 7B in mixed precision on 8 GPUs.
#[test]
fn bytes_per_step() {
    let bytes = |stage, textbook| {
        let traffic = Sweeps::of(stage, 1, textbook).traffic(7 * BILLION, 8, stage, &Recipe::MIXED);
        traffic.payload_bytes() as f64 / 1e9
    };
    assert_eq!(Stage::ALL.map(|stage| bytes(stage, false)), [24.5, 24.5, 24.5, 36.75]);
    assert_eq!(bytes(Stage::Zero1, true), 36.75);
    let rows = Stage::ALL.map(|stage| format!("{stage}: {} GB\n", bytes(stage, false))).concat();
    insta::assert_snapshot!(format!("{rows}ZeRO-1, textbook: {} GB", bytes(Stage::Zero1, true)));
}

#[test]
fn bus_bandwidth() {
    for n in [2, 4, 8] {
        let share = (n - 1) as f64 / n as f64;
        assert_eq!(bus_bandwidth_factor(Operation::AllReduce, n), 2.0 * share);
        assert_eq!(bus_bandwidth_factor(Operation::ReduceScatter, n), share);
        assert_eq!(bus_bandwidth_factor(Operation::AllGather, n), share);
    }
    let factors = |operation: Operation| {
        let of = |n| format!("  {:.4} on {n}", bus_bandwidth_factor(operation, n));
        format!("{:<14}{}\n", operation.label(), [2, 3, 4, 8].map(of).concat())
    };
    let operations = [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];
    insta::assert_snapshot!(operations.map(factors).concat());
}
