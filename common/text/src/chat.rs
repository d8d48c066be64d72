//! Renders conversations with a model's chat template.

use super::conversation::Conversation;
use super::python::{self, MARKS, Marked};
use crate::regular;
use minijinja::{Environment, Error, Template, Value};
use serde_json::Value as Json;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

/// The names of the templates for conversations without and with tools, if a model has two.
const NAMES: [&str; 2] = ["default", "tool_use"];

/// A chat template, and the special tokens that it uses.
pub(super) struct ChatTemplate {
    /// The file that contains it.
    file: String,
    environment: Environment<'static>,
    tokens: Vec<(String, Value)>,
}

/// A conversation as text.
pub(super) struct Rendering {
    pub text: String,
    /// The byte ranges of the assistant's text, in order.
    pub learned: Vec<Range<usize>>,
}

/// Reads one of the model's files. `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, String> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let path = path.display();
        format!("is a conversation, and {path} cannot be read: {error}\nLet this program read it.")
    };
    match regular::read(path) {
        Ok(text) => String::from_utf8(text).map(Some).map_err(|error| unreadable(&error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&error)),
    }
}

impl ChatTemplate {
    /// Reads the template next to the tokenizer at `path`, whose `tokenizer_config.json` holds
    /// `settings`.
    pub(super) fn beside(path: &Path, settings: &Json) -> Result<Self, String> {
        let [own, config] =
            ["chat_template.jinja", "tokenizer_config.json"].map(|name| path.with_file_name(name));
        let (file, sources) = match read(&own)? {
            Some(source) => (&own, vec![(NAMES[0].into(), source)]),
            None => (&config, named(&settings["chat_template"])),
        };
        if !sources.iter().any(|(name, _)| name == NAMES[0]) {
            return Err(format!(
                "is a conversation, and the model has no chat template: neither a file {} nor a \"chat_template\" in \
                 {}\nSave the model's template there, or give examples with \"text\", or with \"prompt\" and \
                 \"completion\".",
                own.display(),
                config.display()
            ));
        }
        let file = file.display().to_string();
        let environment = compiled(sources).map_err(|error| {
            let why = words(&error);
            format!(
                "is a conversation, and the chat template in {file} cannot be read: {why}\n\
                 Download it again with the model, or give examples with \"prompt\" and \"completion\"."
            )
        })?;
        Ok(ChatTemplate { file, environment, tokens: special_tokens(settings) })
    }

    /// Renders `chat`. If `mask`, also finds the assistant's text.
    pub(super) fn render(&self, chat: &Conversation, mask: bool) -> Result<Rendering, String> {
        let template = self.template(chat)?;
        let (text, marked) = self.text(&template, chat, chat.messages.len(), false)?;
        let learned = match mask {
            false => Vec::new(),
            true if python::marks_generation(template.source()) => marked,
            true => self.turns(&template, chat, &text)?,
        };
        Ok(Rendering { text, learned })
    }

    fn template(&self, chat: &Conversation) -> Result<Template<'_, '_>, String> {
        let [usual, with_tools] = NAMES.map(|name| self.environment.get_template(name));
        let template = if chat.tools.is_some() { with_tools.or(usual) } else { usual };
        template.map_err(|error| self.failed(&error))
    }

    /// Renders the first `count` messages, and asks for an answer if `add_generation_prompt`.
    /// Returns the text and the ranges that the template marks as generated.
    fn text(
        &self,
        template: &Template<'_, '_>,
        chat: &Conversation,
        count: usize,
        add_generation_prompt: bool,
    ) -> Result<(String, Vec<Range<usize>>), String> {
        let values = [
            ("messages", Value::from(&chat.messages[..count])),
            ("tools", chat.tools.clone().unwrap_or(().into())),
            ("documents", ().into()),
            ("add_generation_prompt", add_generation_prompt.into()),
        ];
        let tokens = self.tokens.iter().map(|(name, token)| (name.as_str(), token.clone()));
        let rendered = template.render_captured(Value::from_pairs(tokens.chain(values)));
        let rendered = rendered.map_err(|error| self.failed(&error))?;
        let marked = rendered.state().get_extension::<Marked>().map_or(0, |marked| marked.0);
        unmarked(rendered.output(), marked).ok_or_else(|| {
            "cannot be rendered: it holds the character U+FDD0 or U+FDD1, which is no text\nRemove it.".into()
        })
    }

    /// Returns the range that each of the assistant's turns adds to the prompt before it.
    fn turns(
        &self,
        template: &Template<'_, '_>,
        chat: &Conversation,
        text: &str,
    ) -> Result<Vec<Range<usize>>, String> {
        let turn = |at: usize| {
            let (before, _) = self.text(template, chat, at, true)?;
            let (after, _) = self.text(template, chat, at + 1, false)?;
            let continues = after.starts_with(&before) && text.starts_with(&after);
            continues.then_some(before.len()..after.len()).ok_or_else(|| self.no_continuation(at))
        };
        chat.turns().map(turn).collect()
    }

    fn no_continuation(&self, at: usize) -> String {
        format!(
            "has an answer (message {}) that --mask-prompt cannot tell from its prompt: the chat template in {} \
             does not render a conversation as the beginning of a longer one\n\
             Mark the answers in the template with {{% generation %}} and {{% endgeneration %}}, or leave \
             --mask-prompt out.",
            at + 1,
            self.file
        )
    }

    fn failed(&self, error: &Error) -> String {
        let why = words(error);
        format!(
            "cannot be rendered by the chat template in {}: {why}\nChange the messages to what it accepts.",
            self.file
        )
    }
}

/// Returns the templates in a configuration by name. It holds a single template or a list with
/// names.
fn named(templates: &Json) -> Vec<(String, String)> {
    let string = |value: &Json| value.as_str().map(String::from);
    let one = string(templates).map(|template| (NAMES[0].into(), template));
    let of_list = |entry: &Json| Some((string(&entry["name"])?, string(&entry["template"])?));
    one.into_iter().chain(templates.as_array().into_iter().flatten().filter_map(of_list)).collect()
}

fn compiled(sources: Vec<(String, String)>) -> Result<Environment<'static>, Error> {
    let mut environment = python::environment()?;
    for (name, source) in sources {
        let source = python::with_generation_filter(&source.replace("\r\n", "\n"));
        environment.add_template_owned(name, source)?;
    }
    Ok(environment)
}

/// Returns the special tokens of a configuration by name.
fn special_tokens(settings: &Json) -> Vec<(String, Value)> {
    let entries = settings.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
    entries.filter_map(|(name, token)| Some((name.clone(), content(token)?.into()))).collect()
}

/// Returns the text of a special token, which is a string or an object with its content.
pub(super) fn content(token: &Json) -> Option<&str> {
    token.as_str().or(token["content"].as_str())
}

/// Returns `text` without its marks, and the ranges of bytes between them. `None` if the marks do
/// not form `spans` spans.
fn unmarked(text: &str, spans: usize) -> Option<(String, Vec<Range<usize>>)> {
    if MARKS.iter().any(|mark| text.matches(*mark).count() != spans) {
        return None;
    }
    let (mut plain, mut learned) = (String::with_capacity(text.len()), Vec::with_capacity(spans));
    for (number, piece) in text.split(MARKS).enumerate() {
        if number % 2 == 1 {
            learned.push(plain.len()..plain.len() + piece.len());
        }
        plain += piece;
    }
    Some((plain, learned))
}

fn words(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), String::from);
    error.line().map_or(what.clone(), |line| format!("{what} (line {line})"))
}
