//! Writes a replay as an asciicast (version 2): the output to a terminal, with times.

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use screen::app::App;
use screen::input::Input;
use screen::player::Motion;
use screen::theme::Theme;
use screen::view;
use std::io;

const FRAMES_PER_SECOND: f64 = 10.0;

/// Plays `app` from its current position for `seconds`, at `speed` run seconds per second, and
/// returns the asciicast.
///
/// # Errors
/// None in practice: it writes only to memory.
pub fn render(
    mut app: App,
    theme: Theme,
    (width, height): (u16, u16),
    seconds: f64,
    speed: f64,
) -> io::Result<String> {
    crossterm::style::force_color_output(true);
    let title = format!("{} {}", app.player().scene().header.stage, app.view.label());
    let header = serde_json::json!({ "version": 2, "width": width, "height": height, "title": title });
    let mut out = format!("{header}\n");
    let mut shown = Buffer::empty(ratatui::layout::Rect { x: 0, y: 0, width, height });
    app.players[0].set_speed(speed);
    // Playing from the end would start at the beginning.
    if !app.lead().at_end() {
        app.players[0].set_motion(Motion::Playing);
    }
    let mut output = Vec::from(b"\x1b[?25l\x1b[2J");
    for frame in 0..=(seconds * FRAMES_PER_SECOND) as u32 {
        let picture = view::picture(&app, theme, width, height);
        CrosstermBackend::new(&mut output).draw(shown.diff(&picture).into_iter())?;
        shown = picture;
        // The backend writes whole symbols, so this is all UTF-8.
        let text = String::from_utf8_lossy(&output);
        out += &format!("{}\n", serde_json::json!([f64::from(frame) / FRAMES_PER_SECOND, "o", text]));
        output.clear();
        app.update(Input::Tick(1.0 / FRAMES_PER_SECOND));
    }
    Ok(out)
}
