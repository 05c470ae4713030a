//! An Addon's placement: the one that the hub makes for it, or the user's; and whether the render has arrived.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};
use windlass_addons::placed::{Placed, Why};
use windlass_api::Condition;
use windlass_api::addon::placed::InlinePlacement;
use windlass_api::addon::{Addon, RenderedEnvelope};
use windlass_api::conditions::Status;
use windlass_api::labels;
use windlass_api::placement::{ClusterResourcePlacement, PlacementStatus};
use windlass_api::scoped::Placement;
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_status::conditions::{find, status};
use windlass_status::digest::Digest;
use windlass_status::processing::is_timeout;

use super::addon::owner_of;
use crate::select::renders::kind_of;
use crate::world::World;

/// On a placement that the hub has made for an Addon, annotation: digest of what it asked for. Another one means
/// that the Addon asks for something else now.
const ASKED: &str = "addons.windlass.dev/asked";

/// Name of the placement of an Addon.
pub(crate) fn name_of(addon: &Addon) -> String {
    match &addon.spec.placement.reference {
        Some(reference) => reference.name.clone(),
        None => format!("addon-{}", addon.name_any()),
    }
}

/// Makes the placement of an Addon, or brings it to what that asks for. A user's own is left alone.
///
/// # Errors
/// Why it can't be; or that the API server can't be asked.
pub(super) async fn ensure(
    world: &World,
    writer: &Writer,
    addon: &Addon,
    envelopes: &[RenderedEnvelope],
) -> Result<Result<(), Placed>, ApiError> {
    let name = name_of(addon);
    let live = world.placements.get(&ObjectKey::cluster(&name));
    let Some(inline) = &addon.spec.placement.inline else {
        let missing = live.is_none().then(|| {
            let message = format!("ClusterResourcePlacement {name} does not exist; create it");
            Placed::Waits(Why::new("PlacementNotFound", message))
        });
        return Ok(missing.map_or(Ok(()), Err));
    };
    let wanted = wanted(addon, &name, inline, envelopes);
    let Some(live) = live else {
        return match writer.create(&wanted).await {
            Ok(live) => {
                if let Ok(live) = serde_json::to_value(live).and_then(serde_json::from_value) {
                    world.placements.observe(live);
                }
                Ok(Ok(()))
            }
            Err(ApiError::Rejected(why)) => Ok(Err(rejected(&why))),
            Err(error) => Err(error),
        };
    };
    let uid = addon.uid().unwrap_or_default();
    if !live
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid)
    {
        let message = format!(
            "ClusterResourcePlacement {name} is not this Addon's; rename one of them, or name it in \
             spec.placement.ref"
        );
        return Ok(Err(Placed::Refused(Why::new("PlacementConflict", message))));
    }
    let asked = wanted.annotations().get(ASKED);
    let (is, should) = (json!(live.spec), json!(wanted.spec));
    // What nobody asks for is somebody's doing; within what is asked for the API server adds defaults.
    let added = ["policy", "strategy"]
        .iter()
        .any(|field| should.get(field).is_none() && is.get(field).is_some());
    if live.annotations().get(ASKED) == asked && !added && covers(&is, &should) {
        return Ok(Ok(()));
    }
    let mut changed: Placement = (*live).clone();
    changed.spec = wanted.spec;
    changed
        .annotations_mut()
        .extend(wanted.metadata.annotations.unwrap_or_default());
    match writer.replace(&changed).await {
        Ok(live) => {
            world.placements.observe(live);
            Ok(Ok(()))
        }
        Err(ApiError::Rejected(why)) => Ok(Err(rejected(&why))),
        Err(error) => Err(error),
    }
}

fn rejected(why: &str) -> Placed {
    let message = format!("The placement can't be made as spec.placement.inline says: {why}");
    Placed::Refused(Why::new("PlacementRejected", message))
}

fn wanted(
    addon: &Addon,
    name: &str,
    inline: &InlinePlacement,
    envelopes: &[RenderedEnvelope],
) -> ClusterResourcePlacement {
    let mut selectors = vec![json!({
        "group": "", "version": "v1", "kind": "Namespace", "name": addon.spec.namespace,
        "selectionScope": "NamespaceWithResourceSelectors",
    })];
    let mut kinds: Vec<_> = envelopes
        .iter()
        .map(|envelope| kind_of(envelope).kind)
        .collect();
    kinds.sort();
    kinds.dedup();
    for kind in kinds {
        selectors.push(json!({
            "group": windlass_api::PLACEMENT_GROUP, "version": windlass_api::STORAGE_VERSION, "kind": kind,
            "labelSelector": {"matchLabels": {labels::ADDON: addon.name_any()}},
        }));
    }
    let mut placement = ClusterResourcePlacement::new(name, Default::default());
    placement.spec.resource_selectors = selectors
        .into_iter()
        .filter_map(|selector| serde_json::from_value(selector).ok())
        .collect();
    placement.spec.policy.clone_from(&inline.policy);
    placement.spec.strategy.clone_from(&inline.strategy);
    let asked = Digest::of_json(&json!(placement.spec)).to_string();
    placement.metadata.annotations = Some(BTreeMap::from([(ASKED.to_owned(), asked)]));
    placement.metadata.labels = Some(BTreeMap::from([(
        labels::ADDON.to_owned(),
        addon.name_any(),
    )]));
    placement.metadata.owner_references = Some(vec![owner_of(addon)]);
    placement
}

/// Whether everything that should be is, whatever the API server has added by itself.
fn covers(is: &Value, should: &Value) -> bool {
    match (is, should) {
        (Value::Object(is), Value::Object(should)) => should
            .iter()
            .all(|(key, value)| is.get(key).is_some_and(|is| covers(is, value))),
        (Value::Array(is), Value::Array(should)) => {
            is.len() == should.len() && is.iter().zip(should).all(|(is, should)| covers(is, should))
        }
        _ => is == should,
    }
}

/// How far the render has come. What the placement's status says counts only once its latest snapshot holds
/// that render: before that it tells of another one.
pub(super) fn state(world: &World, addon: &Addon, render: &str) -> Placed {
    let name = name_of(addon);
    let key = ObjectKey::cluster(&name);
    let Some(placement) = world.placements.get(&key) else {
        return Placed::Progressing(format!("ClusterResourcePlacement {name} is not made yet."));
    };
    told(&placement, latest(world, addon, render, &key))
}

/// The index of the latest version of a placement, and whether it holds that render.
fn latest(world: &World, addon: &Addon, render: &str, key: &ObjectKey) -> Option<(u64, bool)> {
    let groups = world.groups_of(key);
    groups.latest().map(|(index, group)| {
        let master = group.master.as_ref();
        let annotations = master.and_then(|master| master.metadata.annotations.as_ref());
        let named = annotations.and_then(|all| all.get(labels::ADDON_RENDERS));
        let wanted = format!("{}={render}", addon.name_any());
        let holds = named.is_some_and(|named| named.split(',').any(|one| one == wanted));
        (index, holds)
    })
}

/// The same, of what a placement says.
fn told(placement: &Placement, latest: Option<(u64, bool)>) -> Placed {
    let name = placement.name_any();
    if placement.metadata.deletion_timestamp.is_some() {
        return Placed::Progressing(format!("ClusterResourcePlacement {name} is being deleted."));
    }
    let told = placement.status.as_ref();
    let scheduled = told.and_then(|told| condition(told, "Scheduled"));
    if let Some((Status::False, "InvalidResourceSelectors", message)) = scheduled {
        return Placed::Failed(format!("ClusterResourcePlacement {name}: {message}"));
    }
    let Some((index, true)) = latest else {
        // Why it does not choose anything new, an envelope that it does not select, say.
        let why = match scheduled {
            Some((Status::Unknown, _, message)) => format!(": {message}"),
            _ => ".".to_owned(),
        };
        return Placed::Progressing(format!(
            "ClusterResourcePlacement {name} has not taken up this render yet{why}"
        ));
    };
    let observed = told.and_then(|told| told.observed_resource_index.as_deref());
    let conditions = told
        .and_then(|told| told.conditions.as_deref())
        .unwrap_or_default();
    let is_old =
        |condition: &Condition| condition.observed_generation != placement.metadata.generation;
    if observed != Some(index.to_string().as_str()) || conditions.iter().any(is_old) {
        return Placed::Progressing(format!(
            "ClusterResourcePlacement {name} does not report on this render yet."
        ));
    }
    told_by(&name, conditions)
}

/// What the conditions of a placement come to. Only words that stay the same while clusters come along one by
/// one: whoever wants to know how many looks at the placement.
fn told_by(name: &str, conditions: &[Condition]) -> Placed {
    let stage = |condition: &Condition| {
        let type_ = condition
            .type_
            .trim_start_matches("ClusterResourcePlacement");
        type_.to_owned()
    };
    let Some(first) = conditions
        .iter()
        .find(|condition| status(condition) != Status::True)
    else {
        let last = conditions.last();
        let last = last.map(|last| (stage(last), &last.message));
        return match last {
            Some((stage, message)) if stage == "Available" => {
                Placed::Available(format!("ClusterResourcePlacement {name}: {message}"))
            }
            Some((stage, _)) if stage == "DiffReported" => Placed::Progressing(format!(
                "ClusterResourcePlacement {name} reports differences and applies nothing, by its apply strategy."
            )),
            Some((stage, _)) if stage == "Scheduled" => Placed::Progressing(format!(
                "ClusterResourcePlacement {name} has chosen no cluster, or does not say more yet."
            )),
            _ => Placed::Progressing(format!("ClusterResourcePlacement {name} does not say yet.")),
        };
    };
    let stage = stage(first);
    let message = format!(
        "ClusterResourcePlacement {name}: {stage} is {}, {}; see windlass status {name}",
        first.status, first.reason
    );
    let fails = ["Overridden", "WorkSynchronized", "Applied", "DiffReported"];
    if status(first) == Status::False && (is_timeout(first) || fails.contains(&&*stage)) {
        Placed::Failing(message)
    } else {
        Placed::Progressing(message)
    }
}

/// The condition of a ClusterResourcePlacement whose type ends with this.
fn condition<'a>(told: &'a PlacementStatus, ending: &str) -> Option<(Status, &'a str, &'a str)> {
    let all = told.conditions.as_deref().unwrap_or_default();
    let type_ = format!("ClusterResourcePlacement{ending}");
    let found = find(all, &type_)?;
    Some((status(found), &found.reason, &found.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A placement of generation 2 whose conditions are these: type, status, generation.
    fn placement(index: &str, conditions: &[(&str, &str, i64)]) -> Placement {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, generation)| {
                json!({
                    "type": format!("ClusterResourcePlacement{type_}"), "status": status, "reason": "R",
                    "message": format!("about {type_}"), "observedGeneration": generation,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        let whole = json!({
            "metadata": {"name": "p", "generation": 2}, "spec": {"resourceSelectors": []},
            "status": {"observedResourceIndex": index, "conditions": conditions},
        });
        serde_json::from_value(whole).expect("it is a placement")
    }

    #[test]
    fn how_far_a_render_has_come() {
        let fine = [("Scheduled", "True", 2), ("Available", "True", 2)];
        for (what, of, latest, expected) in [
            (
                "all there",
                placement("3", &fine),
                Some((3, true)),
                "available: about Available",
            ),
            (
                "no version",
                placement("", &fine),
                None,
                "not taken up this render yet.",
            ),
            (
                "another render",
                placement("3", &fine),
                Some((3, false)),
                "not taken up this render yet.",
            ),
            (
                "it tells of an older one",
                placement("2", &fine),
                Some((3, true)),
                "does not report on this render",
            ),
            (
                "it tells of no single one",
                placement("", &fine),
                Some((3, true)),
                "does not report on this render",
            ),
            (
                "nothing can be chosen",
                placement("3", &[("Scheduled", "Unknown", 2)]),
                Some((3, false)),
                "not taken up this render yet: about Scheduled",
            ),
            (
                "on its way",
                placement("3", &[("Scheduled", "True", 2), ("Available", "False", 2)]),
                Some((3, true)),
                "Available is False, R",
            ),
            (
                "about an older spec",
                placement("3", &[("Scheduled", "True", 2), ("Available", "True", 1)]),
                Some((3, true)),
                "does not report on this render",
            ),
            (
                "differences only",
                placement(
                    "3",
                    &[("Scheduled", "True", 2), ("DiffReported", "True", 2)],
                ),
                Some((3, true)),
                "progressing: ",
            ),
            (
                "refused somewhere",
                placement("3", &[("Scheduled", "True", 2), ("Applied", "False", 2)]),
                Some((3, true)),
                "failing: Applied is False, R",
            ),
            (
                "no word",
                placement("3", &[("Scheduled", "True", 2)]),
                Some((3, true)),
                "has chosen no cluster",
            ),
        ] {
            let said = match told(&of, latest) {
                Placed::Available(said) => format!("available: {said}"),
                Placed::Progressing(said) => format!("progressing: {said}"),
                Placed::Failing(said) => format!("failing: {said}"),
                Placed::Failed(said) => format!("failed: {said}"),
                Placed::Waits(why) | Placed::Refused(why) => why.message,
            };
            let said = said.replace("ClusterResourcePlacement p: ", "");
            assert!(said.contains(expected), "{what}: {said}");
            assert_eq!(said.starts_with("available"), what == "all there", "{said}");
        }
        let mut refused = placement("3", &[("Scheduled", "False", 2)]);
        let conditions = refused
            .status
            .as_mut()
            .and_then(|status| status.conditions.as_mut());
        for condition in conditions.into_iter().flatten() {
            condition.reason = "InvalidResourceSelectors".to_owned();
        }
        assert!(matches!(told(&refused, None), Placed::Failed(_)));
    }

    #[test]
    fn what_the_api_server_adds_is_no_difference() {
        for (is, should, same) in [
            (json!({"a": 1, "added": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
            (
                json!({"a": {"b": 1, "added": 1}}),
                json!({"a": {"b": 1}}),
                true,
            ),
            (json!({"a": 2}), json!({"a": 1}), false),
            (json!([{"a": 1, "added": 1}]), json!([{"a": 1}]), true),
            (json!([1, 2]), json!([1]), false),
            (json!([2, 1]), json!([1, 2]), false),
        ] {
            assert_eq!(covers(&is, &should), same, "{is} {should}");
        }
    }
}
