//! Flags to process groups.

use crate::cli::AlgorithmChoice;
use crate::config::Config;
use collectives::Group;
use collectives::local::{Algorithm, Options, World};

/// One end of the world's process group per rank.
pub(crate) fn groups(config: &Config) -> Vec<Group> {
    let algorithm = match config.algorithm {
        AlgorithmChoice::Direct => Algorithm::Direct,
        AlgorithmChoice::Ring => Algorithm::Ring,
    };
    let link = config.link.as_ref().map(|choice| choice.link);
    World::new(config.world_size as u32, Options { timeout: config.timeout, algorithm, link })
}
