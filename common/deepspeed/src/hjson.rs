//! HJSON, which DeepSpeed reads: JSON, in which comments, commas before a closing bracket, and
//! names and text without quotes are allowed. Text without quotes extends to the end of its line.

use crate::node::Node;
use events::say::shortened;
use std::collections::HashSet;

/// The deepest nesting of sections and lists.
const DEEPEST: usize = 128;

/// Reads `text`. As in DeepSpeed, a key that is given twice in one section is an error.
pub(crate) fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { text, at: 0 };
    let root = parser.root();
    root.and_then(|root| match parser.peek() {
        None => Ok(root),
        Some(_) => Err("trailing characters: the first value has ended".into()),
    })
    .map_err(|what| format!("{what}, at {}", parser.place()))
}

struct Parser<'a> {
    text: &'a str,
    /// Number of bytes read.
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn place(&self) -> String {
        let read = &self.text[..self.at];
        let column = read.rsplit('\n').next().map_or(0, |line| line.chars().count());
        format!("line {} column {}", read.matches('\n').count() + 1, column + 1)
    }

    /// Skips space and comments, and returns the next character.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest().trim_start();
            let comment = if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else if rest.starts_with('#') || rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                self.at = self.text.len() - rest.len();
                return rest.chars().next();
            };
            self.at = self.text.len() - rest.len() + comment;
        }
    }

    /// Skips `expected` if it is next.
    fn take(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        self.at += if found { expected.len_utf8() } else { 0 };
        found
    }

    /// Reads a value, or the members of a section without its braces.
    fn root(&mut self) -> Result<Node, String> {
        if self.peek().is_some_and(|next| !"{[\"'".contains(next)) {
            let start = self.at;
            let section = self.section(None, 0);
            let Err(_) = section else { return section };
            let failed = std::mem::replace(&mut self.at, start);
            let value = self.value(0);
            if value.is_ok() && self.peek().is_none() {
                return value;
            }
            self.at = failed;
            return section;
        }
        self.value(0)
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        if depth == DEEPEST {
            return Err("recursion: values are nested too deeply".into());
        }
        match self.peek() {
            None => Err("EOF: the file ends before a value".into()),
            Some('{') if self.take('{') => self.section(Some('}'), depth),
            Some('[') if self.take('[') => self.list(depth),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Node::Text),
            Some(':' | ',' | '}' | ']') => Err("expected a value".into()),
            Some(_) => self.unquoted(),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, String> {
        let mut items = Vec::new();
        while !self.take(']') {
            items.push(self.value(depth + 1)?);
            self.take(',');
        }
        Ok(Node::List(items))
    }

    /// Reads names and values up to `end`, or to the end of the file.
    fn section(&mut self, end: Option<char>, depth: usize) -> Result<Node, String> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        while self.peek() != end {
            let name = self.name()?;
            if !seen.insert(name.clone()) {
                return Err(format!("key {} is given twice", shortened(&name)));
            }
            if !self.take(':') {
                return Err(format!("expected a colon after the key {}", shortened(&name)));
            }
            let value = self.value(depth + 1)?;
            self.take(',');
            entries.push((name, value));
        }
        self.at += end.map_or(0, char::len_utf8);
        Ok(Node::Section(entries))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.peek() {
            None => Err("EOF: a section is not closed".into()),
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(_) => {
                let ends = |c: char| c.is_whitespace() || "{}[],:".contains(c);
                let length = self.rest().find(ends).unwrap_or(self.rest().len());
                let name = &self.rest()[..length];
                self.at += length;
                if name.is_empty() { Err("expected a key".into()) } else { Ok(name.into()) }
            }
        }
    }

    /// Reads text between quotes, with JSON's escapes.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut escaped = false;
        let end = self.rest().char_indices().skip(1).find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return Err("EOF: text is not closed".into()) };
        let inner = &self.rest()[1..end];
        let inner = if quote == '"' { inner.into() } else { with_double_quotes(inner) };
        let text = serde_json::from_str(&format!("\"{inner}\""));
        let text = text.map_err(|_| format!("{} is not a valid JSON string", shortened(&inner)))?;
        self.at += end + 1;
        Ok(text)
    }

    /// Reads a number, a truth value or null, or else text up to the end of the line.
    fn unquoted(&mut self) -> Result<Node, String> {
        let rest = self.rest();
        let comments = |at: usize| ["//", "/*"].iter().any(|comment| rest[at..].starts_with(comment));
        let ends = |&(at, c): &(usize, char)| "\n,}]#".contains(c) || comments(at);
        let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        if let Some(node) = word(rest[..end].trim_end())? {
            self.at += end;
            return Ok(node);
        }
        let line = rest.lines().next().unwrap_or("");
        self.at += line.len();
        Ok(Node::text(line.trim_end()))
    }
}

/// Converts the text between single quotes to the form that it has between double quotes.
fn with_double_quotes(inner: &str) -> String {
    let (mut out, mut escaped) = (String::with_capacity(inner.len()), false);
    for c in inner.chars() {
        if c == '\'' && escaped {
            out.pop();
        }
        if c == '"' && !escaped {
            out.push('\\');
        }
        out.push(c);
        escaped = c == '\\' && !escaped;
    }
    out
}

/// Returns the number, truth value or null that `word` writes; `None` if it is text.
fn word(word: &str) -> Result<Option<Node>, String> {
    let known = match word {
        "true" => Some(Node::Flag(true)),
        "false" => Some(Node::Flag(false)),
        "null" => Some(Node::Null),
        "True" | "False" | "None" => {
            return Err(format!("{word} is Python: write true, false or null"));
        }
        _ => None,
    };
    let number = word.bytes().all(|b| b"0123456789+-.eE".contains(&b)).then(|| word.parse::<f64>().ok());
    match number.flatten() {
        Some(number) if !number.is_finite() => Err("number out of range".into()),
        number => Ok(known.or(number.map(Node::Number))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_order_and_refuses_what_a_map_would_hide() {
        let node = parse(r#"{"b": [1, 5e8, null], "a": {"x":"auto"}}"#).unwrap();
        assert_eq!(serde_json::to_string(&node).unwrap(), r#"{"b":[1,500000000,null],"a":{"x":"auto"}}"#);
        for (hostile, word) in [
            (r#"{"a": 1, "a": 2}"#.to_owned(), "twice"),
            (r#"{"a": 1e999}"#.into(), "range"),
            ("[".repeat(100_000), "recursion"),
            (r#"{"a": True}"#.into(), "write true, false or null, at line 1 column 7"),
            (String::new(), "EOF"),
            ("{} {}".into(), "trailing"),
            (r#"{"a": }"#.into(), "expected a value"),
            ("{\n  \"a\" 1}".into(), "line 2"),
            (r#"{"a": "b"#.into(), "not closed"),
            (r#"{"a": "\q"}"#.into(), "not a valid JSON string"),
            ("{: 1}".into(), "expected a key"),
            ("a: 1\na: 2".into(), "key a is given twice, at line 2"),
        ] {
            let error = parse(&hostile).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn hjson_says_what_json_says() {
        let json = r#"{"zero_optimization": {"stage": 2, "path": "/a b, c", "list": [1, 2]}, "on": true, "n": -1.5}"#;
        for text in [
            "# a comment\n{zero_optimization: {stage: 2 // the stage\n path: /a b, c\n list: [1, 2,],},\n on: true\n n: -1.5 }",
            "{zero_optimization: {stage: 2 /* the stage */, path: '/a b, c', list: [1, 2]}, on: true, n: -1.5}",
            "/* no braces */\nzero_optimization: {'stage': 2, 'path': '/a b, c', list: [1\n2]}\non: true # yes\nn: -1.5",
        ] {
            assert_eq!(parse(text), parse(json), "{text}");
        }
        assert_eq!(parse(r#"'it\'s "so" \"and\" \u00e9'"#), Ok(Node::text("it's \"so\" \"and\" é")));
    }
}
