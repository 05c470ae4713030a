//! SHA-256 digests of content (design §5.7): the index is for people, the digest is the truth.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use windlass_api::placement::{ApplyStrategy, NamespacedName};

use crate::defaults::EffectiveApply;

/// A SHA-256 digest; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest of bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest that SHA-256 came to elsewhere, of what is too large to be in memory at once.
    #[must_use]
    pub const fn of_hash(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Digest of a JSON value, the same however the keys of its objects are ordered: that of the
    /// compact text with keys sorted.
    #[must_use]
    pub fn of_json(value: &Value) -> Self {
        let mut hasher = Sha256::new();
        hash_value(&mut hasher, value);
        Self(hasher.finalize().into())
    }

    /// Whether `text` is this digest in hexadecimal.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        text.parse() == Ok(*self)
    }
}

fn hash_value(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hasher.update("null"),
        Value::Bool(true) => hasher.update("true"),
        Value::Bool(false) => hasher.update("false"),
        Value::Number(number) => hasher.update(number.to_string()),
        Value::String(text) => hash_text(hasher, text),
        Value::Array(items) => hash_list(hasher, items),
        Value::Object(fields) => hash_object(hasher, fields),
    }
}

fn hash_text(hasher: &mut Sha256, text: &str) {
    // Neither step can fail: text is valid JSON content, and a hasher takes every byte.
    let _ = serde_json::to_writer(hasher, text);
}

fn hash_list(hasher: &mut Sha256, items: &[Value]) {
    hasher.update("[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            hasher.update(",");
        }
        hash_value(hasher, item);
    }
    hasher.update("]");
}

fn hash_object(hasher: &mut Sha256, fields: &Map<String, Value>) {
    // Sorted here: whether the map itself is sorted depends on a feature that any crate may switch.
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    hasher.update("{");
    for (at, (key, value)) in sorted.into_iter().enumerate() {
        if at > 0 {
            hasher.update(",");
        }
        hash_text(hasher, key);
        hasher.update(":");
        hash_value(hasher, value);
    }
    hasher.update("}");
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDigest;

impl fmt::Display for InvalidDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest has 64 hexadecimal digits")
    }
}

impl std::error::Error for InvalidDigest {}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(InvalidDigest);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

/// Lower case only, so that equal digests are equal texts.
const fn nibble(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What makes up the desired state of one placement on one cluster.
#[derive(Clone, Copy, Debug)]
pub struct BindingInputs<'a> {
    /// Hash of the content of the whole snapshot group, not its name: equal content is equal state.
    pub snapshot_hash: &'a str,
    /// ResourceOverride snapshots, in the order in which they are applied.
    pub resource_overrides: &'a [NamespacedName],
    /// ClusterResourceOverride snapshots, in the order in which they are applied.
    pub cluster_resource_overrides: &'a [String],
    /// Apply strategy; absent fields count as their defaults.
    pub apply_strategy: Option<&'a ApplyStrategy>,
    /// Variables that manifests or overrides refer to.
    pub variables: &'a BTreeMap<String, String>,
}

/// Digest of a binding's desired state (design §5.7). Two bindings with equal digests ask the same of
/// their members.
#[must_use]
pub fn binding_digest(inputs: &BindingInputs<'_>) -> Digest {
    let overrides: Vec<_> = inputs
        .resource_overrides
        .iter()
        .map(|name| json!([name.namespace, name.name]))
        .collect();
    // The leading word lets the recipe change one day without an old digest ever matching a new one.
    Digest::of_json(&json!([
        "windlass-binding-1",
        inputs.snapshot_hash,
        overrides,
        inputs.cluster_resource_overrides,
        EffectiveApply::of(inputs.apply_strategy).to_strategy(),
        inputs.variables,
    ]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windlass_api::placement::{ApplyStrategyType, WhenToTakeOver};

    use super::*;

    #[test]
    fn known_answers() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of_bytes(b"abc").to_string(), abc);
        assert!(Digest::of_bytes(b"abc").is(abc));
        let value = json!({"b": [1, null, true], "a": "x\n\"é"});
        let text = r#"{"a":"x\n\"é","b":[1,null,true]}"#;
        assert_eq!(Digest::of_json(&value), Digest::of_bytes(text.as_bytes()));
    }

    #[test]
    fn only_64_lower_case_digits_are_a_digest() {
        let good = Digest::of_bytes(b"").to_string();
        let long = format!("{good}0");
        for bad in ["", "abc", &good[1..], &long, &good.to_uppercase()] {
            assert_eq!(bad.parse::<Digest>(), Err(InvalidDigest), "{bad}");
        }
        assert_eq!(
            format!("{:?}", Digest::of_bytes(b"")),
            format!("Digest({good})")
        );
    }

    fn digest(strategy: Option<&ApplyStrategy>, overrides: &[&str], hash: &str) -> Digest {
        let names: Vec<_> = overrides.iter().map(|name| (*name).to_owned()).collect();
        binding_digest(&BindingInputs {
            snapshot_hash: hash,
            resource_overrides: &[],
            cluster_resource_overrides: &names,
            apply_strategy: strategy,
            variables: &BTreeMap::new(),
        })
    }

    #[test]
    fn absent_strategy_is_the_default_strategy() {
        let base = digest(None, &[], "h");
        let spelled_out = ApplyStrategy {
            type_: Some(ApplyStrategyType::ClientSideApply),
            when_to_take_over: Some(WhenToTakeOver::Always),
            allow_co_ownership: Some(false),
            ..ApplyStrategy::default()
        };
        assert_eq!(base, digest(Some(&ApplyStrategy::default()), &[], "h"));
        assert_eq!(base, digest(Some(&spelled_out), &[], "h"));
        let never = ApplyStrategy {
            when_to_take_over: Some(WhenToTakeOver::Never),
            ..ApplyStrategy::default()
        };
        assert_ne!(base, digest(Some(&never), &[], "h"));
    }

    #[test]
    fn every_input_counts() {
        let all = [
            digest(None, &[], "h"),
            digest(None, &[], "i"),
            digest(None, &["a", "b"], "h"),
            digest(None, &["b", "a"], "h"),
            digest(None, &["ab"], "h"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "row {at}");
        }
    }

    proptest! {
        #[test]
        fn text_form_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let digest = Digest::of_bytes(&bytes);
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
            let json = serde_json::to_string(&digest).unwrap();
            prop_assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        }

        #[test]
        fn of_json_is_the_digest_of_the_sorted_text(
            fields in proptest::collection::btree_map(".{0,6}", ".{0,6}", 0..6),
        ) {
            let backwards: Map<String, Value> =
                fields.iter().rev().map(|(k, v)| (k.clone(), json!(v))).collect();
            let text = serde_json::to_string(&fields).unwrap();
            prop_assert_eq!(
                Digest::of_json(&Value::Object(backwards)),
                Digest::of_bytes(text.as_bytes())
            );
        }
    }
}
