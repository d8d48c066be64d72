//! Draws every view of made-up runs as SVG pictures, to be looked at.
//!
//! `cargo run -p viz --example pictures -- OUT_DIR [WIDTHxHEIGHT …]`

use std::error::Error;
use std::fs;
use std::path::Path;
use viz::app::{App, Source};
use viz::player::{Motion, Player};
use viz::simulate::Plan;
use viz::theme::Theme;
use viz::timeline::Timeline;
use viz::{View, export, view};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().unwrap_or_else(|| "pictures".into());
    let mut sizes: Vec<String> = arguments.collect();
    if sizes.is_empty() {
        sizes = ["80x24", "120x40", "200x60"].map(String::from).into();
    }
    fs::create_dir_all(&out)?;
    for size in &sizes {
        let (width, height) = size.split_once('x').ok_or("sizes are written 120x40")?;
        let size = (width.parse()?, height.parse()?);
        for stage in 0..4 {
            draw(&out, stage, 4, size)?;
        }
        draw(&out, 3, 8, size)?;
        draw(&out, 2, 64, size)?;
    }
    Ok(())
}

fn player(stage: u8, ranks: u32) -> Player {
    let run = Plan { steps: 12, ..Plan::new(stage, ranks) }.run();
    let mut timeline = Timeline::live(run.header, "made up");
    timeline.push(events::Message::Batch(events::Batch { dropped: 0, events: run.events }));
    let mut player = Player::new(timeline, Motion::Standing);
    player.seek_step(7);
    player.seek(player.position() + u64::from(ranks) * 44);
    player
}

fn draw(out: &str, stage: u8, ranks: u32, (width, height): (u16, u16)) -> Result<(), Box<dyn Error>> {
    for view in View::ALL {
        let players = if view == View::Compare && ranks == 4 {
            (0..4).map(|stage| player(stage, ranks)).collect()
        } else {
            vec![player(stage, ranks)]
        };
        let mut app = App::new(players, Source::Recording);
        app.view = view;
        let picture = view::picture(&app, Theme::FULL, width, height);
        let name = format!("{}-zero{stage}-{ranks}-{width}x{height}.svg", view.label().to_lowercase());
        fs::write(Path::new(out).join(name), export::svg::render(&picture))?;
    }
    Ok(())
}
