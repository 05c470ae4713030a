//! How far a placement may reach. What a namespaced placement carries is written by people who have rights
//! in one namespace of the hub, and is applied with the hub's rights on members. The same goes for a
//! ResourceEnvelope or a ResourceOverride in a ClusterResourcePlacement: its administrator chose the
//! namespace, and not what others write there later.

use serde_json::Value;

use crate::confine::Confinement;
use crate::error::RenderError;
use crate::object::ObjectId;
use crate::overrides::Override;
use crate::{Part, View};

/// What a placement may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything.
    Cluster,
    /// Objects in this namespace.
    Namespace(&'a str),
}

/// What the placement carries and must not.
pub fn check(view: &View<'_>, parts: &[Part<'_>]) -> Vec<RenderError> {
    let refused = parts.iter().filter_map(|part| {
        let own = author(view.scope, part)?;
        let id = ObjectId::of(part.object);
        let why = view.confinement.object(own, part.object).err()?.to_string();
        Some(RenderError {
            cluster: view.cluster.name.to_owned(),
            object: Some(id.to_string()),
            envelope: part.envelope.cloned(),
            by: None,
            rule: None,
            path: None,
            why,
        })
    });
    refused.collect()
}

/// Whether a manifest of a placement may have an author with rights in a namespace only, past whom the hub
/// did not check what is in it.
#[must_use]
pub fn is_confined(scope: Scope<'_>, part: &Part<'_>) -> bool {
    author(scope, part).is_some()
}

/// The namespace that the author of a manifest may have rights in only.
fn author<'a>(scope: Scope<'a>, part: &Part<'a>) -> Option<&'a str> {
    match scope {
        Scope::Namespace(own) => Some(own),
        Scope::Cluster if part.vouched => None,
        Scope::Cluster => part.envelope?.namespace.as_deref(),
    }
}

/// Holds what an override of somebody who is no administrator must leave as it is.
pub struct PatchGuard<'a> {
    before: Option<(&'a Confinement, Value)>,
}

impl<'a> PatchGuard<'a> {
    /// Looks at the object before a patch.
    pub fn before(view: &View<'a>, source: &Override<'_>, object: &Value) -> Self {
        let guarded = !source.is_administrators();
        Self {
            before: guarded.then(|| (view.confinement, object.clone())),
        }
    }

    /// Looks at it afterwards.
    ///
    /// # Errors
    /// When something changed that must not.
    pub fn after(self, object: &Value) -> Result<(), String> {
        let Some((confinement, before)) = self.before else {
            return Ok(());
        };
        let change = confinement.change(&before, object);
        change.map_err(|refusal| refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::placement::EnvelopeIdentifier;

    use super::*;

    #[test]
    fn who_wrote_a_manifest_says_how_far_it_may_reach() {
        let cluster = EnvelopeIdentifier::default();
        let namespaced = EnvelopeIdentifier {
            namespace: Some("web".to_owned()),
            ..EnvelopeIdentifier::default()
        };
        let own = Scope::Namespace("web");
        for (scope, envelope, vouched, confined) in [
            (Scope::Cluster, None, false, false),
            (Scope::Cluster, Some(&cluster), false, false),
            (Scope::Cluster, Some(&namespaced), false, true),
            (Scope::Cluster, Some(&namespaced), true, false),
            (own, None, false, true),
            (own, Some(&namespaced), false, true),
            (own, Some(&namespaced), true, true),
        ] {
            let part = Part {
                object: &Value::Null,
                envelope,
                vouched,
            };
            assert_eq!(
                is_confined(scope, &part),
                confined,
                "{scope:?} {envelope:?} {vouched}"
            );
        }
    }
}
