//! The memory of a machine, from files as Linux writes them.

use super::*;
use std::fs;

#[test]
fn swap_counts_if_it_is_known() {
    let said = "MemTotal:       24684096 kB\nMemFree:        22540352 kB\nSwapTotal:          1024 kB\n";
    assert_eq!(total(said), Some((24_684_096 << 10, 1024 << 10)));
    assert_eq!(total("MemTotal: 8 kB\n"), Some((8 << 10, 0)));
    assert_eq!(total("MemFree: 8 kB\n"), None);
}

const MIB: u64 = 1 << 20;

/// Returns the memory of a machine with 1000 MiB of memory, 100 MiB of swap, and `files`.
fn found(files: &[(&str, &str)]) -> (u64, Option<PathBuf>) {
    found_if(SwapSpace::Included, files)
}

/// Returns the memory as [`found`] does, with or without the swap space.
fn found_if(swap_space: SwapSpace, files: &[(&str, &str)]) -> (u64, Option<PathBuf>) {
    let root = tempfile::tempdir().unwrap();
    let meminfo = ("proc/meminfo", "MemTotal: 1024000 kB\nSwapTotal: 102400 kB\n");
    for (path, text) in files.iter().chain([&meminfo]) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let memory = memory_under(root.path(), swap_space).unwrap();
    (memory.bytes, memory.limit)
}

fn limit(mebibytes: u64, file: &str) -> (u64, Option<PathBuf>) {
    (mebibytes * MIB, Some(file.into()))
}

const V2: (&str, &str) = (
    "proc/self/mountinfo",
    "24 1 0:22 / /proc rw - proc proc rw\n30 1 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
);

#[test]
fn without_a_limit_the_machines_memory_counts() {
    let all = (1100 * MIB, None);
    assert_eq!(found_if(SwapSpace::Excluded, &[]), (1000 * MIB, None), "page-locked memory is not swapped");
    assert_eq!(found(&[]), all);
    assert_eq!(found(&[V2, ("proc/self/cgroup", "0::/a\n")]), all);
    let none = [V2, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
    assert_eq!(found(&none), all);
    let more = [V2, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "9999999999\n")];
    assert_eq!(found(&more), all);
}

#[test]
fn the_smallest_limit_on_the_path_counts() {
    let path = ("proc/self/cgroup", "0::/job/step/task\n");
    let limits = [
        ("sys/fs/cgroup/job/memory.max", "419430400\n"),
        ("sys/fs/cgroup/job/step/memory.max", "524288000\n"),
        ("sys/fs/cgroup/job/step/task/memory.max", "max\n"),
        ("sys/fs/cgroup/other/memory.max", "1048576\n"),
    ];
    let files = [&[V2, path], &limits[..]].concat();
    assert_eq!(found(&files), limit(500, "/sys/fs/cgroup/job/memory.max"), "400 MiB and the swap space");
    let no_swap = [&files[..], &[("sys/fs/cgroup/job/step/memory.swap.max", "0\n")]].concat();
    assert_eq!(found(&no_swap), limit(500, "/sys/fs/cgroup/job/step/memory.max"));
    let no_swap = [&files[..], &[("sys/fs/cgroup/job/memory.swap.max", "0\n")]].concat();
    assert_eq!(found(&no_swap), limit(400, "/sys/fs/cgroup/job/memory.max"));
}

/// A container, with a namespace of its own and without one.
#[test]
fn a_containers_limit_lies_where_its_part_of_the_tree_is_mounted() {
    let max = ("sys/fs/cgroup/memory.max", "104857600\n");
    let own = found(&[V2, ("proc/self/cgroup", "0::/\n"), max]);
    assert_eq!(own, limit(200, "/sys/fs/cgroup/memory.max"));
    let mount = "30 1 0:27 /docker/7f /sys/fs/cgroup ro master:9 shared:4 - cgroup2 cgroup rw\n";
    let hosts = found(&[("proc/self/mountinfo", mount), ("proc/self/cgroup", "0::/docker/7f\n"), max]);
    assert_eq!(hosts, limit(200, "/sys/fs/cgroup/memory.max"));
    let outside = found(&[V2, ("proc/self/cgroup", "0::/../sibling\n"), max]);
    assert_eq!(outside, limit(200, "/sys/fs/cgroup/memory.max"));
}

#[test]
fn the_first_version_counts_memory_and_swap_together() {
    let mounts = "31 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  32 1 0:29 / /sys/fs/my\\040groups rw - cgroup cgroup rw,memory\n\
                  33 1 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let files = [
        ("proc/self/mountinfo", mounts),
        ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/slurm/job:1\n0::/\n"),
        ("sys/fs/my groups/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/my groups/memory.memsw.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/my groups/slurm/job:1/memory.limit_in_bytes", "314572800\n"),
    ];
    assert_eq!(found(&files), limit(400, "/sys/fs/my groups/slurm/job:1/memory.limit_in_bytes"));
    let both = [&files[..], &[("sys/fs/my groups/slurm/memory.memsw.limit_in_bytes", "314572800")]].concat();
    assert_eq!(found(&both), limit(300, "/sys/fs/my groups/slurm/memory.memsw.limit_in_bytes"));
}
