//! What holds across crates, of runs whose ranks are threads on the CPU.

mod architecture;
mod chaos;
mod configurations;
mod contract;
mod documents;
mod ending;
mod evaluation;
mod explanations;
mod families;
mod faults;
mod knobs;
mod learning;
mod memory_tables;
mod offload;
mod out_of_memory;
mod peers;
mod precision;
mod properties;
mod recompute;
mod recording;
mod remedies;
mod resuming;
mod saves;
mod saving;
mod strategies;
mod watching;
