//! The screen of the visualizer. It shows a run in this process, a run in another process, or a
//! recording.

#![forbid(unsafe_code)]

pub mod app;
pub mod failure;
pub mod fit;
pub mod gaps;
pub mod groups;
pub mod input;
pub mod intervals;
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
pub use ui::ScreenError;
