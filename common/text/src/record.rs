//! A record of JSON lines: a text, a prompt with its completion, or a conversation.

use crate::error::{Result, TextError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A line of JSON.
pub(crate) enum Record {
    /// The model's template reads the line itself.
    Chat,
    Text(String),
    Pair {
        prompt: String,
        completion: String,
    },
}

/// The keys that determine the kind of a record. If several are present, the most specific wins:
/// messages, then a prompt with its completion, then a text. A dataset that mixes kinds of examples
/// has null in the keys that an example lacks.
#[derive(Deserialize)]
struct Keys {
    messages: Option<IgnoredAny>,
    conversations: Option<IgnoredAny>,
    text: Option<Value>,
    prompt: Option<Value>,
    completion: Option<Value>,
}

impl Record {
    pub(crate) fn read(line: &str) -> Result<Self> {
        let record = serde_json::from_str::<Keys>(line).ok().and_then(|keys| {
            let chat = keys.messages.or(keys.conversations).map(|_| Record::Chat);
            let pair = string(keys.prompt).zip(string(keys.completion));
            let pair = pair.map(|(prompt, completion)| Record::Pair { prompt, completion });
            chat.or(pair).or(string(keys.text).map(Record::Text))
        });
        record.ok_or(TextError::input(
            "is not a JSON object with \"text\", with \"prompt\" and \"completion\", or with \"messages\"\n\
             Write each example in one line, for instance as {\"prompt\": \"…\", \"completion\": \"…\"}.",
        ))
    }
}

/// Returns the string in `value`. Columns of other types, such as a list of prompts, do not count.
fn string(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(string) => Some(string),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{MARK, TextError, Tokenizer};

    #[test]
    fn prompts_are_marked_and_a_text_ends() {
        let of = |line, mark| Tokenizer::Bytes.encode_record(line, mark).unwrap();
        let [a, b, end] = [b'a', b'b', b'\n'].map(u32::from);
        let pair = r#"{"prompt": "a", "completion": "b", "id": 7}"#;
        assert_eq!(of(pair, MARK), [a | MARK, b, end]);
        assert_eq!(of(pair, 0), [a, b, end]);
        assert_eq!(of(r#"{"text": "b"}"#, MARK), [b, end]);
        assert_eq!(of(r#"{"text": "ab", "prompt": "a", "completion": "b"}"#, MARK), [a | MARK, b, end]);
        assert_eq!(of(r#"{"text": "b", "prompt": null, "messages": null}"#, MARK), [b, end]);
        assert_eq!(of(r#"{"text": "b", "prompt": ["x"], "completion": 7}"#, MARK), [b, end]);
        assert_eq!(
            of(r#"{"text": null, "prompt": "a", "completion": "b", "conversations": null}"#, MARK),
            [a | MARK, b, end]
        );
    }

    #[test]
    fn what_is_no_record_of_bytes_is_an_input_error() {
        for line in [
            "",
            "[1]",
            r#"{"text": 1}"#,
            r#"{"prompt": "a"}"#,
            r#"{"messages": []}"#,
            r#"{"messages": [], "conversations": []}"#,
        ] {
            let error = Tokenizer::Bytes.encode_record(line, 0).unwrap_err();
            assert!(matches!(&error, TextError::Input(why) if why.starts_with("is ")), "{line}: {error}");
        }
    }
}
