//! Draws every view of recorded runs, and of simulated ones on more ranks, as SVG pictures for
//! inspection.
//!
//! `cargo run -p viz --example pictures -- OUT_DIR [WIDTHxHEIGHT …]`

#[path = "../tests/simulate/mod.rs"]
mod simulate;

use events::Recording;
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view};
use simulate::SimulationPlan;
use std::error::Error;
use std::fs;
use std::path::Path;
use viz::export;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STAGES: [&str; 4] = ["ddp", "zero1", "zero2", "zero3"];
const OTHERS: [&str; 7] = ["ring", "link", "hybrid", "hpz", "fp16", "failed", "stall"];

fn main() -> Result<()> {
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
        for name in STAGES.into_iter().chain(OTHERS) {
            views(&out, name, || recorded(name), size)?;
        }
        for (name, stage, ranks, ring) in [
            ("eight", 3, 8, false),
            ("eight-ring", 3, 8, true),
            ("sixteen", 2, 16, false),
            ("many", 2, 64, false),
        ] {
            views(
                &out,
                name,
                || Ok(made_up(&SimulationPlan { ring, ..SimulationPlan::new(stage, ranks) })),
                size,
            )?;
        }
    }
    Ok(())
}

/// Returns a recorded run in the backward of its second step, or where it failed.
fn recorded(name: &str) -> Result<Player> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.events"));
    let mut player = Player::recorded(Recording::open(&path)?)?;
    player.seek(player.timeline().len());
    if player.scene().now.failure.is_none() {
        player.seek_into_step(1, 0.62);
    }
    Ok(player)
}

fn made_up(plan: &SimulationPlan) -> Player {
    let run = plan.run();
    let mut timeline = Timeline::live(run.header, "simulated");
    timeline.push(events::Message::Batch(events::EventBatch { dropped: 0, events: run.events }));
    let mut player = Player::new(timeline, Motion::Paused);
    player.seek_into_step(1, 0.6);
    player
}

fn views(
    out: &str,
    name: &str,
    player: impl Fn() -> Result<Player>,
    (width, height): (u16, u16),
) -> Result<()> {
    for view in View::ALL {
        let all = view == View::Compare && STAGES.contains(&name);
        let players =
            if all { STAGES.into_iter().map(recorded).collect::<Result<_>>()? } else { vec![player()?] };
        let mut app = App::new(players, EventSource::Recording);
        (app.view, app.dismissed) = (view, view != View::Overview);
        let picture = view::picture(&app, Theme::FULL, width, height);
        let file = format!("{}-{name}-{width}x{height}.svg", view.label().to_lowercase());
        fs::write(Path::new(out).join(file), export::svg::render(&picture))?;
    }
    Ok(())
}
