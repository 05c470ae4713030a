//! YAML as Helm and kubectl read it.
//!
//! Those go by YAML 1.1: a plain `0644` is 420, `yes` is true, `1_000` is 1000. Our library goes by YAML 1.2,
//! to which all these are texts; `defaultMode: 0644` of a chart would never get past an API server. So plain
//! scalars that it takes for texts are looked at again, by the rules of `go.yaml.in/yaml/v2` (resolve.go).
//! As there, aliases and merge keys (`<<`) are worked in, the last of two equal keys counts, keys that are no
//! texts become texts, and numbers without a fraction are whole.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How much a render may come to once its aliases are worked in, in bytes, about.
pub(super) const LARGEST: usize = 96 * 1024 * 1024;
/// What a value takes besides its text: a map of few keys takes more, one of many less.
const EACH: usize = 64;

/// Reads every document of a text, within what is left of [`LARGEST`].
pub(super) fn read(text: &str, left: &Cell<usize>) -> Result<Vec<Value>, yaml_serde::Error> {
    let reader = Reader { text, left };
    yaml_serde::Deserializer::from_str(text)
        .map(|document| reader.deserialize(document))
        .collect()
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a str,
    left: &'a Cell<usize>,
}

impl Reader<'_> {
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes + EACH) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom("too large once its aliases are worked in")),
        }
    }

    /// Whether a part of the text stands there without quotes and tag.
    fn is_plain(&self, part: &str) -> bool {
        let at = (part.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let before = at.and_then(|at| self.text.get(..at));
        before.is_some_and(|before| {
            !before.ends_with(['\'', '"']) && !before.trim_end().ends_with("!!str")
        })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain YAML without tags")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.take(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.take(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.take(0)?;
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.take(0)?;
        Ok(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.take(0)?;
        float(value).ok_or_else(|| E::custom("JSON has no infinite numbers"))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Value, E> {
        match scalar(text).filter(|_| self.is_plain(text)) {
            Some(value) => {
                self.take(0)?;
                Ok(value)
            }
            None => self.visit_str(text),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.take(text.len())?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut all = Map::new();
        let mut merged = Vec::new();
        while let Some(key) = fields.next_key_seed(self)? {
            let value = fields.next_value_seed(self)?;
            match key {
                Value::String(key) if key == "<<" => merged.push(value),
                Value::String(key) => drop(all.insert(key, value)),
                Value::Array(_) | Value::Object(_) => {
                    return Err(A::Error::custom("a key has to be a text"));
                }
                key => drop(all.insert(key.to_string(), value)),
            }
        }
        for value in merged {
            merge(&mut all, value).map_err(A::Error::custom)?;
        }
        Ok(Value::Object(all))
    }
}

/// What stands in a map of its own counts more than what is merged into it, and the first merged most.
fn merge(into: &mut Map<String, Value>, from: Value) -> Result<(), &'static str> {
    match from {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(maps) => maps.into_iter().try_for_each(|map| merge(into, map)),
        _ => Err("<< merges maps only"),
    }
}

/// What a plain scalar is that YAML 1.2 takes for a text; none if it is one.
fn scalar(text: &str) -> Option<Value> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(true.into()),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(false.into()),
        _ => {}
    }
    let first = text.bytes().next()?;
    if !first.is_ascii_digit() && first != b'-' && first != b'+' {
        return None;
    }
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.as_bytes().first() {
        Some(b'-') => (-1, plain.get(1..)?),
        Some(b'+') => (1, plain.get(1..)?),
        _ => (1, plain.as_str()),
    };
    if let Some(whole) = whole(digits) {
        let whole = sign * whole;
        let signed = i64::try_from(whole).ok().map(Value::from);
        return signed.or_else(|| u64::try_from(whole).ok().map(Value::from));
    }
    let is_decimal = digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    if !is_decimal {
        return None;
    }
    plain.parse().ok().and_then(float)
}

/// Go's integers: `0x`, `0o`, `0b`, and `0` for octal ones.
fn whole(digits: &str) -> Option<i128> {
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (lower.get(2..)?, 16),
        [b'0', b'o', ..] => (lower.get(2..)?, 8),
        [b'0', b'b', ..] => (lower.get(2..)?, 2),
        [b'0', _, ..] => (lower.get(1..)?, 8),
        _ => (lower.as_str(), 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_number
        .then(|| i128::from_str_radix(digits, radix).ok())
        .flatten()
        .filter(|whole| *whole <= i128::from(u64::MAX))
}

/// A number as Go writes it: without a fraction where it has none.
fn float(value: f64) -> Option<Value> {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(text: &str) -> Value {
        let all = read(text, &Cell::new(LARGEST)).unwrap();
        assert_eq!(all.len(), 1, "{text:?}: {all:?}");
        all.into_iter().next().unwrap()
    }

    #[test]
    fn plain_scalars_mean_what_they_mean_to_helm() {
        for (text, value) in [
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("'0644'", json!("0644")),
            ("\"0644\"", json!("0644")),
            ("!!str 0644", json!("0644")),
            ("0x1F", json!(31)),
            ("0o14", json!(12)),
            ("0b101", json!(5)),
            ("08", json!(8)),
            ("0129.5", json!(129.5)),
            ("1_000", json!(1000)),
            ("1e+06", json!(1_000_000)),
            ("1.5", json!(1.5)),
            (
                "18446744073709551615",
                json!(18_446_744_073_709_551_615_u64),
            ),
            ("9007199254740993", json!(9_007_199_254_740_993_i64)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("'yes'", json!("yes")),
            ("y", json!(true)),
            ("yess", json!("yess")),
            ("~", json!(null)),
            ("", json!(null)),
            ("1.2.3", json!("1.2.3")),
            ("1-2", json!("1-2")),
            ("12e", json!("12e")),
            ("2026-01-02", json!("2026-01-02")),
            ("10:30", json!("10:30")),
            ("0xyz", json!("0xyz")),
            ("-", json!([null])),
            ("--", json!("--")),
            ("500m", json!("500m")),
            ("[0644, 'no', no]", json!([420, "no", false])),
            ("{\"a\":yes,'b':\"yes\"}", json!({"a": true, "b": "yes"})),
            ("a: |\n  yes\n", json!({"a": "yes\n"})),
            ("a: >-\n  0644\n", json!({"a": "0644"})),
            ("8080: x\non: y", json!({"8080": "x", "true": true})),
            ("a: 1\na: 2", json!({"a": 2})),
            (
                "a: &x yes\nb: *x\nc: &z 'yes'\nd: *z",
                json!({"a": true, "b": true, "c": "yes", "d": "yes"}),
            ),
            (
                "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3",
                json!({"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}),
            ),
        ] {
            assert_eq!(one(text), value, "{text:?}");
        }
        for text in [".inf", "!thing x", "[a", "{[a]: b}", "a: 1\nb: {<<: 5}"] {
            assert!(read(text, &Cell::new(LARGEST)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_text_that_grows_by_its_aliases_is_refused() {
        let mut text = format!("a0: &a0 [{}]\n", vec!["xxxxxxxxxxxxxxxx"; 1000].join(","));
        for level in 1..9 {
            let last = format!("*a{}", level - 1);
            let items = [last.as_str(); 10].join(",");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(read(&text, &Cell::new(LARGEST)).is_err());
    }
}
