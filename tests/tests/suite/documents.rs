//! The programs accept the commands that documents tell their readers to type. The book's own
//! program and `bandwidth` are covered by their own tests.

use clap::CommandFactory;
use std::collections::BTreeSet;
use tests::documents::{Command, commands, understood};

/// Programs whose flags are parsed elsewhere.
const ELSEWHERE: [&str; 2] = ["tutorials", "bandwidth"];

/// Checks whether the program's command line accepts the command.
fn taken(Command { place, program, arguments }: &Command) -> Result<(), String> {
    let command = match program.as_str() {
        "planner" => planner::cli::command(),
        "viz" => viz::cli::Cli::command(),
        stage if stages::named(stage).is_some() => settings::cli::Cli::command(),
        _ if arguments.is_empty() || ELSEWHERE.contains(&program.as_str()) => return Ok(()),
        other => return Err(format!("{place}: nothing here knows the flags of {other}")),
    };
    let words = [program].into_iter().chain(arguments);
    match command.try_get_matches_from(words) {
        Err(error) if error.use_stderr() => {
            Err(format!("{place}: {program} {}\n{error}", arguments.join(" ")))
        }
        _ => Ok(()),
    }
}

#[test]
fn every_command_in_a_document_is_taken() {
    let commands = commands();
    let refused: Vec<String> = commands.iter().filter_map(|command| taken(command).err()).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let programs: BTreeSet<&str> = commands.iter().map(|command| command.program.as_str()).collect();
    for program in ["zero0-ddp", "zero1", "zero2", "zero3", "planner", "viz", "tutorials", "bandwidth"] {
        assert!(programs.contains(program), "no document names {program}: {programs:?}");
    }
    let places: BTreeSet<&str> = commands.iter().map(|command| command.place.as_str()).collect();
    for place in ["README.md", "launching.md", "gpu.md", "03-ddp.md", "14-when-it-goes-wrong.md"] {
        assert!(places.contains(place), "{place} has no command: {places:?}");
    }
}

#[test]
fn what_is_not_there_is_named() {
    for (line, word) in [
        ("cargo run -p zero9 -- --gpus 4", "zero9"),
        ("cargo run -p tests --bin gpu-cheque", "gpu-cheque"),
        ("cargo run -p zero3 --quick", "--quick"),
        ("cargo build -p bandwidth --features mpeg", "mpeg"),
        ("cargo test -p tests --test nothing", "nothing"),
        ("scripts/launch/rockets 4 zero3", "rockets"),
        ("cat tutorials/examples/zero9.json", "zero9.json"),
        ("mpirun -n 4 ls", "no program"),
        ("rm zero3", "rm"),
    ] {
        assert!(understood(line).expect_err(line).contains(word), "{line}");
    }
    let call =
        understood("A=\"b c\" scripts/launch/torchrun 4 zero3 --prompt \"two words\"").unwrap().unwrap();
    assert_eq!(call, ("zero3".into(), vec!["--prompt".into(), "two words".into()]));
    let command = |arguments: &[&str]| Command {
        place: "here".into(),
        program: "zero3".into(),
        arguments: arguments.iter().map(|word| word.to_string()).collect(),
    };
    assert_eq!(taken(&command(&["--gpus", "4"])), Ok(()));
    assert!(taken(&command(&["--gpu", "4"])).unwrap_err().contains("--gpu"));
    assert!(taken(&command(&["--gpus", "many"])).unwrap_err().contains("many"));
}
