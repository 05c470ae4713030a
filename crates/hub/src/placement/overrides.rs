//! What overrides mean to a placement.

use std::sync::Arc;

use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::manifest::Manifest;

use super::actor::Actor;
use crate::overrides::resolve::Resolved;

impl Actor {
    /// Overrides count by what the latest snapshot holds: what is selected, unless that is still to be
    /// gathered into one after `earlier`.
    ///
    /// # Errors
    /// When the hub's API server can't be asked for the content of the earlier one.
    pub(super) async fn overrides(
        &self,
        placement: &ObjectKey,
        selected: &[Arc<Manifest>],
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
        let manifests = content
            .as_deref()
            .map_or(selected, |content| &content.manifests);
        let objects = if overrides.any_for(placement) {
            windlass_render::placed(manifests.iter().map(|manifest| &manifest.object))
        } else {
            Vec::new()
        };
        Ok(overrides.resolve(placement, &objects, &bindings, &clusters))
    }
}
