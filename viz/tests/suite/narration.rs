//! Tests that the sentence on the screen says what the state shown is.

use crate::simulate::SimulationPlan;
use crate::support::{SPECIAL, STAGES, live, made_up, path, recorded, text};
use events::header::Choices;
use events::{Boundary, Event, Operation, Pass, What};
use proptest::prelude::*;
use screen::app::{App, EventSource};
use screen::narration::{self, sentence};
use screen::player::{Motion, Player, Scene};
use screen::theme::Theme;
use screen::view::picture;
use screen::{fit, groups, words};
use std::cell::RefCell;

const ROOM: u16 = 500;

/// Returns the number that follows `word` in `text`.
fn number(text: &str, word: &str) -> Option<usize> {
    let rest = text.split_once(word)?.1.trim_start();
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    rest[..digits].parse().ok()
}

/// Asserts that `sentence` is true of `scene`.
fn is_true(scene: &Scene, sentence: &str) {
    let ranks = &scene.now.ranks;
    let first = &ranks[0];
    let passes = |pass: Pass, verb: &str| {
        if let Some(rest) = sentence.to_lowercase().split_once(verb) {
            let unit = |rank: &events::RankSnapshot| {
                rank.pass.filter(|now| now.pass == pass).map(|now| words::unit(&scene.header, now.unit))
            };
            let named = ranks.iter().filter_map(unit).any(|unit| rest.1.starts_with(unit));
            assert!(named, "no rank does that: {sentence}");
        }
    };
    passes(Pass::Forward, "forward runs through ");
    passes(Pass::Backward, "backward runs through ");
    passes(Pass::Step, "adamw updates ");
    if let Some(step) = number(sentence, "Step ") {
        assert_eq!(step as u32, first.step, "{sentence}");
        let overflowed = first.scaling.is_some_and(|scaling| scaling.overflowed);
        assert_eq!(sentence.contains("skipped"), !first.in_step && overflowed, "{sentence}");
        assert_eq!(sentence.contains("begins"), first.in_step, "{sentence}");
        let since = first.last_pass.is_some_and(|pass| pass.since >= first.step_started);
        assert!(!sentence.contains("begins") || !since, "it has begun already: {sentence}");
    }
    for operation in [Operation::AllGather, Operation::ReduceScatter, Operation::AllReduce] {
        let label = operation.label();
        if !sentence.to_lowercase().starts_with(&format!("{label} of ")) || sentence.contains("is done") {
            continue;
        }
        let flight = narration::leading_collective(scene).unwrap();
        assert_eq!(flight.event.operation, operation, "{sentence}");
        let groups = groups::created_with(&scene.now, flight.event.group);
        let members = groups::members(&groups);
        if sentence.contains("keeps the sum of slice r") {
            assert_eq!(number(sentence, "slice r mod").unwrap_or(ranks.len()), members, "{sentence}");
            for group in &groups {
                let keeps = |(place, rank): (usize, &usize)| rank % members == place;
                assert!(group.ranks.iter().enumerate().all(keeps), "{sentence}: {group:?}");
            }
        }
        if let Some(hop) = number(sentence, "hop ") {
            let (from, to) = (number(sentence, "rank ").unwrap(), number(sentence, "→ rank ").unwrap());
            let state = &ranks[from];
            let last = state.last_hop.unwrap();
            let key = (flight.event.group, flight.event.sequence);
            assert!(state.flights.iter().any(|flight| (flight.event.group, flight.event.sequence) == key));
            assert_eq!((last.group, last.sequence), key, "{sentence}");
            assert_eq!((last.number as usize, usize::from(last.to)), (hop, to), "{sentence}");
            assert_eq!(usize::from(last.chunk), number(sentence, "slice ").unwrap(), "{sentence}");
            assert!((1..=number(sentence, &format!("hop {hop} of")).unwrap()).contains(&hop), "{sentence}");
            let next = |rank: usize| (rank + 1) % ranks.len();
            assert!(next(from) == to || next(to) == from, "neighbours on the ring: {sentence}");
        }
    }
}

thread_local! {
    static PLAYERS: RefCell<Vec<Player>> = RefCell::new(
        STAGES.iter().chain(&SPECIAL).filter(|name| path(name, "events").exists()).map(|name| recorded(name)).collect(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_sentence_is_true_at_any_moment(run in 0usize..9, share in 0.0f64..1.0) {
        PLAYERS.with_borrow_mut(|players| {
            let player = &mut players[run];
            player.seek((share * player.timeline().len() as f64) as u64);
            for _ in 0..40 {
                is_true(player.scene(), &sentence(player.scene(), ROOM));
                player.step_forward(Boundary::Event);
            }
        });
    }
}

/// Returns every sentence of a recorded run's events from `step` on.
fn told(name: &str, step: u32, events: usize) -> Vec<String> {
    let mut player = recorded(name);
    player.seek_step(step);
    let mut told = Vec::new();
    for _ in 0..events {
        told.push(sentence(player.scene(), ROOM));
        player.step_forward(Boundary::Event);
    }
    told.dedup();
    told
}

#[test]
fn hops_groups_and_skipped_steps_are_told() {
    let says = |told: &[String], words: &str| told.iter().any(|sentence| sentence.contains(words));
    let ring = told("ring", 1, 3000);
    assert!(says(&ring, ", slice 3: rank 3 → rank 0, hop 1 of 3 ("), "{ring:#?}");
    assert!(says(&ring, "hop 3 of 3"), "{ring:#?}");
    let hybrid = told("hybrid", 1, 3000);
    assert!(says(&hybrid, "in groups of 2: rank r keeps the sum of slice r mod 2"), "{hybrid:#?}");
    let skipping = (0..5).flat_map(|step| told("fp16", step, 4000)).collect::<Vec<_>>();
    let skipped: Vec<_> = skipping.iter().filter(|sentence| sentence.contains("is skipped")).collect();
    assert!(!skipped.is_empty());
    // The update of the step before is stale once the next has begun.
    let mut alone = live(SimulationPlan::new(0, 1).run()).players.remove(0);
    alone.set_motion(Motion::Paused);
    alone.seek_step(1);
    assert_eq!(sentence(alone.scene(), ROOM), "Step 1 begins.");
}

/// The key that looks for a skipped step lands where the sentence is about it, even if other ranks
/// already compute the next step.
#[test]
fn a_skipped_step_is_told_though_other_ranks_go_on() {
    let mut run = SimulationPlan::new(2, 4).run();
    let ends = run
        .events
        .iter()
        .position(|event| event.rank == 0 && matches!(event.what, What::StepFinished { step: 1, .. }));
    run.events[ends.unwrap() + 1..].iter_mut().filter(|event| event.rank == 0).for_each(|event| {
        event.at += 5_000_000;
    });
    let told = run.events.iter().filter_map(|event| match event.what {
        What::StepFinished { step, .. } => {
            let what = What::LossScale { step, scale: 65536.0, skipped: step.min(1) };
            let late = if event.rank == 0 && step == 1 { 4_000_000 } else { 1 };
            Some(Event { at: event.at + late, what, ..event.clone() })
        }
        _ => None,
    });
    let told: Vec<Event> = told.collect();
    run.events.extend(told);
    run.events.sort_by_key(|event| event.at);
    let mut player = live(run).players.remove(0);
    player.set_motion(Motion::Paused);
    player.seek(0);
    player.seek_problem();
    let ranks = &player.scene().now.ranks;
    assert!(ranks[1].step == 2 && ranks[1].pass.is_some(), "another rank computes");
    let told = sentence(player.scene(), ROOM);
    assert_eq!(told, "Step 1 is skipped: its gradients overflowed with the loss multiplied by 65,536.");
    let begins = |player: &Player| player.scene().now.ranks[0].in_step;
    while !begins(&player) {
        player.step_forward(Boundary::Event);
    }
    assert!(!sentence(player.scene(), ROOM).contains("skipped"));
}

#[test]
fn the_title_shows_what_was_chosen() {
    let mut run = SimulationPlan::new(3, 4).run();
    run.header.choices = Choices { strategy: "hybrid-shard".into(), checkpointing: "block".into() };
    run.header.shard_group = 2;
    let app = live(run);
    for width in [80, 120, 200] {
        let screen = text(&picture(&app, Theme::FULL, width, 40));
        let title = screen.lines().next().unwrap();
        assert!(title.contains("hybrid-shard by 2"), "{title}");
        assert!(width == 80 || title.contains("checkpoints block"), "{title}");
    }
    let usual = App::new(made_up(&SimulationPlan::new(3, 4)).players, EventSource::Recording);
    assert!(!text(&picture(&usual, Theme::FULL, 200, 40)).contains("hybrid"));
}

/// A rank that is alone exchanges nothing with others, and no sentence says that it does.
#[test]
fn one_rank_has_no_others() {
    for stage in 0..=3 {
        let mut player = live(SimulationPlan::new(stage, 1).run()).players.remove(0);
        player.set_motion(Motion::Paused);
        player.seek(0);
        while !player.at_end() {
            let told = sentence(player.scene(), ROOM);
            let others = ["other", "every rank", "each rank"].iter().any(|word| told.contains(word));
            assert!(!others || told.starts_with("The run is over"), "{told}");
            player.step_forward(Boundary::Event);
        }
    }
}

/// Units that a collective moves are named even if others lie between them.
#[test]
fn units_apart_are_named_by_their_runs() {
    let app = made_up(&SimulationPlan::new(3, 2));
    let header = &app.players[0].scene().header;
    let named = |units: &[u16]| words::units(header, &units.iter().copied().collect());
    let name = |unit| words::unit(header, unit);
    assert_eq!(named(&[2]), name(2));
    assert_eq!(named(&[1, 2, 3]), format!("{} to {}", name(1), name(3)));
    assert_eq!(named(&[0, 2, 3]), format!("{}, {} to {}", name(0), name(2), name(3)));
    assert_eq!(named(&[0, 2, 4]), format!("{}, {} and 1 more", name(0), name(2)));
}

/// The shortest form of a sentence names all units of a collective, though commas separate them,
/// and columns are counted, not characters.
#[test]
fn a_short_sentence_keeps_the_list_of_units() {
    let mut run = SimulationPlan::new(3, 4).run();
    run.header.units[0].name = "词嵌入".into();
    for event in &mut run.events {
        if let What::Collective(collective) = &mut event.what
            && collective.operation == Operation::AllGather
        {
            collective.units = [0, 2, 4].into_iter().collect();
        }
    }
    let mut player = live(run).players.remove(0);
    player.set_motion(Motion::Paused);
    player.seek_step(1);
    let gathers = |player: &Player| {
        let flight = narration::leading_collective(player.scene());
        flight.is_some_and(|flight| flight.started.is_some())
    };
    while !gathers(&player) {
        player.step_forward(Boundary::Event);
    }
    let scene = player.scene();
    let name = format!("All-gather of 词嵌入, {} and 1 more", words::unit(&scene.header, 2));
    let full = sentence(scene, ROOM);
    assert!(full.starts_with(&format!("{name}: every rank sends its slice (")), "{full}");
    for room in 0..fit::columns(&full) {
        let told = sentence(scene, room);
        assert!(told.starts_with(&name), "{room}: {told}");
        assert!(fit::columns(&told) <= room || told == format!("{name}."), "{room}: {told}");
    }
}
