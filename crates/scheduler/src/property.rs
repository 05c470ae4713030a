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
#[derive(Clone, Copy, Debug)]
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
        })
    }

    /// Whether the cluster passes. A missing property doesn't.
    pub(crate) fn holds(&self, cluster: &ClusterView<'_>) -> Result<bool, String> {
        let observed = self
            .property
            .of(cluster)
            .map_err(|error| format!("property {:?}: {error}", self.name))?;
        Ok(observed.is_some_and(|observed| match self.comparison {
            Comparison::Gt => observed > self.value,
            Comparison::Ge => observed >= self.value,
            Comparison::Eq => observed == self.value,
            Comparison::Ne => observed != self.value,
            Comparison::Lt => observed < self.value,
            Comparison::Le => observed <= self.value,
        }))
    }
}
