//! The job's secret, by which its processes recognise each other: `ZERO_JOB_SECRET`, or the file
//! that `ZERO_JOB_SECRET_FILE` names.

use crate::error::{Failure, Result};
use crate::launcher::Variables;
use collectives::tcp::Secret;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const TEXT: &str = "ZERO_JOB_SECRET";
const FILE: &str = "ZERO_JOB_SECRET_FILE";
/// Minimum length in bytes: a shorter secret could be guessed.
const SHORTEST: usize = 16;
/// Maximum number of bytes that are read from a file.
const LONGEST: u64 = 4096;

/// Returns the job's secret without white space at its ends; `None` if the job has none.
///
/// # Errors
/// A usage failure that names the variable, if the secret is too short, or if its file is missing
/// or readable by others.
pub fn find(variables: Variables<'_>) -> Result<Option<Secret>> {
    let (text, source) = match (variables(TEXT), variables(FILE)) {
        (None, None) => return Ok(None),
        (Some(text), None) => (text, TEXT.to_string()),
        (None, Some(path)) => (read(&path)?, format!("{FILE}={path}")),
        (Some(_), Some(path)) => {
            return Err(Failure::usage(format!("{TEXT} and {FILE}={path} are both set: unset one of them")));
        }
    };
    let text = text.trim().as_bytes();
    if text.len() < SHORTEST {
        return Err(Failure::usage(format!(
            "{source}: the job's secret has {} bytes, and at least {SHORTEST} are needed: it could be guessed\n\
             Make one with: openssl rand -hex 32",
            text.len()
        )));
    }
    Ok(Some(Secret::new(text)))
}

/// Reads a file. Fails unless it belongs to this user and no other user may read it.
fn read(path: &str) -> Result<String> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!(
            "{FILE}={path}: {error}\nMake the file on every machine: (umask 077; openssl rand -hex 32 > {path})"
        ))
    };
    let file = storage::open_regular(File::options().read(true), Path::new(path));
    let file = file.map_err(|error| match error.kind() {
        ErrorKind::NotSeekable => Failure::usage(format!(
            "{FILE}={path}: {error}\nName another path, and make the file: (umask 077; openssl rand -hex 32 > FILE)"
        )),
        _ => failed(error),
    })?;
    let found = file.metadata().map_err(failed)?;
    let (mode, owner, user) = (found.mode() & 0o777, found.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(Failure::usage(format!(
            "{FILE}={path}: it belongs to user {owner}, and this process is user {user}\nName another path, and make the \
             file: (umask 077; openssl rand -hex 32 > FILE)"
        )));
    }
    if mode & 0o077 != 0 {
        return Err(Failure::usage(format!(
            "{FILE}={path}: others may read or change it (mode {mode:03o})\nOnly its owner may read a secret: chmod 600 \
             {path}\nIf others could read it, make a new one: openssl rand -hex 32 > {path}"
        )));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn with(set: &[(&str, &str)]) -> Result<Option<Secret>> {
        find(&|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn a_file_that_only_its_owner_may_read_holds_the_same_secret_as_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let named = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            with(&[(FILE, path.to_str().unwrap())])
        };
        for mode in [0o600, 0o400] {
            assert_eq!(named(mode), with(&[(TEXT, "0123456789abcdef")]), "{mode:o}");
        }
        assert_ne!(named(0o600), with(&[(TEXT, "0123456789abcdeF")]));
        for mode in [0o640, 0o604, 0o620, 0o777] {
            let error = named(mode).unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains("chmod 600"), "{error}");
        }
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = with(&[(FILE, pipe.to_str().unwrap())]).unwrap_err().to_string();
        assert!(error.contains("not a regular file") && error.contains("another path"), "{error}");
    }

    #[test]
    fn secrets_that_are_missing_short_or_given_twice_are_refused_with_the_remedy() {
        assert_eq!(with(&[]), Ok(None));
        for (set, words) in [
            (&[(TEXT, " 0123456789abcde\n")][..], [TEXT, "15 bytes"]),
            (&[(TEXT, "")], [TEXT, "openssl rand"]),
            (&[(FILE, "/no/such/file")], ["ZERO_JOB_SECRET_FILE=/no/such/file: No such file", "umask 077"]),
            (&[(FILE, "/dev/null")], [FILE, "regular file"]),
            (&[(TEXT, "0123456789abcdef"), (FILE, "/tmp/x")], [FILE, "unset one"]),
        ] {
            let failure = with(set).unwrap_err();
            assert_eq!(failure.code(), 2);
            let text = failure.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
