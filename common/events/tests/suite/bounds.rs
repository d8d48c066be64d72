//! Tests of what streams from outside may say.

use crate::common::{at, header, memory};
use events::amount::{MOST, total};
use events::frame::{self, Decoder};
use events::{CatchUp, Class, EventBatch, FrameError, Message, Operation, RunHeader, Sent, What};

/// Encodes `messages` and decodes them as one stream.
fn sent(messages: &[Message]) -> Result<Vec<Message>, FrameError> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| frame::encode(message, &mut bytes));
    let mut decoder = Decoder::without_preamble();
    decoder.push(&bytes);
    decoder.messages()
}

fn batch(time: u64, what: What) -> Message {
    Message::Batch(EventBatch { dropped: 0, events: vec![at(time, 0, what)] })
}

/// Returns a batch of events, a state and a header that carry `number`.
fn carriers(number: u64) -> Vec<Message> {
    let mut state = CatchUp::new(2, 2);
    state.snapshot.ranks[1].peak[0][0] = number;
    let described = RunHeader { capacity: Some(number), ..header(2) };
    vec![
        batch(number, What::Failing),
        batch(0, memory(Class::Gradients, 1, number)),
        batch(0, memory(Class::Gradients, -(number as i64), 1)),
        batch(0, What::Finished { peaks: vec![number], total_peak: 0, sent: vec![] }),
        Message::CatchUp(Box::new(state)),
        Message::Header(Box::new(described)),
    ]
}

#[test]
fn numbers_beyond_any_run_are_damage() {
    for (fits, damaged) in carriers(MOST).into_iter().zip(carriers(MOST + 1)) {
        let first = Message::Header(Box::new(header(2)));
        assert_eq!(sent(&[first.clone(), fits.clone()]), Ok(vec![first.clone(), fits]));
        let error = sent(&[first, damaged.clone()]).unwrap_err();
        assert!(matches!(error, FrameError::Corrupt { .. }), "{damaged:?}: {error}");
    }
}

/// A viewer may join after a million steps, whatever they say.
#[test]
fn a_long_history_stays_short_enough_to_be_sent() {
    let (mut state, steps) = (CatchUp::new(2, 2), 1_100_000);
    for step in 0..steps {
        let (loss, tokens, seconds) = (f64::from(step), MOST, 1e-3);
        let finished = What::StepFinished { step, loss, grad_norm: 1.0, lr: 1e-3, tokens, seconds };
        state.apply(&at(MOST, 0, finished));
        state.apply(&at(MOST, 0, What::LossScale { step, scale: 65536.0, skipped: step }));
    }
    let kept: Vec<u32> = state.history.steps.iter().map(|record| record.step).collect();
    assert_eq!(kept, (0..steps).step_by(4).chain([steps - 1]).collect::<Vec<_>>());
    assert_eq!(state.history.finished(), u64::from(steps));
    assert!(state.history.steps.iter().all(|record| record.loss == f64::from(record.step)));
    let messages = [Message::Header(Box::new(header(2))), Message::CatchUp(Box::new(state))];
    assert_eq!(sent(&messages).unwrap(), messages);
}

/// A fingerprint of parameters is no count.
#[test]
fn fingerprints_are_any_number() {
    let metrics =
        events::LocalMetrics { step: 0, loss: 1.0, grad_norm: 1.0, parameters: u64::MAX, waited: 0.0 };
    let message = batch(0, What::Contributed(metrics));
    assert_eq!(sent(std::slice::from_ref(&message)), Ok(vec![message]));
}

#[test]
fn counters_and_sums_never_overflow() {
    let hop = What::Hop { group: 0, sequence: 0, from: 0, to: 1, chunk: 0, bytes: MOST };
    let mut state = CatchUp::new(2, 2);
    (0..3).for_each(|_| state.apply(&at(0, 0, hop.clone())));
    assert_eq!(*state.snapshot.ranks[0].sent.by_receiver, [0, MOST]);
    assert_eq!(total([u64::MAX, 1].into_iter()), u64::MAX);
    let sent = Sent { by_operation: [u64::MAX; Operation::ALL.len()], ..Sent::default() };
    assert_eq!((sent.total(), sent.data()), (u64::MAX, 0));
}

/// Where clocks disagree, work may seem to end before it begins, or before the run.
#[test]
fn a_span_never_ends_before_it_begins() {
    let spans =
        [(40, 10), (10, 40), (200, 150)].map(|(began, ended)| at(100, 0, What::Failing).span(began, ended));
    assert_eq!(spans, [(60, 90), (90, 90), (0, 0)]);
}

#[test]
fn a_state_has_the_shape_that_its_header_says() {
    let state = |ranks, units| Message::CatchUp(Box::new(CatchUp::new(ranks, units)));
    let first = Message::Header(Box::new(header(3)));
    assert!(sent(&[first.clone(), state(3, 2)]).is_ok());
    for other in [state(2, 2), state(4, 2), state(3, 3)] {
        assert!(sent(&[first.clone(), other]).is_err());
    }
    assert!(sent(&[state(3, 2), first]).is_err(), "a state precedes its header");
}

/// A header describes units and predicts ranks, so a short one cannot be of many.
#[test]
fn a_header_is_as_long_as_its_run_is_large() {
    let first = |ranks, model: usize| {
        sent(&[Message::Header(Box::new(RunHeader { model: "x".repeat(model), ..header(ranks) }))])
    };
    assert!(first(64, 0).is_ok());
    assert!(first(1024, 0).is_err());
    assert!(first(1024, 1 << 14).is_ok());
    assert!(first(1025, 1 << 20).is_err());
}

/// What no event has touched takes memory once.
#[test]
fn ranks_share_what_is_the_same() {
    let mut state = CatchUp::new(2, 2);
    let before = state.clone();
    let place = |state: &CatchUp, rank: usize| state.snapshot.ranks[rank].units.units.as_ptr();
    assert_eq!(place(&state, 0), place(&before, 1));
    state.apply(&at(0, 0, What::StepStarted { step: 0 }));
    assert_ne!(place(&state, 0), place(&before, 0));
    assert_eq!(place(&state, 1), place(&before, 0));
}
