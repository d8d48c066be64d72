//! Memory limits of control groups: cgroups(7), version 1 and 2, of which a system may have both. A
//! limit applies to all groups below it, so the smallest limit on a process's path counts.

use super::MainMemory;
use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

/// A version of control groups.
struct Version {
    file_system: &'static str,
    /// The limit of main memory.
    memory: &'static str,
    /// The limit of swap space alone, or of both together.
    swap: &'static str,
    swap_is_alone: bool,
}

const ONE: Version = Version {
    file_system: "cgroup",
    memory: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    swap_is_alone: false,
};

const TWO: Version =
    Version { file_system: "cgroup2", memory: "memory.max", swap: "memory.swap.max", swap_is_alone: true };

/// Returns the limits on the path of this process, each with the swap space that it allows of the
/// machine's `swap` bytes. The system's files are under `root`.
pub(super) fn limits(root: &Path, swap: u64) -> Vec<MainMemory> {
    let read = |path: &str| read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let levels = [ONE, TWO].into_iter().flat_map(|version| {
        let levels = version.levels(&groups, &mounts);
        levels.into_iter().flat_map(move |level| version.limits(root, &level, swap))
    });
    levels.collect()
}

impl Version {
    /// Returns the directories of this process's group and of the groups above it that are mounted.
    fn levels(&self, groups: &str, mounts: &str) -> Vec<PathBuf> {
        let Some(group) = groups.lines().find_map(|line| self.group(line)) else { return Vec::new() };
        let mounts: Vec<_> = mounts.lines().filter_map(|line| self.mount(line)).collect();
        let below = |(top, at): &(PathBuf, PathBuf)| Some((at.clone(), group.strip_prefix(top).ok()?));
        // A group outside the mounted ones is bound at least by the limits of the mounted one.
        let outside = || Some((mounts.first()?.1.clone(), Path::new("")));
        let Some((at, below)) = mounts.iter().find_map(below).or_else(outside) else { return Vec::new() };
        let is_below = below.components().all(|part| matches!(part, Component::Normal(_)));
        let below = if is_below { below } else { Path::new("") };
        below.ancestors().map(|part| at.join(part)).collect()
    }

    /// Returns the group that a line of `/proc/self/cgroup` names: `ID:CONTROLLERS:PATH`.
    fn group<'a>(&self, line: &'a str) -> Option<&'a Path> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_ours = if self.swap_is_alone {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|controller| controller == "memory")
        };
        is_ours.then_some(Path::new(path))
    }

    /// Returns the group at the top of a mount, and the directory where it is mounted, from a line
    /// of `/proc/self/mountinfo`: `ID PARENT DEVICE TOP DIRECTORY OPTIONS … - TYPE SOURCE OPTIONS`.
    fn mount(&self, line: &str) -> Option<(PathBuf, PathBuf)> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (file_system, options) = (after.next()?, after.nth(1).unwrap_or_default());
        let has_memory = self.swap_is_alone || options.split(',').any(|option| option == "memory");
        let mut paths = before.split(' ').skip(3).map(|word| PathBuf::from(unescaped(word)));
        (file_system == self.file_system && has_memory).then_some((paths.next()?, paths.next()?))
    }

    /// Returns the limits of the group at `level`, at most one of memory and one of memory and
    /// swap.
    fn limits(&self, root: &Path, level: &Path, swap: u64) -> Vec<MainMemory> {
        let bytes = |name: &str| {
            let path = root.join(level.strip_prefix("/").unwrap_or(level)).join(name);
            read_to_string(path).ok()?.trim().parse::<u64>().ok()
        };
        let of = |name: &str, bytes: u64| MainMemory { bytes, limit: Some(level.join(name)) };
        let own_swap = bytes(self.swap);
        let allowed = own_swap.filter(|_| self.swap_is_alone).map_or(swap, |own| own.min(swap));
        let memory = bytes(self.memory).map(|memory| of(self.memory, memory.saturating_add(allowed)));
        let both = own_swap.filter(|_| !self.swap_is_alone).map(|both| of(self.swap, both));
        memory.into_iter().chain(both).collect()
    }
}

/// Decodes a path of proc(5), in which spaces and some other characters are octal numbers.
fn unescaped(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&part[3..]);
            }
            None => text.extend(["\\", part]),
        }
    }
    text
}
