//! What stays on a cluster that was given up, in words: the AppliedWorks, and the objects that they own as far
//! as the hub knows them. On the cluster, each AppliedWork lists its own (`status.appliedResources`).

use std::fmt;

use windlass_api::placement::ResourceIdentifier;
use windlass_api::scoped::Placement;
use windlass_cluster::ObjectKey;

/// Group of the envelopes.
const FLEET_GROUP: &str = "placement.kubernetes-fleet.io";
/// How many objects of one AppliedWork are named.
const NAMED_OBJECTS: usize = 20;
/// Longest list for a condition's message, in bytes; the API takes 32 KiB.
const LONGEST: usize = 16 << 10;

/// What one placement leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftBehind {
    /// Names of the AppliedWorks on the cluster.
    pub applied_works: Vec<String>,
    /// The placement that it is of.
    pub placement: String,
    /// What was selected last, as `Kind namespace/name`; empty when the placement is gone.
    pub objects: Vec<String>,
}

impl LeftBehind {
    /// What a placement has on a cluster; of one that is gone only the name is known.
    #[must_use]
    pub fn of(placement: &ObjectKey, applied_works: Vec<String>, live: Option<&Placement>) -> Self {
        let selected = live.and_then(|live| live.status.as_ref()?.selected_resources.as_deref());
        Self {
            applied_works,
            placement: placement.to_string(),
            objects: selected.unwrap_or_default().iter().map(words).collect(),
        }
    }
}

fn words(object: &ResourceIdentifier) -> String {
    // An envelope is not placed itself, and only it knows what is in it.
    let is_envelope = object.group.as_deref() == Some(FLEET_GROUP)
        && ["ResourceEnvelope", "ClusterResourceEnvelope"].contains(&object.kind.as_str());
    let what = if is_envelope { "the content of " } else { "" };
    match &object.namespace {
        Some(namespace) => format!("{what}{} {namespace}/{}", object.kind, object.name),
        None => format!("{what}{} {}", object.kind, object.name),
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AppliedWork{} {} of placement {}",
            if self.applied_works.len() > 1 {
                "s"
            } else {
                ""
            },
            self.applied_works.join(", "),
            self.placement
        )?;
        let more = self.objects.len().saturating_sub(NAMED_OBJECTS);
        match self.objects.get(..NAMED_OBJECTS).unwrap_or(&self.objects) {
            [] => Ok(()),
            named if more > 0 => write!(f, " with {} and {more} more", named.join(", ")),
            named => write!(f, " with {}", named.join(", ")),
        }
    }
}

/// The list in one line, sorted; what does not fit is counted.
#[must_use]
pub fn list(left: &[LeftBehind]) -> String {
    let mut left: Vec<&LeftBehind> = left.iter().collect();
    left.sort();
    let mut text = String::new();
    for (index, one) in left.iter().enumerate() {
        let one = one.to_string();
        if text.len() + one.len() > LONGEST {
            return format!("{text}; and {} more AppliedWorks", left.len() - index);
        }
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&one);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placement(objects: usize) -> Placement {
        let object = |n: usize| match n {
            0 => json!({ "version": "v1", "kind": "Namespace", "name": "web" }),
            n => {
                json!({ "version": "v1", "kind": "ConfigMap", "name": format!("c{n}"), "namespace": "web" })
            }
        };
        let selected: Vec<_> = (0..objects).map(object).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "web" }, "spec": { "resourceSelectors": [] },
            "status": { "selectedResources": selected },
        }))
        .unwrap()
    }

    fn left(name: &str, objects: usize) -> LeftBehind {
        let live = (objects > 0).then(|| placement(objects));
        LeftBehind::of(
            &ObjectKey::cluster(name),
            vec![format!("{name}-work")],
            live.as_ref(),
        )
    }

    #[test]
    fn works_and_objects_are_named() {
        assert_eq!(
            list(&[left("web", 2), left("app", 1), left("gone", 0)]),
            "AppliedWork app-work of placement app with Namespace web; \
             AppliedWork gone-work of placement gone; \
             AppliedWork web-work of placement web with Namespace web, ConfigMap web/c1"
        );
        let many = list(&[left("web", 50)]);
        assert!(many.ends_with("ConfigMap web/c19 and 30 more"), "{many}");
    }

    #[test]
    fn of_an_agent_every_work_is_named_and_of_an_envelope_the_content() {
        let mut live = placement(1);
        let envelope = json!({ "group": "placement.kubernetes-fleet.io", "version": "v1beta1",
            "kind": "ResourceEnvelope", "name": "inside", "namespace": "web" });
        let selected = &mut live.status.as_mut().unwrap().selected_resources;
        selected
            .as_mut()
            .unwrap()
            .push(serde_json::from_value(envelope).unwrap());
        let works = ["web-work", "web-work-envelope-1"].map(str::to_owned);
        let left = LeftBehind::of(&ObjectKey::cluster("web"), works.into(), Some(&live));
        assert_eq!(
            left.to_string(),
            "AppliedWorks web-work, web-work-envelope-1 of placement web with Namespace web, \
             the content of ResourceEnvelope web/inside"
        );
    }

    #[test]
    fn the_list_fits_into_a_condition() {
        let all: Vec<LeftBehind> = (0..1000).map(|n| left(&format!("p{n:04}"), 20)).collect();
        let text = list(&all);
        assert!(text.len() < LONGEST + 100, "{}", text.len());
        let counted: usize = text.rsplit(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!(counted + text.matches("AppliedWork p").count(), 1000);
    }
}
