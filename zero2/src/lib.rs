//! ZeRO-2: gradients sharded too.
