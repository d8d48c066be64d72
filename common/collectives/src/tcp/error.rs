//! Why the processes of a job cannot connect.

use std::io;
use std::time::Duration;

/// The processes of a job could not connect.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The address of rank 0 cannot be resolved.
    #[error(
        "rank {rank} cannot resolve {address:?} ({source})\n\
         MASTER_ADDR (or --master) must name the machine of rank 0, as every other machine can reach it."
    )]
    Unknown {
        /// The rank that reports.
        rank: u32,
        /// The name.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Rank 0 is not on the machine that the address names.
    #[error(
        "rank 0 cannot listen at {address}: this machine has no such address\n\
         MASTER_ADDR (or --master) must name the machine on which rank 0 runs; {address} belongs to another machine."
    )]
    Elsewhere {
        /// Address and port.
        address: String,
    },
    /// Another program has the port.
    #[error(
        "rank 0 cannot listen at {address}: the port is in use, by another job or a process that one left behind\n\
         Give all ranks another MASTER_PORT (or --master), such as {suggestion}."
    )]
    PortInUse {
        /// Address and port.
        address: String,
        /// A port that was free a moment ago.
        suggestion: u16,
    },
    /// No process listens at the address of rank 0.
    #[error(
        "rank {rank} has not reached rank 0 at {address} within {waited:?}: no process listens there (last: {last})\n\
         Is rank 0 running, and do MASTER_ADDR and MASTER_PORT (or --master) name its machine and port on every rank?\n\
         Rank 0 listens until all ranks have joined. If its job has begun, another process is rank {rank}: each needs a \
         RANK (or --rank) of its own.\n\
         A firewall that rejects connections between the machines looks the same."
    )]
    NotListening {
        /// The rank that reports.
        rank: u32,
        /// Address and port.
        address: String,
        /// The deadline.
        waited: Duration,
        /// The error of the last attempt.
        last: String,
    },
    /// No process answers at the address of rank 0.
    #[error(
        "rank {rank} has not reached rank 0 at {address} within {waited:?} (last: {last})\n\
         Is rank 0 running? Do MASTER_ADDR and MASTER_PORT (or --master) name its machine and port on every rank, \
         and does a firewall let this machine through?"
    )]
    Unreachable {
        /// The rank that reports.
        rank: u32,
        /// Address and port.
        address: String,
        /// The deadline.
        waited: Duration,
        /// The error of the last attempt.
        last: String,
    },
    /// The processes would connect across machines, and have no secret.
    #[error(
        "rank {rank} would connect to other machines ({address}), but the job has no secret\n\
         Set ZERO_JOB_SECRET to the same random text in every process, such as that of: openssl rand -hex 32\n\
         (or ZERO_JOB_SECRET_FILE to a file that holds it and that only you may read):\n  \
         torchrun, or by hand: export it on every machine before the start\n  \
         Slurm: export it in the job's script, before srun\n  \
         mpirun: export it and add -x ZERO_JOB_SECRET (Open MPI); MPI's own transport needs none\n\
         The scripts in scripts/launch make one. On one machine, MASTER_ADDR=127.0.0.1 needs none."
    )]
    NoSecret {
        /// The rank that reports.
        rank: u32,
        /// Address and port.
        address: String,
    },
    /// Rank 0 did not accept this rank's proof.
    #[error(
        "rank 0 at {address} closed the connection to rank {rank} during authentication\n\
         ZERO_JOB_SECRET (or the file of ZERO_JOB_SECRET_FILE) must be the same for every rank. If it is, rank 0 has \
         ended: its own message says why."
    )]
    TurnedAway {
        /// The rank that reports.
        rank: u32,
        /// Address and port.
        address: String,
    },
    /// Another program answers at the address of rank 0.
    #[error(
        "the program that answers rank {rank} at {address} is not rank 0 of this job\n\
         MASTER_ADDR and MASTER_PORT (or --master) must name the machine of rank 0 and a port that is free there."
    )]
    Foreign {
        /// The rank that reports.
        rank: u32,
        /// Address and port.
        address: String,
    },
    /// Rank 0 has given up the job; all ranks receive its reason.
    #[error("{0}")]
    Refused(String),
    /// Ranks that have reached rank 0 did not connect to this rank.
    #[error(
        "rank {rank} waited {waited:.1?} for connections with {missing}, which never came\n\
         They have reached rank 0: do firewalls let the machines reach each other on all ports?"
    )]
    Apart {
        /// The rank that reports.
        rank: u32,
        /// The missing ranks, in words.
        missing: String,
        /// How long it waited.
        waited: Duration,
    },
    /// A rank that has reached rank 0 ended before all ranks were connected.
    #[error(
        "rank {rank} lost rank {peer} after {waited:.1?}, before the job began: its process has ended ({how})\n\
         Its own message says why. A firewall that rejects connections between the machines looks the same."
    )]
    Ended {
        /// The rank that reports.
        rank: u32,
        /// The rank that ended.
        peer: u32,
        /// How long the rank that reports waited for it.
        waited: Duration,
        /// The evidence, in words.
        how: String,
    },
    /// The system refuses something that normally works.
    #[error("this process cannot {what}: {source}")]
    System {
        /// The attempt, in words.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns `rank 3`, or `ranks 1, 2 and 5`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(u32::to_string).collect();
            format!("ranks {} and {last}", rest.join(", "))
        }
    }
}
