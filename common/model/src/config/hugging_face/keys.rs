//! Values of a `config.json` by key, or errors that name the key and the value.

use crate::ModelError;
use events::say::shortened;
use serde_json::{Map, Value};

/// A JSON object inside the config of the model called `name`; `prefix` is the path to it.
pub(super) struct Keys<'a> {
    pub(super) name: &'a str,
    pub(super) prefix: &'a str,
    pub(super) object: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    /// Returns the value of `key`; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn unsupported(&self, key: &str, value: &Value, supported: &str) -> ModelError {
        ModelError::Unsupported {
            name: self.name.into(),
            key: format!("{}{key}", self.prefix),
            value: shortened(&value.to_string()),
            supported: supported.into(),
        }
    }

    pub(super) fn one_of(&self, key: &str, allowed: &[&str]) -> Result<(), ModelError> {
        match self.get(key) {
            Some(value) if !allowed.contains(&value.to_string().as_str()) => {
                Err(self.unsupported(key, value, &format!("only {}", allowed[0])))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn missing(&self, key: &str) -> ModelError {
        ModelError::Missing { name: self.name.into(), key: format!("{}{key}", self.prefix) }
    }

    pub(super) fn optional_count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| self.unsupported(key, value, "only a positive whole number"))
    }

    pub(super) fn count(&self, key: &str) -> Result<usize, ModelError> {
        self.optional_count(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn optional_f64(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.unsupported(key, value, "only a number"))
    }

    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.optional_f64(key)?.map(|number| number as f32))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.unsupported(key, value, "only true and false"))
    }

    /// Returns the object under `key`.
    pub(super) fn nested(&self, key: &str, prefix: &'a str) -> Result<Option<Keys<'a>>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Keys { name: self.name, prefix, object })),
            Some(value) => Err(self.unsupported(key, value, "only an object")),
        }
    }
}
