//! Each stage's README links functions of the stage to the tests that check them.

use super::root;
use std::collections::BTreeSet;
use std::fs;

/// Returns the code words of a table's rows, column by column.
fn rows(text: &str) -> Vec<Vec<Vec<String>>> {
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(words).collect()).collect()
}

/// Returns the functions in a stage's file.
fn functions(code: &str) -> BTreeSet<String> {
    let names = code.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
    names.map(String::from).collect()
}

/// True if `test`, such as `contract::name`, is a test of the suite.
fn exists(test: &str) -> bool {
    let Some((module, name)) = test.split_once("::") else { return false };
    let file = root().join("tests/tests/suite").join(module).with_extension("rs");
    let test = format!("#[test]\nfn {name}() {{");
    fs::read_to_string(file).is_ok_and(|text| text.contains(&test))
}

#[test]
fn every_function_of_a_stage_leads_to_a_test_that_holds_it() {
    for stage in ["zero0-ddp", "zero1", "zero2", "zero3"] {
        let folder = root().join(stage);
        let rows = rows(&fs::read_to_string(folder.join("README.md")).unwrap());
        let functions = functions(&fs::read_to_string(folder.join("src/lib.rs")).unwrap());
        let named: BTreeSet<String> = rows.iter().flat_map(|row| row[0].clone()).collect();
        let missing: Vec<_> = functions.difference(&named).collect();
        assert!(
            missing.is_empty() && functions.len() >= 7,
            "{stage}/README.md does not say what holds {missing:?}"
        );
        for name in named.difference(&functions) {
            assert!(folder.join("src").join(name).exists(), "{stage}/README.md: {stage} has no {name}");
        }
        for row in rows {
            let [test] = &row[2][..] else { panic!("{stage}/README.md: one test in a row: {row:?}") };
            assert!(exists(test), "{stage}/README.md: the suite has no test {test}");
        }
    }
    assert!(!exists("contract::nothing"));
}
