//! What overrides mean to a placement.

use windlass_cluster::{ApiError, ObjectKey};

use super::actor::Actor;
use crate::overrides::resolve::Resolved;
use crate::select::Selection;

impl Actor {
    /// Overrides count by what the latest snapshot holds: what is selected, unless that is still to be
    /// gathered into one after `earlier`.
    ///
    /// # Errors
    /// When the hub's API server can't be asked for the content of the earlier one.
    pub(super) async fn overrides(
        &self,
        placement: &ObjectKey,
        selection: Option<&Selection>,
        earlier: Option<&str>,
    ) -> Result<Resolved, ApiError> {
        let overrides = &self.world.overrides;
        let bindings = self.world.bindings_of(placement);
        let clusters = self.world.clusters.list();
        let content = match earlier {
            Some(name) => {
                let key = ObjectKey::namespaced(&placement.namespace, name);
                self.contents.get(&key).await?
            }
            None => None,
        };
        let (manifests, held) = match content.as_deref() {
            Some(content) => (
                &content.manifests[..],
                format!("{} {}", content.name, content.hash),
            ),
            None => selection.map_or_else(Default::default, |selection| {
                (&selection.manifests[..], selection.hash.to_string())
            }),
        };
        let placed = || windlass_render::placed(manifests.iter().map(|manifest| &manifest.object));
        let objects = if overrides.any_for(placement, &held, placed) {
            placed()
        } else {
            Vec::new()
        };
        Ok(overrides.resolve(placement, &objects, &bindings, &clusters))
    }
}
