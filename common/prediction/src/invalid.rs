//! Jobs that no run can have.

use crate::job::Job;
use crate::placement::Placement;
use events::Place;
use model::Checkpointing;
use thiserror::Error;

/// Maximum number of ranks, and of micro-batches per step, that a prediction counts one by one.
pub const MOST: usize = 1 << 16;

/// A job that no run can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidJob {
    /// A count is zero.
    #[error("{name} is 0: give at least 1")]
    Zero {
        /// The count's name.
        name: &'static str,
    },
    /// There are more ranks than [`MOST`].
    #[error("world size is {0}: give at most {MOST}")]
    TooManyRanks(usize),
    /// There are more micro-batches per step than [`MOST`].
    #[error("micro-batches per step is {0}: give at most {MOST}")]
    TooManyMicroBatches(usize),
    /// Groups of neighbours that do not cover the ranks evenly.
    #[error("the {name} size is {size}: give a size that divides the {ranks} ranks")]
    Group {
        /// The kind of group.
        name: &'static str,
        /// The size.
        size: usize,
        /// The ranks.
        ranks: usize,
    },
    /// A kind of state that cannot be offloaded.
    #[error("{what} cannot be offloaded: {remedy}")]
    Placement {
        /// The kind of state.
        what: &'static str,
        /// The setting under which it can be.
        remedy: &'static str,
    },
    /// Bytes do not fit into 64 bits.
    #[error("memory or traffic could reach {exabytes} EB, beyond any machine: give a smaller batch or model")]
    TooLarge {
        /// Rough size, in units of 10¹⁸ bytes.
        exabytes: u64,
    },
}

impl Job {
    /// Refuses sizes of groups that do not divide the number of ranks.
    fn check_groups(&self) -> Result<(), InvalidJob> {
        let groups = [("shard group", self.shard_group), ("secondary shard", self.secondary_shards)];
        for (name, size) in groups {
            let size = size.unwrap_or(1);
            if size == 0 || !self.world_size.is_multiple_of(size) {
                return Err(InvalidJob::Group { name, size, ranks: self.world_size });
            }
        }
        Ok(())
    }

    /// Refuses a placement of parameters or activations that the job cannot offload.
    fn check_placement(&self) -> Result<(), InvalidJob> {
        let Placement { parameters, activations, buffers, sub_group_size, .. } = self.placement;
        for (name, count) in [
            ("staging buffers", buffers.unwrap_or(1)),
            ("elements per sub-group", sub_group_size.unwrap_or(1)),
        ] {
            if count == 0 {
                return Err(InvalidJob::Zero { name });
            }
        }
        let check = |place: Place, what, remedy, allowed: bool| match place {
            Place::Host | Place::Disk if !allowed => Err(InvalidJob::Placement { what, remedy }),
            _ => Ok(()),
        };
        let sharded = self.stage.sharded().parameters;
        check(parameters, "parameters that are not sharded", "choose ZeRO-3", sharded)?;
        let inputs_alone = self.checkpointing == Checkpointing::Block;
        check(activations, "all activations that blocks keep", "choose checkpointing of blocks", inputs_alone)
    }

    /// Refuses jobs that no run can have.
    ///
    /// # Errors
    /// [`InvalidJob::Zero`] if a count is 0, [`InvalidJob::TooManyRanks`] or
    /// [`InvalidJob::TooManyMicroBatches`] beyond [`MOST`], [`InvalidJob::Group`] if groups do not
    /// divide the world, [`InvalidJob::Placement`] if parameters or activations cannot be
    /// offloaded, [`InvalidJob::TooLarge`] if bytes could overflow.
    pub fn validate(&self) -> Result<(), InvalidJob> {
        let c = &self.config;
        check_counts(self.world_size, self.micro_batches)?;
        self.check_groups()?;
        self.check_placement()?;
        let counts = [
            ("batch size", self.batch_size),
            ("tokens per sequence", self.tokens),
            ("vocabulary", c.vocabulary),
            ("width", c.width),
            ("heads", c.heads),
            ("heads of keys and values", c.kv_heads),
            ("elements per head", c.head_dim),
            ("feed-forward width", c.feed_forward),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(InvalidJob::Zero { name });
        }
        check_bytes(self.rough_bytes())
    }

    /// Returns an upper estimate, in floating point, of any byte count in the prediction.
    fn rough_bytes(&self) -> f64 {
        let c = &self.config;
        let layers = c.layers as f64 + 1.0;
        let rows = self.batch_size as f64 * self.tokens as f64;
        let heads = (c.heads + 2 * c.kv_heads) as f64 * c.head_dim as f64;
        let row = 8.0 * (c.width as f64 + heads + 3.0 * c.feed_forward as f64 + c.heads as f64);
        let block = c.width as f64 * (2.0 * heads + 3.0 * c.feed_forward as f64 + 2.0);
        let parameters = layers * block + 2.0 * c.vocabulary as f64 * c.width as f64;
        let activations = rows * (layers * row + 8.0 * c.vocabulary as f64);
        let traffic = (parameters + layers * self.world_size as f64) * self.micro_batches as f64;
        // Of an offloaded state each piece takes whole pages, in both directions of every step, and
        // each fetch slot is as large as the largest unit.
        let units = 9.0 * layers + 2.0;
        let pages = (parameters / self.placement.sub_group_size() as f64 + units * self.micro_batches as f64)
            * 8.0
            * 4096.0;
        let buffers = self.placement.fetch_buffers().max(self.placement.update_buffers(u64::MAX));
        let slots = units.min(buffers as f64) * parameters;
        32.0 * (activations + traffic + slots + pages)
    }
}

/// Refuses counts of bytes that reach an exabyte.
///
/// # Errors
/// [`InvalidJob::TooLarge`].
pub fn check_bytes(bytes: f64) -> Result<(), InvalidJob> {
    let exabytes = (bytes / EXABYTE) as u64;
    if bytes < EXABYTE { Ok(()) } else { Err(InvalidJob::TooLarge { exabytes }) }
}

/// Refuses numbers of ranks and micro-batches that are 0 or beyond [`MOST`].
///
/// # Errors
/// What is refused.
pub fn check_counts(world_size: usize, micro_batches: usize) -> Result<(), InvalidJob> {
    match (world_size, micro_batches) {
        (0, _) => Err(InvalidJob::Zero { name: "world size" }),
        (_, 0) => Err(InvalidJob::Zero { name: "micro-batches per step" }),
        (ranks, _) if ranks > MOST => Err(InvalidJob::TooManyRanks(ranks)),
        (_, count) if count > MOST => Err(InvalidJob::TooManyMicroBatches(count)),
        _ => Ok(()),
    }
}

const EXABYTE: f64 = 1e18;
