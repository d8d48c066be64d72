//! Events, requests and clocks between two processes.

use crate::common::is_paused;
use events::relay::clock;
use events::{Boundary, Control, Inlets, Outlet, Pace, What, channel, feed};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

fn link() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, there)
}

#[test]
fn events_of_another_process_arrive_on_one_clock() {
    let (here, there) = link();
    let start = Instant::now();
    let (inlet, receiver) = feed(100, start);
    let inlets = Inlets::start(vec![here], vec![inlet], start, &Pace::default()).unwrap();
    let theirs = clock(&there, TIMEOUT).unwrap();
    let apart = theirs.max(start) - theirs.min(start);
    assert!(apart < Duration::from_secs(1), "{apart:?}");
    let (emitter, events) = channel(3, 10, theirs, None);
    let outlet = Outlet::start(there, events, Arc::new(Pace::default())).unwrap();
    (0..15).for_each(|step| emitter.emit(What::StepStarted { step }));
    drop(outlet);
    inlets.finish(Instant::now() + TIMEOUT);
    let mut seen = Vec::new();
    receiver.drain(&mut seen);
    assert_eq!(seen.len() as u64 + receiver.dropped(), 15);
    assert!(seen.iter().all(|event| event.rank == 3));
}

#[test]
fn requests_of_viewers_reach_other_processes() {
    let (here, there) = link();
    let (ours, theirs) = (Pace::default(), Arc::new(Pace::default()));
    let start = Instant::now();
    let _inlets = Inlets::start(vec![here], vec![feed(10, start).0], start, &ours).unwrap();
    clock(&there, TIMEOUT).unwrap();
    let (_emitter, events) = channel(1, 10, start, None);
    let _outlet = Outlet::start(there, events, theirs.clone()).unwrap();
    ours.control(Control::Step(Boundary::Unit));
    while !is_paused(&theirs) {
        std::thread::yield_now();
    }
    ours.control(Control::Resume);
    while is_paused(&theirs) {
        std::thread::yield_now();
    }
}

/// A screen sets its pace immediately, before the other processes have asked for the clock.
#[test]
fn requests_do_not_mix_with_answers_about_the_clock() {
    let (here, there) = link();
    let (ours, theirs) = (Pace::default(), Arc::new(Pace::default()));
    let start = Instant::now();
    let _inlets = Inlets::start(vec![here], vec![feed(10, start).0], start, &ours).unwrap();
    ours.control(Control::Pause);
    there.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(there.peek(&mut [0]).is_err(), "a byte arrived before this process asked for the clock");
    let apart = clock(&there, TIMEOUT).unwrap().max(start) - start;
    assert!(apart < Duration::from_secs(1), "{apart:?}");
    let _outlet = Outlet::start(there, channel(1, 10, start, None).1, theirs.clone()).unwrap();
    while !is_paused(&theirs) {
        std::thread::yield_now();
    }
}
