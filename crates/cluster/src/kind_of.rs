//! From an object to the kind that it is stored as, for types that stand for one kind or for two.

use kube::Resource;
use windlass_api::scoped::Scope;

/// What the API needs to know besides the type, told by an object of it.
pub trait KindOf<K> {
    /// Of this object.
    fn of(object: &K) -> Self;
}

impl<K> KindOf<K> for () {
    fn of(_: &K) -> Self {}
}

impl<K: Resource> KindOf<K> for Scope {
    fn of(object: &K) -> Self {
        Self::of(object)
    }
}
