//! Tests across crates, of runs whose ranks are threads on the CPU.

/// The flags of a run of `fixtures/odd.json`, whose units do not divide evenly.
macro_rules! of_odd {
    ($flags:literal) => {
        concat!("--model ", env!("CARGO_MANIFEST_DIR"), "/fixtures/odd.json ", $flags)
    };
}

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
mod model_files;
mod offload;
mod out_of_memory;
mod peers;
mod precision;
mod predicted_runs;
mod predicted_waits;
mod properties;
mod recompute;
mod recording;
mod remedies;
mod resuming;
mod saves;
mod saving;
mod strategies;
mod threads;
mod watching;

/// Returns the flags after the model's, for a run of another model.
fn without_model(flags: &str) -> &str {
    flags.split_once(".json ").expect("they begin with the model").1
}
