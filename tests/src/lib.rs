//! Tests across crates: the stage contract, memory tables, faults, the architecture's invariants.
