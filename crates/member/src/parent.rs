//! Whose an AppliedWork is. ClusterResourcePlacement `ns.x` and ResourcePlacement `ns/x` would give theirs
//! the same name: its labels say whose it is, and the other one's gets a name with a hash.

use kube::ResourceExt;
use kube::core::ObjectMeta;
use windlass_api::work::AppliedWork;
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ObjectKey};
use windlass_status::digest::Digest;

use crate::member::Member;

/// A placement, as far as the name of its AppliedWork goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The placement.
    pub placement: ObjectKey,
    /// The placement of the other scope whose AppliedWork would have the same name, if such a one can be.
    pub rival: Option<Rival>,
}

/// Whether there is a placement that may claim the same AppliedWork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// There may be one at another time.
    Possible,
    /// There is one.
    Present,
    /// There is one, or was, and by the hub's Works the usual name is its.
    Wins,
    /// By the hub's Works the usual name is not its, whatever the labels on the cluster say.
    Loses,
}

impl Parent {
    /// The usual name of the AppliedWork.
    #[must_use]
    pub fn usual_name(&self) -> String {
        names::work(&self.placement.namespace, &self.placement.name)
    }

    /// Its name where the usual one is another placement's.
    #[must_use]
    pub fn hashed_name(&self) -> String {
        names::hashed(&self.usual_name(), &unique(&self.placement))
    }

    /// Whether an AppliedWork of the usual name is this placement's. One without labels is from before there
    /// were any, or another implementation's: then a cluster-scoped placement goes first.
    pub(crate) fn owns(&self, work: &AppliedWork) -> bool {
        match whose(work) {
            Some(placement) => placement == self.placement,
            None => self.placement.namespace.is_empty() || self.rival != Some(Rival::Present),
        }
    }

    /// Labels an AppliedWork as this placement's.
    pub(crate) fn mark(&self, meta: &mut ObjectMeta) {
        let labels = meta.labels.get_or_insert_default();
        labels.remove(labels::PARENT_NAMESPACE);
        let ObjectKey { namespace, name } = &self.placement;
        labels.insert(labels::PARENT_PLACEMENT.to_owned(), name.clone());
        if !namespace.is_empty() {
            let key = labels::PARENT_NAMESPACE.to_owned();
            labels.insert(key, namespace.clone());
        }
    }
}

/// What tells placements apart whose names read the same: 8 hexadecimal digits.
#[must_use]
pub fn unique(placement: &ObjectKey) -> String {
    let mut text = Digest::of_bytes(placement.to_string().as_bytes()).to_string();
    text.truncate(8);
    text
}

/// The placement that an AppliedWork says it is of.
pub(crate) fn whose(work: &AppliedWork) -> Option<ObjectKey> {
    let labels = work.labels();
    let name = labels.get(labels::PARENT_PLACEMENT)?;
    let namespace = labels.get(labels::PARENT_NAMESPACE);
    Some(ObjectKey::namespaced(
        namespace.map(String::as_str).unwrap_or_default(),
        name,
    ))
}

impl Member {
    /// Name of a placement's AppliedWork on this cluster.
    ///
    /// # Errors
    /// When the cluster can't be asked.
    pub async fn work_name(&self, parent: &Parent) -> Result<String, ApiError> {
        let usual = parent.usual_name();
        let hashed = parent.hashed_name();
        match parent.rival {
            None | Some(Rival::Loses) => return Ok(usual),
            Some(Rival::Wins) => return Ok(hashed),
            Some(Rival::Possible | Rival::Present) => {}
        }
        let has = |work: Option<AppliedWork>| work.and_then(|work| whose(&work));
        if has(self.find_work(&hashed).await?).as_ref() == Some(&parent.placement) {
            return Ok(hashed);
        }
        match self.find_work(&usual).await? {
            Some(work) if !parent.owns(&work) => Ok(hashed),
            _ => Ok(usual),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(labels: &[(&str, &str)]) -> AppliedWork {
        let mut work = AppliedWork::default();
        for (key, value) in labels {
            work.labels_mut()
                .insert((*key).to_owned(), (*value).to_owned());
        }
        work
    }

    #[test]
    fn of_two_placements_with_one_name_each_knows_its_own() {
        let parent = |placement: ObjectKey, rival| Parent { placement, rival };
        let of_cluster = |rival| parent(ObjectKey::cluster("web.shop"), Some(rival));
        let of_namespace = |rival| parent(ObjectKey::namespaced("web", "shop"), Some(rival));
        let name = labels::PARENT_PLACEMENT;
        let namespace = labels::PARENT_NAMESPACE;
        for (what, work, cluster, namespaced) in [
            ("the cluster's", work(&[(name, "web.shop")]), true, false),
            (
                "the namespace's",
                work(&[(name, "shop"), (namespace, "web")]),
                false,
                true,
            ),
            (
                "another namespace's",
                work(&[(name, "shop"), (namespace, "api")]),
                false,
                false,
            ),
            ("another's", work(&[(name, "other")]), false, false),
        ] {
            for rival in [Rival::Possible, Rival::Present] {
                assert_eq!(of_cluster(rival).owns(&work), cluster, "{what}");
                assert_eq!(of_namespace(rival).owns(&work), namespaced, "{what}");
            }
        }
        let unlabelled = work(&[]);
        assert!(of_cluster(Rival::Present).owns(&unlabelled));
        assert!(!of_namespace(Rival::Present).owns(&unlabelled));
        assert!(of_namespace(Rival::Possible).owns(&unlabelled));
        let (one, other) = (of_cluster(Rival::Present), of_namespace(Rival::Present));
        assert_eq!(one.usual_name(), other.usual_name());
        assert_ne!(one.hashed_name(), other.hashed_name());
        for parent in [one, other] {
            let mut marked = work(&[]);
            parent.mark(&mut marked.metadata);
            assert_eq!(whose(&marked), Some(parent.placement));
        }
    }
}
