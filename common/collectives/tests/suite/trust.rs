//! Connections of processes that do not belong to the job.

use crate::common::timed;
use crate::processes::{PATIENT, connect, meet, place};
use collectives::tcp::{JoinError, JoinOptions, Secret, join};
use std::io::{Read, Write};
use std::time::Duration;

fn with_secret(text: &str, place: JoinOptions) -> JoinOptions {
    JoinOptions { secret: Some(Secret::new(text.as_bytes())), ..place }
}

#[test]
fn ranks_with_one_secret_meet_and_one_with_another_is_turned_away() {
    let words = |group: collectives::Group| group.exchange(&[group.rank() as u8]).unwrap();
    let met = meet(&place(3, PATIENT), |place| words(join(&with_secret("one", place)).unwrap().group));
    assert_eq!(met, [[[0], [1], [2]]; 3]);
    let errors = meet(&place(2, Duration::from_secs(1)), |place| {
        let secret = if place.rank == 0 { "one" } else { "another" };
        join(&with_secret(secret, place)).err().unwrap()
    });
    assert!(matches!(errors[1], JoinError::TurnedAway { rank: 1, .. }), "{}", errors[1]);
    let words =
        ["rank 1 never came", "with another secret than rank 0's, or none: 1, the last from 127.0.0.1"];
    assert!(words.iter().all(|word| errors[0].to_string().contains(word)), "{}", errors[0]);
}

#[test]
fn without_a_secret_ranks_meet_on_loopback_only() {
    let place = JoinOptions { address: "192.0.2.1".into(), ..place(2, PATIENT) };
    for error in meet(&place, |place| join(&place).err().unwrap()) {
        assert!(matches!(error, JoinError::NoSecret { .. }), "{error}");
        let error = error.to_string();
        let words = ["192.0.2.1", "ZERO_JOB_SECRET", "ZERO_JOB_SECRET_FILE", "torchrun", "Slurm", "mpirun"];
        assert!(words.iter().all(|word| error.contains(word)) && error.lines().count() < 12, "{error}");
    }
}

/// A stranger sees a challenge of 40 bytes; whatever it answers, nothing follows.
#[test]
fn a_stranger_learns_nothing() {
    let seen = meet(&place(2, PATIENT), |place| {
        if place.rank == 1 {
            let strangers = [
                &[7; 68][..],
                b"GET / HTTP/1.1\r\nHost: here\r\nAccept: text/html, */*\r\n\r\n...............",
            ];
            let seen = strangers.map(|words| {
                let (mut stranger, mut seen) = (connect(&place), Vec::new());
                stranger.write_all(words).unwrap();
                // The end may be a reset, since rank 0 does not read all of the second one's words.
                let _ = stranger.read_to_end(&mut seen);
                seen
            });
            join(&with_secret("secret", place)).unwrap();
            return seen.to_vec();
        }
        join(&with_secret("secret", place)).unwrap();
        Vec::new()
    });
    assert!(seen[1].iter().all(|seen| seen.len() == 40 && seen.starts_with(b"ZERO-JOB")), "{seen:?}");
    assert_ne!(seen[1][0], seen[1][1], "no challenge comes twice");
}

/// Of two hundred strangers half are silent, and half stop in the middle of an answer.
#[test]
fn idle_strangers_do_not_delay_the_meeting() {
    let place = place(4, PATIENT);
    let strangers = std::sync::OnceLock::new();
    let times = meet(&place, |place| {
        if place.rank > 0 {
            strangers.get_or_init(|| {
                let stranger = |number: usize| {
                    let mut stranger = connect(&place);
                    stranger.write_all(&[7; 67][..number % 2 * 67]).unwrap();
                    stranger
                };
                (0..200).map(stranger).collect::<Vec<_>>()
            });
        }
        timed(|| drop(join(&with_secret("secret", place)).unwrap())).1
    });
    let delayed = times[1..].iter().max().unwrap();
    println!("with 200 idle connections the rendezvous took {delayed:?}");
    assert!(*delayed < Duration::from_secs(1), "{times:?}");
}
