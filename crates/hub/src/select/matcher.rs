//! Selectors, read: which kinds they name and which objects they choose (API §2.2, §7.2).

use std::collections::BTreeMap;
use std::fmt;

use kube::core::GroupVersionKind;
use windlass_api::LabelSelector;
use windlass_api::placement::{ResourceSelectorTerm, SelectionScope};
use windlass_scheduler::selector::{Selector, matches};

/// How a selector chooses among the objects of its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The object of that name.
    Name(String),
    /// Objects with such labels.
    Labels(LabelSelector),
    /// Every object.
    All,
}

impl Choice {
    /// Whether an object is chosen. Selectors were checked when they were read; one that can't be
    /// evaluated chooses nothing.
    #[must_use]
    pub fn picks(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Labels(selector) => matches(selector, labels).unwrap_or(false),
            Self::All => true,
        }
    }
}

/// A selector of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Its place in the placement's list, for messages.
    pub index: usize,
    /// The kind that it names.
    pub kind: GroupVersionKind,
    /// What it chooses.
    pub choice: Choice,
    /// For Namespaces: what comes along. None for other kinds, where the API has the field ignored.
    pub scope: Option<SelectionScope>,
}

/// The way messages name a selector: its place, its kind and its choice.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, kind) = (self.index, &self.kind.kind);
        match &self.choice {
            Choice::Name(name) => write!(f, "resourceSelectors[{index}] ({kind} {name})"),
            Choice::Labels(_) => write!(f, "resourceSelectors[{index}] ({kind} by labels)"),
            Choice::All => write!(f, "resourceSelectors[{index}] (every {kind})"),
        }
    }
}

/// Reads a placement's selectors.
///
/// # Errors
/// For the first one that says nothing clear: what is wrong with it.
pub fn read(selectors: &[ResourceSelectorTerm]) -> Result<Vec<Term>, String> {
    selectors
        .iter()
        .enumerate()
        .map(|(index, selector)| read_one(index, selector))
        .collect()
}

fn read_one(index: usize, selector: &ResourceSelectorTerm) -> Result<Term, String> {
    let name = selector.name.as_ref().filter(|name| !name.is_empty());
    let choice = match (name, &selector.label_selector) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "resourceSelectors[{index}] has both name and labelSelector; keep one of them"
            ));
        }
        (Some(name), None) => Choice::Name(name.clone()),
        (None, Some(labels)) => {
            Selector::new(labels)
                .map_err(|error| format!("resourceSelectors[{index}].labelSelector: {error}"))?;
            Choice::Labels(labels.clone())
        }
        (None, None) => Choice::All,
    };
    let kind = GroupVersionKind::gvk(&selector.group, &selector.version, &selector.kind);
    let scope = is_namespace(&kind).then(|| {
        selector
            .selection_scope
            .unwrap_or(SelectionScope::NamespaceWithResources)
    });
    Ok(Term {
        index,
        kind,
        choice,
        scope,
    })
}

/// Whether a kind is Namespace.
#[must_use]
pub fn is_namespace(kind: &GroupVersionKind) -> bool {
    kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selectors(value: Value) -> Vec<ResourceSelectorTerm> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn choices() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let a = |rest: Value| {
            let mut term = json!({"group": "", "version": "v1", "kind": "Namespace"});
            term.as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            read(&selectors(json!([term]))).unwrap().remove(0).choice
        };
        for (choice, name, of, expected) in [
            (json!({"name": "a"}), "a", labels(&[]), true),
            (json!({"name": "a"}), "b", labels(&[]), false),
            (json!({}), "b", labels(&[]), true),
            (json!({"name": ""}), "b", labels(&[]), true),
            (json!({"labelSelector": {}}), "b", labels(&[]), true),
            (
                json!({"labelSelector": {"matchLabels": {"t": "x"}}}),
                "a",
                labels(&[("t", "x")]),
                true,
            ),
            (
                json!({"labelSelector": {"matchLabels": {"t": "x"}}}),
                "a",
                labels(&[("t", "y")]),
                false,
            ),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "t", "operator": "DoesNotExist"}]}}),
                "a",
                labels(&[]),
                true,
            ),
        ] {
            assert_eq!(
                a(choice.clone()).picks(name, &of),
                expected,
                "{choice} {name}"
            );
        }
    }

    #[test]
    fn scopes() {
        let terms = read(&selectors(json!([
            {"group": "", "version": "v1", "kind": "Namespace", "name": "a"},
            {"group": "", "version": "v1", "kind": "Namespace", "selectionScope": "NamespaceOnly"},
            {"group": "apps", "version": "v1", "kind": "Deployment", "labelSelector": {},
             "selectionScope": "NamespaceOnly"},
        ])))
        .unwrap();
        let scopes: Vec<_> = terms.iter().map(|term| term.scope).collect();
        let (whole, only) = (
            SelectionScope::NamespaceWithResources,
            SelectionScope::NamespaceOnly,
        );
        assert_eq!(scopes, [Some(whole), Some(only), None]);
        let texts: Vec<_> = terms.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "resourceSelectors[0] (Namespace a)",
                "resourceSelectors[1] (every Namespace)",
                "resourceSelectors[2] (Deployment by labels)",
            ]
        );
    }

    #[test]
    fn errors() {
        for (term, words) in [
            (
                json!({"name": "a", "labelSelector": {}}),
                "[0] has both name and labelSelector",
            ),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "t", "operator": "Like"}]}}),
                "[0].labelSelector: label requirement on \"t\" has operator \"Like\"",
            ),
        ] {
            let mut whole = json!({"group": "", "version": "v1", "kind": "Namespace"});
            whole
                .as_object_mut()
                .unwrap()
                .extend(term.as_object().unwrap().clone());
            let error = read(&selectors(json!([whole]))).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
