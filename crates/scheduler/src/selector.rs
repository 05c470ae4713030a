//! Kubernetes label selectors.
//!
//! Used for clusters here and for resources by the hub.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Why a label selector can't be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// The operator is none of In, NotIn, Exists, DoesNotExist.
    UnknownOperator {
        /// Key of the requirement.
        key: String,
        /// The operator.
        operator: String,
    },
    /// In or NotIn without a value.
    ValuesMissing {
        /// Key of the requirement.
        key: String,
    },
    /// Exists or DoesNotExist with a value.
    ValuesNotAllowed {
        /// Key of the requirement.
        key: String,
    },
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOperator { key, operator } => write!(
                f,
                "label requirement on {key:?} has operator {operator:?}; use In, NotIn, Exists or DoesNotExist"
            ),
            Self::ValuesMissing { key } => {
                write!(
                    f,
                    "label requirement on {key:?} needs at least one value for In or NotIn"
                )
            }
            Self::ValuesNotAllowed { key } => write!(
                f,
                "label requirement on {key:?} takes no values for Exists or DoesNotExist"
            ),
        }
    }
}

impl std::error::Error for SelectorError {}

/// A label selector that was checked, for use on many objects.
#[derive(Clone, Debug)]
pub struct Selector<'a> {
    labels: Option<&'a BTreeMap<String, String>>,
    requirements: Vec<Requirement<'a>>,
}

#[derive(Clone, Debug)]
enum Requirement<'a> {
    In(&'a str, &'a [String]),
    NotIn(&'a str, &'a [String]),
    Exists(&'a str),
    DoesNotExist(&'a str),
}

impl<'a> Selector<'a> {
    /// Checks a selector. An empty one matches everything.
    ///
    /// # Errors
    ///
    /// The first requirement with an unknown operator, or with values where there can't be any or the
    /// other way round.
    pub fn new(selector: &'a LabelSelector) -> Result<Self, SelectorError> {
        let requirements = selector
            .match_expressions
            .as_deref()
            .unwrap_or_default()
            .iter()
            .map(Requirement::new)
            .collect::<Result<_, _>>()?;
        Ok(Selector {
            labels: selector.match_labels.as_ref(),
            requirements,
        })
    }

    /// Whether every requirement holds for `labels`.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.labels.is_none_or(|wanted| wanted.iter().all(equal))
            && self.requirements.iter().all(|r| r.holds(labels))
    }
}

impl<'a> Requirement<'a> {
    fn new(requirement: &'a LabelSelectorRequirement) -> Result<Self, SelectorError> {
        let key = requirement.key.as_str();
        let values = requirement.values.as_deref().unwrap_or_default();
        match (requirement.operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Self::In(key, values)),
            ("NotIn", false) => Ok(Self::NotIn(key, values)),
            ("Exists", true) => Ok(Self::Exists(key)),
            ("DoesNotExist", true) => Ok(Self::DoesNotExist(key)),
            ("In" | "NotIn", true) => Err(SelectorError::ValuesMissing {
                key: key.to_owned(),
            }),
            ("Exists" | "DoesNotExist", false) => Err(SelectorError::ValuesNotAllowed {
                key: key.to_owned(),
            }),
            (operator, _) => Err(SelectorError::UnknownOperator {
                key: key.to_owned(),
                operator: operator.to_owned(),
            }),
        }
    }

    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels.get(*key).is_some_and(|v| values.contains(v)),
            // A missing label has no value, so that it is in no list.
            Self::NotIn(key, values) => labels.get(*key).is_none_or(|v| !values.contains(v)),
            Self::Exists(key) => labels.contains_key(*key),
            Self::DoesNotExist(key) => !labels.contains_key(*key),
        }
    }
}

/// Whether `selector` matches `labels`. An empty selector matches everything.
///
/// # Errors
///
/// See [`Selector::new`]; a selector with an error is one for every set of labels.
pub fn matches(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    Ok(Selector::new(selector)?.matches(labels))
}
