//! Selectors, read: which kinds they need and which objects they match.

use std::collections::BTreeMap;

use windlass_api::LabelSelector;
use windlass_api::placement::{ResourceSelectorTerm, SelectionScope};
use windlass_scheduler::selector::matches;

/// How a term chooses among the objects of its kind.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The object of that name.
    Name(String),
    /// Objects with such labels.
    Labels(LabelSelector),
    /// Every object.
    All,
}

impl Choice {
    /// Reads a selector.
    #[must_use]
    pub fn of(term: &ResourceSelectorTerm) -> Self {
        match (&term.name, &term.label_selector) {
            (Some(name), _) if !name.is_empty() => Self::Name(name.clone()),
            (_, Some(selector)) => Self::Labels(selector.clone()),
            _ => Self::All,
        }
    }

    /// Whether an object is chosen. A selector that can't be read chooses nothing.
    #[must_use]
    pub fn picks(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Labels(selector) => matches(selector, labels).unwrap_or(false),
            Self::All => true,
        }
    }
}

/// Whether a selector is for Namespaces.
#[must_use]
pub fn is_namespace(term: &ResourceSelectorTerm) -> bool {
    term.group.is_empty() && term.version == "v1" && term.kind == "Namespace"
}

/// What a Namespace selector brings along.
#[must_use]
pub fn scope(term: &ResourceSelectorTerm) -> SelectionScope {
    term.selection_scope
        .unwrap_or(SelectionScope::NamespaceWithResources)
}
