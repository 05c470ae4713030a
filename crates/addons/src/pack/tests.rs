use proptest::prelude::*;

use super::*;

fn allow() -> Rules<'static> {
    Rules {
        refuses: &|_| None,
        is_reserved: &|_| false,
    }
}

fn map(namespace: Option<&str>, name: &str, bytes: usize) -> Value {
    match namespace {
        Some(_) => json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}, "data": {"x": "x".repeat(bytes)}}),
        None => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "annotations": {"x": "x".repeat(bytes)}}}),
    }
}

fn mark(addon: &str) -> Mark {
    Mark {
        addon: addon.to_owned(),
        render: Digest::of_bytes(b"inputs"),
        owner: OwnerReference {
            api_version: "addons.windlass.dev/v1alpha1".to_owned(),
            kind: "Addon".to_owned(),
            name: addon.to_owned(),
            uid: "6f1c6c1e-0a39-4c53-8d4c-3f2a8d9b4f10".to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
    }
}

fn written(addon: &str, objects: Vec<Value>) -> Vec<Value> {
    let envelopes = pack(addon, objects, &allow()).unwrap();
    let parts = envelopes.len();
    envelopes
        .iter()
        .map(|envelope| envelope.object(&mark(addon), parts))
        .collect()
}

/// Which envelope each object is in.
fn places(envelopes: &[Envelope]) -> BTreeMap<(Option<String>, String), String> {
    let all = envelopes.iter().flat_map(|envelope| {
        let keys = envelope.data.keys();
        keys.map(|key| {
            (
                (envelope.namespace.clone(), key.clone()),
                envelope.name.clone(),
            )
        })
    });
    all.collect()
}

#[test]
fn what_is_packed_is_what_comes_out() {
    let objects = vec![
        map(None, "system:reader", 1),
        map(Some("team"), "a", 1),
        map(Some("other"), "a", 1),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "team"}}),
        // The same name and kind in another group.
        json!({"apiVersion": "old.io/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "team"}}),
    ];
    let envelopes = written("web", objects.clone());
    let named: Vec<_> = envelopes
        .iter()
        .map(|envelope| ObjectId::of(envelope).to_string())
        .collect();
    let expected = [
        "ClusterResourceEnvelope web-0",
        "ResourceEnvelope other/web-0",
        "ResourceEnvelope team/web-0",
    ];
    assert_eq!(named, expected);
    let keys: Vec<_> = envelopes[2]["data"].as_object().unwrap().keys().collect();
    let expected = ["configmap_a", "deployment.apps_a", "deployment.old.io_a"];
    assert_eq!(keys, expected);
    for envelope in &envelopes {
        assert_eq!(envelope["metadata"]["labels"][labels::ADDON], "web");
        assert_eq!(
            envelope["metadata"]["annotations"][labels::ADDON_PARTS],
            "3"
        );
        assert_eq!(envelope["metadata"]["ownerReferences"][0]["name"], "web");
    }
    let opened = open(envelopes, &|_| None);
    assert_eq!(opened.problems, Vec::<String>::new());
    for object in &objects {
        let count = opened.parts.iter().filter(|p| p.object == *object).count();
        assert_eq!(count, 1, "{}", ObjectId::of(object));
    }
    assert_eq!(opened.parts.len(), objects.len());
}

#[test]
fn what_no_envelope_takes_is_named() {
    let object = |version: &str, kind: &str, namespace: Option<&str>| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    let envelope = object(
        "placement.kubernetes-fleet.io/v1beta1",
        "ResourceEnvelope",
        Some("team"),
    );
    for (objects, expected) in [
        (
            vec![envelope],
            "ResourceEnvelope team/x is the hub's own kind",
        ),
        (
            vec![object(
                "cluster.kubernetes-fleet.io/v1",
                "MemberCluster",
                None,
            )],
            "MemberCluster x is the hub's own kind",
        ),
        (
            vec![object("addons.windlass.dev/v1alpha1", "Addon", None)],
            "Addon x is the hub's own kind",
        ),
        (
            vec![object("v1", "Secret", Some("kube-system"))],
            "Secret kube-system/x: nothing is placed into namespace kube-system",
        ),
        (
            vec![object("v1", "Secret", Some("mine"))],
            "Secret mine/x: nothing is placed into namespace mine",
        ),
        (
            vec![
                object("v1", "Secret", Some("a")),
                object("v1", "Secret", Some("a")),
            ],
            "the chart renders Secret a/x twice",
        ),
        (
            vec![
                object("x.io/v1", "Odd", Some("a")),
                object("x.io/v2", "Odd", Some("a")),
            ],
            "the chart renders Odd a/x twice",
        ),
        (vec![object("v1", "Pod", Some("a"))], "no Pods here"),
        (
            vec![map(Some("a"), "large", LARGEST)],
            "ConfigMap a/large is 800 KiB large, and an object that is placed has to be smaller than 796 KiB",
        ),
    ] {
        let rules = Rules {
            refuses: &|object| {
                (ObjectId::of(object).kind == "Pod").then(|| "no Pods here".to_owned())
            },
            is_reserved: &|name| name == "mine",
        };
        let error = pack("web", objects, &rules).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
        assert!(error.fault.is_terminal());
    }
}

#[test]
fn names_and_keys_fit_and_differ() {
    let long = "a".repeat(250);
    let names = ["web", "web-1", "web-1-0", "w.eb", &long, &"a".repeat(249)].map(|addon| {
        let name = pack(addon, vec![map(None, "x", 1)], &allow())
            .unwrap()
            .remove(0)
            .name;
        assert!(name.len() < 64 && addon_label(addon).len() < 64, "{name}");
        name
    });
    assert_eq!(
        names
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        names.len()
    );
    assert_eq!(addon_label("web"), "web");
    let objects = ["a:b", "a-b", "a;b", &long, &format!("{long}b")].map(|name| map(None, name, 1));
    let count = objects.len();
    let envelope = pack("web", objects.into(), &allow()).unwrap().remove(0);
    assert_eq!(envelope.data.len(), count);
    for key in envelope.data.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        assert!(key.len() <= 253 && key.chars().all(plain), "{key}");
    }
}

fn some_objects() -> impl Strategy<Value = Vec<Value>> {
    let sizes = prop_oneof![30 => 1..200_usize, 1 => 1..400_000_usize];
    let namespace = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let one = (namespace, sizes);
    proptest::collection::btree_map(0..400_u32, one, 1..150).prop_map(|all| {
        let each = all.into_iter();
        each.map(|(n, (namespace, size))| map(namespace, &format!("o{n}"), size))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_object_is_in_one_envelope_that_fits(objects in some_objects(), turn in 0..1000_usize) {
        let envelopes = pack("web", objects.clone(), &allow()).unwrap();
        for envelope in &envelopes {
            let text = envelope.object(&mark("web"), envelopes.len()).to_string();
            prop_assert!(text.len() <= LARGEST && envelope.data.len() <= MOST);
            prop_assert!(!envelope.data.is_empty());
        }
        let mut inside: Vec<_> = envelopes.iter().flat_map(|e| e.data.values()).collect();
        let mut given: Vec<_> = objects.iter().collect();
        let order = |object: &&Value| ObjectId::of(object).to_string();
        inside.sort_by_key(order);
        given.sort_by_key(order);
        prop_assert_eq!(inside, given);

        let mut turned = objects;
        let by = turn % turned.len();
        turned.rotate_left(by);
        prop_assert_eq!(pack("web", turned, &allow()).unwrap(), envelopes);
    }

    #[test]
    fn an_object_more_moves_others_only_out_of_its_own_envelope(objects in some_objects(), size in 1..400_000_usize) {
        let before = pack("web", objects.clone(), &allow()).unwrap();
        let mut more = objects;
        more.push(map(Some("a"), "another", size));
        let after = pack("web", more, &allow()).unwrap();
        let (was, is) = (places(&before), places(&after));
        let moved = was.iter().filter(|(object, place)| is[*object] != **place);
        let left: std::collections::BTreeSet<_> =
            moved.map(|((namespace, _), place)| (namespace.clone(), place.clone())).collect();
        prop_assert!(left.len() <= 1, "{left:?}");
    }
}
