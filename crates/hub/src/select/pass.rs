//! One look at what a placement selects: its watches are joined, its selectors checked, its objects chosen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::GroupVersionKind;
use windlass_api::placement::{ResourceIdentifier, SelectionScope};
use windlass_cluster::discovery::KnownKind;
use windlass_cluster::{ApiError, Cache, ObjectKey};

use super::fetch::Chosen;
use super::interest::Interest;
use super::matcher::{Choice, Term, is_namespace};
use super::rules::is_endpoints;
use super::watches::{Meta, State};
use super::{Inner, SelectError, api_service_kind, crd_kind, lock};

mod failing;

pub(super) struct Pass<'a> {
    inner: &'a Inner,
    placement: &'a ObjectKey,
    used: HashMap<GroupVersionKind, Cache<Meta>>,
    /// Which selector chose an object: group and kind, for it is the same in any version.
    claims: HashMap<(String, String, ObjectKey), Term>,
    /// What is chosen twice, in words.
    twice: BTreeSet<String>,
    /// Selectors that choose nothing, in words.
    idle: Vec<String>,
    /// Kinds that can't be listed, and of which the namespaces that are selected hold nothing, as far as is
    /// known.
    absent: HashSet<GroupVersionKind>,
    /// What the placement had selected before.
    remembered: &'a [ResourceIdentifier],
}

/// A selector with what the server says of its kind.
struct Found {
    term: Term,
    known: KnownKind,
}

/// The namespaces that selectors choose from.
#[derive(Default)]
struct Namespaces {
    whole: BTreeMap<String, Term>,
    bound: Option<String>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        placement: &'a ObjectKey,
        remembered: &'a [ResourceIdentifier],
    ) -> Self {
        Self {
            inner,
            placement,
            used: HashMap::new(),
            claims: HashMap::new(),
            twice: BTreeSet::new(),
            idle: Vec::new(),
            absent: HashSet::new(),
            remembered,
        }
    }

    /// Whether nobody will tell of a change that matters: then somebody has to look again in a while.
    pub(super) fn is_blind(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Selectors that choose nothing, and why, in words.
    pub(super) fn idle(&self) -> &[String] {
        &self.idle
    }

    /// The namespace that a namespaced placement is confined to (design §6, I10).
    fn own_namespace(&self) -> Option<&'a str> {
        Some(self.placement.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// The kinds whose watches were needed.
    pub(super) fn kinds(&self) -> HashSet<GroupVersionKind> {
        self.used.keys().cloned().collect()
    }

    /// The kinds whose watches are needed still when its selectors have to be mended; none: any kind's may
    /// be, for whole namespaces are selected.
    pub(super) fn kinds_to_keep(&self, terms: &[Term]) -> Option<HashSet<GroupVersionKind>> {
        let whole = Some(SelectionScope::NamespaceWithResources);
        if terms.iter().any(|term| term.scope == whole) {
            return None;
        }
        let mut kinds = self.kinds();
        kinds.extend(terms.iter().map(|term| term.kind.clone()));
        if terms.iter().any(|term| is_endpoints(&term.kind)) {
            kinds.insert(service_kind());
        }
        Some(kinds)
    }

    /// What is selected. In this order: interest is registered before a watch is joined, and a watch is
    /// joined before it is read, so that every change is either seen here or told.
    pub(super) async fn choose(&mut self, terms: &[Term]) -> Result<Vec<Chosen>, SelectError> {
        if let Some(own) = self.own_namespace()
            && self.inner.filter.is_reserved(own)
        {
            return Err(SelectError::User(format!(
                "namespace {own} is reserved, and nothing is placed from it; use another one"
            )));
        }
        let (terms, denied): (Vec<Term>, Vec<Term>) = terms
            .iter()
            .cloned()
            .partition(|term| self.inner.filter.allows(&term.kind));
        let refusal = |term: &Term| format!("{term} is of a kind that is not placed");
        self.idle = denied.iter().map(refusal).collect();
        self.register(&terms, None);
        let crds = self.known(&crd_kind()).await?;
        self.join(&crd_kind(), &crds);
        // It is there wherever servers can be added to this one.
        if let Some(servers) = self.inner.discovery.known(&api_service_kind()) {
            self.join(&api_service_kind(), &servers);
        }
        let found = self.resolve(terms).await?;
        for Found { term, known } in &found {
            self.join(&term.kind, known);
        }
        self.join_services().await?;
        self.require_synced(false)?;
        let namespaces = self.namespaces(&found)?;
        let terms: Vec<Term> = found.iter().map(|found| found.term.clone()).collect();
        self.register(&terms, Some(&namespaces));
        let mut chosen = Vec::new();
        for Found { term, known } in &found {
            let namespace = if known.namespaced {
                namespaces.bound.as_deref()
            } else {
                None
            };
            let picked = self.pick(known, namespace, term, &term.choice);
            if picked.is_none() {
                self.idle.push(format!("{term} matches nothing"));
            }
            chosen.extend(picked);
        }
        if !namespaces.whole.is_empty() {
            chosen.extend(self.contents(&namespaces.whole).await?);
        }
        self.note_stale();
        match self.twice.first() {
            Some(message) => Err(SelectError::User(message.clone())),
            None => Ok(chosen),
        }
    }

    /// Makes known what the placement is to be woken for. Without namespaces, those of before count.
    fn register(&self, terms: &[Term], namespaces: Option<&Namespaces>) {
        let mut terms = terms.to_vec();
        // Endpoints are passed over or not by the Services around them.
        if terms.iter().any(|term| is_endpoints(&term.kind)) {
            terms.push(Term {
                index: terms.len(),
                kind: service_kind(),
                choice: Choice::All,
                scope: None,
            });
        }
        let mut interests = lock(&self.inner.interests);
        let old = interests.get(self.placement);
        let (whole, bound) = match (namespaces, old) {
            (Some(new), _) => (new.whole.keys().cloned().collect(), new.bound.clone()),
            (None, Some(old)) => (old.whole.clone(), old.bound.clone()),
            (None, None) => Default::default(),
        };
        let interest = Interest {
            terms,
            whole,
            bound,
        };
        interests.set(self.placement, interest);
    }

    fn join(&mut self, kind: &GroupVersionKind, known: &KnownKind) {
        let cache = self
            .inner
            .watches
            .join(self.placement, kind, &known.resource);
        self.used.insert(kind.clone(), cache);
    }

    async fn join_services(&mut self) -> Result<(), SelectError> {
        if self.used.keys().any(is_endpoints) && !self.used.contains_key(&service_kind()) {
            let known = self.known(&service_kind()).await?;
            self.join(&service_kind(), &known);
        }
        Ok(())
    }

    async fn known(&self, kind: &GroupVersionKind) -> Result<KnownKind, SelectError> {
        if let Some(known) = self.inner.discovery.kind(kind).await? {
            return Ok(known);
        }
        let mut others = self.inner.watches.end(kind);
        others.remove(self.placement);
        self.inner.wake(others);
        Err(SelectError::User(format!(
            "the hub knows no kind {}; correct the selector, or install the kind",
            text(kind)
        )))
    }

    /// Asks for the kinds, and checks what can be checked without their objects.
    async fn resolve(&self, terms: Vec<Term>) -> Result<Vec<Found>, SelectError> {
        let bounding = Some(SelectionScope::NamespaceWithResourceSelectors);
        let bounded = terms.iter().any(|term| term.scope == bounding);
        let mut found = Vec::with_capacity(terms.len());
        for term in terms {
            let known = self.known(&term.kind).await?;
            if !known.watchable {
                return Err(SelectError::User(format!(
                    "{term}: objects of kind {} can't be listed and watched, so they can't be placed",
                    text(&term.kind)
                )));
            }
            if let Some(own) = self.own_namespace() {
                if !known.namespaced {
                    return Err(SelectError::User(format!(
                        "{term}: {} is cluster-scoped; a ResourcePlacement selects what lives in its own \
                         namespace, {own}, only",
                        text(&term.kind)
                    )));
                }
                self.inner
                    .filter
                    .confinement()
                    .kind(&term.kind.group, &term.kind.kind)
                    .map_err(|refusal| SelectError::User(format!("{term}: {refusal}")))?;
            } else if known.namespaced && !bounded {
                return Err(SelectError::User(format!(
                    "{term}: {} lives in namespaces; select its Namespace, or add one with selectionScope \
                     NamespaceWithResourceSelectors",
                    text(&term.kind)
                )));
            }
            if let (true, Choice::Name(name)) = (is_namespace(&term.kind), &term.choice) {
                self.refuse_reserved(&term, name)?;
            }
            found.push(Found { term, known });
        }
        Ok(found)
    }

    fn refuse_reserved(&self, term: &Term, namespace: &str) -> Result<(), SelectError> {
        if !self.inner.filter.is_reserved(namespace) {
            return Ok(());
        }
        Err(SelectError::User(format!(
            "{term}: namespace {namespace} is reserved and can't be placed; select others by name or by labels"
        )))
    }

    /// Fails unless every watch joined has its first list. The CRDs' is needed only where kinds that are
    /// not named are selected; the APIServices' only tells when to look again.
    fn require_synced(&self, crds_too: bool) -> Result<(), SelectError> {
        let (mut failing, mut waiting) = (BTreeMap::new(), BTreeSet::new());
        for (kind, cache) in &self.used {
            let only_tells = *kind == api_service_kind() || (*kind == crd_kind() && !crds_too);
            if only_tells && !self.selects(kind) {
                continue;
            }
            if self.absent.contains(kind) {
                continue;
            }
            match State::of(cache) {
                State::Synced => {}
                State::Failing(error) => drop(failing.insert(text(kind), error)),
                State::Waiting => drop(waiting.insert(text(kind))),
            }
        }
        if let Some((kind, error)) = failing.first_key_value() {
            return Err(SelectError::Api {
                message: format!("{kind} can't be listed on the hub: {}", error.message()),
                retry: error.is_transient(),
            });
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let kinds: Vec<String> = waiting.into_iter().collect();
        Err(SelectError::Pending(format!(
            "the first list of {}",
            kinds.join(", ")
        )))
    }

    fn selects(&self, kind: &GroupVersionKind) -> bool {
        let interests = lock(&self.inner.interests);
        let interest = interests.get(self.placement);
        interest.is_some_and(|interest| interest.terms.iter().any(|t| t.kind == *kind))
    }

    fn namespaces(&self, found: &[Found]) -> Result<Namespaces, SelectError> {
        let mut namespaces = Namespaces::default();
        if let Some(own) = self.own_namespace() {
            namespaces.bound = Some(own.to_owned());
            return Ok(namespaces);
        }
        let mut bounds = BTreeSet::new();
        let mut bounding = None;
        for Found { term, .. } in found {
            let Some(scope) = term.scope else { continue };
            if scope == SelectionScope::NamespaceWithResourceSelectors {
                bounding = Some(term);
            }
            for name in self
                .objects(&term.kind, None, &term.choice)
                .iter()
                .map(|m| m.name_any())
            {
                self.refuse_reserved(term, &name)?;
                match scope {
                    SelectionScope::NamespaceOnly => {}
                    SelectionScope::NamespaceWithResources => {
                        namespaces.whole.insert(name, term.clone());
                    }
                    SelectionScope::NamespaceWithResourceSelectors => drop(bounds.insert(name)),
                }
            }
        }
        if let (Some(term), true) = (bounding, bounds.len() != 1) {
            let problem = match bounds.len() {
                0 => "there is no such namespace on the hub; create it or correct the selector",
                _ => "it chooses several namespaces; name one",
            };
            return Err(SelectError::User(format!(
                "{term} has selectionScope NamespaceWithResourceSelectors, which needs exactly one namespace: \
                 {problem}"
            )));
        }
        namespaces.bound = bounds.pop_first();
        Ok(namespaces)
    }

    /// Everything in some namespaces that may be placed.
    async fn contents(
        &mut self,
        whole: &BTreeMap<String, Term>,
    ) -> Result<Vec<Chosen>, SelectError> {
        let mut kinds = self.inner.discovery.preferred().await?;
        kinds.retain(|known| known.namespaced && known.watchable);
        kinds.retain(|known| self.inner.filter.allows(&kind_of(known)));
        for known in &kinds {
            self.join(&kind_of(known), known);
        }
        self.join_services().await?;
        self.look_past_failures(&kinds, whole).await;
        self.require_synced(true)?;
        self.refuse_vanished(&kinds, whole)?;
        self.refuse_forgotten(&kinds, whole).await?;
        let mut chosen = Vec::new();
        for known in &kinds {
            for (namespace, term) in whole {
                chosen.extend(self.pick(known, Some(namespace), term, &Choice::All));
            }
        }
        Ok(chosen)
    }

    /// A kind of which objects were selected before, and which discovery leaves out now, though its server
    /// or its CRD is there: after a restart of the hub or of the API server nothing may be concluded from it.
    async fn refuse_forgotten(
        &self,
        kinds: &[KnownKind],
        whole: &BTreeMap<String, Term>,
    ) -> Result<(), SelectError> {
        let offered: HashSet<_> = kinds
            .iter()
            .map(|known| (known.resource.group.as_str(), known.resource.kind.as_str()))
            .collect();
        let mut forgotten = BTreeMap::new();
        for id in self.remembered {
            let group = id.group.as_deref().unwrap_or_default();
            let kind = GroupVersionKind::gvk(group, &id.version, &id.kind);
            let inside = id.namespace.as_ref().is_some_and(|n| whole.contains_key(n));
            if inside
                && id.envelope.is_none()
                && self.inner.filter.allows(&kind)
                && !offered.contains(&(group, id.kind.as_str()))
            {
                forgotten.insert(text(&kind), kind);
            }
        }
        for (name, kind) in forgotten {
            let is_there =
                self.inner.discovery.kind(&kind).await?.is_some() || self.is_defined(&kind).await?;
            if is_there {
                self.inner.discovery.invalidate();
                return Err(SelectError::Api {
                    message: format!(
                        "the hub's API server does not offer {name} yet, though objects of it were selected"
                    ),
                    retry: true,
                });
            }
        }
        Ok(())
    }

    /// Whether there is a CRD of a kind that is served, or is about to be.
    async fn is_defined(&self, kind: &GroupVersionKind) -> Result<bool, SelectError> {
        let Some(crds) = self.used.get(&crd_kind()) else {
            return Ok(false);
        };
        for crd in crds.list() {
            let name = crd.name_any();
            let of_group = name
                .split_once('.')
                .is_some_and(|(_, group)| group == kind.group);
            if of_group
                && crd.metadata.deletion_timestamp.is_none()
                && self.inner.store.defines(&name, &kind.kind).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A kind that discovery leaves out while its objects are there may be an outage of whoever serves it.
    /// It is gone when its watch says so too and there is no CRD of it, or when its objects are gone: those
    /// of a CRD go first.
    fn refuse_vanished(
        &self,
        kinds: &[KnownKind],
        whole: &BTreeMap<String, Term>,
    ) -> Result<(), SelectError> {
        let offered: HashSet<_> = kinds
            .iter()
            .map(|known| (&known.resource.group, &known.resource.kind))
            .collect();
        let mut vanished = BTreeSet::new();
        for (kind, resource, cache) in self.inner.watches.used_by(self.placement) {
            let there = || {
                let mut inside = whole
                    .keys()
                    .flat_map(|namespace| cache.in_namespace(namespace));
                inside.any(|meta| !self.inner.filter.passes_over(&kind, &meta.metadata))
            };
            let gone = || {
                let crd = ObjectKey::cluster(format!("{}.{}", resource.plural, kind.group));
                let defined = self.used.get(&crd_kind());
                matches!(cache.failure(), Some(ApiError::NotFound(_)))
                    && defined.is_none_or(|crds| crds.get(&crd).is_none())
            };
            if !offered.contains(&(&kind.group, &kind.kind)) && there() && !gone() {
                vanished.insert(text(&kind));
            }
        }
        let Some(kind) = vanished.first() else {
            return Ok(());
        };
        self.inner.discovery.invalidate();
        Err(SelectError::Api {
            message: format!(
                "the hub's API server does not offer {kind} at present, though objects of it are selected"
            ),
            retry: true,
        })
    }

    /// The objects of a kind that a selector chooses, and that are not passed over.
    fn pick(
        &mut self,
        known: &KnownKind,
        namespace: Option<&str>,
        term: &Term,
        choice: &Choice,
    ) -> Option<Chosen> {
        let kind = Arc::new(kind_of(known));
        let metas = self.objects(&kind, namespace, choice);
        for meta in &metas {
            let key = ObjectKey::of(&**meta);
            let what = format!("{} {key}", kind.kind);
            let claim = (kind.group.clone(), kind.kind.clone(), key);
            if let Some(other) = self.claims.insert(claim, term.clone()) {
                self.twice.insert(format!(
                    "{what} is selected both by {other} and by {term}; selectors may not overlap, so narrow one"
                ));
            }
        }
        let cache = self.used.get(&kind)?;
        let population = namespace.map_or_else(|| cache.len(), |n| cache.in_namespace(n).len());
        (!metas.is_empty()).then(|| Chosen {
            kind,
            resource: known.resource.clone(),
            namespace: namespace.map(str::to_owned),
            metas,
            population,
        })
    }

    fn objects(
        &self,
        kind: &GroupVersionKind,
        namespace: Option<&str>,
        choice: &Choice,
    ) -> Vec<Arc<Meta>> {
        let Some(cache) = self.used.get(kind) else {
            return Vec::new();
        };
        let mut objects = match (choice, namespace) {
            (Choice::Name(name), _) => {
                let namespace = namespace.unwrap_or_default();
                cache
                    .get(&ObjectKey::namespaced(namespace, name))
                    .into_iter()
                    .collect()
            }
            (_, Some(namespace)) => cache.in_namespace(namespace),
            (_, None) => cache.list(),
        };
        let services = is_endpoints(kind)
            .then(|| self.used.get(&service_kind()))
            .flatten();
        objects.retain(|meta| {
            choice.picks(&meta.name_any(), meta.labels())
                && !self.inner.filter.passes_over(kind, &meta.metadata)
                && services.is_none_or(|services| services.get(&ObjectKey::of(&**meta)).is_none())
        });
        objects
    }
}

fn kind_of(known: &KnownKind) -> GroupVersionKind {
    let resource = &known.resource;
    GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind)
}

fn service_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "Service")
}

/// A kind the way messages name it.
fn text(kind: &GroupVersionKind) -> String {
    format!("{} ({})", kind.kind, kind.api_version())
}
