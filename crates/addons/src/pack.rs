//! Objects packed into envelopes (API §3.17, §7.6). Pure.
//!
//! Cluster-scoped objects go into ClusterResourceEnvelopes, the others into ResourceEnvelopes of their
//! namespace. Where one would be larger than 800 KiB, or hold more than 50 objects, its objects are divided
//! by a digest of what they are called: those with a 0 as its first bit stay, the others go into another
//! one; and each of the two by the second bit again, if need be. So an object that comes, goes or grows
//! moves others only where an envelope has to be divided or no longer has to: what is rolled out anew stays
//! small.
//!
//! The envelope of an Addon `web` is `web-0`; the one that is divided off it by the first bit is `web-1`, by
//! the second `web-2` (off `web-1`: `web-3`), and so on. No two Addons can come to the same name: what stands
//! behind the last hyphen is always the number.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use windlass_api::names::is_reserved_namespace;
use windlass_api::{PLACEMENT_GROUP, STORAGE_VERSION, addon, labels};
use windlass_render::{ObjectId, open};
use windlass_status::Digest;

use crate::render::{RenderError, RenderFault};

/// Largest envelope, as compact JSON, in bytes.
pub const LARGEST: usize = 800 * 1024;
/// Most objects in one (API §3.17).
pub const MOST: usize = 50;
/// What everything but `data` may take of [`LARGEST`].
const FRAME: usize = 4 * 1024;
/// Longest name of an envelope: it becomes the value of a label.
const LONGEST_NAME: usize = 63;
/// What a hyphen and a number of 32 bits take of it.
const NUMBER: usize = 11;
/// How often an envelope can be divided.
const BITS: u32 = 32;
/// Longest key that is taken from a name as it is.
const LONGEST_KEY: usize = 200;

/// An envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Namespace of a ResourceEnvelope; none for a ClusterResourceEnvelope.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The objects. Keys are made of letters, digits, `.`, `-` and `_`.
    pub data: BTreeMap<String, Value>,
}

/// What all envelopes of a render carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Name of the Addon.
    pub addon: String,
    /// Digest of what the render depends on.
    pub render: Digest,
    /// The Addon.
    pub owner: OwnerReference,
}

impl Envelope {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.namespace {
            None => "ClusterResourceEnvelope",
            Some(_) => "ResourceEnvelope",
        }
    }

    /// The object to write; `parts` is how many envelopes the render has in all.
    #[must_use]
    pub fn object(&self, mark: &Mark, parts: usize) -> Value {
        let mut object = self.bare();
        let metadata = json!({
            "name": self.name,
            "labels": { labels::ADDON: addon_label(&mark.addon) },
            "annotations": {
                labels::ADDON_RENDER: mark.render.to_string(),
                labels::ADDON_PARTS: parts.to_string(),
            },
            "ownerReferences": [mark.owner],
        });
        object["metadata"] = metadata;
        if let Some(namespace) = &self.namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        object
    }

    fn bare(&self) -> Value {
        let data: Map<_, _> = self.data.clone().into_iter().collect();
        json!({
            "apiVersion": format!("{PLACEMENT_GROUP}/{STORAGE_VERSION}"),
            "kind": self.kind(),
            "metadata": {"name": self.name, "namespace": self.namespace},
            "data": data,
        })
    }
}

/// What the hub refuses to place, besides what no envelope may hold.
pub struct Rules<'a> {
    /// Why an object is refused, if it is.
    pub refuses: &'a dyn Fn(&Value) -> Option<String>,
    /// Whether nothing is placed into a namespace, besides the reserved ones.
    pub is_reserved: &'a dyn Fn(&str) -> bool,
}

/// Packs the objects of a render of the Addon of that name. The same objects come to the same envelopes,
/// whatever order they are in. Those of the cluster come first, then namespace by namespace.
///
/// # Errors
/// For an object that can't be placed, is there twice, or is larger than an envelope: it is named.
pub fn pack(
    addon: &str,
    objects: Vec<Value>,
    rules: &Rules<'_>,
) -> Result<Vec<Envelope>, RenderError> {
    let mut by_namespace: BTreeMap<Option<String>, BTreeMap<String, Item>> = BTreeMap::new();
    for object in objects {
        let id = ObjectId::of(&object);
        if let Some(why) = refusal(&id, rules) {
            return Err(RenderError::new(RenderFault::ObjectRejected, why));
        }
        let item = Item::of(&object, &id)?;
        let (namespace, words) = (id.namespace.map(str::to_owned), id.to_string());
        let item = Item { object, ..item };
        let items = by_namespace.entry(namespace).or_default();
        if items.insert(item.key.clone(), item).is_some() {
            return Err(RenderError::new(
                RenderFault::ObjectRejected,
                format!("the chart renders {words} twice"),
            ));
        }
    }
    let base = base(addon);
    let mut envelopes = Vec::new();
    for (namespace, items) in by_namespace {
        let mut leaves = Vec::new();
        divide(items.into_values().collect(), 0, 0, &mut leaves)?;
        leaves.sort_unstable_by_key(|(number, _)| *number);
        envelopes.extend(leaves.into_iter().map(|(number, items)| {
            Envelope {
                namespace: namespace.clone(),
                name: format!("{base}-{number}"),
                data: items
                    .into_iter()
                    .map(|item| (item.key, item.object))
                    .collect(),
            }
        }));
    }
    check(&envelopes, rules)?;
    Ok(envelopes)
}

/// The value of [`labels::ADDON`] for an Addon: its name, cut if it is too long for a label.
#[must_use]
pub fn addon_label(addon: &str) -> String {
    shortened(addon, LONGEST_NAME)
}

struct Item {
    key: String,
    bits: u32,
    size: usize,
    object: Value,
}

impl Item {
    /// All but the object itself.
    fn of(object: &Value, id: &ObjectId<'_>) -> Result<Self, RenderError> {
        let key = key(id);
        let size = object.to_string().len() + key.len() + "\"\":,".len();
        if size > LARGEST - FRAME {
            return Err(RenderError::new(
                RenderFault::ObjectTooLarge,
                format!(
                    "{id} is {} KiB large, and an object that is placed has to be smaller than {} KiB",
                    size / 1024,
                    (LARGEST - FRAME) / 1024
                ),
            ));
        }
        let called = format!("{}/{}/{}", id.group, id.kind, id.name);
        Ok(Self {
            bits: short_digest(&called),
            key,
            size,
            object: Value::Null,
        })
    }
}

/// The leaves that items come to, each with its number: the bits that all of it share, the first bit lowest.
fn divide(
    items: Vec<Item>,
    depth: u32,
    number: u32,
    leaves: &mut Vec<(u32, Vec<Item>)>,
) -> Result<(), RenderError> {
    let size: usize = items.iter().map(|item| item.size).sum();
    if items.len() <= MOST && size <= LARGEST - FRAME {
        if !items.is_empty() {
            leaves.push((number, items));
        }
        return Ok(());
    }
    if depth == BITS {
        let what =
            "some objects of the chart can't be told apart by a digest of 32 bits; rename one";
        return Err(RenderError::new(RenderFault::ObjectRejected, what));
    }
    let (go, stay): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| item.bits >> depth & 1 == 1);
    divide(stay, depth + 1, number, leaves)?;
    divide(go, depth + 1, number | 1 << depth, leaves)
}

fn refusal(id: &ObjectId<'_>, rules: &Rules<'_>) -> Option<String> {
    if id.group == addon::GROUP {
        return Some(format!("{id} is the hub's own kind, and is not placed"));
    }
    let own = |name: &str| is_reserved_namespace(name) || (rules.is_reserved)(name);
    if let Some(namespace) = id.namespace.filter(|namespace| own(namespace)) {
        return Some(format!(
            "{id}: nothing is placed into namespace {namespace}, which is reserved; most charts have a value \
             that puts it elsewhere"
        ));
    }
    None
}

/// Opens the envelopes as it will be done for the clusters, so that there is one place that knows what may
/// be in them.
fn check(envelopes: &[Envelope], rules: &Rules<'_>) -> Result<(), RenderError> {
    let objects = envelopes.iter().map(Envelope::bare).collect();
    let problems = open(objects, rules.refuses).problems;
    let Some(first) = problems.first() else {
        return Ok(());
    };
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let what = format!("the chart renders what can't be placed: {first}{more}");
    Err(RenderError::new(RenderFault::ObjectRejected, what))
}

/// `kind.group_name`, or `kind_name` in the core group. No kind and no group holds an underscore.
fn key(id: &ObjectId<'_>) -> String {
    let kind = id.kind.to_lowercase();
    let dot = if id.group.is_empty() { "" } else { "." };
    let whole = format!("{kind}{dot}{}_{}", id.group, id.name);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    // Roles may be called `system:this`.
    if id.name.chars().all(plain) && whole.len() <= LONGEST_KEY {
        return whole;
    }
    let replaced: String = whole
        .chars()
        .map(|c| if plain(c) || c == '_' { c } else { '-' })
        .take(LONGEST_KEY)
        .collect();
    format!("{replaced}_{:08x}", short_digest(&whole))
}

fn base(addon: &str) -> String {
    shortened(addon, LONGEST_NAME - NUMBER)
}

/// A name that fits, and is another one for another name.
fn shortened(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let tail = format!("-{:08x}", short_digest(name));
    let head: String = name.chars().take(longest - tail.len()).collect();
    format!("{}{tail}", head.trim_end_matches(['-', '.']))
}

fn short_digest(text: &str) -> u32 {
    let digest = Digest::of_bytes(text.as_bytes()).to_string();
    // The first 8 of 64 hexadecimal digits.
    let digits = digest.get(..8).unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests;
