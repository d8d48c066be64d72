//! Process groups of ranks that are threads.

use crate::config::Config;
use collectives::Group;
use collectives::local::{self, Options, World};
use planner::Algorithm;

/// Returns each rank's end of the world's process group.
pub fn groups(config: &Config) -> Vec<Group> {
    let link = config.link.as_ref().map(|choice| choice.link);
    World::new(
        config.world_size as u32,
        Options { timeout: config.timeout, algorithm: local(config.algorithm), link },
    )
}

/// Returns the collectives' algorithm of the same name.
pub fn local(algorithm: Algorithm) -> local::Algorithm {
    match algorithm {
        Algorithm::Direct => local::Algorithm::Direct,
        Algorithm::Ring => local::Algorithm::Ring,
    }
}
