//! Cluster properties: finding them, and testing them (API §10.1, hub §1.7.4).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use windlass_api::placement::PropertySelectorRequirement;

use crate::quantity::Quantity;
use crate::view::ClusterView;

const RESOURCE_PREFIX: &str = "resources.kubernetes-fleet.io/";

/// Where a property's value is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Property<'a> {
    Total(&'a str),
    Allocatable(&'a str),
    Available(&'a str),
    Custom(&'a str),
}

impl<'a> Property<'a> {
    /// Reads a property name. That of a resource is split at the first dash only, since resource names
    /// have dashes themselves (`allocatable-ephemeral-storage`; trap T9).
    pub(crate) fn parse(name: &'a str) -> Result<Self, String> {
        let Some(rest) = name.strip_prefix(RESOURCE_PREFIX) else {
            return Ok(Self::Custom(name));
        };
        match rest.split_once('-') {
            Some(("total", resource)) if !resource.is_empty() => Ok(Self::Total(resource)),
            Some(("allocatable", resource)) if !resource.is_empty() => {
                Ok(Self::Allocatable(resource))
            }
            Some(("available", resource)) if !resource.is_empty() => Ok(Self::Available(resource)),
            _ => Err(format!(
                "property name {name:?} is malformed; after the slash comes total-, allocatable- or available- and a resource"
            )),
        }
    }

    /// The cluster's value; `Ok(None)` when it has none.
    pub(crate) fn of(self, cluster: &ClusterView<'_>) -> Result<Option<Quantity>, String> {
        let usage = cluster.usage;
        let text = match self {
            Self::Total(name) => amount(usage.and_then(|u| u.capacity.as_ref()), name),
            Self::Allocatable(name) => amount(usage.and_then(|u| u.allocatable.as_ref()), name),
            Self::Available(name) => amount(usage.and_then(|u| u.available.as_ref()), name),
            Self::Custom(name) => cluster.properties.get(name).map(|p| p.value.as_str()),
        };
        text.map(Quantity::parse)
            .transpose()
            .map_err(|error| format!("its value {:?} {error}", text.unwrap_or_default()))
    }
}

fn amount<'a>(all: Option<&'a BTreeMap<String, Text>>, resource: &str) -> Option<&'a str> {
    all?.get(resource).map(|Text(text)| text.as_str())
}

/// A comparison with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Gt,
    Ge,
    Eq,
    Ne,
    Lt,
    Le,
}

/// A property test that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Test<'a> {
    name: &'a str,
    property: Property<'a>,
    comparison: Comparison,
    value: Quantity,
    /// As the policy has them.
    operator: &'a str,
    text: &'a str,
}

impl<'a> Test<'a> {
    pub(crate) fn new(requirement: &'a PropertySelectorRequirement) -> Result<Self, String> {
        let name = requirement.name.as_str();
        let property = Property::parse(name)?;
        let comparison = match requirement.operator.as_str() {
            "Gt" => Comparison::Gt,
            "Ge" => Comparison::Ge,
            "Eq" => Comparison::Eq,
            "Ne" => Comparison::Ne,
            "Lt" => Comparison::Lt,
            "Le" => Comparison::Le,
            other => {
                return Err(format!(
                    "test of property {name:?} has operator {other:?}; use Gt, Ge, Eq, Ne, Lt or Le"
                ));
            }
        };
        let [text] = requirement.values.as_slice() else {
            return Err(format!("test of property {name:?} needs exactly one value"));
        };
        let value = Quantity::parse(text)
            .map_err(|error| format!("test of property {name:?}: value {text:?} {error}"))?;
        Ok(Test {
            name,
            property,
            comparison,
            value,
            operator: &requirement.operator,
            text,
        })
    }

    /// Whether the cluster passes. A missing property doesn't.
    pub(crate) fn holds(&self, cluster: &ClusterView<'_>) -> Result<bool, String> {
        let observed = self
            .property
            .of(cluster)
            .map_err(|error| format!("property {:?}: {error}", self.name))?;
        Ok(observed.is_some_and(|observed| self.accepts(observed)))
    }

    fn accepts(&self, observed: Quantity) -> bool {
        match self.comparison {
            Comparison::Gt => observed > self.value,
            Comparison::Ge => observed >= self.value,
            Comparison::Eq => observed == self.value,
            Comparison::Ne => observed != self.value,
            Comparison::Lt => observed < self.value,
            Comparison::Le => observed <= self.value,
        }
    }

    /// Whether some value passes both.
    fn agrees(&self, other: &Self) -> bool {
        use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
        match (self.comparison, other.comparison) {
            (Eq, _) => other.accepts(self.value),
            (_, Eq) => self.accepts(other.value),
            (Ne, _) | (_, Ne) | (Gt | Ge, Gt | Ge) | (Lt | Le, Lt | Le) => true,
            // Between two different values there is another one.
            (Gt | Ge, Lt | Le) if self.value != other.value => self.value < other.value,
            (Lt | Le, Gt | Ge) if self.value != other.value => self.value > other.value,
            (one, another) => matches!((one, another), (Ge, Le) | (Le, Ge)),
        }
    }

    /// The only value that passes both, if one alone does.
    fn pins(&self, other: &Self) -> Option<Quantity> {
        let ends = (self.comparison, other.comparison);
        let meet = matches!(
            ends,
            (Comparison::Ge, Comparison::Le) | (Comparison::Le, Comparison::Ge)
        );
        (meet && self.value == other.value).then_some(self.value)
    }
}

/// Why no value can pass all tests, if none can (API §6.3, rule 16): of the first property of which that is
/// so, the first tests.
pub(crate) fn contradiction(tests: &[Test<'_>]) -> Option<String> {
    tests.iter().enumerate().find_map(|(index, one)| {
        let of_it = || tests.iter().filter(|test| test.name == one.name);
        let mut later = tests.iter().skip(index + 1).filter(|t| t.name == one.name);
        let faults: Vec<&Test<'_>> = later.find_map(|other| {
            if !one.agrees(other) {
                return Some(vec![one, other]);
            }
            let value = one.pins(other)?;
            let hole = of_it().find(|test| !test.accepts(value))?;
            Some(vec![one, other, hole])
        })?;
        let words: Vec<String> = faults
            .iter()
            .map(|test| format!("{} {}", test.operator, test.text))
            .collect();
        let (last, first) = words.split_last()?;
        Some(format!(
            "tests of property {:?} contradict each other: {} and {last}",
            one.name,
            first.join(", ")
        ))
    })
}
