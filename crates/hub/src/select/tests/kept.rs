//! What was selected last counts until something of it changes, and not a moment longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::placement::ResourceSelectorTerm;
use windlass_cluster::{ObjectKey, clock};

use super::super::{Known, SelectError};
use super::{Fixture, WIDGET, labelled, namespace, term};

impl Fixture {
    /// As the placement's actor asks.
    async fn selected(&self, placement: &str, selectors: &Value) -> Known {
        let terms: Vec<ResourceSelectorTerm> = serde_json::from_value(selectors.clone()).unwrap();
        loop {
            let key = ObjectKey::cluster(placement);
            let known = self.resources.selected(&key, &terms, &[]).await;
            if !matches!(known.outcome, Err(SelectError::Pending(_))) {
                return known;
            }
            self.until_woken(placement).await;
        }
    }

    /// How often somebody really looked since the last time.
    fn looks(&self) -> usize {
        self.resources.inner.looks.swap(0, Ordering::Relaxed)
    }

    /// Every object selected, with its content.
    async fn texts(&self, placement: &str, selectors: &Value) -> Vec<String> {
        let selection = self.selected(placement, selectors).await.outcome.unwrap();
        let text = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            format!(
                "{} {name} {}",
                object["kind"].as_str().unwrap(),
                object["data"]
            )
        };
        let mut texts: Vec<String> = selection
            .manifests
            .iter()
            .map(|m| text(&m.object))
            .collect();
        texts.sort();
        texts
    }
}

/// A report of a cluster has a placement looked at, and changes nothing of what it selects.
#[tokio::test]
async fn nothing_is_selected_again_without_a_change() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put("namespaces", "", "api");
    f.put("configmaps", "web", "a");
    let web = namespace("web");
    let first = f.selected("web", &web).await.outcome.unwrap();
    f.selected("api", &namespace("api")).await.outcome.unwrap();
    f.woken().await;
    f.looks();
    for _ in 0..100 {
        let again = f.selected("web", &web).await.outcome.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }
    assert_eq!(f.looks(), 0);
    f.put("configmaps", "web", "b");
    f.until_woken("web").await;
    assert_eq!(
        f.selected("web", &web)
            .await
            .outcome
            .unwrap()
            .manifests
            .len(),
        3
    );
    f.selected("api", &namespace("api")).await.outcome.unwrap();
    assert_eq!(f.looks(), 1, "it is no affair of the other");
    // Other selectors, and after it was let go.
    f.selected("web", &namespace("api")).await.outcome.unwrap();
    assert_eq!(f.looks(), 1);
    f.resources.forget(&ObjectKey::cluster("web"));
    f.selected("web", &namespace("api")).await.outcome.unwrap();
    assert_eq!(f.looks(), 1);
}

/// While a kind can't be listed, the server is not asked for it at each look.
#[tokio::test]
async fn what_failed_is_tried_in_its_time() {
    let f = Fixture::new().await;
    f.server.add_kind(WIDGET);
    f.put("namespaces", "", "web");
    f.put("widgets", "web", "w");
    f.server.break_conversion("widgets", true);
    let web = namespace("web");
    for _ in 0..4 {
        let known = f.selected("web", &web).await;
        assert!(known.outcome.is_err());
        clock::sleep(known.wait().unwrap()).await;
    }
    f.looks();
    let known = f.selected("web", &web).await;
    f.server.requests();
    let begun = clock::monotonic();
    for _ in 0..100 {
        let again = f.selected("web", &web).await.outcome;
        assert_eq!(again.err(), known.outcome.clone().err());
    }
    if clock::monotonic() < known.again.unwrap() {
        assert_eq!(f.looks(), 1, "since {:?}", clock::monotonic() - begun);
        let asked = f.server.requests();
        assert!(
            !asked.iter().any(|r| r.contains("widgets web")),
            "{asked:?}"
        );
    }
    f.server.break_conversion("widgets", false);
    loop {
        let known = f.selected("web", &web).await;
        if known.outcome.is_ok() {
            break;
        }
        clock::sleep(known.wait().unwrap()).await;
    }
    let texts = f.texts("web", &web).await;
    assert_eq!(texts, ["Namespace web null", "Widget w null"]);
}

/// What happens to an object: it gets content, a label or none, or it goes.
#[derive(Clone, Debug)]
enum Step {
    Put(&'static str, &'static str, bool),
    Delete(&'static str, &'static str),
}

fn a_step() -> impl Strategy<Value = Step> {
    let plural = || prop::sample::select(vec!["configmaps", "secrets", "clusterroles"]);
    let name = || prop::sample::select(vec!["a", "b"]);
    prop_oneof![
        3 => (plural(), name(), any::<bool>()).prop_map(|(p, n, label)| Step::Put(p, n, label)),
        1 => (plural(), name()).prop_map(|(plural, name)| Step::Delete(plural, name)),
    ]
}

/// What there is: kind and name, to content and whether it has the label.
type Model = BTreeMap<(&'static str, &'static str), (usize, bool)>;

fn expected(model: &Model, wanted: impl Fn(&str, bool) -> bool) -> Vec<String> {
    let of = |((plural, name), (content, label)): (&(&str, &str), &(usize, bool))| {
        let kind = match *plural {
            "configmaps" => "ConfigMap",
            "secrets" => "Secret",
            _ => "ClusterRole",
        };
        wanted(kind, *label).then(|| format!("{kind} {name} {content}"))
    };
    let mut texts: Vec<String> = model.iter().filter_map(of).collect();
    texts.sort();
    texts
}

async fn walk(steps: Vec<Step>) {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    let mut model = Model::new();
    let labels = json!([term("ClusterRole", &labelled("x"))]);
    let both = json!([
        term(
            "Namespace",
            &json!({"name": "web", "selectionScope": "NamespaceWithResourceSelectors"})
        ),
        term("ConfigMap", &labelled("x")),
    ]);
    for (content, step) in steps.into_iter().enumerate() {
        match step {
            Step::Put(plural, name, label) => {
                let team = if label { "x" } else { "y" };
                let labels = json!({"labels": {"team": team}});
                f.put_with(plural, "web", name, &labels, &json!({"data": content}));
                model.insert((plural, name), (content, label));
            }
            Step::Delete(plural, name) => {
                if model.remove(&(plural, name)).is_some() {
                    let namespace = if plural == "clusterroles" { "" } else { "web" };
                    f.server.delete(plural, namespace, name);
                }
            }
        }
        let with_namespace = |mut texts: Vec<String>| {
            texts.push("Namespace web null".to_owned());
            texts.sort();
            texts
        };
        let whole = with_namespace(expected(&model, |kind, _| kind != "ClusterRole"));
        let labelled = expected(&model, |kind, label| kind == "ClusterRole" && label);
        let bound = with_namespace(expected(&model, |kind, label| kind == "ConfigMap" && label));
        for (placement, selectors, wanted) in [
            ("whole", &namespace("web"), whole),
            ("labels", &labels, labelled),
            ("both", &both, bound),
        ] {
            let deadline = clock::monotonic() + Duration::from_secs(20);
            loop {
                let found = f.texts(placement, selectors).await;
                if found == wanted {
                    break;
                }
                assert!(
                    clock::monotonic() < deadline,
                    "{placement}: {found:?}, not {wanted:?}"
                );
                clock::sleep(Duration::from_millis(2)).await;
            }
        }
    }
    f.woken().await;
    for (placement, selectors) in [
        ("whole", &namespace("web")),
        ("labels", &labels),
        ("both", &both),
    ] {
        f.selected(placement, selectors).await.outcome.unwrap();
        f.looks();
        f.selected(placement, selectors).await.outcome.unwrap();
        assert_eq!(f.looks(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Whatever changes of what is selected, what counts follows.
    #[test]
    fn every_change_is_followed(steps in prop::collection::vec(a_step(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(walk(steps));
    }
}
