//! Delivering a desired state: own, record, apply by waves, prune, record, report (design §2).

use std::time::Duration;

use kube::ResourceExt;
use windlass_api::placement::{ComparisonOption, WhenToApply};
use windlass_api::work::{AppliedWork, AppliedWorkStatus, Origin};
use windlass_cluster::ApiError;
use windlass_cluster::discovery::KnownKind;
use windlass_status::defaults::EffectiveApply;

use crate::availability::Availability;
use crate::inventory::Inventory;
use crate::item::{Facts, Item, Todo, WAIT, items};
use crate::member::{Member, belongs_to_another};
use crate::outcome::{Desired, Outcome};
use crate::parent::whose;

/// How often a kind that can't be watched is looked at while it is not available.
const POLL: Duration = Duration::from_secs(5);
/// How long a cluster that is not prepared is left alone.
const UNPREPARED: Duration = Duration::from_secs(30);

impl Member {
    /// Does what is missing. Level-triggered: call it whenever something may have changed.
    pub async fn deliver(&self, desired: &Desired) -> Outcome {
        let apply = EffectiveApply::of(Some(&desired.strategy));
        if let Some(message) = unsupported(apply) {
            return Outcome {
                unsupported: Some(message),
                ..Outcome::default()
            };
        }
        let turn = self.turn(&desired.work_name);
        let _turn = turn.lock().await;
        let mut result = self.pass(desired, apply).await;
        if let Err(ApiError::Conflict(_) | ApiError::NotFound(_)) = result {
            // The AppliedWork is not as it was: it is read, and everything looked at once more.
            result = match self.read_work(&desired.work_name).await {
                Ok(_) => self.pass(desired, apply).await,
                Err(error) => Err(error),
            };
        }
        match result {
            Ok(outcome) => {
                self.note_contact();
                outcome
            }
            Err(ApiError::NotFound(_)) => Outcome {
                unsupported: Some(format!(
                    "cluster {} has no CustomResourceDefinition of AppliedWork; run windlass join {0} again",
                    self.cluster
                )),
                retry: Some(UNPREPARED),
                ..Outcome::default()
            },
            Err(error) => Outcome {
                error: Some(error),
                ..Outcome::default()
            },
        }
    }

    async fn pass(&self, desired: &Desired, apply: EffectiveApply) -> Result<Outcome, ApiError> {
        let work = self
            .ensure_work(&desired.parent, &desired.work_name, &desired.work_namespace)
            .await?;
        if let Some(message) = belongs_to_another(&work, &desired.work_namespace) {
            return Ok(Outcome {
                unsupported: Some(message),
                retry: Some(UNPREPARED),
                ..Outcome::default()
            });
        }
        if whose(&work).is_some_and(|placement| placement != desired.parent.placement) {
            // Found out at the same moment as somebody else: the next look takes the other name.
            return Ok(Outcome {
                unsupported: Some(format!(
                    "AppliedWork {} is another placement's",
                    work.name_any()
                )),
                retry: Some(WAIT),
                ..Outcome::default()
            });
        }
        let mut items = items(desired);
        if work.metadata.deletion_timestamp.is_some() {
            let message = format!(
                "AppliedWork {} is being deleted on the cluster; waiting for that to end",
                work.name_any()
            );
            items
                .iter_mut()
                .filter(|item| item.problem.is_none())
                .for_each(|item| item.wait(message.clone()));
            return Ok(outcome(&items, Vec::new(), None));
        }
        let entries = work
            .status
            .as_ref()
            .and_then(|status| status.applied_resources.as_deref());
        let mut facts = Facts {
            work_uid: work.uid().unwrap_or_default(),
            inventory: Inventory::of(entries),
            work,
            apply,
            digest: desired.digest,
        };
        self.resolve(&mut items, &facts).await?;
        self.watches.mirror(&desired.work_name, desired.mirror);
        self.claim(&desired.work_name, &items).await;
        self.look(&mut items, &facts).await?;
        self.rule_out_outage(&mut items).await?;
        self.write_ahead(&items, &mut facts).await?;
        self.apply_waves(&mut items, &facts).await?;
        self.rule_out_outage(&mut items).await?;
        let (leftovers, retry) = self.prune(&items, &mut facts).await?;
        self.record(&items, facts).await?;
        self.poll(&mut items);
        let mut outcome = outcome(&items, leftovers, retry);
        if desired.mirror {
            for (item, manifest) in items.iter().zip(&mut outcome.manifests) {
                manifest.live = item.applied_object();
            }
        }
        Ok(outcome)
    }

    async fn claim(&self, work: &str, items: &[Item<'_>]) {
        let kinds: Vec<&KnownKind> = items.iter().filter_map(|item| item.kind.as_ref()).collect();
        self.watches.claim(work, &kinds).await;
    }

    /// An error of one request may be of that object alone (its webhook is down), or of the cluster.
    async fn rule_out_outage(&self, items: &mut [Item<'_>]) -> Result<(), ApiError> {
        let mut any = false;
        for item in items {
            any |= std::mem::take(&mut item.outage);
        }
        if any { self.answers().await } else { Ok(()) }
    }

    /// Notes what is about to be applied, so that no crash leaves an object that nobody knows of.
    async fn write_ahead(&self, items: &[Item<'_>], facts: &mut Facts) -> Result<(), ApiError> {
        let mut any = false;
        for item in items {
            if let (Todo::Apply(basis), Some(kind)) = (&item.todo, &item.kind)
                && let Some(origin) = basis.note
            {
                any |=
                    facts
                        .inventory
                        .record(item.ordinal, item.id(), &kind.resource.plural, origin);
            }
        }
        if any {
            let digest = facts
                .work
                .status
                .as_ref()
                .and_then(|status| status.digest.clone());
            facts.work = self
                .put(&facts.work, facts.inventory.clone(), digest)
                .await?;
        }
        Ok(())
    }

    /// Removes what is no longer wanted; tells what can't be yet, and when to look again.
    async fn prune(
        &self,
        items: &[Item<'_>],
        facts: &mut Facts,
    ) -> Result<(Vec<String>, Option<Duration>), ApiError> {
        // What can't be read may be what the inventory names: nothing is removed on such ground (I4).
        if items.iter().any(|item| item.manifest.problem.is_some()) {
            return Ok((Vec::new(), None));
        }
        let surplus = facts.inventory.surplus(items.iter().map(Item::id));
        if surplus.is_empty() {
            return Ok((Vec::new(), None));
        }
        let removed = match self
            .remove_entries(&surplus, &facts.work, false, facts.digest)
            .await
        {
            Err(error @ ApiError::Unauthorized(_)) => return Err(error),
            Err(error) => {
                self.answers().await?;
                return Ok((
                    vec![error.message().to_owned()],
                    Some(error.retry_after().unwrap_or(WAIT)),
                ));
            }
            Ok(removed) => removed,
        };
        facts.inventory = std::mem::take(&mut facts.inventory).without(&removed.gone);
        Ok((removed.waits, removed.retry))
    }

    /// Notes what was applied, if that says anything new.
    async fn record(&self, items: &[Item<'_>], mut facts: Facts) -> Result<(), ApiError> {
        for item in items.iter().filter(|item| item.problem.is_none()) {
            let (Some(live), Some(entry)) = (&item.live, facts.inventory.get_mut(item.id())) else {
                continue;
            };
            let is_known = entry.uid == live.metadata.uid
                && entry
                    .digest
                    .as_deref()
                    .is_some_and(|digest| item.manifest.digest.is(digest));
            // Others change what we don't ask for, and the generation with it: that says nothing about us.
            if is_known && (!item.applied || entry.generation == live.metadata.generation) {
                continue;
            }
            if item.met {
                entry.origin = Some(Origin::Adopted);
            }
            entry.uid.clone_from(&live.metadata.uid);
            entry.version = Some(item.id().version.clone());
            entry.digest = Some(item.manifest.digest.to_string());
            entry.generation = live.metadata.generation;
            entry.ordinal = i32::try_from(item.ordinal).unwrap_or(i32::MAX);
        }
        let previous = facts.work.status.clone().unwrap_or_default();
        let complete = items.iter().all(|item| item.problem.is_none());
        let digest = if complete {
            Some(facts.digest.to_string())
        } else {
            previous.digest.clone()
        };
        let unchanged = digest == previous.digest
            && facts.inventory.entries()
                == previous.applied_resources.as_deref().unwrap_or_default();
        if !unchanged {
            self.put(&facts.work, facts.inventory, digest).await?;
        }
        Ok(())
    }

    async fn put(
        &self,
        work: &AppliedWork,
        inventory: Inventory,
        digest: Option<String>,
    ) -> Result<AppliedWork, ApiError> {
        let mut changed = work.clone();
        changed.status = Some(AppliedWorkStatus {
            applied_resources: inventory.into_status(),
            digest,
        });
        self.put_work_status(&changed).await
    }

    /// Kinds that can't be watched tell nobody when they become available.
    fn poll(&self, items: &mut [Item<'_>]) {
        for item in items.iter_mut().filter(|item| item.retry.is_none()) {
            let waits = matches!(item.outcome().available, Some(Availability::NotYet(_)));
            if waits
                && item
                    .kind
                    .as_ref()
                    .is_some_and(|kind| !self.watches.is_watched(kind))
            {
                item.retry = Some(POLL);
            }
        }
    }
}

fn outcome(items: &[Item<'_>], mut leftovers: Vec<String>, retry: Option<Duration>) -> Outcome {
    leftovers.sort();
    Outcome {
        manifests: items.iter().map(Item::outcome).collect(),
        leftovers,
        retry: items
            .iter()
            .filter_map(|item| item.retry)
            .chain(retry)
            .min(),
        ..Outcome::default()
    }
}

/// What push mode does not do yet. Nothing is touched then: half of what was asked for may be the wrong half.
fn unsupported(apply: EffectiveApply) -> Option<String> {
    let what = if apply.reports_diff() {
        "type ReportDiff"
    } else if apply.comparison == ComparisonOption::FullComparison {
        "comparisonOption FullComparison"
    } else if apply.when_to_apply == WhenToApply::IfNotDrifted {
        "whenToApply IfNotDrifted"
    } else {
        return None;
    };
    Some(format!(
        "applyStrategy with {what} is not supported for clusters in push mode yet; nothing was changed there"
    ))
}
