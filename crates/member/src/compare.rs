//! Whether a live object has everything that a manifest asks for.
//!
//! What only the live object has does not matter: the server fills in defaults, and others may own fields
//! of their own. The rules, by what the manifest has:
//!
//! | manifest | equal when the live object has |
//! |---|---|
//! | null | anything |
//! | an empty list or map | the same, or nothing |
//! | a map | every field of it, equal by these rules; of an atomic map, nothing else |
//! | a list with merge keys | an equal item for each, in any order |
//! | another list | as many items, equal in turn |
//! | a quantity | the same amount |
//! | anything else | the same value |
//!
//! Of metadata only labels and annotations count; status never does. A Secret's `stringData` is looked for
//! in `data`. Where this can't tell (the server writes a value in another way than any rule says), it sees
//! a difference; an apply that changes nothing then settles it.

use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use serde_json::{Map, Value};

use crate::manifest::Manifest;
use crate::quantity;
use crate::schema::{Schema, identities, identity, is_empty};

/// Differences that are told at most.
pub const LIMIT: usize = 100;

/// A field that the live object lacks or has another value of. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// JSON pointer into the manifest.
    pub path: String,
}

/// Whether the live object has everything that the manifest asks for.
///
/// # Errors
/// What it lacks or has otherwise, in order, [`LIMIT`] at most.
pub fn covers(manifest: &Manifest, live: &DynamicObject) -> Result<(), Vec<Difference>> {
    let found = differences(manifest, live, LIMIT);
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// The first difference, if there is one.
#[must_use]
pub fn first_difference(manifest: &Manifest, live: &DynamicObject) -> Option<String> {
    differences(manifest, live, 1)
        .pop()
        .map(|difference| difference.path)
}

/// The first difference among labels and annotations.
#[must_use]
pub fn metadata_difference(manifest: &Manifest, live: &DynamicObject) -> Option<String> {
    let mut walk = Walk::new(manifest, 1);
    walk.metadata(manifest.object.get("metadata"), live);
    walk.found.pop().map(|difference| difference.path)
}

fn differences(manifest: &Manifest, live: &DynamicObject, limit: usize) -> Vec<Difference> {
    let mut walk = Walk::new(manifest, limit);
    walk.metadata(manifest.object.get("metadata"), live);
    let empty = Map::new();
    let secrets = manifest
        .object
        .get("stringData")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    for (field, wanted) in manifest.object.as_object().unwrap_or(&empty) {
        match field.as_str() {
            "apiVersion" | "kind" | "metadata" | "status" => {}
            "stringData" => walk.string_data(secrets, live.data.get("data")),
            // stringData goes before data.
            "data" if !secrets.is_empty() => {
                let mut wanted = wanted.clone();
                if let Some(map) = wanted.as_object_mut() {
                    map.retain(|key, _| !secrets.contains_key(key));
                }
                walk.at(field, |walk| {
                    walk.value(field, &wanted, live.data.get(field), false);
                });
            }
            _ => walk.at(field, |walk| {
                walk.value(field, wanted, live.data.get(field), false);
            }),
        }
    }
    walk.found
}

/// One comparison.
struct Walk<'a> {
    schema: Schema<'a>,
    limit: usize,
    path: String,
    found: Vec<Difference>,
}

impl<'a> Walk<'a> {
    fn new(manifest: &'a Manifest, limit: usize) -> Self {
        Self {
            schema: Schema::of(&manifest.id),
            limit,
            path: String::new(),
            found: Vec::new(),
        }
    }

    fn differs(&mut self) {
        if self.found.len() < self.limit {
            self.found.push(Difference {
                path: self.path.clone(),
            });
        }
    }

    fn at(&mut self, key: &str, look: impl FnOnce(&mut Self)) {
        if self.found.len() >= self.limit {
            return;
        }
        let length = self.path.len();
        self.path.push('/');
        for character in key.chars() {
            match character {
                '~' => self.path.push_str("~0"),
                '/' => self.path.push_str("~1"),
                other => self.path.push(other),
            }
        }
        look(self);
        self.path.truncate(length);
    }

    fn metadata(&mut self, wanted: Option<&Value>, live: &DynamicObject) {
        let maps = [
            ("labels", &live.metadata.labels),
            ("annotations", &live.metadata.annotations),
        ];
        self.at("metadata", |walk| {
            for (field, found) in maps {
                let Some(map) = wanted
                    .and_then(|wanted| wanted.get(field))
                    .and_then(Value::as_object)
                else {
                    continue;
                };
                walk.at(field, |walk| {
                    for (key, value) in map
                        .iter()
                        .filter(|(key, value)| !value.is_null() && !is_dropped(key))
                    {
                        let same = found
                            .as_ref()
                            .and_then(|found| found.get(key))
                            .is_some_and(|found| value == found);
                        if !same {
                            walk.at(key, Self::differs);
                        }
                    }
                });
            }
        });
    }

    fn string_data(&mut self, wanted: &Map<String, Value>, data: Option<&Value>) {
        self.at("stringData", |walk| {
            for (key, value) in wanted {
                let bytes = value
                    .as_str()
                    .map(|text| ByteString(text.as_bytes().to_vec()));
                let encoded = bytes.and_then(|bytes| serde_json::to_value(bytes).ok());
                if encoded.as_ref() != data.and_then(|data| data.get(key)) {
                    walk.at(key, Self::differs);
                }
            }
        });
    }

    fn value(&mut self, field: &str, wanted: &Value, found: Option<&Value>, amount: bool) {
        if wanted.is_null() || self.schema.is_assigned(field, wanted) {
            return;
        }
        let Some(found) = found.filter(|found| !found.is_null()) else {
            if !self.schema.may_be_absent(field, wanted) {
                self.differs();
            }
            return;
        };
        let amount = amount || self.schema.is_quantity(field);
        match (wanted, found) {
            (Value::Object(wanted), Value::Object(found)) => self.map(field, wanted, found, amount),
            (Value::Array(wanted), Value::Array(found)) => self.list(field, wanted, found, amount),
            _ if same_scalar(wanted, found, amount) => {}
            _ => self.differs(),
        }
    }

    fn map(
        &mut self,
        field: &str,
        wanted: &Map<String, Value>,
        found: &Map<String, Value>,
        amount: bool,
    ) {
        if self.schema.is_atomic(field) {
            let extra = found
                .iter()
                .find(|(key, value)| !wanted.contains_key(*key) && !is_empty(value));
            if let Some((key, _)) = extra {
                self.at(key, Self::differs);
            }
        }
        for (key, value) in wanted {
            self.at(key, |walk| walk.value(key, value, found.get(key), amount));
        }
    }

    fn list(&mut self, field: &str, wanted: &[Value], found: &[Value], amount: bool) {
        let keyed = self
            .schema
            .keys(field, wanted)
            .and_then(|keys| Some((keys, identities(wanted, keys)?)));
        if let Some((keys, identities)) = keyed {
            for (position, (item, wanted_identity)) in wanted.iter().zip(identities).enumerate() {
                let twin = found
                    .iter()
                    .find(|other| identity(other, keys).as_ref() == Some(&wanted_identity));
                self.at(&position.to_string(), |walk| match twin {
                    Some(twin) => walk.value("", item, Some(twin), amount),
                    None => walk.differs(),
                });
            }
            return;
        }
        if wanted.len() != found.len() {
            self.differs();
            return;
        }
        for (position, (item, found)) in wanted.iter().zip(found).enumerate() {
            self.at(&position.to_string(), |walk| {
                walk.value("", item, Some(found), amount);
            });
        }
    }
}

/// Annotations of manifests that are not sent (member §11.1).
fn is_dropped(key: &str) -> bool {
    crate::object::UNSENT_ANNOTATIONS.contains(&key)
}

fn same_scalar(wanted: &Value, found: &Value, amount: bool) -> bool {
    if wanted == found {
        return true;
    }
    if let (Some(wanted), Some(found)) = (wanted.as_f64(), found.as_f64()) {
        return wanted == found;
    }
    let nanos = |value: &Value| match value {
        Value::String(text) => quantity::nanos(text),
        Value::Number(number) => quantity::nanos(&number.to_string()),
        _ => None,
    };
    amount && nanos(wanted).is_some_and(|amount| Some(amount) == nanos(found))
}

#[cfg(test)]
#[path = "compare_test.rs"]
mod tests;
