//! Variables in patch values (API §5.3).

use serde_json::{Map, Value};

use crate::Cluster;

const NAME: &str = "{MEMBER-CLUSTER-NAME}";
const LABEL: &str = "{MEMBER-CLUSTER-LABEL-KEY-";

/// Replaces the variables in every string of a value, keys included. What is put in is not looked at again.
///
/// | text | becomes |
/// |---|---|
/// | `${MEMBER-CLUSTER-NAME}` | the cluster's name |
/// | `${MEMBER-CLUSTER-LABEL-KEY-key}` | the value of the cluster's label `key` |
/// | `$$` before either | a `$` that is meant: `$${…}` is the text `${…}`, `$$${…}` is `$` and the value |
/// | any other `$` | itself |
///
/// # Errors
/// When the cluster has no such label, or the closing brace is missing.
pub fn substitute(value: &Value, cluster: Cluster<'_>) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(in_text(text, cluster)?),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| substitute(item, cluster))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => {
            let mut replaced = Map::new();
            for (key, field) in fields {
                replaced.insert(in_text(key, cluster)?, substitute(field, cluster)?);
            }
            Value::Object(replaced)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn in_text(text: &str, cluster: Cluster<'_>) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        done.push_str(&rest[..at]);
        let after = rest[at..].trim_start_matches('$');
        let dollars = rest.len() - at - after.len();
        rest = after;
        if !(rest.starts_with(NAME) || rest.starts_with(LABEL)) {
            done.extend(std::iter::repeat_n('$', dollars));
            continue;
        }
        // Two stand for one; one that is left over is the variable's.
        done.extend(std::iter::repeat_n('$', dollars / 2));
        if dollars % 2 == 1 {
            let (value, after) = variable(rest, cluster)?;
            done.push_str(value);
            rest = after;
        }
    }
    done.push_str(rest);
    Ok(done)
}

/// The value of the variable that `text` begins with, and the text after it.
fn variable<'a>(text: &'a str, cluster: Cluster<'a>) -> Result<(&'a str, &'a str), String> {
    if let Some(after) = text.strip_prefix(NAME) {
        return Ok((cluster.name, after));
    }
    let (key, after) = text
        .strip_prefix(LABEL)
        .and_then(|text| text.split_once('}'))
        .ok_or_else(|| format!("the variable ${LABEL}… has no closing brace"))?;
    let value = cluster.labels.get(key).ok_or_else(|| {
        format!("the variable ${LABEL}{key}}} has no value: the cluster has no label {key}")
    })?;
    Ok((value, after))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn on_east(value: &Value) -> Result<Value, String> {
        let labels = BTreeMap::from([
            ("env".to_owned(), "prod".to_owned()),
            ("example.com/zone".to_owned(), "z1".to_owned()),
        ]);
        substitute(
            value,
            Cluster {
                name: "east",
                labels: &labels,
            },
        )
    }

    #[test]
    fn rows() {
        for (text, expected) in [
            ("${MEMBER-CLUSTER-NAME}", "east"),
            (
                "a-${MEMBER-CLUSTER-NAME}-${MEMBER-CLUSTER-NAME}.",
                "a-east-east.",
            ),
            ("${MEMBER-CLUSTER-LABEL-KEY-env}", "prod"),
            ("${MEMBER-CLUSTER-LABEL-KEY-example.com/zone}!", "z1!"),
            ("$", "$"),
            ("$$", "$$"),
            ("cost: 5$ each", "cost: 5$ each"),
            (
                "${HOME} $(POD) ${MEMBER-CLUSTER-NAMES}",
                "${HOME} $(POD) ${MEMBER-CLUSTER-NAMES}",
            ),
            ("${MEMBER-CLUSTER-NAME", "${MEMBER-CLUSTER-NAME"),
            ("$${MEMBER-CLUSTER-NAME}", "${MEMBER-CLUSTER-NAME}"),
            (
                "$${MEMBER-CLUSTER-LABEL-KEY-none}",
                "${MEMBER-CLUSTER-LABEL-KEY-none}",
            ),
            ("$$${MEMBER-CLUSTER-NAME}", "$east"),
            ("$$$${MEMBER-CLUSTER-NAME}", "$${MEMBER-CLUSTER-NAME}"),
            ("$${HOME}", "$${HOME}"),
        ] {
            assert_eq!(on_east(&json!(text)), Ok(json!(expected)), "{text}");
        }
    }

    #[test]
    fn everywhere_in_a_value_and_nowhere_else() {
        let value =
            json!({"${MEMBER-CLUSTER-NAME}": ["${MEMBER-CLUSTER-LABEL-KEY-env}", 1, true, null]});
        assert_eq!(
            on_east(&value),
            Ok(json!({"east": ["prod", 1, true, null]}))
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, expected) in [
            (
                "${MEMBER-CLUSTER-LABEL-KEY-none}",
                "the variable ${MEMBER-CLUSTER-LABEL-KEY-none} has no value: the cluster has no label none",
            ),
            (
                "${MEMBER-CLUSTER-LABEL-KEY-env",
                "the variable ${MEMBER-CLUSTER-LABEL-KEY-… has no closing brace",
            ),
        ] {
            assert_eq!(on_east(&json!(text)), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_reserved_names_stays(text in "[$a-z{}\\-A-L]{0,20}") {
            prop_assert_eq!(on_east(&json!(text)), Ok(json!(text)));
        }

        /// Texts, variables among them, as they are meant and as they are written.
        #[test]
        fn any_text_can_be_written(parts in proptest::collection::vec(0..5usize, 0..6)) {
            let pieces = ["$", "x", "{MEMBER-CLUSTER-NAME}", "{MEMBER-CLUSTER-LABEL-KEY-", "east"];
            let (mut meant, mut written) = (String::new(), String::new());
            let mut dollars = 0;
            for part in parts.iter().map(|at| pieces[*at]) {
                let reserved = part.starts_with('{');
                if part == "$" {
                    dollars += 1;
                    continue;
                }
                // Every $ before a reserved name is doubled; a variable is one more.
                let variable = part == "east";
                let times = if reserved || variable { 2 * dollars } else { dollars };
                meant.push_str(&"$".repeat(dollars));
                meant.push_str(part);
                written.push_str(&"$".repeat(times));
                written.push_str(if variable { "${MEMBER-CLUSTER-NAME}" } else { part });
                dollars = 0;
            }
            meant.push_str(&"$".repeat(dollars));
            written.push_str(&"$".repeat(dollars));
            prop_assert_eq!(on_east(&json!(written)), Ok(json!(meant)));
        }
    }
}
