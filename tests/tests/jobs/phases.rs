//! If a rank is killed or stopped in any phase of a run, all others end in time and name it.

use crate::processes::{ends, explains};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tests::job::{Ended, Member, free_port, met, start, took};
use tests::{at_once, fixture};

const STAGE: &str = env!("CARGO_BIN_EXE_stage");

/// Longer than any process should take to end. A passing test does not wait this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long ranks wait for one another.
const DEADLINE: Duration = Duration::from_secs(3);

/// Additional time that the meeting may take.
const MEETING: Duration = Duration::from_secs(2);

/// How long after the deadline all others may take to end.
const LATE: Duration = Duration::from_secs(5);

const RANKS: usize = 3;

/// The points at which the rank is struck: step and milestone, and flags with which the run reaches
/// them.
const PHASES: [(&str, &str); 10] = [
    ("0:Resuming", "--checkpoint kept"),
    ("0:Begins(Setup)", ""),
    ("1:Begins(Forward)", ""),
    ("1:Begins(Backward)", ""),
    ("1:Begins(Step)", ""),
    ("1:Begins(Evaluate)", "--val-fraction 0.2 --eval-every 2"),
    ("1:Checkpointing", "--checkpoint new --checkpoint-every 2 --checkpoint-wait"),
    ("3:Begins(Save)", "--checkpoint new"),
    ("4:Gathered(3)", "--save weights"),
    ("4:Sharing", ""),
];

/// A rank, and the signal that it receives.
type Blow<'a> = (usize, &'a str);

const BLOWS: [Blow<'_>; 4] = [(0, "KILL"), (1, "KILL"), (0, "STOP"), (1, "STOP")];

/// Returns the flags of all ranks of a run in `dir`.
fn flags(dir: &Path, more: &str) -> String {
    let inside = |flags: String, flag| flags.replace(flag, &format!("{flag}{}/", dir.display()));
    let more = ["--checkpoint ", "--save "].into_iter().fold(more.to_string(), inside);
    format!(
        "zero3 --headless --model {} --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu --timeout {} {more}",
        fixture("odd.json"),
        DEADLINE.as_secs()
    )
}

/// Returns the variables of `rank`, which meets the others at `port` of `address`.
fn place(rank: usize, address: &str, port: u16) -> String {
    format!("RANK={rank} WORLD_SIZE={RANKS} MASTER_ADDR={address} MASTER_PORT={port}")
}

/// Starts all ranks in `dir`. The victim sends itself the signal at `milestone`.
fn launch(dir: &Path, more: &str, (victim, signal): Blow<'_>, milestone: &str) -> Vec<Member> {
    let (port, flags) = (free_port(), flags(dir, more));
    let set = |rank| {
        let struck = format!("ZERO_TEST_STRUCK={signal}:{milestone}");
        format!("{} {}", place(rank, "127.0.0.1", port), if rank == victim { &struck } else { "" })
    };
    (0..RANKS).map(|rank| start(STAGE, &flags, &set(rank))).collect()
}

/// Waits until the victim is struck, then for at most `within` until all others end. Returns how
/// they ended.
fn others(mut members: Vec<Member>, (victim, signal): Blow<'_>, within: Duration) -> Vec<Ended> {
    let victim = members.remove(victim);
    victim.struck(PATIENCE);
    let others = ends(members);
    assert!(took(&others) < within, "{signal}: {others:?}");
    victim.signal("KILL");
    assert_eq!(victim.end(PATIENCE).code, None, "{signal}");
    others
}

/// Starts all ranks in `dir`. Once the victim is struck at `milestone`, waits for at most `within`
/// until all others end. Returns how they ended.
fn others_after(dir: &Path, more: &str, blow: Blow<'_>, (milestone, within): (&str, Duration)) -> Vec<Ended> {
    met(|| {
        let members = launch(dir, more, blow, milestone);
        if members[blow.0].struck(PATIENCE) { Ok(others(members, blow, within)) } else { Err(ends(members)) }
    })
}

/// Strikes a rank at a milestone of a run. All other ranks must name it.
fn strike((milestone, more): (&str, &str), blow: Blow<'_>) {
    let dir = tempfile::tempdir().unwrap();
    if milestone.ends_with("Resuming") {
        let broken = format!("{more} --checkpoint-every 2 --checkpoint-wait --inject panic@rank0,step3");
        met(|| {
            let ended = ends(launch(dir.path(), &broken, (RANKS, ""), ""));
            assert!(ended.iter().all(|ended| ended.code == Some(1)), "{ended:?}");
            if ended.iter().any(Ended::missed_the_meeting) { Err(ended) } else { Ok(()) }
        });
    }
    let (within, words) = match blow.1 {
        "KILL" => (LATE, "its process has ended"),
        _ => (DEADLINE + LATE, "waited 3s"),
    };
    for ended in others_after(dir.path(), more, blow, (milestone, within)) {
        explains(&ended, 1, &[&format!("rank {}", blow.0), words]);
    }
}

#[test]
fn all_name_a_rank_that_is_killed_or_stopped_in_any_phase() {
    at_once(PHASES.into_iter().enumerate(), |(number, phase)| {
        strike(phase, (number % 2, "KILL"));
        strike(phase, ((number + 1) % 2, "STOP"));
    });
}

#[test]
#[ignore = "takes half a minute: both ranks in every phase"]
fn all_name_any_rank_that_is_killed_or_stopped_in_any_phase() {
    at_once(PHASES, |phase| BLOWS.into_iter().for_each(|blow| strike(phase, blow)));
}

/// Once all ranks have received what they need from one another, the job is complete.
#[test]
fn a_rank_that_is_killed_or_stopped_after_all_have_shared_holds_up_no_other() {
    at_once(BLOWS, |blow| {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report.json");
        let more = format!("--report {}", report.display());
        for ended in others_after(dir.path(), &more, blow, ("4:Shared", LATE)) {
            assert_eq!((ended.code, &*ended.error), (Some(0), ""));
        }
        assert_eq!(report.exists(), blow.0 != 0, "rank 0 writes it for all");
    });
}

/// Forwards a connection at `port` of 127.0.0.2 to rank 0's, at 127.0.0.1. Sends a message once the
/// rank behind it has proven its identity and greeted rank 0.
fn carry(port: u16) -> Receiver<()> {
    /// Number of bytes with which a rank proves its identity.
    const PROOF: usize = 68;
    let listener = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut guest = listener.accept().unwrap().0;
        let mut host = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(host) => break host,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let (mut back, mut answers) = (guest.try_clone().unwrap(), host.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let (mut bytes, mut carried) = ([0; 4096], 0);
        while let Ok(read @ 1..) = guest.read(&mut bytes) {
            if host.write_all(&bytes[..read]).is_err() {
                break;
            }
            carried += read;
            if carried > PROOF {
                let _ = tell.send(());
            }
        }
        let _ = host.shutdown(Shutdown::Both);
    });
    told
}

/// Rank 2 arrives after the victim has been struck.
#[test]
fn all_name_a_rank_that_is_killed_or_stopped_in_the_meeting() {
    at_once(BLOWS, |(victim, signal)| {
        let dir = tempfile::tempdir().unwrap();
        let flags = flags(dir.path(), "");
        let others = met(|| {
            let port = free_port();
            let greeted = carry(port);
            let join = |rank, address| start(STAGE, &flags, &place(rank, address, port));
            let mut members = vec![join(0, "127.0.0.1"), join(1, "127.0.0.2")];
            while greeted.recv_timeout(Duration::from_millis(5)).is_err() {
                if members.iter().any(Member::has_ended) {
                    return Err(ends(members));
                }
            }
            members[victim].signal(signal);
            members[victim].struck(PATIENCE);
            members.push(join(2, "127.0.0.1"));
            let others = others(members, (victim, signal), DEADLINE + MEETING + LATE);
            let is_late = others.iter().any(|ended| ended.error.contains("rank 2 never came"));
            if is_late { Err(others) } else { Ok(others) }
        });
        for ended in others {
            explains(&ended, 1, &[&format!("rank {victim}")]);
        }
    });
}
