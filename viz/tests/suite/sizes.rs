//! No size makes a view fail.

use crate::support::{live, made_up};
use events::Boundary;
use proptest::prelude::*;
use viz::app::App;
use viz::simulate::Plan;
use viz::theme::Theme;
use viz::{View, view};

/// Every size, each with one of the views in turn.
#[test]
fn every_size_from_1x1_to_300x100() {
    let mut app = made_up(&Plan { steps: 2, ..Plan::new(3, 4) });
    for width in 1..=300u16 {
        for height in 1..=100u16 {
            app.view = View::ALL[usize::from(width + height * 7) % View::ALL.len()];
            view::picture(&app, Theme::FULL, width, height);
        }
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    (0u8..4, 1u32..=64, 1usize..40, 1u16..3, any::<bool>(), prop::option::of(0u32..2)).prop_map(
        |(stage, ranks, blocks, micro_batches, ring, fail_at)| Plan {
            stage,
            ranks,
            steps: 2,
            blocks,
            micro_batches,
            ring,
            fail_at,
        },
    )
}

fn draw_all(app: &mut App, width: u16, height: u16) {
    for view in View::ALL {
        for theme in [Theme::FULL, Theme { depth: viz::theme::Depth::None, ascii: true }] {
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
        app.players[0].set_motion(viz::player::Motion::Standing);
        app.players[0].seek_fraction(share);
        draw_all(&mut app, width, height);
        app.players[0].step_back(Boundary::Unit);
        draw_all(&mut app, width, height);
    }
}
