//! Terminal visualizer: live, attached to a run, or replaying a recording.

#![forbid(unsafe_code)]

pub mod app;
pub mod export;
pub mod input;
pub mod narration;
pub mod overlap;
pub mod player;
pub mod simulate;
pub mod theme;
pub mod timeline;
pub mod view;
pub mod window;
pub mod words;

pub use app::View;
