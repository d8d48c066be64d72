//! A conversation in a line of JSON, in the form that templates expect.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

/// The keys of a message that hold the model's reasoning before its answer.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The messages of a line, and the tools that the model may call.
#[derive(Deserialize)]
pub(super) struct Conversation {
    #[serde(alias = "conversations")]
    pub messages: Vec<Value>,
    pub tools: Option<Value>,
}

impl Conversation {
    /// Parses a line.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let mut read: Conversation = serde_json::from_str(line).map_err(|error| {
            format!(
                "has messages that cannot be read: {error}\n\
                     Write {{\"messages\": [{{\"role\": \"user\", \"content\": \"…\"}}]}}."
            )
        })?;
        for (number, message) in read.messages.iter_mut().enumerate() {
            *message = normal(message).ok_or_else(|| {
                let number = number + 1;
                format!(
                    "has no \"role\" in message {number}\n\
                     Write each message as {{\"role\": \"user\", \"content\": \"…\"}}."
                )
            })?;
        }
        let none = "has no messages\nRemove the line, or give it a conversation.";
        if read.messages.is_empty() { Err(none.into()) } else { Ok(read) }
    }

    /// Returns the positions of the assistant's messages.
    pub(super) fn turns(&self) -> impl Iterator<Item = usize> {
        let is_turn = |message: &Value| text(message, "role").as_deref() == Some("assistant");
        (0..self.messages.len()).filter(move |&at| is_turn(&self.messages[at]))
    }
}

/// Returns a message in the form in which Transformers passes it to a template: without null
/// values, with its reasoning under the names that templates read, and with ShareGPT's keys and
/// roles under their usual names. `None` if it has no role.
fn normal(message: &Value) -> Option<Value> {
    let keys = if message.kind() == ValueKind::Map { message.try_iter().ok()? } else { return None };
    let mut pairs: Vec<(String, Value)> = keys.map(|key| (key.to_string(), item(message, &key))).collect();
    pairs.retain(|(_, value)| !value.is_none());
    if text(message, "role").is_none() {
        pairs.iter_mut().for_each(rename);
    }
    let reasoning = REASONING.iter().find_map(|name| find(&pairs, name)).cloned();
    if let Some(reasoning) = reasoning {
        if find(&pairs, "thinking").is_none() {
            pairs.push(("thinking".into(), reasoning.clone()));
        }
        pairs.push(("reasoning_content".into(), reasoning));
    }
    find(&pairs, "role")?.as_str()?;
    Some(Value::from_pairs(pairs))
}

fn rename((key, value): &mut (String, Value)) {
    match (key.as_str(), value.as_str()) {
        ("from", role) => {
            let role = match role {
                Some("human") => Some("user"),
                Some("gpt") => Some("assistant"),
                other => other,
            };
            (*key, *value) = ("role".into(), role.map_or(value.clone(), Value::from));
        }
        ("value", _) => *key = "content".into(),
        _ => {}
    }
}

fn find<'a>(pairs: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn item(message: &Value, key: &Value) -> Value {
    message.get_item(key).unwrap_or_default()
}

fn text(message: &Value, key: &str) -> Option<String> {
    item(message, &key.into()).as_str().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<String>, String> {
        let read = Conversation::read(line)?;
        Ok(read.messages.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn messages_are_read_in_either_form() {
        let usual = r#"{"messages": [{"role": "user", "content": "a", "name": null}, {"role": "assistant", "content": "b"}]}"#;
        let other =
            r#"{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "id": 1}"#;
        let expected = ["{'role': 'user', 'content': 'a'}", "{'role': 'assistant', 'content': 'b'}"];
        for line in [usual, other] {
            assert_eq!(read(line).unwrap(), expected);
            assert_eq!(Conversation::read(line).unwrap().turns().collect::<Vec<_>>(), [1]);
        }
    }

    #[test]
    fn reasoning_is_found_under_the_names_that_templates_read() {
        let line = r#"{"messages": [{"role": "assistant", "content": "b", "reasoning": "r"}]}"#;
        let expected = "{'role': 'assistant', 'content': 'b', 'reasoning': 'r', 'thinking': 'r', 'reasoning_content': 'r'}";
        assert_eq!(read(line).unwrap(), [expected]);
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        for (line, why) in [
            (r#"{"messages": "a"}"#, "has messages that cannot be read"),
            (r#"{"messages": []}"#, "has no messages"),
            (r#"{"messages": ["a"]}"#, "has no \"role\" in message 1"),
            (r#"{"messages": [{"role": "user"}, {"role": 1}]}"#, "has no \"role\" in message 2"),
        ] {
            let said = read(line).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
