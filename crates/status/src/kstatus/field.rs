//! Fields of an object that may have any form: those whose wrong type is an error, and those where it counts
//! as missing.

use std::fmt;

use serde_json::Value;

use super::Reason;

/// A field of the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    field: &'static str,
    wanted: &'static str,
}

impl Malformed {
    pub(super) const fn new(field: &'static str, wanted: &'static str) -> Self {
        Self { field, wanted }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not {}", self.field, self.wanted)
    }
}

/// A field two levels deep. It is missing if its parent is `null`, but not if it is `null` itself.
fn nested<'a>(object: &'a Value, path: [&'static str; 2]) -> Result<Option<&'a Value>, Malformed> {
    match object.get(path[0]) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(parent)) => Ok(parent.get(path[1])),
        Some(_) => Err(Malformed::new(path[0], "an object")),
    }
}

/// A text, or an error if it is something else.
pub(super) fn nested_text<'a>(
    object: &'a Value,
    path: [&'static str; 2],
) -> Result<Option<&'a str>, Malformed> {
    nested(object, path)?
        .map(|value| value.as_str().ok_or(Malformed::new(path[1], "a string")))
        .transpose()
}

/// A whole number, or an error if it is something else.
pub(super) fn nested_integer(
    object: &Value,
    path: [&'static str; 2],
) -> Result<Option<i64>, Malformed> {
    nested(object, path)?
        .map(|value| {
            value
                .as_i64()
                .ok_or(Malformed::new(path[1], "a whole number"))
        })
        .transpose()
}

/// A list, or an error if it is something else.
pub(super) fn nested_list<'a>(
    object: &'a Value,
    path: [&'static str; 2],
) -> Result<&'a [Value], Malformed> {
    match nested(object, path)? {
        None => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(Malformed::new(path[1], "a list")),
    }
}

/// A text at a JSON pointer; anything else counts as missing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// A whole number at a JSON pointer; anything else counts as missing.
pub(crate) fn integer(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// A condition; a word that it does not give is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> Condition<'a> {
    fn of(value: &'a Value) -> Result<Self, Malformed> {
        let entry = match value {
            Value::Null => return Ok(Self::default()),
            Value::Object(entry) => entry,
            _ => return Err(Malformed::new("a condition", "an object")),
        };
        let word = |key: &'static str| match entry.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(word)) => Ok(word.as_str()),
            Some(_) => Err(Malformed::new(key, "a string (in a condition)")),
        };
        Ok(Self {
            kind: word("type")?,
            status: word("status")?,
            reason: word("reason")?,
            message: word("message")?,
        })
    }

    /// Its reason, as the reason of a verdict.
    pub(crate) fn reported(&self) -> Reason {
        Reason::Reported(self.reason.to_owned())
    }
}

/// `status.conditions`, all of them checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions<'a>(Vec<Condition<'a>>);

impl<'a> Conditions<'a> {
    /// Reads them. `null` counts as missing here, for the list and for `status`.
    pub(crate) fn of(object: &'a Value) -> Result<Self, Malformed> {
        let status = match object.get("status") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Object(status)) => status,
            Some(_) => return Err(Malformed::new("status", "an object")),
        };
        match status.get("conditions") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Array(list)) => list.iter().map(Condition::of).collect(),
            Some(_) => Err(Malformed::new("conditions", "a list")),
        }
    }

    /// In the order of the list.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Condition<'a>> {
        self.0.iter()
    }

    /// The first one of this type and status.
    pub(crate) fn find(&self, kind: &str, status: &str) -> Option<&Condition<'a>> {
        self.iter()
            .find(|condition| condition.kind == kind && condition.status == status)
    }
}

impl<'a> FromIterator<Condition<'a>> for Conditions<'a> {
    fn from_iter<I: IntoIterator<Item = Condition<'a>>>(list: I) -> Self {
        Self(list.into_iter().collect())
    }
}
