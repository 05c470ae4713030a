//! Takes a Work away from an agent that may be at work, and leaves what the agent made of it.

use kube::ResourceExt;
use windlass_api::pull::Work;
use windlass_cluster::{ApiError, Writer};

use super::PullCaches;
use super::work::WorkMeta;

/// How often in a row a Work is taken away from an agent that holds on to it.
const ATTEMPTS: usize = 8;

/// Deletes a Work without its agent taking away what is in it. An agent puts its finalizer back as soon as
/// it sees that it is off; the delete has to be quicker.
///
/// # Errors
/// Of the hub's API server; one that is tried again when the agent is always quicker.
pub async fn abandon(
    writer: &Writer,
    caches: &PullCaches,
    work: &WorkMeta,
) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        match abandon_once(writer, caches, work).await {
            Err(ApiError::Conflict(_)) => {}
            Err(ApiError::NotFound(_)) => {
                caches.works.observe_deleted(work);
                return Ok(());
            }
            done => return done,
        }
    }
    Err(ApiError::transient(format!(
        "the agent holds on to Work {}",
        work.name_any()
    )))
}

/// An agent removes the objects of a Work that is being deleted and has its finalizer. Had it put that back
/// on, the Work would not be as it was, and stay.
async fn abandon_once(
    writer: &Writer,
    caches: &PullCaches,
    work: &WorkMeta,
) -> Result<(), ApiError> {
    let (namespace, name) = (work.namespace(), work.name_any());
    let live = writer.get::<Work>(namespace.as_deref(), &name).await?;
    let Some(mut live) = live.filter(|live| live.metadata.uid == work.metadata.uid) else {
        caches.works.observe_deleted(work);
        return Ok(());
    };
    if !live.finalizers().is_empty() {
        live.metadata.finalizers = None;
        live = writer.replace(&live).await?;
    }
    // One that was being deleted is gone with its last finalizer.
    if live.metadata.deletion_timestamp.is_none() {
        writer.delete_unchanged(&live).await?;
    }
    caches.works.observe_deleted(&live.into());
    Ok(())
}
