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
