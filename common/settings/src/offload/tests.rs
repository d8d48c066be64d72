//! The settings that the flags of offload result in, and the combinations that are refused.

use super::*;
use crate::cli::Cli;
use crate::config::Config;
use crate::planned::job;
use clap::Parser;
use prediction::{Placement, Saving, Stage};

fn config(flags: &str) -> Result<Config> {
    let words = ["zero", "--device", "cpu"].into_iter().chain(flags.split_whitespace());
    Config::new(Cli::try_parse_from(words).map_err(Failure::usage)?.train)
}

#[test]
fn flags_mean_what_they_say() {
    let on_the_device = OffloadArgs {
        optimizer: Place::Device,
        parameters: Place::Device,
        activations: Place::Device,
        buffers: None,
        directory: None,
        host_link: None,
        disk_link: None,
    };
    assert_eq!(config("").unwrap().offload, on_the_device);
    let config = config(
        "--offload-optimizer disk --offload-parameters cpu --offload-activations cpu \
         --checkpoint-activations block --offload-dir some/where --offload-buffers 5 --host-memory 1GB \
         --host-link pcie4 --disk-link 100us,3GB/s",
    );
    let Config { offload, memory, .. } = config.unwrap();
    assert_eq!(
        (offload.optimizer, offload.parameters, offload.activations),
        (Place::Disk, Place::Host, Place::Host)
    );
    assert_eq!((offload.buffers, memory.host_memory), (Some(5), Some(1_000_000_000)));
    assert_eq!(offload.directory, Some(PathBuf::from("some/where")));
    assert_eq!(offload.host_link.unwrap().link.bandwidth, 31.5e9);
    assert_eq!(offload.disk_link.unwrap().link.bandwidth, 3e9);
    assert!(!std::path::Path::new("some").exists(), "asking for a directory creates none");
}

#[test]
fn a_prediction_knows_what_rests_where() {
    let flags = "--offload-optimizer cpu --offload-parameters disk --offload-buffers 2 --sub-group-size 1000";
    let mut config = config(flags).unwrap();
    let placement = job(Stage::Zero3, &config).placement;
    let expected = Placement {
        optimizer: Place::Host,
        parameters: Place::Disk,
        activations: Place::Device,
        buffers: Some(2),
        sub_group_size: Some(1000),
        gathers_states: true,
        saving: Saving::Never,
    };
    assert_eq!(placement, expected);
    config.hashed = false;
    assert!(!job(Stage::Zero3, &config).placement.gathers_states);
}

#[test]
fn combinations_that_make_no_sense_are_refused_with_the_remedy() {
    let block = "--checkpoint-activations block";
    for (flags, named) in [
        ("--offload-activations cpu", block),
        ("--offload-activations disk --checkpoint-activations selective", block),
        ("--offload-dir /tmp", "nothing is stored on disk"),
        ("--offload-dir /tmp --offload-optimizer cpu", "--offload-optimizer disk"),
        ("--offload-buffers 4", "--offload-optimizer cpu"),
        (
            "--offload-buffers 4 --offload-activations cpu --checkpoint-activations block",
            "nor parameters are offloaded",
        ),
        ("--host-link pcie4", "--offload-optimizer"),
        ("--disk-link 1us,1GB/s --offload-optimizer cpu", "leave --disk-link out"),
    ] {
        let failure = config(flags).unwrap_err();
        let (flag, _) = flags.split_once(' ').unwrap();
        assert_eq!(failure.code(), 2, "{flags}");
        let said = failure.to_string();
        assert!(said.contains(flag) && said.contains(named) && said.lines().count() <= 3, "{flags}: {said}");
    }
}

#[test]
fn gpus_have_real_ways_to_main_memory() {
    let offload = config("--offload-optimizer cpu --host-link pcie4").unwrap().offload;
    let said = offload.check_links(true).unwrap_err().to_string();
    assert!(said.contains("--host-link") && said.contains("--device cpu"), "{said}");
}
