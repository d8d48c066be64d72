//! Rendezvous in which a rank ends, or starts again, before all are connected.

use crate::processes::{PATIENT, meet, place};
use collectives::tcp::{JoinOptions, join};
use std::net::TcpListener;
use std::sync::Barrier;
use std::time::Duration;

#[test]
fn a_rank_whose_connection_breaks_before_the_proof_tries_again() {
    let met = meet(&place(2, PATIENT), |place| {
        if place.rank == 0 {
            // The first process at the address ends once rank 1 has connected to it.
            let first = TcpListener::bind((&place.address[..], place.port)).unwrap();
            drop(first.accept().unwrap());
        }
        join(&place).unwrap().group.exchange(&[place.rank as u8]).unwrap()
    });
    assert_eq!(met, [[[0], [1]]; 2]);
}

/// Rank 0 listens no more then. The job is not disturbed.
#[test]
fn a_rank_that_is_started_again_once_the_job_has_begun_reads_that_it_may_have_joined() {
    let again = Barrier::new(2);
    let met = meet(&place(2, PATIENT), |place| {
        let joined = join(&place).unwrap();
        joined.group.exchange(&[]).unwrap();
        let late = (place.rank == 1).then(|| {
            let late = JoinOptions { timeout: Duration::from_millis(300), ..place.clone() };
            join(&late).err().unwrap().to_string()
        });
        again.wait();
        joined.group.exchange(&[place.rank as u8]).unwrap();
        late
    });
    let error = met[1].as_ref().unwrap();
    assert!(error.starts_with("rank 1 has not reached rank 0 at 127.0.0.1:"), "{error}");
    assert!(error.contains("If its job has begun, another process is rank 1: each needs a RANK"), "{error}");
}

#[test]
fn a_rank_that_comes_after_a_refusal_learns_the_reason() {
    let refused = Barrier::new(2);
    let errors = meet(&place(3, PATIENT), |place| {
        let error = |place: &JoinOptions| join(place).err().unwrap().to_string();
        match place.rank {
            1 => {
                let error = error(&JoinOptions { settings: "steps 4".into(), ..place });
                refused.wait();
                error
            }
            2 => {
                refused.wait();
                error(&place)
            }
            _ => error(&place),
        }
    });
    assert!(
        errors.iter().all(|e| e.contains("rank 0: steps 3") && e.contains("rank 1: steps 4")),
        "{errors:?}"
    );
}
