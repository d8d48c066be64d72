//! Checks the invariants of ARCHITECTURE.md that a program can check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod cycles;
mod guides;
mod imports;
mod stages;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns every file below `dir` with one of these endings, excluding build outputs.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("target") && !entry.ends_with(".git") {
            found.extend(files(&entry, endings));
        } else if entry.extension().is_some_and(|extension| endings.iter().any(|ending| extension == *ending))
        {
            found.push(entry);
        }
    }
    found
}

/// Returns every Rust source below `dir`.
fn sources(dir: &Path) -> Vec<PathBuf> {
    files(dir, &["rs"])
}

/// Returns the workspace crates in a section of a crate's manifest.
fn dependencies(manifest: &Path, section: &str, crates: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let section =
        text.split(&format!("\n[{section}]")).nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| crates.contains(name)).map(String::from).collect()
}

/// Returns the manifests of the workspace's crates below `dir`.
fn manifests(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let folders =
        entries.filter(|path| path.is_dir() && !path.ends_with("target") && !path.ends_with(".git"));
    let is_member = |manifest: &str| !manifest.contains("\n[workspace]");
    let has_one =
        |folder: &PathBuf| fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| is_member(&text));
    folders
        .flat_map(|folder| {
            if has_one(&folder) {
                [vec![folder.join("Cargo.toml")], manifests(&folder)].concat()
            } else {
                manifests(&folder)
            }
        })
        .collect()
}

/// True if the crate is an exercise, which depends on the same crates as its check.
fn is_exercise(folder: &Path) -> bool {
    folder.parent() == Some(Path::new("tutorials/exercises"))
}

#[test]
fn no_crate_depends_upwards() {
    let rooms: [(&str, &str, &str); 28] = [
        ("events", "common/events", "storage"),
        ("device", "common/device", "events"),
        ("collectives", "common/collectives", "events device"),
        ("model", "common/model", "events device"),
        ("prediction", "common/prediction", "events model"),
        ("timeline", "common/timeline", "events model prediction"),
        ("planner", "common/planner", "events model prediction timeline shell"),
        ("storage", "common/storage", ""),
        ("shell", "common/shell", ""),
        ("text", "common/text", ""),
        ("offload", "common/offload", "events device collectives storage"),
        ("sharding", "common/sharding", "events device collectives model offload"),
        ("checkpoint", "common/checkpoint", "events device model storage text"),
        ("screen", "viz/screen", "events"),
        ("viz", "viz", "events screen shell storage"),
        (
            "settings",
            "common/settings",
            "events device collectives model prediction sharding checkpoint storage shell text screen",
        ),
        ("deepspeed", "common/deepspeed", "events device model prediction sharding checkpoint settings"),
        (
            "report",
            "common/report",
            "events storage shell device collectives model prediction offload sharding settings",
        ),
        (
            "trainer",
            "common/trainer",
            "events device collectives model prediction offload sharding checkpoint storage shell text settings \
             deepspeed report screen",
        ),
        ("zero0-ddp", "zero0-ddp", STAGE),
        ("zero1", "zero1", STAGE),
        ("zero2", "zero2", STAGE),
        ("zero3", "zero3", STAGE),
        ("stages", "stages", "events settings deepspeed trainer prediction zero0-ddp zero1 zero2 zero3"),
        ("bandwidth", "bandwidth", "events device collectives settings shell"),
        (
            "tutorials",
            "tutorials",
            "events storage shell model prediction planner checkpoint screen viz settings deepspeed report trainer \
             stages",
        ),
        (
            "exercises",
            "tutorials/exercises/checks",
            "events device collectives prediction sharding shell trainer stages",
        ),
        (
            "tests",
            "tests",
            "events device collectives shell settings deepspeed report trainer prediction stages zero3",
        ),
    ];
    let names: Vec<&str> = rooms.iter().map(|(name, _, _)| *name).collect();
    for manifest in manifests(&root()) {
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
        let listed = rooms.iter().any(|(_, dir, _)| Path::new(dir) == folder);
        assert!(listed || is_exercise(folder), "{}: say what it may depend on", folder.display());
    }
    let manifest = |dir: &str| root().join(dir).join("Cargo.toml");
    let mut edges = BTreeMap::new();
    for (name, dir, allowed) in rooms {
        let found = dependencies(&manifest(dir), "dependencies", &names);
        for dependency in &found {
            let is_allowed = allowed.split(' ').any(|room| room == dependency);
            assert!(is_allowed, "{name} must not depend on {dependency}");
        }
        edges.insert(name.to_string(), found);
    }
    assert!(edges["trainer"].len() >= 7 && edges["zero3"].len() >= 3, "the manifests were read: {edges:?}");
    let mut tested_with = 0;
    for (name, dir, _) in rooms {
        for other in dependencies(&manifest(dir), "dev-dependencies", &names) {
            assert!(
                !stands_on(&other, name, &edges),
                "{name} must not be tested with {other}, which stands on it"
            );
            tested_with += 1;
        }
    }
    assert!(tested_with >= 5, "the manifests' dev-dependencies were read");
}

/// `shell::parse` exits with an error if help cannot be written, and takes negative numbers.
#[test]
fn every_program_parses_its_command_line_with_shell() {
    let mut parsed = 0;
    for path in sources(&root()) {
        for line in code(&path).iter().filter(|line| line.trim_end().ends_with("::parse();")) {
            assert!(line.contains("shell::parse()"), "{}: {line}", path.display());
            parsed += 1;
        }
    }
    assert!(parsed > 5, "the search finds what is there");
}

/// Rows of tables stay on one line.
#[test]
fn comments_wrap_at_100_columns() {
    let mut comments = 0;
    for path in sources(&root()) {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
            let is_row = line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
            assert!(is_row || line.chars().count() <= 100, "{}: {line}", path.display());
            comments += 1;
        }
    }
    assert!(comments > 1000, "the search finds what is there");
}

/// A library with `test = false` has no tests in its sources, where they would never run.
#[test]
fn every_test_in_a_crates_sources_runs() {
    let mut tested = 0;
    for manifest in manifests(&root()) {
        let text = fs::read_to_string(&manifest).unwrap();
        let library = text.split("\n[lib]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or("");
        let is_tested = !library.lines().any(|line| line == "test = false");
        for path in sources(&manifest.with_file_name("src")) {
            let has_tests = fs::read_to_string(&path).unwrap().contains("#[cfg(test)]");
            assert!(is_tested || !has_tests, "{}: its crate's library is not tested", path.display());
            tested += usize::from(has_tests);
        }
    }
    assert!(tested > 50, "the search finds what is there");
}

/// True if `room` reaches `other` along `edges`.
fn stands_on(room: &str, other: &str, edges: &BTreeMap<String, Vec<String>>) -> bool {
    edges[room].iter().any(|below| below == other || stands_on(below, other, edges))
}

/// The crates that a stage may depend on.
const STAGE: &str = "events device collectives model prediction offload sharding trainer";

/// Returns the code of a source without comments and without everything from its test module on.
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    code.lines().map(|line| line.split("//").next().unwrap_or("").to_string()).collect()
}

#[test]
fn unsafe_lives_in_device_and_collectives_alone() {
    let word =
        |line: &str, word: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
    let mut seen = 0;
    for path in sources(&root()) {
        let inside = path.starts_with(root().join("common/device"))
            || path.starts_with(root().join("common/collectives"));
        for line in code(&path) {
            if word(&line, "unsafe") && !line.contains('"') {
                seen += 1;
                assert!(inside, "{}: {line}", path.display());
            }
        }
    }
    assert!(seen > 0, "the search finds what is there");
}

#[test]
fn nothing_under_common_asks_which_stage_it_serves() {
    let stages =
        ["Stage::Ddp", "Stage::Zero1", "Stage::Zero2", "Stage::Zero3", "Stage::{", "Stage::*", "Self::Zero"];
    // The single table of what each stage shards, the claims about the stages, and published runs.
    let exempt =
        ["common/prediction/src/stage.rs", "common/planner/src/claims", "common/timeline/src/published.rs"]
            .map(|path| root().join(path));
    assert!(exempt.iter().all(|path| path.exists()), "{exempt:?}");
    let numbered = |line: &str| {
        let compared =
            |rest: &str| rest.trim_start().trim_start_matches(['=', '<', '>', '!']).trim_start().to_owned();
        let word_ends = |rest: &&str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let after = line.split("stage").skip(1).filter(word_ends);
        after.map(compared).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    assert!(numbered("if stage >= 2 {") && !numbered("if stage == job.stage") && !numbered("\"stage3_x\""));
    for path in sources(&root().join("common")) {
        let is_exempt = exempt.iter().any(|exempt| path.starts_with(exempt));
        if is_exempt || path.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for line in code(&path) {
            let known = stages.iter().any(|stage| line.contains(stage)) || numbered(&line);
            assert!(!known, "{}: {line}", path.display());
        }
    }
}

#[test]
fn a_stage_is_one_file_of_at_most_150_lines_and_its_variants_are_files_of_their_own() {
    let mut variants = 0;
    for stage in ["zero0-ddp", "zero1", "zero2", "zero3"] {
        let folder = root().join(stage).join("src");
        for path in sources(&folder) {
            let name = path.strip_prefix(&folder).unwrap();
            let is_variant = name.starts_with("variants");
            variants += usize::from(is_variant);
            assert!(is_variant || name == "lib.rs" || name == "main.rs", "{stage}: {}", name.display());
        }
        let lib = code(&folder.join("lib.rs"));
        let lines = lib.iter().filter(|line| !line.trim().is_empty()).count();
        assert!((50..=150).contains(&lines), "{stage} has {lines} lines of code");
    }
    assert!(variants > 1, "the search finds what is there");
}

/// True if `line` adds in an order that depends on timing: CUDA's `atomicAdd` and its variants,
/// C++'s `fetch_add`, PTX's `atom` and `red`.
fn adds_atomically(line: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.');
    let fetches =
        ["add", "sub", "and", "or", "xor", "max", "min"].map(|operation| format!("fetch_{operation}"));
    let atomic = |word: &str| {
        let begins = |prefix: &str| word.to_lowercase().starts_with(prefix);
        let fetch = || fetches.iter().any(|fetch| word.ends_with(fetch));
        begins("atomic") || begins("atom.") || begins("red.") || fetch()
    };
    words.into_iter().any(atomic)
}

#[test]
fn no_kernel_uses_atomics() {
    for bad in [
        "    atomicAdd(&sum[row], value);",
        "asm(\"red.global.add.f32 [%0], %1;\" :: \"l\"(to), \"f\"(x));",
        "asm volatile(\"atom.add.f32 %0, [%1], %2;\")",
        "sum.fetch_add(x)",
    ] {
        assert!(adds_atomically(bad), "{bad}");
    }
    assert!(!adds_atomically("keys.fetch_tiles<M>(head, first_row, tokens);"));
    let kernels = files(&root().join("common/device/src/cuda/kernels"), &["cu", "cuh"]);
    assert!(kernels.len() > 15, "{kernels:?}");
    for path in kernels {
        for line in code(&path) {
            assert!(!adds_atomically(&line), "{}: {line}", path.display());
        }
    }
}

#[test]
fn modules_of_a_crate_import_one_way() {
    let (mut seen, mut wrong) = (0, String::new());
    for manifest in manifests(&root()) {
        let folder = manifest.parent().unwrap();
        let name = folder.strip_prefix(root()).unwrap().to_str().unwrap();
        let of_program = |program: &PathBuf| cycles::cycles(&modules(program));
        let cycles: Vec<String> =
            programs(folder).iter().flat_map(of_program).map(|cycle| cycle.to_string()).collect();
        if !cycles.is_empty() {
            wrong += &format!("{name} imports in a circle\n{}", cycles.concat());
        }
        seen += 1;
    }
    assert!(seen > 15, "the crates were found");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Cargo unifies the features that a build requests. If a test requested more features of a
/// dependency than a stage does, everything that depends on it would be built a second time.
#[test]
fn tests_build_nothing_again_that_a_first_run_has_built() {
    let everything = with_features(&["--workspace", "--edges", "normal,build,dev"]);
    for package in ["zero0-ddp", "zero1", "zero2", "zero3", "viz", "tutorials"] {
        let run = with_features(&["--package", package, "--edges", "normal,build"]);
        assert!(run.len() > 50, "{package}: its dependencies were found");
        let again: Vec<_> = run.difference(&everything).collect();
        assert!(again.is_empty(), "{package} asks for fewer features than its tests: {again:#?}");
    }
}

/// Returns each package that Cargo would build, with its version and features.
fn with_features(selection: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--locked", "--prefix", "none", "--format", "{p} {f}"]);
    let output = tree.args(selection).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_string()).collect()
}

/// Returns the folders of a crate that hold the root of a library or of a program, excluding tests.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let is_test =
        |path: &Path| path.starts_with(folder.join("tests")) || path.starts_with(folder.join("benches"));
    let roots = sources(folder).into_iter().filter(|path| !is_test(path));
    let roots = roots.filter(|path| path.ends_with("lib.rs") || path.ends_with("main.rs"));
    let folders: BTreeSet<PathBuf> = roots.map(|path| path.parent().unwrap().to_path_buf()).collect();
    folders.into_iter().collect()
}

/// Returns the text of each module of a program, by the module's names below `root`.
fn modules(root: &Path) -> BTreeMap<cycles::Module, String> {
    let mut found: BTreeMap<cycles::Module, String> = BTreeMap::new();
    for path in sources(root).iter().filter(|path| !path.starts_with(root.join("bin"))) {
        let module = path.strip_prefix(root).unwrap().with_extension("");
        let mut names: cycles::Module = module.iter().map(|name| name.to_str().unwrap().into()).collect();
        if ["lib", "main", "mod"].contains(&names.last().unwrap().as_str()) {
            names.pop();
        }
        found.entry(names).or_default().push_str(&fs::read_to_string(path).unwrap());
    }
    found
}
