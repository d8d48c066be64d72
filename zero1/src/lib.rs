//! ZeRO-1: optimizer states sharded.
