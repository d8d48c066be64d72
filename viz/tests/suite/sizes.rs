//! Tests that views can be drawn at every size.

use crate::simulate::SimulationPlan;
use crate::support::{STAGES, live, made_up, recorded};
use events::{Boundary, Class, Place};
use proptest::prelude::*;
use screen::app::{App, EventSource};
use screen::player::Player;
use screen::theme::Theme;
use screen::{View, view};

/// Returns a recorded run of each stage, all of them side by side, and runs with few and with many
/// ranks.
fn runs() -> Vec<App> {
    let inside = |stage: &&str| -> Player {
        let mut player = recorded(stage);
        player.seek_into_step(2, 0.6);
        player
    };
    let alone = STAGES.iter().chain(&["hybrid", "failed"]).map(|stage| vec![inside(stage)]);
    let compared = [STAGES[..2].iter().map(inside).collect(), STAGES.map(|stage| inside(&stage)).into()];
    let recorded = alone.chain(compared).map(|players| App::new(players, EventSource::Recording));
    recorded
        .chain([2, 8, 64].map(|ranks| made_up(&SimulationPlan { steps: 2, ..SimulationPlan::new(3, ranks) })))
        .collect()
}

/// Draws every view at the sizes of which `is_drawn` is true, from 1×1 to 300×100, with the runs in
/// turn.
fn draw_at(is_drawn: impl Fn(u16, u16) -> bool + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let draw = |first: usize| {
        let mut runs = runs();
        let mut turn = first;
        for width in (1..=300u16).skip(first).step_by(threads) {
            let heights = (1..=100u16).filter(|&height| is_drawn(width, height));
            for (height, view) in heights.flat_map(|height| View::ALL.map(|view| (height, view))) {
                turn = (turn + 1) % runs.len();
                runs[turn].view = view;
                view::picture(&runs[turn], Theme::FULL, width, height);
            }
        }
    };
    let draw = &draw;
    std::thread::scope(|scope| (0..threads).for_each(|first| drop(scope.spawn(move || draw(first)))));
}

#[test]
fn every_view_at_every_size_up_to_100x50_and_at_many_beyond() {
    draw_at(|width, height| (width <= 100 && height <= 50) || (width % 7 == 0 && height % 5 == 0));
}

#[test]
#[ignore = "takes a minute"]
fn every_view_at_every_size_from_1x1_to_300x100() {
    draw_at(|_, _| true);
}

/// Returns plans with optimizer states, parameters and activations, each in any place.
fn resting() -> impl Strategy<Value = Vec<(Class, Place)>> {
    let place = || prop::sample::select(&Place::ALL);
    (place(), place(), place()).prop_map(|(optimizer, parameters, activations)| {
        let places = [
            (Class::Optimizer, optimizer),
            (Class::Parameters, parameters),
            (Class::Activations, activations),
        ];
        places.into_iter().filter(|(_, place)| *place != Place::Device).collect()
    })
}

fn plans() -> impl Strategy<Value = SimulationPlan> {
    (0u8..4, 1u32..=64, 1usize..40, 1u16..3, any::<bool>(), prop::option::of(0u32..2), resting()).prop_map(
        |(stage, ranks, blocks, micro_batches, ring, fail_at, resting)| SimulationPlan {
            stage,
            ranks,
            steps: 2,
            blocks,
            micro_batches,
            ring,
            validation_batches: 1,
            fail_at,
            resting,
        },
    )
}

fn draw_all(app: &mut App, width: u16, height: u16) {
    for view in View::ALL {
        for theme in [Theme::FULL, Theme { depth: screen::theme::Depth::None, ascii: true }] {
            app.view = view;
            view::picture(app, theme, width, height);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_run_at_any_moment_and_size(
        plan in plans(),
        share in 0.0f64..1.0,
        rank in 0usize..64,
        (width, height) in (80u16..300, 24u16..100),
    ) {
        let mut app = live(plan.run());
        app.rank = rank.min(plan.ranks as usize - 1);
        draw_all(&mut app, width, height);
        app.players[0].set_motion(screen::player::Motion::Paused);
        app.players[0].seek_share(share);
        draw_all(&mut app, width, height);
        app.players[0].step_back(Boundary::Unit);
        draw_all(&mut app, width, height);
    }
}
