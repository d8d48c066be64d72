//! DDP: everything replicated, gradients all-reduced in buckets.
