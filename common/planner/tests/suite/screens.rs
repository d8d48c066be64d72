//! The program's printed tables.

use events::Place;
use events::say::grouped;
use planner::cli::run;
use planner::numbers::in_words;
use serde_json::Value;
use shell::table::{Format, Table};

fn output(arguments: &str) -> String {
    let arguments = std::iter::once("planner").chain(arguments.split_whitespace());
    match run(arguments) {
        Ok(text) => text,
        Err(error) => format!("{error}(exit status {})\n", error.exit_code()),
    }
}

/// A change that the planner has a flag for leads to the peak that it promises.
#[test]
fn what_makes_zero3_fit_does() {
    let json =
        |arguments: &str| serde_json::from_str::<Value>(&output(&format!("{arguments} --json"))).unwrap();
    for job in ["--model llama2-7b --gpus 4", "--model llama3-70b --gpus 8"] {
        let report = json(job);
        let fits = report["to_fit"].as_array().unwrap();
        assert!(!fits.is_empty(), "{job}");
        for fit in fits {
            let (capacity, change) = (fit["capacity"].as_u64().unwrap(), &fit["changes"][0]);
            let how: Vec<&str> = change["how"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
            let total = change["total"].as_u64().unwrap();
            assert!(total <= capacity, "{job}: {fit}");
            let changed = json(&format!("{job} {}", how.join(" ")));
            assert_eq!(changed["stages"][3]["total"], total, "{job}: {fit}");
        }
    }
    assert_eq!(json("--model llama2-7b --gpus 4 --recipe notebook")["to_fit"], Value::Null, "no run has it");
}

/// Elements do not depend on their types.
#[test]
fn elements_sent_are_the_same_in_every_recipe() {
    let sent = |recipe: &str| {
        let sharding = "--strategy hybrid-shard --shard-group-size 4";
        let text = output(&format!("--model tiny --gpus 8 --recipe {recipe} {sharding}"));
        text.lines().find(|line| line.contains("Ψ(N")).unwrap().to_owned()
    };
    assert_eq!(sent("mixed"), sent("fp32"));
}

#[test]
fn a_number_is_never_cut() {
    for columns in 1..=6 {
        for digits in 1..=15 {
            let number = grouped(10_u64.pow(digits) - 1);
            let mut table = Table::numbers("sent, bytes per rank", 1..=columns);
            table.row("reduce-scatter", vec![&number; columns]);
            let screen = table.render(Format::Terminal);
            assert_eq!(screen.matches(&number).count(), columns, "{screen}");
        }
    }
}

#[test]
fn counts_in_words_have_at_most_three_digits_before_the_point() {
    for (count, words) in [
        (999_999, "999,999"),
        (1_000_000, "1 million"),
        (994_999_999, "995 million"),
        (999_994_999, "999.99 million"),
        (999_999_999, "1 billion"),
        (999_999_999_999, "1 trillion"),
    ] {
        assert_eq!(in_words(count), words);
    }
}

#[test]
fn a_name_gives_way_to_numbers() {
    let mut table = Table::numbers("the run before: bytes", ["sent", "predicted", "received", "calls"]);
    table.row("all-gather", vec!["1,623,974,400"; 4]);
    let screen = table.render(Format::Terminal);
    assert_eq!(screen.lines().count(), 3, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
}

#[test]
fn a_model() {
    insta::assert_snapshot!(output("--model llama2-7b --gpus 4"));
}

#[test]
fn a_model_that_computes_its_blocks_again() {
    insta::assert_snapshot!(output("--model llama2-7b --gpus 4 --checkpoint-activations block"));
}

#[test]
fn a_model_that_computes_again_what_is_cheap() {
    insta::assert_snapshot!(output("--model llama2-7b --gpus 4 --checkpoint-activations selective"));
}

#[test]
fn a_small_model_in_fp32_with_accumulation() {
    insta::assert_snapshot!(output("--model tiny --gpus 4 --recipe fp32 --grad-accum 4 --estimators"));
}

#[test]
fn the_textbooks_zero1() {
    insta::assert_snapshot!(output("--params 7e9 --gpus 8 --recipe fp32 --grad-sync all-reduce"));
}

#[test]
fn one_gpu_sends_nothing() {
    insta::assert_snapshot!(output("--params 135M"));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(output("--model smollm2-135m --gpus 8 --markdown"));
}

#[test]
fn json_has_whole_bytes() {
    let text = output("--model tiny --gpus 4 --recipe fp32 --json");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["parameters"], 918_656);
    assert_eq!(value["stages"][3]["stage"], "zero3");
    assert_eq!(value["stages"][3]["model_states"]["weights"], 918_656);
    assert_eq!(value["stages"][0]["traffic_per_step"]["all_reduce"]["bytes"], 2 * 3 * 918_656);
    insta::assert_snapshot!(text);
}

#[test]
fn claims_as_json_carry_their_numbers() {
    let value: serde_json::Value = serde_json::from_str(&output("--claims --json")).unwrap();
    assert_eq!(value[0]["source"], "guide");
    assert_eq!(value[0]["numbers"].as_array().unwrap().len(), 3);
}

#[test]
fn no_screen_is_wider_than_100_columns() {
    let screens = [
        "--model llama3-70b --gpus 64",
        "--model llama3-70b --gpus 64 --offload-optimizer disk",
        "--claims",
        "--params 1T --gpus 1024",
        "--help",
    ];
    for screen in screens {
        for line in output(screen).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn groups_of_neighbours() {
    let hybrid = output("--model tiny --gpus 8 --recipe fp32 --strategy hybrid-shard --shard-group-size 4");
    let secondary = output("--model tiny --gpus 8 --recipe fp32 --secondary-shard-size 4");
    insta::assert_snapshot!([hybrid, secondary].join("\n"));
}

/// Neighbours get no more than there is: all of it if they are all ranks.
#[test]
fn what_goes_to_neighbours_is_a_part() {
    let screen = output("--model tiny --gpus 4 --strategy hybrid-shard");
    let last = |row: &str| {
        let line = screen.lines().find(|line| line.starts_with(row)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(last("of that to neighbours"), last("= together"), "{screen}");
}

/// ZeRO-3 sends a little less than 3 only where it gathers for backward again.
#[test]
fn the_note_on_three_sweeps_is_for_full_sharding() {
    let noted = |flags: &str| output(&format!("--model tiny {flags}")).contains("a little less than 3");
    assert!(noted("--gpus 4") && noted("--gpus 4 --grad-accum 3"));
    for flags in ["--gpus 1", "--gpus 4 --strategy shard-grad-op", "--gpus 4 --wrap model"] {
        assert!(!noted(flags), "{flags}");
    }
}

/// The remedies for a model on a GPU that is too small for it.
#[test]
fn what_would_help() {
    let config = model::ModelConfig::preset("llama2-7b").unwrap();
    let room = prediction::Room::of(Place::Device, 24_000_000_000, prediction::Limits::default());
    let remedies = prediction::remedies(room, &prediction::Job::new(config, prediction::Stage::Zero2, 8));
    let rows = remedies
        .alone
        .iter()
        .map(|r| format!("{:<58} {:>12} {:>12} {:>12}", r.how, r.saves, r.total_peak, r.moves));
    let together = format!("together: {:?}", remedies.together);
    insta::assert_snapshot!(rows.chain([together]).collect::<Vec<_>>().join("\n"));
}

/// Where ranks share one memory, neither more ranks nor main memory is a remedy; all others stay.
#[test]
fn what_would_help_ranks_that_share_one_memory() {
    let config = model::ModelConfig::preset("llama2-7b").unwrap();
    let job = prediction::Job::new(config, prediction::Stage::Zero2, 8);
    let names = |remedies: prediction::Remedies| remedies.alone.into_iter().map(|remedy| remedy.how);
    let elsewhere = ["--gpus 16", "--offload-optimizer cpu"];
    let alone = prediction::Room::of(Place::Device, 0, prediction::Limits::default());
    let within = names(prediction::remedies(alone, &job)).filter(|how| !elsewhere.contains(&how.as_str()));
    let shared =
        names(prediction::remedies(prediction::Room::shared(0, prediction::Limits::default()), &job));
    assert_eq!(shared.collect::<Vec<_>>(), within.collect::<Vec<_>>());
}

#[test]
fn states_beyond_the_device() {
    let optimizer = output("--model llama3-70b --gpus 8 --gpus-per-node 8 --offload-optimizer cpu");
    let everything = output(
        "--model llama3-70b --gpus 16 --offload-optimizer disk --offload-parameters cpu \
         --offload-activations disk --checkpoint-activations block",
    );
    let count = output("--params 13e9 --offload-optimizer cpu --grad-accum 2");
    insta::assert_snapshot!([optimizer, everything, count].join("\n"));
}

/// 16 Ψ in fp32 on two machines of 3 GPUs and the rest: the bytes in each place, per GPU and
/// machine.
#[test]
fn places_as_json() {
    let text = output(
        "--params 300e6 --gpus 5 --gpus-per-node 3 --recipe fp32 --offload-optimizer disk \
         --offload-parameters cpu --json",
    );
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["offload"]["optimizer"], "disk");
    assert_eq!(value["offload"]["gpus_per_node"], 3);
    let zero3 = &value["stages"][3];
    assert_eq!(zero3["model_states"]["weights"], 0);
    assert_eq!(zero3["model_states"]["gradients"], 240_000_000);
    let [host, disk] = [&zero3["beyond"][0], &zero3["beyond"][1]];
    assert_eq!((&host["place"], &host["total"]), (&"host".into(), &240_000_000.into()));
    // 60,000,000 elements in 14 pieces of 4,194,304, whole pages each, and one of 1,279,744.
    let state = 14 * 4 * 4_194_304 + 4 * 1_279_744_u64.next_multiple_of(1024);
    assert_eq!((&disk["place"], &disk["total"]), (&"disk".into(), &(3 * state).into()));
    assert_eq!(disk["per_machine"], 3 * 3 * state);
    let moved = &zero3["transfers_per_step"];
    assert_eq!(moved["disk_to_host"]["bytes"], 3 * state);
    assert_eq!(moved["host_to_device"]["bytes"], 2 * 240_000_000, "in either pass");
}

#[test]
fn mistakes() {
    let mistakes = [
        "--gpus 4",
        "--model llama-7b --gpus 4",
        "--model llama2-7b --gpus 0",
        "--params seven --gpus 4",
        "--params 0 --gpus 4",
        "--params 7e9 --recipe fp8",
        "--params 7e9 --batch-size 4",
        "--model tiny --gpus 10000000",
        "--model tiny --activations 10e9",
        "--params 7e9 --model tiny",
        "--model tiny --batch-size 99999999999999",
        "--model tiny --batch-size 4294967295 --seq-len 4294967295",
        "--model tiny --json --markdown",
        "--model tiny --wrap layer",
        "--params 7e9 --wrap model",
        "--params 7e9 --strategy shard-grad-op",
        "--model tiny --strategy no-shard",
        "--model tiny --gpus 4 --shard-group-size 2",
        "--model tiny --gpus 4 --strategy hybrid-shard --shard-group-size 3",
        "--model tiny --gpus 4 --secondary-shard-size 8",
        "--model tiny --offload-optimizer nvme",
        "--model tiny --offload-activations cpu",
        "--params 7e9 --offload-activations disk",
        "--model tiny --offload-optimizer cpu --offload-buffers 0",
        "--model tiny --offload-optimizer cpu --offload-buffers 17",
        "--model tiny --offload-buffers 4",
        "--params 1e15 --gpus 4096 --gpus-per-node 4096 --offload-optimizer cpu",
    ];
    let screens = mistakes.map(|mistake| {
        let screen = output(mistake);
        assert!(screen.ends_with("(exit status 2)\n"), "{mistake}");
        format!("$ planner {mistake}\n{screen}")
    });
    insta::assert_snapshot!(screens.join("\n"));
}
