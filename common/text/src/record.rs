//! A record of JSON lines: a text, a prompt with its completion, or a conversation.

use crate::error::{Result, TextError};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A line of JSON.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Record {
    Chat {
        /// The model's template reads the line itself.
        #[serde(rename = "messages", alias = "conversations")]
        _messages: IgnoredAny,
    },
    Text {
        text: String,
    },
    Pair {
        prompt: String,
        completion: String,
    },
}

impl Record {
    pub(crate) fn read(line: &str) -> Result<Self> {
        serde_json::from_str(line).map_err(|_| {
            TextError::input(
                "is no JSON object with \"text\", with \"prompt\" and \"completion\", or with \"messages\"\n\
                 Write each example in one line, for instance as {\"prompt\": \"…\", \"completion\": \"…\"}.",
            )
        })
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
    }

    #[test]
    fn what_is_no_record_of_bytes_is_an_input_error() {
        for line in ["", "[1]", r#"{"text": 1}"#, r#"{"prompt": "a"}"#, r#"{"messages": []}"#] {
            let error = Tokenizer::Bytes.encode_record(line, 0).unwrap_err();
            assert!(matches!(&error, TextError::Input(why) if why.starts_with("is ")), "{line}: {error}");
        }
    }
}
