//! Items and links of a source.

use super::*;

const SOURCE: &str = "\
/// A thing.
pub struct Thing {
    a: u8,
}

impl Thing {
    /// Does.
    fn step(
        &self,
    ) -> u8 {
        1
    }

    fn step_two(&self) {}

    const WORDS: &[u8] =
        &[1, 2];
}
";

#[test]
fn items_are_found_by_name_with_their_documentation() {
    assert_eq!(
        item(SOURCE, "struct Thing").unwrap(),
        ["/// A thing.", "pub struct Thing {", "    a: u8,", "}"]
    );
    let step = item(SOURCE, "fn step").unwrap();
    assert_eq!(step, ["/// Does.", "fn step(", "    &self,", ") -> u8 {", "    1", "}"]);
    assert_eq!(item(SOURCE, "fn step_two").unwrap(), ["fn step_two(&self) {}"]);
    assert_eq!(item(SOURCE, "const WORDS").unwrap(), ["const WORDS: &[u8] =", "    &[1, 2];"]);
    assert_eq!(item(SOURCE, "fn ste"), None);
}

#[test]
fn links_lead_to_lines_and_may_be_a_few_lines_off() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("thing.rs"), SOURCE).unwrap();
    let fresh = [link(root.path(), "thing.rs", "fn step").unwrap()];
    assert_eq!(fresh, ["[`fn step`](../../thing.rs#L8)"]);
    assert!(link(root.path(), "thing.rs", "fn stop").unwrap_err().to_string().contains("fn stop"));
    for (old, same) in [
        ("[`fn step`](../../thing.rs#L8)", true),
        ("[`fn step`](../../thing.rs#L28)", true),
        ("[`fn step`](../../thing.rs#L29)", false),
        ("[`fn step`](../../thing.rs)", false),
        ("[`fn stop`](../../thing.rs#L8)", false),
        ("[`fn step`](../../thing.rs#L8) more", false),
    ] {
        assert_eq!(alike(&[old], &fresh), same, "{old}");
    }
    assert!(!alike(&[], &fresh));
}
