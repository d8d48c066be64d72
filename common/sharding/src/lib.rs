//! What stages are built from: partition, buckets, gather window, AdamW on a shard, norm clipping.
