//! Flags to process groups.

use crate::config::Config;
use collectives::Group;
use collectives::local::{self, Options, World};
use planner::Algorithm;

/// One end of the world's process group per rank.
pub fn groups(config: &Config) -> Vec<Group> {
    let link = config.link.as_ref().map(|choice| choice.link);
    World::new(
        config.world_size as u32,
        Options { timeout: config.timeout, algorithm: local(config.algorithm), link },
    )
}

/// What the planner calls by the same name.
pub fn local(algorithm: Algorithm) -> local::Algorithm {
    match algorithm {
        Algorithm::Direct => local::Algorithm::Direct,
        Algorithm::Ring => local::Algorithm::Ring,
    }
}
