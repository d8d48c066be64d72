//! The terminal visualizer. It shows a run in this process, a run in another process, or a
//! recording.

#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
/// Writes pictures and traces of runs for other programs.
pub mod export {
    pub mod asciicast;
    pub mod svg;
    pub mod trace;
}
pub mod failure;
pub mod gaps;
pub mod groups;
pub mod input;
pub mod narration;
pub mod open;
pub mod overlap;
pub mod places;
pub mod player;
pub mod ranking;
pub mod terminal;
pub mod theme;
pub mod timeline;
pub mod ui;
pub mod view;
pub mod window;
pub mod words;

pub use app::Departure;
pub use input::View;
pub use open::{DisplayOptions, LiveOptions, attached, live, recorded};
pub use terminal::terminal_available;
pub use ui::VizError;
