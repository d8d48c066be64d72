//! The settings of a run: the command line, checked and completed to a [`Config`], and what its
//! flags name: the text to learn, a link, GPUs, this process's place according to the launcher.

pub mod cli;
pub mod communication;
pub mod config;
pub mod corpus;
pub mod data;
mod error;
pub mod fault;
pub mod file;
pub mod findings;
pub mod float_type;
mod given;
mod groups;
pub mod hardware;
pub mod labels;
pub mod launcher;
pub mod link;
pub mod lr_schedule;
pub mod machine;
pub mod offload;
pub mod planned;
pub mod precision;
pub mod process;
pub mod secret;
pub mod size;

pub use cli::GradSync;
pub use communication::Communication;
pub use config::Config;
pub use error::{Failure, Result};
pub use given::{Given, flag_name};
pub use link::LinkChoice;
pub use lr_schedule::LrSchedule;
pub use offload::OffloadArgs;
