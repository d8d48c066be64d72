//! Tests of both ends of the socket.

use crate::common::{header, is_paused};
use events::socket::{BACKLOG, Server};
use events::{Attachment, Boundary, CatchUp, Control, Event, EventBatch, Message, Pace, What, frame, runs};
use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn batch(step: u32) -> Vec<u8> {
    let events = vec![Event { at: u64::from(step), rank: 0, what: What::StepStarted { step } }];
    let mut bytes = Vec::new();
    frame::encode(&Message::Batch(EventBatch { dropped: 0, events }), &mut bytes);
    bytes
}

/// Returns a new viewer of `server`, which has read the header.
fn another(server: &mut Server, directory: &Path) -> Attachment {
    let socket = directory.join("run.sock");
    let viewer = std::thread::spawn(move || Attachment::open(&socket, "run", Duration::from_secs(20)));
    while !viewer.is_finished() {
        server.accept(&CatchUp::new(1, 2));
        server.pump(None);
        std::thread::yield_now();
    }
    viewer.join().unwrap().unwrap()
}

/// Returns a server and its one viewer, which has read the header.
fn watched(directory: &Path) -> (Server, Attachment) {
    let mut server = Server::open(directory, "run", &header(1)).unwrap();
    let viewer = another(&mut server, directory);
    (server, viewer)
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs");
    (dir, path)
}

#[test]
fn a_viewer_gets_the_description_the_state_and_what_follows() {
    let (_dir, directory) = directory();
    let (mut server, mut viewer) = watched(&directory);
    assert_eq!(viewer.header, header(1));
    server.send(&batch(7));
    server.close(Duration::from_secs(20));
    let messages = viewer.poll().unwrap();
    assert!(matches!(&messages[0], Message::CatchUp(_)));
    assert!(matches!(&messages[1], Message::Batch(b) if b.events[0].what == What::StepStarted { step: 7 }));
    assert!(matches!(messages.last(), Some(Message::End)));
}

#[test]
fn a_stalled_viewer_is_dropped_and_never_waited_for() {
    let (_dir, directory) = directory();
    let (mut server, viewer) = watched(&directory);
    let frame = batch(1).repeat(1000);
    let needed = BACKLOG / frame.len() + 200;
    for _ in 0..needed {
        server.send(&frame);
        server.pump(None);
    }
    assert!(server.viewers() == 0);
    drop(viewer);
}

#[test]
fn a_viewer_that_goes_lets_the_run_go_on() {
    let (_dir, directory) = directory();
    let (mut server, mut viewer) = watched(&directory);
    let pace = Pace::default();
    viewer.control(Control::Step(Boundary::Unit)).unwrap();
    while !is_paused(&pace) {
        server.pump(Some(&pace));
    }
    drop(viewer);
    while server.viewers() > 0 {
        server.pump(Some(&pace));
    }
    assert!(!is_paused(&pace));
}

#[test]
fn a_viewer_that_has_resumed_the_run_and_goes_leaves_it_held_by_others() {
    let (_dir, directory) = directory();
    let (mut server, mut viewer) = watched(&directory);
    let pace = Pace::default();
    for (control, paused) in [(Control::Pause, true), (Control::Resume, false)] {
        viewer.control(control).unwrap();
        while is_paused(&pace) != paused {
            server.pump(Some(&pace));
        }
    }
    pace.control(Control::Pause);
    drop(viewer);
    while server.viewers() > 0 {
        server.pump(Some(&pace));
    }
    assert!(is_paused(&pace));
}

/// The first of two viewers holds a run that its own screen has slowed, the second steps it. The
/// run returns to a viewer's hold only while that viewer is connected.
#[test]
fn a_run_returns_to_the_pace_before_a_viewers_hold() {
    let (_dir, directory) = directory();
    for (leave, paces) in [
        (["first", "second"], [Control::Pause, Control::Slow(0.5)]),
        (["second", "first"], [Control::Pause, Control::Slow(0.5)]),
        (["own screen", "second"], [Control::Resume, Control::Resume]),
    ] {
        let (mut server, first) = watched(&directory);
        let second = another(&mut server, &directory);
        let pace = Pace::default();
        pace.control(Control::Slow(0.5));
        let mut viewers = [("first", Some(first)), ("second", Some(second))];
        let holds = [Control::Pause, Control::Step(Boundary::Unit)];
        for ((_, viewer), control) in viewers.iter_mut().zip(holds) {
            let made = pace.requests();
            viewer.as_mut().unwrap().control(control).unwrap();
            while pace.requests() == made {
                server.pump(Some(&pace));
            }
        }
        for (name, expected) in leave.into_iter().zip(paces) {
            match viewers.iter_mut().find(|(viewer, _)| *viewer == name) {
                Some((_, viewer)) => drop(viewer.take()),
                None => pace.control(Control::Resume),
            }
            let left = viewers.iter().filter(|(_, viewer)| viewer.is_some()).count();
            while server.viewers() > left {
                server.pump(Some(&pace));
            }
            assert_eq!(pace.asked(), expected, "{leave:?}: {name}");
        }
    }
}

/// A viewer that fell behind continues with the state of the run, and one of a killed run ends.
#[test]
fn a_viewer_that_fell_behind_connects_again() {
    let (_dir, directory) = directory();
    let (mut server, mut viewer) = watched(&directory);
    let frame = batch(1).repeat(1000);
    while server.viewers() > 0 {
        server.send(&frame);
        server.pump(None);
    }
    let reader = std::thread::spawn(move || {
        let mut messages = Vec::new();
        while !matches!(messages.last(), Some(Message::Batch(last)) if last.events[0].at == 9) {
            messages.extend(viewer.poll().unwrap());
        }
        (messages, viewer)
    });
    while !server.accept(&CatchUp::new(1, 2)) {
        std::thread::yield_now();
    }
    server.send(&batch(9));
    while !reader.is_finished() {
        server.pump(None);
    }
    let (messages, mut viewer) = reader.join().unwrap();
    let states = messages.iter().filter(|message| matches!(message, Message::CatchUp(_))).count();
    assert_eq!(states, 2, "at the beginning and when it came back");
    assert!(!messages.iter().any(|message| matches!(message, Message::End)));
    drop(server);
    let mut ending = Vec::new();
    while ending.is_empty() {
        ending = viewer.poll().unwrap();
    }
    assert!(matches!(ending[..], [Message::End]), "{ending:?}");
}

/// A suspended run accepts connections and sends nothing.
#[test]
fn a_run_that_does_not_answer_is_not_missing() {
    let (_dir, directory) = directory();
    let _server = Server::open(&directory, "zero3-tiny-1", &header(1)).unwrap();
    let error = runs::attach(&directory, "zero3").unwrap_err().to_string();
    assert!(error.contains("zero3-tiny-1 does not answer"), "{error}");
}

#[test]
fn runs_are_listed_and_sockets_left_behind_are_removed() {
    let (_dir, directory) = directory();
    assert!(runs::list(&directory).unwrap().is_empty());
    DirBuilder::new().mode(0o700).create(&directory).unwrap();
    drop(UnixListener::bind(directory.join("dead.sock")).unwrap());
    assert!(runs::list(&directory).unwrap().is_empty());
    assert!(!directory.join("dead.sock").exists());
    let error = runs::attach(&directory, "zero3").unwrap_err().to_string();
    assert!(error.contains("no run is called zero3"), "{error}");
}

/// A run is found by its name, or by a prefix that no other name has.
#[test]
fn a_beginning_that_two_runs_share_names_neither() {
    let (_dir, directory) = directory();
    let names = ["zero3-tiny-1", "zero3-tiny-12", "zero3-base-7"];
    let mut servers = names.map(|name| Server::open(&directory, name, &header(1)).unwrap());
    let mut attached = |name: &'static str| {
        let directory = directory.clone();
        let viewer = std::thread::spawn(move || {
            runs::attach(&directory, name).map(|found| found.name).map_err(|e| e.to_string())
        });
        while !viewer.is_finished() {
            for server in &mut servers {
                server.accept(&CatchUp::new(1, 2));
                server.pump(None);
            }
            std::thread::yield_now();
        }
        viewer.join().unwrap()
    };
    assert_eq!(attached("zero3-base"), Ok("zero3-base-7".into()));
    assert_eq!(
        attached("zero3-tiny-1"),
        Ok("zero3-tiny-1".into()),
        "a whole name, although another name begins with it"
    );
    let error = attached("zero3-tiny").unwrap_err();
    assert!(names.iter().all(|name| error.contains(name) == name.starts_with("zero3-tiny")), "{error}");
    let error = attached("zero1").unwrap_err();
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let refused = |directory: &Path| {
        assert!(Server::open(directory, "run", &header(1)).is_err());
        let error = runs::list(directory).unwrap_err().to_string();
        assert!(error.contains("this user's own directory, of mode 700"), "{error}");
    };
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(dir.path());
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    // Only root can give a directory away.
    if std::os::unix::fs::chown(dir.path(), Some(65_534), None).is_ok() {
        refused(dir.path());
        std::os::unix::fs::chown(dir.path(), Some(0), None).unwrap();
    }
    Server::open(dir.path(), "run", &header(1)).unwrap();
}

/// A viewer that announces a request of 32 MiB is dropped at once.
#[test]
fn a_request_that_is_too_long_ends_its_viewer() {
    let (_dir, directory) = directory();
    let (mut server, _viewer) = watched(&directory);
    let mut stranger = UnixStream::connect(directory.join("run.sock")).unwrap();
    server.accept(&CatchUp::new(1, 2));
    let mut head = [b'P', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    let sum = (crc32fast::hash(&head[..5]) as u16).to_le_bytes();
    head[5..7].copy_from_slice(&sum);
    stranger.write_all(&head).unwrap();
    server.pump(None);
    assert_eq!(server.viewers(), 1);
}
