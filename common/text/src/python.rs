//! The Python environment that chat templates expect: filters and functions under Transformers'
//! names.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, syntax::SyntaxConfig};

/// Marks for the beginning and end of a `{% generation %}` span in a rendered text. Unicode
/// reserves these code points for internal use by programs.
pub(super) const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];
/// The tags that replace Transformers' tags around such a span.
const TAGS: [&str; 2] = ["filter _generation", "endfilter"];

/// The number of spans that a rendering has marked so far.
pub(super) struct Marked(pub usize);

/// Returns an environment in which templates render as in Transformers.
pub(super) fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("_generation", generation);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    Ok(environment)
}

/// Returns `template` with the filter [`generation`] in place of Transformers' own tags.
pub(super) fn with_generation_filter(template: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(template.len()), template);
    while let Some(at) = ["{%", "{#"].iter().filter_map(|open| rest.find(open)).min() {
        let close = if rest[at..].starts_with("{%") { "%}" } else { "#}" };
        let Some(length) = rest[at..].find(close) else { break };
        let (before, tag) = (&rest[..at], &rest[at..at + length]);
        out += before;
        out += &match tag.trim_start_matches(['{', '%', '-', '+']).trim_end_matches(['-', '+']).trim() {
            "generation" => tag.replace("generation", TAGS[0]),
            "endgeneration" => tag.replace("endgeneration", TAGS[1]),
            _ => tag.into(),
        };
        rest = &rest[at + length..];
    }
    out + rest
}

/// True if a template, as returned by [`with_generation_filter`], marks the text that a model
/// generates.
pub(super) fn marks_generation(template: &str) -> bool {
    template.contains(TAGS[0])
}

/// Puts the text of a span between [`MARKS`].
fn generation(state: &mut State<'_, '_>, text: String) -> String {
    state.get_or_insert_extension(Marked(0)).0 += 1;
    format!("{}{text}{}", MARKS[0], MARKS[1])
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Returns the local time in the format of Python's `strftime`.
fn strftime_now(format: String) -> Result<String, Error> {
    let now = jiff::fmt::strtime::format(&format, &jiff::ZonedDateTime::now());
    now.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

/// True if Jinja can iterate over `value`. It cannot iterate over none.
fn is_iterable(value: &Value) -> bool {
    value.kind() == ValueKind::Iterable || is_sequence(value)
}

/// True if `value` has a length and elements. For Jinja, strings and dictionaries do.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
}

/// The format of Python's `json.dumps`.
struct Json {
    ascii: bool,
    sorted: bool,
    /// Spaces per level. `None`: everything is on one line.
    indent: Option<usize>,
    between_items: String,
    after_key: String,
}

/// Implements the filter `tojson` with the arguments of Python's `json.dumps`.
fn to_json(value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let usual = || vec![if indent.is_some() { "," } else { ", " }.into(), ": ".into()];
    let [between_items, after_key] = <[String; 2]>::try_from(separators.unwrap_or_else(usual))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators are a pair of strings"))?;
    let ascii = arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    arguments.assert_all_used()?;
    let mut out = String::new();
    Json { ascii, sorted, indent, between_items, after_key }.write(value, 0, &mut out)?;
    Ok(out)
}

impl Json {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => *out += "null",
            ValueKind::Bool => *out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number if value.is_integer() => *out += &value.to_string(),
            ValueKind::Number => *out += &float(f64::try_from(value.clone())?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(['[', ']'], &items, depth, out, |item, out| self.write(item, depth + 1, out))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                keys.sort_by(
                    |one, other| if self.sorted { one.cmp(other) } else { std::cmp::Ordering::Equal },
                );
                self.list(['{', '}'], &keys, depth, out, |key, out| {
                    self.string(&key.to_string(), out);
                    *out += &self.after_key;
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            other => {
                let message = format!("tojson: {other} has no form in JSON");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    /// Writes `items` between `brackets`.
    fn list(
        &self,
        brackets: [char; 2],
        items: &[Value],
        depth: usize,
        out: &mut String,
        write: impl Fn(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |depth| self.indent.map(|indent| format!("\n{}", " ".repeat(indent * depth)));
        out.push(brackets[0]);
        for (number, item) in items.iter().enumerate() {
            *out += if number > 0 { &self.between_items } else { "" };
            *out += &line(depth + 1).unwrap_or_default();
            write(item, out)?;
        }
        if !items.is_empty() {
            *out += &line(depth).unwrap_or_default();
        }
        out.push(brackets[1]);
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => *out += "\\n",
                '\r' => *out += "\\r",
                '\t' => *out += "\\t",
                '\u{8}' => *out += "\\b",
                '\u{C}' => *out += "\\f",
                c if c < ' ' || self.ascii && !(' '..='~').contains(&c) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| *out += &format!("\\u{unit:04x}"));
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Returns a number as Python writes it: `1e+16` where Rust writes `1e16`.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let text = format!("{number:?}");
    match text.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power)) => format!("{digits}e{power:+03}"),
        None => text,
    }
}

#[cfg(test)]
mod tests;
