//! The checkpoint that all processes of a run agree on.

use checkpoint::CheckpointError;
use settings::{Failure, Result};
use std::io::ErrorKind;

/// Exchanges texts with the other processes: returns every rank's, in rank order.
pub(crate) type Exchange<'a> = dyn Fn(&str) -> Result<Vec<String>> + 'a;

/// The exchange of a run whose ranks are all in this process.
pub(crate) fn alone(mine: &str) -> Result<Vec<String>> {
    Ok(vec![mine.to_string()])
}

/// Returns `mine` unless a process has failed. Collective.
///
/// # Errors
/// This process's failure, or else that of the lowest rank.
pub(crate) fn unanimous<T>(mine: Result<T>, exchange: &Exchange<'_>) -> Result<T> {
    let failures = exchange(&mine.as_ref().err().map_or(String::new(), ToString::to_string))?;
    let first = failures.iter().position(|failure| !failure.is_empty());
    mine.and_then(|mine| match first {
        Some(rank) => Err(Failure::run(format!("rank {rank}: {}", failures[rank]))),
        None => Ok(mine),
    })
}

/// Why a checkpoint is not used.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It is damaged or cannot be read; the message. An older checkpoint may be intact.
    Damaged(String),
    /// The checkpoint may be intact, but this run may not resume from it or read it.
    Refused(Failure),
}

impl From<CheckpointError> for Unfit {
    fn from(error: CheckpointError) -> Self {
        use CheckpointError::{Damaged, Disk, Malformed};
        let words = error.to_string();
        match error {
            // The user or a limit is the cause, not the checkpoint.
            Disk(storage::Error { cause, .. }) if cause.kind() == ErrorKind::PermissionDenied => {
                Unfit::Refused(Failure::usage(words))
            }
            Disk(storage::Error { cause, .. }) if storage::remedy_for_open_files(&cause).is_some() => {
                Unfit::Refused(Failure::run(words))
            }
            Damaged { .. } | Disk(_) | Malformed { .. } => {
                let first = words.lines().next().unwrap_or_default();
                Unfit::Damaged(first.trim_end_matches('.').to_string())
            }
            _ => Unfit::Refused(Failure::usage(words)),
        }
    }
}

/// Checkpoints that are damaged: their names, and what is wrong with them.
pub(crate) type DamagedCheckpoints = Vec<(String, String)>;

/// Opens the newest checkpoint among `names` that is intact for every process; the processes agree
/// on it by `exchange`. Returns it, if there is one, and the newer ones, which are damaged.
///
/// # Errors
/// If a process may not resume it, or the exchange fails.
pub(crate) fn newest_intact<'a, T>(
    names: impl Iterator<Item = &'a str>,
    open: impl Fn(&str) -> std::result::Result<T, Unfit>,
    exchange: &Exchange<'_>,
) -> Result<(Option<T>, DamagedCheckpoints)> {
    let mut damaged = Vec::new();
    for name in names {
        let opened = match open(name) {
            Ok(intact) => Ok(Ok(intact)),
            Err(Unfit::Damaged(how)) => Ok(Err(how)),
            Err(Unfit::Refused(failure)) => Err(failure),
        };
        let opened = unanimous(opened, exchange)?;
        let verdicts = exchange(opened.as_ref().err().map_or("", String::as_str))?;
        match (opened, verdicts.into_iter().find(|how| !how.is_empty())) {
            (Ok(intact), None) => return Ok((Some(intact), damaged)),
            (_, how) => damaged.push((name.to_string(), how.unwrap_or_default())),
        }
    }
    Ok((None, damaged))
}

/// Maximum number of damaged checkpoints that an error lists.
const LISTED: usize = 12;

/// Returns a line for each of the newest of `damaged`.
pub(crate) fn listed(damaged: &DamagedCheckpoints) -> String {
    damaged.iter().take(LISTED).map(|(_, how)| format!("  {how}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io;

    /// "Too many open files", on Linux and macOS.
    const EMFILE: i32 = 24;

    /// Returns what rank 0 of two learns of the checkpoints "new" and "old", which are as it says.
    /// For each name the ranks exchange failures and then damage; `other` has rank 1's texts.
    fn chosen(
        new: fn() -> std::result::Result<u32, Unfit>,
        other: [&str; 4],
    ) -> Result<(Option<u32>, DamagedCheckpoints)> {
        let other = RefCell::new(other.into_iter());
        let exchange =
            |mine: &str| Ok(vec![mine.into(), other.borrow_mut().next().unwrap_or_default().into()]);
        newest_intact(["new", "old"].into_iter(), |name| if name == "new" { new() } else { Ok(1) }, &exchange)
    }

    #[test]
    fn a_checkpoint_that_one_rank_finds_damaged_is_skipped_by_all() {
        let skipped = |how: &str| Ok((Some(1), vec![("new".into(), how.into())]));
        assert_eq!(chosen(|| Ok(2), [""; 4]), Ok((Some(2), Vec::new())));
        assert_eq!(chosen(|| Ok(2), ["", "torn", "", ""]), skipped("torn"));
        assert_eq!(chosen(|| Err(Unfit::Damaged("cut".into())), [""; 4]), skipped("cut"));
    }

    #[test]
    fn a_checkpoint_that_one_rank_refuses_is_refused_by_all() {
        let theirs = Failure::run("rank 1: cannot open a: Permission denied");
        assert_eq!(chosen(|| Ok(2), ["cannot open a: Permission denied", "", "", ""]), Err(theirs));
        let mine = || Err(Unfit::Refused(Failure::usage("other settings")));
        assert_eq!(chosen(mine, [""; 4]), Err(Failure::usage("other settings")));
    }

    /// A file that this user may not read, or for which no descriptor is left, is no damage.
    #[test]
    fn only_damage_makes_a_run_resume_from_an_older_checkpoint() {
        let unfit = |cause: io::Error| {
            let path = "kept/step-00000004".into();
            Unfit::from(CheckpointError::from(storage::Error {
                call: storage::CallKind::Open,
                path,
                offset: None,
                cause,
            }))
        };
        for (cause, remedy, code) in [
            (ErrorKind::PermissionDenied.into(), "Give this user access to it", 2),
            (io::Error::from_raw_os_error(EMFILE), "`ulimit -n`", 1),
        ] {
            let Unfit::Refused(why) = unfit(cause) else { panic!("{remedy}: it counts as damage") };
            assert!(why.to_string().contains(remedy), "{why}");
            assert_eq!(why.code(), code, "{why}");
        }
        assert!(matches!(unfit(ErrorKind::NotFound.into()), Unfit::Damaged(_)));
    }
}
