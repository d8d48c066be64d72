//! Every view of a recorded run of each stage, at three sizes, symbols and colours.

use crate::support::{STAGES, live, made_up, recorded, text};
use viz::app::{App, Source};
use viz::simulate::Plan;
use viz::theme::{Depth, Theme};
use viz::{View, view};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn snapshots(stage: &str, app: &App) {
    for (width, height) in SIZES {
        let view = app.view.label().to_lowercase();
        let name = format!("{view}_{stage}_{width}x{height}");
        insta::assert_snapshot!(name, text(&view::picture(app, Theme::FULL, width, height)));
    }
}

/// A recorded run in the middle of its second step's backward.
fn app(stage: &str, view: View) -> App {
    let mut player = recorded(stage);
    player.seek_into_step(1, 0.62);
    let mut app = App::new(vec![player], Source::Recording);
    app.view = view;
    app
}

#[test]
fn every_view_of_every_stage() {
    for stage in STAGES {
        for view in View::ALL.into_iter().filter(|&view| view != View::Compare) {
            snapshots(stage, &app(stage, view));
        }
    }
}

#[test]
fn stages_compared() {
    let mut players: Vec<_> = STAGES.into_iter().map(recorded).collect();
    players[0].seek_into_step(1, 0.62);
    snapshots("all", &App::new(players, Source::Recording));
    snapshots("one", &app("zero2", View::Compare));
}

#[test]
fn many_ranks() {
    for ranks in [8, 64] {
        let mut app = made_up(&Plan::new(3, ranks));
        for view in [View::Overview, View::Shards, View::Traffic] {
            app.view = view;
            let name = format!("{}_{ranks}_ranks", view.label().to_lowercase());
            insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
        }
    }
}

#[test]
fn a_ring_hop_by_hop() {
    let app = made_up(&Plan { ring: true, ..Plan::new(3, 4) });
    insta::assert_snapshot!(text(&view::picture(&app, Theme::FULL, 120, 40)));
}

#[test]
fn endings_and_help() {
    let done = live(Plan::new(3, 4).run());
    insta::assert_snapshot!("finished", text(&view::picture(&done, Theme::FULL, 80, 24)));
    let failed = live(Plan { fail_at: Some(1), ..Plan::new(2, 4) }.run());
    insta::assert_snapshot!("failed", text(&view::picture(&failed, Theme::FULL, 80, 24)));
    let mut help = app("zero3", View::Overview);
    help.help = true;
    insta::assert_snapshot!("help", text(&view::picture(&help, Theme::FULL, 120, 40)));
    let small = app("zero3", View::Overview);
    insta::assert_snapshot!("too_small", text(&view::picture(&small, Theme::FULL, 40, 5)));
}

#[test]
fn fewer_colours_and_ascii() {
    for depth in [Depth::Indexed, Depth::Named, Depth::None] {
        let theme = Theme { depth, ascii: depth == Depth::None };
        let name = format!("depth_{depth:?}").to_lowercase();
        insta::assert_snapshot!(name, text(&view::picture(&app("zero3", View::Memory), theme, 120, 40)));
    }
}

#[test]
fn ascii_is_ascii_and_colourless_is_colourless() {
    let theme = Theme { depth: Depth::None, ascii: true };
    for stage in STAGES {
        for view in View::ALL {
            let picture = view::picture(&app(stage, view), theme, 120, 40);
            for cell in &picture.content {
                assert!(
                    cell.symbol().is_ascii() && !cell.symbol().contains('?'),
                    "{view:?}: {:?}",
                    cell.symbol()
                );
                assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset));
            }
        }
    }
}
