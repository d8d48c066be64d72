//! ZeRO-3 (FSDP): parameters sharded too.
