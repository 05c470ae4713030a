//! The apply engine on a real member: what others do to what we place, and what is hard to place.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::{Fleet, condition, eventually};

const MEMBER: &str = "member-1";

fn placement(name: &str, strategy: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  strategy: {{type: RollingUpdate, applyStrategy: {{{strategy}}}}}
"
    )
}

fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
}

fn config(namespace: &str, name: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}, data: {data}}}"
    )
}

fn failure(fleet: &Fleet, placement: &str) -> String {
    let path = "{.status.placementStatuses[*].failedPlacements}";
    fleet.get("hub", &format!("crp {placement}"), path)
}

fn is_available(fleet: &Fleet, placement: &str) -> bool {
    condition(fleet, placement, "Available", "status") == "True"
}

fn data(fleet: &Fleet, namespace: &str, name: &str) -> String {
    fleet.get(MEMBER, &format!("cm {name} -n {namespace}"), "{.data}")
}

fn on_member(line: &str) -> bool {
    line.contains(&format!("\"{MEMBER}\""))
}

#[test]
fn the_engine_on_a_real_member() {
    let mut fleet = Fleet::up("member", 1);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.apply("hub", CRD);
    fleet.kubectl("hub", "wait --for=condition=Established crd --all");
    fleet.start_hub();
    fleet.join(MEMBER);
    every_kind_settles(&fleet);
    a_crd_and_its_resources_go_together(&fleet);
    repeated_keys_are_merged(&fleet);
    a_restart_writes_nothing(&mut fleet);
    takeover_is_refused_and_allowed(&fleet);
    fields_of_the_peers_agent_are_ours(&fleet);
    marks_are_put_back(&fleet);
    a_quarrel_is_slow(&fleet);
    conflicts_are_told(&fleet);
    the_applied_work_comes_back(&fleet);
    one_of_two_equal_placements_has_it(&fleet);
    what_lost_its_owner_goes_too(&mut fleet);
    the_applied_work_of_another_name_is_not_shared(&fleet);
}

fn every_kind_settles(fleet: &Fleet) {
    fleet.apply("hub", &namespace("kinds"));
    fleet.apply("hub", KINDS);
    fleet.apply("hub", &placement("kinds", ""));
    eventually("every kind is applied", || {
        condition(fleet, "kinds", "Applied", "status") == "True"
    });
}

fn a_crd_and_its_resources_go_together(fleet: &Fleet) {
    fleet.apply("hub", &namespace("custom"));
    fleet.apply("hub", "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: custom}, spec: {size: 3, cpu: 1000m}}");
    let both = placement("custom", "").replace(
        "name: custom}]",
        "name: custom}, {group: apiextensions.k8s.io, version: v1, kind: CustomResourceDefinition, name: things.example.com}]",
    );
    fleet.apply("hub", &both);
    eventually("the resource is there", || {
        fleet.get(MEMBER, "things t -n custom", "{.spec.size}") == "3"
    });
    eventually("the placement says so", || is_available(fleet, "custom"));
}

fn repeated_keys_are_merged(fleet: &Fleet) {
    fleet.apply("hub", &namespace("dup"));
    let deployment = |value: &str| {
        format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: dup}}, spec: {{replicas: 1,
          selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}},
          spec: {{containers: [{{name: c, image: i, env: [{{name: E, value: '1'}}, {{name: E, value: '{value}'}}]}}]}}}}}}}}")
    };
    fleet
        .try_kubectl("hub", "create -f -", Some(&deployment("2")))
        .unwrap();
    fleet.apply("hub", &placement("dup", ""));
    let env = || {
        fleet.get(
            MEMBER,
            "deploy d -n dup",
            "{.spec.template.spec.containers[0].env[*].value}",
        )
    };
    eventually("both entries are there", || env() == "1 2");
    eventually("the placement says so", || is_available(fleet, "dup"));
    fleet
        .try_kubectl("hub", "replace -f -", Some(&deployment("3")))
        .unwrap();
    eventually("a change is merged", || env() == "1 3");
    eventually("the placement says so", || is_available(fleet, "dup"));
}

fn a_restart_writes_nothing(fleet: &mut Fleet) {
    eventually("everything is applied", || {
        ["kinds", "custom", "dup"]
            .iter()
            .all(|name| condition(fleet, name, "Applied", "status") == "True")
    });
    assert!(!fleet.settled(on_member).is_empty());
    fleet.kill_hub();
    fleet.start_hub();
    eventually("the hub has looked at the member", || {
        let metrics = fleet.http("/metrics").unwrap_or_default();
        metrics
            .lines()
            .any(|line| line.contains("statefulsets") && line.contains(MEMBER))
    });
    assert_eq!(
        fleet.settled(on_member),
        Vec::<String>::new(),
        "a settled member is left alone after a restart"
    );
}

fn takeover_is_refused_and_allowed(fleet: &Fleet) {
    fleet.apply(MEMBER, &namespace("taken"));
    fleet.apply(MEMBER, &config("taken", "c", "{a: theirs}"));
    fleet.apply("hub", &namespace("taken"));
    fleet.apply("hub", &config("taken", "c", "{a: ours}"));
    fleet.apply("hub", &placement("taken", "whenToTakeOver: Never"));
    eventually("it is refused", || {
        failure(fleet, "taken").contains("NotTakenOver")
    });
    assert_eq!(data(fleet, "taken", "c"), r#"{"a":"theirs"}"#);
    fleet.apply("hub", &placement("taken", "whenToTakeOver: IfNoDiff"));
    eventually("the difference is named", || {
        failure(fleet, "taken").contains("/data/a")
    });
    fleet.apply("hub", &placement("taken", "whenToTakeOver: Always"));
    eventually("it is taken over", || {
        data(fleet, "taken", "c") == r#"{"a":"ours"}"#
    });
    eventually("that is said", || is_available(fleet, "taken"));
    fleet.kubectl("hub", "delete crp taken --timeout=60s");
    let left = fleet.get(
        MEMBER,
        "cm c -n taken",
        "{.metadata.ownerReferences}{.metadata.labels}{.data}",
    );
    assert_eq!(left, r#"{"a":"ours"}"#, "what was adopted is released");
    let managers = fleet.kubectl(
        MEMBER,
        "get cm c -n taken --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}",
    );
    assert!(!managers.contains("work-api-agent"), "{managers}");
}

fn fields_of_the_peers_agent_are_ours(fleet: &Fleet) {
    fleet.apply(MEMBER, &namespace("peer"));
    let theirs = config("peer", "c", "{a: '1', gone: '1'}");
    fleet
        .try_kubectl(
            MEMBER,
            "create --field-manager=work-api-agent -f -",
            Some(&theirs),
        )
        .unwrap();
    fleet.apply("hub", &namespace("peer"));
    fleet.apply("hub", &config("peer", "c", "{a: '1'}"));
    fleet.apply("hub", &placement("peer", ""));
    eventually("a field that is not in the template goes", || {
        data(fleet, "peer", "c") == r#"{"a":"1"}"#
    });
}

fn marks_are_put_back(fleet: &Fleet) {
    let owner = || {
        fleet.get(
            MEMBER,
            "cm c -n peer",
            "{.metadata.ownerReferences[*].kind}{.metadata.labels.windlass\\.dev/placed}",
        )
    };
    eventually("it is marked", || owner() == "AppliedWorktrue");
    fleet.kubectl(MEMBER, "label cm c -n peer windlass.dev/placed-");
    eventually("the label is put back", || owner() == "AppliedWorktrue");
    fleet.kubectl(MEMBER, "patch cm c -n peer --type merge -p {\"metadata\":{\"ownerReferences\":null,\"labels\":null}}");
    eventually("the owner is put back", || owner() == "AppliedWorktrue");
    fleet.kubectl(MEMBER, "label cm c -n peer theirs=1");
    drop(fleet.settled(on_member));
    assert_eq!(
        fleet.get(MEMBER, "cm c -n peer", "{.metadata.labels.theirs}"),
        "1",
        "what is theirs stays"
    );
}

/// Somebody writes what we write, again and again: they are not answered write for write.
fn a_quarrel_is_slow(fleet: &Fleet) {
    let applies = || -> u64 {
        let lines = fleet.writes();
        lines
            .iter()
            .filter(|line| on_member(line) && line.contains("\"configmaps\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    };
    let before = applies();
    for n in 0..40 {
        fleet.kubectl(
            MEMBER,
            &format!("patch cm c -n peer --type merge -p {{\"data\":{{\"a\":\"x{n}\"}}}}"),
        );
    }
    eventually("it ends well", || {
        data(fleet, "peer", "c") == r#"{"a":"1"}"# && is_available(fleet, "peer")
    });
    let answers = applies() - before;
    assert!(answers < 30, "40 edits were answered {answers} times");
}

fn conflicts_are_told(fleet: &Fleet) {
    fleet.apply("hub", &namespace("ssa"));
    fleet.apply("hub", &config("ssa", "c", "{a: '1'}"));
    fleet.apply("hub", &placement("ssa", "type: ServerSideApply"));
    eventually("it is applied", || is_available(fleet, "ssa"));
    let theirs = config("ssa", "c", "{a: '2'}");
    fleet
        .try_kubectl(
            MEMBER,
            "apply --server-side --force-conflicts --field-manager=me -f -",
            Some(&theirs),
        )
        .unwrap();
    eventually("the conflict is told", || {
        failure(fleet, "ssa").contains("conflict")
    });
    assert_eq!(data(fleet, "ssa", "c"), r#"{"a":"2"}"#);
    fleet.apply(
        "hub",
        &placement(
            "ssa",
            "type: ServerSideApply, serverSideApplyConfig: {force: true}",
        ),
    );
    eventually("force takes the field", || {
        data(fleet, "ssa", "c") == r#"{"a":"1"}"#
    });
    eventually("that is said", || is_available(fleet, "ssa"));
}

fn the_applied_work_comes_back(fleet: &Fleet) {
    let uid = || fleet.get(MEMBER, "appliedwork ssa-work", "{.metadata.uid}");
    let before = uid();
    fleet.kubectl(MEMBER, "delete appliedwork ssa-work --wait=false");
    eventually("another one owns the objects", || {
        let owner = fleet.get(MEMBER, "cm c -n ssa", "{.metadata.ownerReferences[*].uid}");
        !owner.is_empty() && owner == uid() && owner != before
    });
    eventually("everything is in place", || {
        is_available(fleet, "ssa") && failure(fleet, "ssa").is_empty()
    });
    fleet.kubectl("hub", "delete crp ssa custom dup kinds peer --timeout=90s");
    eventually("nothing is left", || {
        fleet
            .get(MEMBER, "appliedworks", "{.items[*].metadata.name}")
            .is_empty()
    });
}

/// Two placements of equal content: what is refused to one is not said of the other.
fn one_of_two_equal_placements_has_it(fleet: &Fleet) {
    fleet.apply("hub", &namespace("twin"));
    fleet.apply("hub", &config("twin", "c", "{a: '0'}"));
    fleet.apply("hub", &placement("twin", ""));
    eventually("the first is applied", || is_available(fleet, "twin"));
    let other =
        placement("twin", "").replacen("metadata: {name: twin}", "metadata: {name: twin-2}", 1);
    fleet.apply("hub", &other);
    let refused = || failure(fleet, "twin-2").contains("(AppliedWork twin-work)");
    eventually("the other one says who has it", refused);
    for n in 1..=5 {
        fleet.apply("hub", &config("twin", "c", &format!("{{a: '{n}'}}")));
        let observed = |name: &str| {
            fleet.get(
                "hub",
                &format!("crp {name}"),
                "{.status.observedResourceIndex}",
            )
        };
        let mut blamed = String::new();
        eventually("both have seen the change", || {
            blamed += &failure(fleet, "twin");
            data(fleet, "twin", "c") == format!(r#"{{"a":"{n}"}}"#)
                && is_available(fleet, "twin")
                && observed("twin") == observed("twin-2")
                && refused()
        });
        assert_eq!(blamed, "", "change {n}: the owner was refused nothing");
        assert_eq!(condition(fleet, "twin", "Applied", "status"), "True");
    }
    fleet.kubectl("hub", "delete crp twin-2 twin --timeout=90s");
    eventually("both are gone", || {
        fleet.get(MEMBER, "ns twin", "{.metadata.name}").is_empty()
    });
}

fn what_lost_its_owner_goes_too(fleet: &mut Fleet) {
    fleet.apply("hub", &namespace("bare"));
    fleet.apply("hub", &config("bare", "c", "{a: '1'}"));
    fleet.apply("hub", &config("bare", "kept", "{a: '1'}"));
    fleet.apply(MEMBER, &namespace("bare"));
    fleet.apply(MEMBER, &config("bare", "kept", "{a: '1'}"));
    fleet.apply(MEMBER, &config("bare", "theirs", "{a: '1'}"));
    fleet.apply("hub", &placement("bare", ""));
    eventually("it is applied", || is_available(fleet, "bare"));
    fleet.kill_hub();
    let bare = "--type merge -p {\"metadata\":{\"ownerReferences\":null}}";
    for name in ["c", "kept"] {
        fleet.kubectl(MEMBER, &format!("patch cm {name} -n bare {bare}"));
    }
    // Were the binding alive, a delivery would own the objects anew first.
    fleet.kubectl("hub", "delete crp bare --wait=false");
    fleet.kubectl(
        "hub",
        "delete clusterresourcebindings -l kubernetes-fleet.io/parent-CRP=bare --wait=false",
    );
    fleet.start_hub();
    eventually("the placement is gone", || {
        fleet.get("hub", "crp bare", "{.metadata.name}").is_empty()
    });
    assert_eq!(
        fleet
            .get(MEMBER, "cm -n bare", "{.items[*].metadata.name}")
            .replace("kube-root-ca.crt ", ""),
        "kept theirs",
        "what was made is gone, what was adopted or is somebody else's stays"
    );
    let marks = "{.metadata.ownerReferences}{.metadata.labels}";
    assert_eq!(fleet.get(MEMBER, "cm kept -n bare", marks), "");
}

/// A cluster that has joined under two names: the one's AppliedWork is not the other's.
fn the_applied_work_of_another_name_is_not_shared(fleet: &Fleet) {
    fleet.apply(
        MEMBER,
        "{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: AppliedWork, metadata: {name: two-work}, spec: {workName: two-work, workNamespace: fleet-member-west}}",
    );
    fleet.apply("hub", &namespace("two"));
    fleet.apply("hub", &placement("two", ""));
    let told = |what: &str| {
        let path = "{.items[?(@.spec.targetCluster==\"member-1\")].status.conditions[*].message}";
        let messages = fleet.get("hub", "clusterresourcebindings", path);
        messages.contains(what)
            && messages.contains("cluster member-1 is not its own")
            && messages.contains("also in a fleet as west")
    };
    eventually("that is said", || told("AppliedWork two-work"));
    assert_eq!(fleet.get(MEMBER, "ns two", "{.metadata.name}"), "");
    fleet.kubectl("hub", "delete crp two --wait=false");
    eventually("nor is it removed", || {
        told("removing from cluster member-1 failed")
    });
    assert_eq!(
        fleet.get(MEMBER, "appliedwork two-work", "{.spec.workNamespace}"),
        "fleet-member-west"
    );
    fleet.kubectl(MEMBER, "delete appliedwork two-work");
    eventually("with the other name gone, so is the placement", || {
        fleet.get("hub", "crp two", "{.metadata.name}").is_empty()
    });
}

const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}, cpu: {type: string}, mode: {type: string, default: fast}}}
";

const KINDS: &str = r"
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: kinds}
spec: {hard: {requests.cpu: 100000m, pods: '50', requests.memory: 1048576Ki}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: l, namespace: kinds}
spec: {limits: [{type: Container, default: {cpu: 1000m}, defaultRequest: {cpu: 0.1}}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: kinds}
stringData: {k: v}
data: {b: dg==}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: kinds}
automountServiceAccountToken: false
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: pvc, namespace: kinds}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: svc, namespace: kinds}
spec: {type: NodePort, publishNotReadyAddresses: false, selector: {a: b}, ports: [{name: http, port: 80, targetPort: http}, {name: udp, port: 80, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: kinds}
spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: pdb, namespace: kinds}
spec: {maxUnavailable: 50%, selector: {matchLabels: {a: b}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: np, namespace: kinds}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}], policyTypes: [Ingress]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ing, namespace: kinds}
spec: {rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: svc, port: {number: 80}}}}]}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: kinds}
rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rb, namespace: kinds}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: sa, namespace: kinds, apiGroup: ''}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: st, namespace: kinds}
spec:
  serviceName: headless
  replicas: 0
  selector: {matchLabels: {a: st}}
  template: {metadata: {creationTimestamp: null, labels: {a: st}}, spec: {hostNetwork: false, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i, tty: false, ports: [{containerPort: 80}], resources: {limits: {memory: 1048576Ki, cpu: '0.5'}}, volumeMounts: [{name: d, mountPath: /d, readOnly: false}]}]}}
  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds, namespace: kinds}
spec: {selector: {matchLabels: {a: ds}}, template: {metadata: {labels: {a: ds}}, spec: {nodeSelector: {no: where}, tolerations: [{operator: Exists}], containers: [{name: c, image: i, env: [{name: LIM, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cj, namespace: kinds}
spec: {schedule: '0 0 1 1 *', suspend: false, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: hpa, namespace: kinds}
spec: {minReplicas: 1, maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: st}, metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 1000m}}}, {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: empty, namespace: kinds, annotations: {note: ''}, labels: {l: ''}}
data: {a: '', b: '1000m'}
binaryData: {}
";
