//! Charts rendered by real Helm: `WINDLASS_TEST_HELM`, or the one that `hack/fleet build` has built.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

mod common;

use std::time::Duration;

use common::{Bed, archive, archive_of, helm};
use serde_json::{Value, json};
use windlass_addons::manifests::KindScope;
use windlass_addons::pack::{Rules, pack};
use windlass_addons::render::{Limits, RenderError, RenderFault, RenderRequest, Rendered};

fn request(values: Value) -> RenderRequest {
    RenderRequest {
        chart_digest: "sample".to_owned(),
        release: "web".to_owned(),
        namespace: "team".to_owned(),
        values,
        ..RenderRequest::default()
    }
}

async fn render(bed: &Bed, values: Value) -> Result<Rendered, RenderError> {
    bed.render(&request(values), &archive()).await
}

async fn fails(bed: &Bed, values: Value) -> RenderError {
    let error = render(bed, values).await.unwrap_err();
    bed.assert_empty();
    error
}

fn find<'a>(rendered: &'a Rendered, kind: &str, name: &str) -> &'a Value {
    let mut objects = rendered.content.objects.iter();
    let found = objects.find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} is not in {:?}", rendered.content.objects))
}

#[tokio::test]
async fn a_chart_comes_to_its_objects() {
    let bed = Bed::new();
    let rendered = render(&bed, json!({"replicas": 3, "text": "from the user: \"x\""}))
        .await
        .unwrap();
    bed.assert_empty();
    let deployment = find(&rendered, "Deployment", "web-app");
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["metadata"]["namespace"], "team");
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["configMap"]["defaultMode"], 420, "0644");
    let config = find(&rendered, "ConfigMap", "web-config");
    assert_eq!(config["data"]["text"], "from the user: \"x\"");
    for (kind, name) in [
        ("ClusterRole", "sample:web"),
        ("Widget", "wide"),
        ("CustomResourceDefinition", "widgets.sample.io"),
    ] {
        let object = find(&rendered, kind, name);
        assert_eq!(object["metadata"].get("namespace"), None, "{kind}");
    }
    let gadget = find(&rendered, "Gadget", "small");
    assert_eq!(gadget["metadata"]["namespace"], "team");
    let content = &rendered.content;
    assert_eq!(content.assumed, ["Gadget.elsewhere.io"]);
    let hooks = ["Job/web-migrate (pre-install, pre-upgrade)"];
    assert_eq!(content.skipped_hooks, hooks);
    assert_eq!(content.objects.len(), 7, "{:?}", content.counts());
    assert!(
        rendered.helm_version.starts_with("v3."),
        "{}",
        rendered.helm_version
    );
    assert_eq!(content.namespace, None);

    let rules = Rules {
        refuses: &|_| None,
        is_reserved: &|_| false,
    };
    let envelopes = pack("web", content.objects.clone(), &rules).unwrap();
    let names: Vec<_> = envelopes
        .iter()
        .map(|e| (e.kind(), e.name.as_str()))
        .collect();
    let expected = [
        ("ClusterResourceEnvelope", "web-0"),
        ("ResourceEnvelope", "web-0"),
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn yaml_means_what_it_means_to_helm() {
    let rendered = render(&Bed::new(), Value::Null).await.unwrap();
    let as_helm_reads = &find(&rendered, "ConfigMap", "web-config")["data"]["asHelmReads"];
    let mut expected: Value = serde_json::from_str(as_helm_reads.as_str().unwrap()).unwrap();
    // JSON's two ways to write a number are one.
    expected["numbers"][4] = json!(1e22);
    assert_eq!(find(&rendered, "Widget", "scalars")["spec"], expected);
}

#[tokio::test]
async fn the_namespace_of_the_release_is_not_among_the_objects() {
    let rendered = render(&Bed::new(), json!({"namespace": true}))
        .await
        .unwrap();
    let namespace = rendered.content.namespace.unwrap();
    let enforce = "pod-security.kubernetes.io/enforce";
    assert_eq!(namespace["metadata"]["labels"][enforce], "privileged");
    assert!(
        rendered
            .content
            .objects
            .iter()
            .all(|o| o["kind"] != "Namespace")
    );
}

#[tokio::test]
async fn a_chart_is_told_about_the_clusters() {
    let bed = Bed::new();
    let plain = render(&bed, Value::Null).await.unwrap();
    let told = RenderRequest {
        kubernetes_version: Some("1.31".to_owned()),
        api_versions: vec!["elsewhere.io/v1".to_owned(), "x.io/v1".to_owned()],
        ..request(Value::Null)
    };
    let told = bed.render(&told, &archive()).await.unwrap();
    let of = |rendered: &Rendered, key: &str| {
        find(rendered, "ConfigMap", "web-config")["data"][key].clone()
    };
    assert_eq!(of(&told, "kubernetes"), "v1.31");
    assert_ne!(of(&plain, "kubernetes"), "v1.31");
    assert_eq!(
        (of(&plain, "gadgets"), of(&told, "gadgets")),
        (json!("false"), json!("true"))
    );
}

#[tokio::test]
async fn what_the_caller_knows_of_kinds_counts() {
    let bed = Bed::new();
    let scope = |group: &str, _: &str| (group == "elsewhere.io").then_some(KindScope::Cluster);
    let rendered = bed
        .renderer
        .render(&request(Value::Null), &archive(), &scope)
        .await
        .unwrap();
    let gadget = find(&rendered, "Gadget", "small");
    assert_eq!(gadget["metadata"].get("namespace"), None);
    assert!(rendered.content.assumed.is_empty());
}

#[tokio::test]
async fn random_values_show_in_the_digest() {
    let bed = Bed::new();
    let mut digests = Vec::new();
    for random in [false, false, true, true] {
        let rendered = render(&bed, json!({"random": random})).await.unwrap();
        digests.push(rendered.digest());
    }
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[2], digests[3]);
}

#[tokio::test]
async fn what_helm_says_of_a_bad_chart_or_bad_values() {
    let bed = Bed::new();
    let chart = "apiVersion: v2\nname: c\nversion: 1.0.0\n";
    let needs = format!("{chart}dependencies: [{{name: other, version: 1.0.0, repository: ''}}]\n");
    let library = format!("{chart}type: library\n");
    let broken = archive_of(&[
        ("Chart.yaml", chart),
        ("templates/x.yaml", "{{ .Values.a.b.c }}"),
    ]);
    for (archive, values, fault, expected) in [
        (
            archive(),
            json!({"wrong": "fail"}),
            RenderFault::ChartRejected,
            "the value wrong is fail",
        ),
        // There is no such function in Helm.
        (
            archive_of(&[
                ("Chart.yaml", chart),
                ("templates/x.yaml", "a: {{ env \"HOME\" }}"),
            ]),
            json!({}),
            RenderFault::ChartRejected,
            "function \"env\" not defined",
        ),
        (
            archive(),
            json!({"wrong": "nameless"}),
            RenderFault::ObjectRejected,
            "sample/templates/wrong.yaml: a ConfigMap has generateName",
        ),
        (
            broken,
            json!({}),
            RenderFault::ChartRejected,
            "c/templates/x.yaml:1",
        ),
        (
            archive_of(&[("Chart.yaml", &needs)]),
            json!({}),
            RenderFault::DependenciesMissing,
            "helm dependency build",
        ),
        (
            archive_of(&[("Chart.yaml", &library)]),
            json!({}),
            RenderFault::ChartRejected,
            "library",
        ),
        (
            b"no archive".to_vec(),
            json!({}),
            RenderFault::ChartRejected,
            "chart",
        ),
    ] {
        let error = bed.render(&request(values), &archive).await.unwrap_err();
        assert_eq!(error.fault, fault, "{error}");
        assert!(error.message.contains(expected), "{error}");
        assert!(error.fault.is_terminal() && error.message.len() <= 1024);
        assert!(!error.message.contains("windlass-render-"), "{error}");
        bed.assert_empty();
    }
}

#[tokio::test]
async fn a_chart_that_takes_too_much_is_stopped() {
    let bed = Bed::with(Some(helm()), |limits| limits.memory = 256 * 1024 * 1024);
    let error = fails(&bed, json!({"wrong": "memory"})).await;
    assert_eq!(error.fault, RenderFault::MemoryLimit, "{error}");
    assert!(error.message.contains("256 MiB") && !error.fault.is_terminal());

    let bed = Bed::with(Some(helm()), |limits| limits.output = 1024 * 1024);
    let error = fails(&bed, json!({"wrong": "output"})).await;
    assert_eq!(error.fault, RenderFault::OutputTooLarge, "{error}");
    assert!(error.message.contains("1024 KiB") && error.fault.is_terminal());

    let bed = Bed::with(Some(helm()), |limits| limits.time = Duration::from_secs(3));
    let error = fails(&bed, json!({"wrong": "time"})).await;
    assert_eq!(error.fault, RenderFault::TimeLimit, "{error}");
    assert!(error.message.contains("3 s") && !error.fault.is_terminal());
}

#[tokio::test]
async fn helm_is_found_where_it_is_or_missed_in_plain_words() {
    let nowhere = Bed::with(Some("/nonexistent/helm".into()), |_| {});
    let error = fails(&nowhere, Value::Null).await;
    assert_eq!(error.fault, RenderFault::HelmNotFound);
    assert!(error.message.contains("/nonexistent/helm") && error.message.contains("--helm-binary"));

    // It counts from when it is there.
    let bed = Bed::scripted("");
    std::fs::remove_file(bed.script()).unwrap();
    assert_eq!(
        fails(&bed, Value::Null).await.fault,
        RenderFault::HelmNotFound
    );
    std::os::unix::fs::symlink(helm(), bed.script()).unwrap();
    render(&bed, Value::Null).await.unwrap();

    // And what took its place counts from when that is there.
    let other = Bed::scripted("echo v4.9.9");
    let before = bed.renderer.version().await.unwrap();
    std::fs::rename(other.script(), bed.script()).unwrap();
    assert_eq!(bed.renderer.version().await.unwrap(), "v4.9.9");
    assert_ne!(before, "v4.9.9");

    for version in ["v2.17.0", "v3.15.4"] {
        let old = Bed::scripted(&format!("echo {version}"));
        let fault = fails(&old, Value::Null).await.fault;
        assert_eq!(fault, RenderFault::HelmNotUsable, "{version}");
    }
}

#[tokio::test]
async fn helm_sees_nothing_of_the_environment() {
    let bed = Bed::scripted(
        "echo 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata:'\n\
         /usr/bin/env | /usr/bin/sed 's/^/  /; s/=/: /'",
    );
    let rendered = render(&bed, Value::Null).await.unwrap();
    let seen = rendered.content.objects[0]["data"].as_object().unwrap();
    // What the shell of the script sets by itself.
    let shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let ours = [
        "GOMEMLIMIT",
        "GOTRACEBACK",
        "HELM_CACHE_HOME",
        "HELM_CONFIG_HOME",
        "HELM_DATA_HOME",
        "HELM_PLUGINS",
        "HOME",
        "TMPDIR",
    ];
    let names: Vec<_> = seen
        .keys()
        .map(String::as_str)
        .filter(|n| !shell.contains(n))
        .collect();
    assert_eq!(names, ours);
    let inside = bed.scratch().display().to_string();
    for name in ours.into_iter().skip(2) {
        assert!(seen[name].as_str().unwrap().starts_with(&inside), "{name}");
    }
}

#[tokio::test]
async fn the_kernel_holds_the_limits_too() {
    // They are set a moment after its start.
    let bed = Bed::scripted(
        "until [ $(ulimit -t) != unlimited ]; do :; done\n\
         echo 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: l}'\n\
         echo \"data: {seconds: $(ulimit -t), kibibytes: $(ulimit -d)}\"",
    );
    let rendered = render(&bed, Value::Null).await.unwrap();
    let data = &rendered.content.objects[0]["data"];
    assert_eq!(*data, json!({"seconds": 4 * 30, "kibibytes": 512 * 1024}));
}

#[tokio::test]
async fn nothing_is_left_of_a_render_that_nobody_waits_for() {
    for stop in ["time", "drop"] {
        // The second one holds the output open, and would run on by itself.
        let bed = Bed::scripted(
            "sleep 300 & echo $$ $! >../pids.new; mv ../pids.new ../pids; exec sleep 300",
        );
        let bed = bed.limited(|limits| {
            if stop == "time" {
                limits.time = Duration::from_secs(2);
            }
        });
        let request = request(Value::Null);
        let archive = archive();
        let work = bed.render(&request, &archive);
        let pids = if stop == "time" {
            assert_eq!(work.await.unwrap_err().fault, RenderFault::TimeLimit);
            bed.pids().await
        } else {
            tokio::select! {
                _ = work => panic!("it ended by itself"),
                pids = bed.pids() => pids,
            }
        };
        assert_eq!(pids.len(), 2);
        common::wait_until_gone(&pids).await;
        std::fs::remove_file(bed.scratch().join("pids")).unwrap();
        bed.assert_empty();
    }
}

#[tokio::test]
async fn two_at_once_and_no_more() {
    let bed = Bed::scripted(
        "mkdir -p ../../turns; : >../../turns/$$; ls ../../turns | wc -l >>../../counts; sleep 0.1; rm ../../turns/$$",
    );
    let (request, archive) = (request(Value::Null), archive());
    let all = (0..6).map(|_| bed.render(&request, &archive));
    for rendered in futures::future::join_all(all).await {
        assert!(rendered.unwrap().content.objects.is_empty());
    }
    let counts = std::fs::read_to_string(bed.scratch().join("../counts")).unwrap();
    let counts: Vec<u32> = counts
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 6);
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
}

#[test]
fn the_limits_are_those_of_the_documentation() {
    let limits = Limits::default();
    assert_eq!(limits.time, Duration::from_secs(30));
    assert_eq!((limits.memory, limits.output), (1 << 29, 16 << 20));
}

#[tokio::test]
async fn a_schema_leads_helm_nowhere() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for target in [
        format!("http://127.0.0.1:{port}/schema"),
        "file:///etc/passwd".to_owned(),
    ] {
        let schema = json!({"$ref": target}).to_string();
        let archive = archive_of(&[
            ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
            ("values.schema.json", &schema),
            (
                "templates/x.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
            ),
        ]);
        let rendered = Bed::new().render(&request(Value::Null), &archive).await;
        assert_eq!(rendered.unwrap().content.objects.len(), 1, "{target}");
    }
    assert!(listener.accept().is_err(), "nobody has asked");
    // The price of it: what a harmless schema would refuse is rendered, too.
    render(&Bed::new(), json!({"replicas": "many"}))
        .await
        .unwrap();
}
