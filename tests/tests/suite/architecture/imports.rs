//! Finds the paths that a Rust source imports or spells out, without a compiler.

/// A source's references to other modules. Code under `#[cfg(test)]` is excluded.
#[derive(Default)]
pub struct Imports {
    /// Names that `use` brings into the module, with the paths that they stand for.
    pub names: Vec<(String, Vec<String>)>,
    /// Paths elsewhere in the source that begin with `crate`, `self` or `super`.
    pub spelled: Vec<Vec<String>>,
    /// Child modules that exist only in tests.
    pub test_modules: Vec<String>,
}

/// Parses one source.
pub fn imports(source: &str) -> Imports {
    let tokens = tokens(source);
    let mut found = Imports::default();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        at += match rest[0].as_str() {
            "#" if rest.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"].map(String::from)) => {
                found.test_modules.extend(module_of(rest));
                item(rest)
            }
            "use" => {
                let length = statement(rest);
                tree(&rest[1..length - 1], &[], &mut found.names);
                length
            }
            "crate" | "self" | "super" => {
                let path = path(rest);
                let length = 2 * path.len() - 1;
                found.spelled.extend((path.len() > 1).then_some(path));
                length
            }
            _ => 1,
        };
    }
    found
}

/// Returns the name in `#[cfg(test)] mod name;`.
fn module_of(tokens: &[String]) -> Option<String> {
    let item = &tokens[7..statement(tokens)];
    let after = item.iter().position(|token| token == "mod")? + 1;
    (item.get(after + 1)? == ";").then(|| item[after].clone())
}

/// Returns the number of tokens in an item with its attributes, up to its `;` or the end of its
/// block.
fn item(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the number of tokens up to and including the first `;`.
fn statement(tokens: &[String]) -> usize {
    tokens.iter().position(|token| token == ";").map_or(tokens.len(), |at| at + 1)
}

/// Returns the names of `a::b::c` at the start of `tokens`.
fn path(tokens: &[String]) -> Vec<String> {
    let mut names = vec![tokens[0].clone()];
    let pairs = tokens[1..].chunks_exact(2).take_while(|pair| pair[0] == "::" && is_name(&pair[1]));
    names.extend(pairs.map(|pair| pair[1].clone()));
    names
}

/// Parses a tree of `use`, such as `a::{b, c::d as e}`, below `prefix`.
fn tree(tokens: &[String], prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let Some(first) = tokens.first() else { return };
    if first == "{" {
        branches(&tokens[1..tokens.len() - 1]).for_each(|branch| tree(branch, prefix, found));
        return;
    }
    let path = [prefix, std::slice::from_ref(first)].concat();
    match tokens.get(1).map(String::as_str) {
        Some("::") => tree(&tokens[2..], &path, found),
        Some("as") => found.push((tokens[2].clone(), path)),
        _ if first == "self" => found.extend(prefix.last().cloned().map(|name| (name, prefix.to_vec()))),
        _ => found.push((first.clone(), path)),
    }
}

/// Splits at the commas that are not inside inner braces.
fn branches(tokens: &[String]) -> impl Iterator<Item = &[String]> {
    let mut depth = 0;
    tokens.split(move |token| {
        depth += i32::from(token == "{") - i32::from(token == "}");
        token == "," && depth == 0
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a source into names, `::`, and single characters. Drops comments and literals.
fn tokens(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = match skipped(rest) {
            0 => {
                let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let length = if rest.starts_with("::") { 2 } else { name.max(first.len_utf8()) };
                found.push(rest[..length].to_string());
                length
            }
            skipped => skipped,
        };
        rest = &rest[length..];
    }
    found
}

/// Returns the length in bytes of the white space, comment or literal at the start of `rest`.
fn skipped(rest: &str) -> usize {
    let through =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    let hashes = rest.bytes().skip(1).take_while(|&c| c == b'#').count();
    match rest.as_bytes() {
        [b' ' | b'\t' | b'\r' | b'\n', ..] => 1,
        [b'/', b'/', ..] => through("\n", 2),
        [b'/', b'*', ..] => through("*/", 2),
        [b'r', ..] if rest[1 + hashes..].starts_with('"') => {
            through(&format!("\"{}", "#".repeat(hashes)), 2 + hashes)
        }
        [b'"', ..] => string(rest),
        [b'\'', b'\\', ..] => through("'", 3),
        [b'\'', ..] => {
            let length = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            if rest[length..].starts_with('\'') { length + 1 } else { 1 }
        }
        _ => 0,
    }
}

/// Returns the length of the string literal at the start of `rest`.
fn string(rest: &str) -> usize {
    let mut escaped = true;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |at| at + 1)
}
