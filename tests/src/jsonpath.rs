//! The part of kubectl's JSONPath templates that suites use.

use serde_json::Value;

/// One piece of a template.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Path(Vec<Step>),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Index(usize),
    All,
    /// Items of which a field has a value.
    Where(Vec<String>, String),
}

/// None: there is something in it that this does not know.
pub(crate) fn parse(template: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        // Inside of quotes there are no braces in any suite.
        let (path, after) = after.split_once('}')?;
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        pieces.push(Piece::Path(steps(path)?));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Some(pieces)
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (inside, after) = after.split_once(']')?;
            steps.push(match inside.strip_prefix("?(@") {
                Some(filter) => condition(filter.strip_suffix(')')?)?,
                None if inside == "*" => Step::All,
                None => Step::Index(inside.parse().ok()?),
            });
            rest = after;
        } else {
            let (name, after) = field(rest)?;
            steps.push(Step::Field(name));
            rest = after;
        }
    }
    Some(steps)
}

/// `.type=="Healthy"`.
fn condition(filter: &str) -> Option<Step> {
    let (mut path, value) = filter.split_once("==")?;
    let value = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .or_else(|| value.strip_prefix('\'')?.strip_suffix('\''))?;
    let mut names = Vec::new();
    while !path.is_empty() {
        let (name, after) = field(path)?;
        names.push(name);
        path = after;
    }
    Some(Step::Where(names, value.to_owned()))
}

/// `.name`, where a dot in the name is written `\.`.
fn field(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('.')?;
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            character if character.is_ascii_alphanumeric() || "-/_".contains(character) => {
                name.push(character);
            }
            _ => return None,
        }
    }
    (!name.is_empty()).then(|| (name, &text[end..]))
}

/// What kubectl prints; what is missing is printed as nothing.
pub(crate) fn print(template: &[Piece], object: &Value) -> String {
    let print = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Path(steps) => {
            let words: Vec<String> = find(steps, object).into_iter().map(word).collect();
            words.join(" ")
        }
    };
    template.iter().map(print).collect()
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn find<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|value| -> Vec<&Value> {
                match step {
                    Step::Field(name) => value.get(name).into_iter().collect(),
                    Step::Index(number) => value.get(number).into_iter().collect(),
                    Step::All => match value {
                        Value::Array(items) => items.iter().collect(),
                        Value::Object(fields) => fields.values().collect(),
                        _ => Vec::new(),
                    },
                    Step::Where(path, wanted) => {
                        let is_it = |item: &&Value| {
                            let at = path.iter().try_fold(*item, |at, name| at.get(name));
                            at.and_then(Value::as_str) == Some(wanted)
                        };
                        let items = value.as_array().into_iter().flatten();
                        items.filter(is_it).collect()
                    }
                }
            })
            .collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_kubectl_prints() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x.y/z": "1"}, "generation": 2},
            "list": [{"type": "A", "in": {"k": "v"}, "note": "one"}, {"type": "B", "note": "two"}],
        });
        for (template, expected) in [
            ("{.metadata.name}", "a"),
            ("{.metadata.generation}", "2"),
            ("{.metadata.missing.more}", ""),
            (r"{.metadata.labels.x\.y/z}", "1"),
            ("{.metadata.labels}", r#"{"x.y/z":"1"}"#),
            ("{.list[*].note}", "one two"),
            ("{.list[1].note}", "two"),
            ("{.list[2].note}", ""),
            (r#"{.list[?(@.type=="B")].note}"#, "two"),
            ("{.list[?(@.in.k=='v')].note}", "one"),
            ("{.metadata.name}/{.list[*].type}", "a/A B"),
        ] {
            assert_eq!(
                print(&parse(template).unwrap(), &object),
                expected,
                "{template}"
            );
        }
        for unknown in [
            "{..name}",
            "{.a",
            "{range .items[*]}{.a}{end}",
            "{.a[0:2]}",
            "{.a[-1:]}",
        ] {
            assert_eq!(parse(unknown), None, "{unknown}");
        }
    }
}
