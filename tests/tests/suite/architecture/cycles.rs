//! Cycles of imports between the modules of one folder.
//!
//! The children of a folder are the nodes: a file, or a subfolder with everything in it. A node has
//! an edge to a sibling if any file in it imports anything from that sibling. A name that a parent
//! re-exports counts for the module that defines it.

use super::imports::{Imports, imports};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter, Result};

/// A module's names below the root of its crate: empty for the root.
pub type Module = Vec<String>;

/// Siblings that import one another.
#[derive(Debug, PartialEq)]
pub struct Cycle {
    folder: Module,
    members: Vec<String>,
    /// One line for each import that closes the cycle: `from -> to: module uses path`.
    imports: Vec<String>,
}

impl Display for Cycle {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let folder = if self.folder.is_empty() { "the crate's root".into() } else { self.folder.join("/") };
        writeln!(f, "in {folder}: {}", self.members.join(", "))?;
        self.imports.iter().try_for_each(|import| writeln!(f, "    {import}"))
    }
}

/// Finds the cycles of a crate, given the text of each of its modules.
pub fn cycles(sources: &BTreeMap<Module, String>) -> Vec<Cycle> {
    let tree = Tree::new(sources);
    tree.folders().into_iter().flat_map(|(folder, edges)| tied(&folder, &edges)).collect()
}

/// Imports between siblings: source, target, and the text of the import.
type Edges = BTreeSet<(String, String, String)>;

struct Tree {
    modules: BTreeSet<Module>,
    imports: BTreeMap<Module, Imports>,
    names: BTreeMap<(Module, String), Vec<String>>,
}

impl Tree {
    fn new(sources: &BTreeMap<Module, String>) -> Tree {
        let mut imports: BTreeMap<_, _> =
            sources.iter().map(|(module, text)| (module.clone(), imports(text))).collect();
        let child = |module: &Module, name: &String| [module.as_slice(), std::slice::from_ref(name)].concat();
        let in_tests: Vec<Module> = imports
            .iter()
            .flat_map(|(module, found)| found.test_modules.iter().map(move |name| child(module, name)))
            .collect();
        imports.retain(|module, _| !in_tests.iter().any(|tests| module.starts_with(tests)));
        let modules = imports.keys().flat_map(|module| (0..=module.len()).map(|to| module[..to].to_vec()));
        let names = imports.iter().flat_map(|(module, found)| {
            found.names.iter().map(|(name, path)| ((module.clone(), name.clone()), path.clone()))
        });
        Tree { modules: modules.collect(), names: names.collect(), imports }
    }

    /// Returns the edges between the children of each folder.
    fn folders(&self) -> BTreeMap<Module, Edges> {
        let mut folders: BTreeMap<Module, Edges> = BTreeMap::new();
        for (module, found) in &self.imports {
            for path in found.names.iter().map(|(_, path)| path).chain(&found.spelled) {
                let target = self.resolve(module, path, 8);
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    let reads = format!("{} uses {}", module.join("/"), path.join("::"));
                    folders.entry(module[..shared].to_vec()).or_default().insert((
                        from.clone(),
                        to.clone(),
                        reads,
                    ));
                }
            }
        }
        folders
    }

    /// Returns the module to which `path`, as written in `module`, leads, following at most `hops`
    /// imports.
    fn resolve(&self, module: &Module, path: &[String], hops: usize) -> Module {
        let mut at = module.clone();
        for name in path {
            let inner = [at.as_slice(), std::slice::from_ref(name)].concat();
            if name == "crate" {
                at.clear();
            } else if name == "super" {
                at.pop();
            } else if self.modules.contains(&inner) {
                at = inner;
            } else if let Some(path) = self.names.get(&(at.clone(), name.clone()))
                && hops > 0
            {
                at = self.resolve(&at, path, hops - 1);
            } else if name != "self" {
                break;
            }
        }
        at
    }
}

/// Returns the cycles of one folder. Each is a maximal set of children that all reach one another.
fn tied(folder: &Module, edges: &Edges) -> Vec<Cycle> {
    let nodes: BTreeSet<&String> = edges.iter().map(|(from, _, _)| from).collect();
    let circle = |node: &String| -> BTreeSet<String> {
        let reached = reached(node, edges);
        reached.into_iter().filter(|other| self::reached(other, edges).contains(node)).collect()
    };
    let circles: BTreeSet<_> = nodes.into_iter().map(circle).filter(|circle| circle.len() > 1).collect();
    let cycle = |members: BTreeSet<String>| {
        let inside = edges.iter().filter(|(from, to, _)| members.contains(from) && members.contains(to));
        let imports = inside.map(|(from, to, reads)| format!("{from} -> {to}: {reads}")).collect();
        Cycle { folder: folder.clone(), members: members.into_iter().collect(), imports }
    };
    circles.into_iter().map(cycle).collect()
}

/// Returns the nodes that are reachable from `from`. Includes `from` only if it is on a cycle.
fn reached(from: &str, edges: &Edges) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        for (_, to, _) in edges.iter().filter(|(from, _, _)| from == node) {
            if found.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(sources: &[(&str, &str)]) -> BTreeMap<Module, String> {
        let module = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(String::from).collect();
        sources.iter().map(|(path, text)| (module(path), text.to_string())).collect()
    }

    fn members(sources: &[(&str, &str)]) -> Vec<String> {
        cycles(&tree(sources)).iter().map(|cycle| cycle.members.join(" ")).collect()
    }

    #[test]
    fn siblings_that_import_each_other_are_a_cycle() {
        let found = cycles(&tree(&[
            ("", "mod loop_; mod report; mod rows;"),
            ("loop_", "use crate::report::{self, Row as R};"),
            ("report", "use super::rows::Label;"),
            ("rows", "fn f(x: crate::loop_::Step) {}"),
            ("alone", "use crate::rows::Label;"),
        ]));
        let [cycle] = &found[..] else { panic!("{found:?}") };
        assert_eq!(cycle.members, ["loop_", "report", "rows"]);
        assert!(cycle.to_string().contains("rows -> loop_: rows uses crate::loop_::Step"), "{cycle}");
    }

    #[test]
    fn a_name_that_the_parent_reexports_counts_for_the_module_that_defines_it() {
        let sources = [
            ("", "pub use cli::{Flags, Kind as Sort};"),
            ("cli", "use crate::settings::Settings;"),
            ("settings", "use crate::Sort;"),
        ];
        assert_eq!(members(&sources), ["cli settings"]);
        assert_eq!(members(&[sources[0], sources[1], ("settings", "use crate::Kind;")]), [""; 0]);
    }

    #[test]
    fn a_folder_is_one_node_and_its_children_are_nodes_of_their_own() {
        let between = [("wire/send", "use crate::local::Row;"), ("local/pair", "use crate::wire;")];
        assert_eq!(members(&between), ["local wire"]);
        let within = [("wire/send", "use super::receive::Row;"), ("wire/receive", "use crate::wire::send;")];
        assert_eq!(members(&within), ["receive send"]);
        assert_eq!(members(&[("wire", "use wire::send::Row;"), ("wire/send", "use super::Wire;")]), [""; 0]);
    }

    #[test]
    fn tests_comments_and_strings_tie_nothing() {
        let tests = "#[cfg(test)]\nmod tests { use crate::b::X; fn f() { '{'; } }\n#[cfg(test)] mod slow;";
        let quoted = "// use crate::b;\n/* crate::b */ fn f() { \"\\\"crate::b\"; r#\"\"crate::b\"#; }";
        let b = ("b", "use crate::a::Y;");
        assert_eq!(members(&[("a", tests), ("a/slow", "use crate::b;"), b]), [""; 0]);
        assert_eq!(members(&[("a", quoted), b]), [""; 0]);
        assert_eq!(members(&[("a", &format!("{tests} {quoted} use crate::b;")), b]), ["a b"]);
    }
}
