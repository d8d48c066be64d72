//! Checks this exercise.

use exercises::shard_norm::check;

exercises::program!(check::<shard_norm::Zero1>(shard_norm::norm), check::<solution::Zero1>(solution::norm));
