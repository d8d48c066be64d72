//! Every starter compiles and fails with a sentence; every solution passes.

use exercises::ALL;

#[test]
fn solutions_pass() {
    for exercise in ALL {
        let score =
            exercise.check_solution().unwrap_or_else(|problem| panic!("{}: {problem}", exercise.name));
        assert!(!score.is_empty());
    }
}

#[test]
fn untouched_starters_fail_with_a_sentence() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for exercise in ALL {
        let text = std::fs::read_to_string(format!("{root}/{}", exercise.file())).unwrap();
        // A reader's answer may pass; what they have not begun must not.
        if text.contains("// Your code here.") {
            let problem = exercise.check().expect_err(exercise.name);
            assert!(problem.len() > 20 && problem.lines().count() <= 12, "{}: {problem}", exercise.name);
            assert!(!problem.contains("panicked"), "{}: {problem}", exercise.name);
        }
    }
}
