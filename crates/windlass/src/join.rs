//! `windlass join`: gives the hub rights and credentials on a member (design §5.17, §5.18).

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::{Client, ResourceExt};
use serde_json::Value;
use windlass_api::member::{Identity, MemberCluster, MemberClusterSpec};
use windlass_api::work::AppliedWork;
use windlass_api::{labels, names};
use windlass_cluster::kubeconfig::is_insecure;
use windlass_cluster::{ApiError, Writer, clock, parse_stored_kubeconfig};
use windlass_member::{credentials, install};

use crate::cli::{self, Failure, say, words};
use crate::endpoint;

/// How we appear in managedFields.
const FIELD_MANAGER: &str = "windlass-join";
/// How long a member's API server may take until something new works there.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often one looks whether an earlier cluster has left.
const LOOK: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster in the fleet.
    #[arg(value_parser = cluster_name)]
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// Kubeconfig of the member, with an administrator's rights; its credentials are not stored.
    #[arg(long, env = "WINDLASS_MEMBER_KUBECONFIG")]
    member_kubeconfig: PathBuf,
    /// Rights of the hub on the member: all, or a YAML file with a list of RBAC rules, or with a ClusterRole.
    /// To those of a file, the few are added that the hub can't do without.
    #[arg(long, env = "WINDLASS_RIGHTS", default_value = "all")]
    rights: String,
    /// How often the cluster's status is refreshed, in seconds.
    #[arg(long, env = "WINDLASS_HEARTBEAT_PERIOD_SECONDS", value_parser = clap::value_parser!(i32).range(1..=600))]
    heartbeat_period_seconds: Option<i32>,
    /// How long to wait for an earlier cluster of this name that is still leaving.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value = "120s", value_parser = cli::seconds)]
    timeout: Duration,
}

/// A name that a MemberCluster, and a label, may have.
fn cluster_name(text: &str) -> Result<String, String> {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let part = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
    if text.len() < 64 && text.chars().all(inside) && text.split('.').all(part) {
        return Ok(text.to_owned());
    }
    Err("a cluster's name has 1 to 63 characters: a-z, 0-9, - and ., and begins and ends with a letter or digit".into())
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let name = &args.name;
    let hub = cli::hub(&args.hub_kubeconfig, FIELD_MANAGER).await?;
    wait_until_left(&hub, name, args.timeout).await?;
    refuse_pull(&hub, name).await?;
    let uid = give_credentials(&hub, name, &args.member_kubeconfig, &args.rights).await?;
    create_cluster(&hub, &args, &uid).await?;
    say(&format!(
        "hub: MemberCluster {name} is in place; watch it with: kubectl get cluster {name}"
    ));
    Ok(())
}

/// A cluster that has an agent does not lose it by the way.
async fn refuse_pull(hub: &Writer, name: &str) -> Result<(), Failure> {
    let cluster: Option<MemberCluster> = hub
        .get(None, name)
        .await
        .map_err(|error| words("reading the MemberCluster", &error))?;
    let is_pull = |cluster: MemberCluster| {
        cluster
            .annotations()
            .get(labels::DELIVERY)
            .map(String::as_str)
            != Some(labels::DELIVERY_PUSH)
    };
    if cluster.is_some_and(is_pull) {
        return Err(format!(
            "{name} is in the fleet, with an agent; to have the hub deliver to it instead: windlass migrate {name} \
             --to push"
        )
        .into());
    }
    Ok(())
}

/// Gives the hub rights and credentials on a member; what the cluster is known by.
pub async fn give_credentials(
    hub: &Writer,
    name: &str,
    member_kubeconfig: &Path,
    choice: &str,
) -> Result<String, Failure> {
    let rules = rights(choice)?;
    let member_kubeconfig = cli::read_kubeconfig(member_kubeconfig)?;
    let endpoint = endpoint::of(&member_kubeconfig)?;
    let member = Writer::new(cli::client(member_kubeconfig).await?, FIELD_MANAGER);
    let uid = identity(&member).await?;
    refuse_second_name(hub, name, &uid).await?;

    say(&format!(
        "{name}: rights of the hub there:\n{}",
        yaml_serde::to_string(&rules)?.trim_end()
    ));
    install_on_member(&member, &rules).await?;
    say(&format!(
        "{name}: the CRD AppliedWork and ServiceAccount {}/{} are in place",
        names::HUB_NAMESPACE,
        install::SERVICE_ACCOUNT
    ));
    let token = credentials::request_token(member.client(), clock::now())
        .await
        .map_err(|error| words("asking the member for a token", &error))?;
    let kubeconfig = credentials::kubeconfig(name, &endpoint, &token.secret);
    try_out(&kubeconfig).await?;
    store(
        hub,
        credentials::secret(name, &kubeconfig, &token, clock::now()),
    )
    .await?;
    say(&format!(
        "hub: its credentials, valid until {}, are in Secret {}/{}",
        token.expires,
        names::HUB_NAMESPACE,
        names::credentials_secret(name)
    ));
    Ok(uid)
}

/// The rules for the hub: all, or those of a file and the few that it can't do without.
fn rights(choice: &str) -> Result<Value, Failure> {
    if choice == "all" {
        return Ok(install::all_rights());
    }
    let text =
        std::fs::read_to_string(choice).map_err(|error| format!("--rights {choice}: {error}"))?;
    chosen_rights(&text).map_err(|error| format!("--rights {choice}: {error}").into())
}

fn chosen_rights(text: &str) -> Result<Value, Failure> {
    let mut chosen: Value = yaml_serde::from_str(text)?;
    let rules = if chosen.is_object() {
        chosen["rules"].take()
    } else {
        chosen
    };
    let Value::Array(mut rules) = rules else {
        return Err("a list of RBAC rules, or a ClusterRole, is needed".into());
    };
    rules.iter().try_for_each(check_rule)?;
    if let Value::Array(own) = install::own_rights() {
        rules.extend(own);
    }
    Ok(Value::Array(rules))
}

/// The API server would drop a misspelt field, and with it the limit that it sets.
fn check_rule(rule: &Value) -> Result<(), Failure> {
    const FIELDS: [&str; 5] = [
        "apiGroups",
        "resources",
        "resourceNames",
        "nonResourceURLs",
        "verbs",
    ];
    let fields = rule
        .as_object()
        .ok_or("a rule has apiGroups, resources and verbs")?;
    if let Some(field) = fields
        .keys()
        .find(|field| !FIELDS.contains(&field.as_str()))
    {
        return Err(format!("a rule has no field {field}").into());
    }
    if fields
        .get("verbs")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        return Err("a rule needs verbs".into());
    }
    Ok(())
}

/// What a cluster is known by, whatever it is called: nobody can replace the namespace kube-system.
async fn identity(member: &Writer) -> Result<String, Failure> {
    let namespace: Option<Namespace> = member
        .get(None, "kube-system")
        .await
        .map_err(|error| words("reading the member's namespace kube-system", &error))?;
    namespace
        .and_then(|namespace| namespace.metadata.uid)
        .ok_or_else(|| "the member has no namespace kube-system".into())
}

/// Two names of one cluster would undo each other's work there.
async fn refuse_second_name(hub: &Writer, name: &str, uid: &str) -> Result<(), Failure> {
    let clusters: Api<MemberCluster> = Api::all(hub.client().clone());
    let list = clusters.list_metadata(&ListParams::default()).await;
    let list = list
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the MemberClusters", &error))?;
    let known = |cluster: &&PartialObjectMeta<MemberCluster>| {
        let annotation = cluster.annotations().get(labels::CLUSTER_UID);
        annotation.is_some_and(|known| known == uid) && cluster.name_any() != name
    };
    match list.items.iter().find(known) {
        Some(other) => Err(format!(
            "this cluster is in the fleet already, as {}; let it leave first: windlass leave {0}",
            other.name_any()
        )
        .into()),
        None => Ok(()),
    }
}

/// What an earlier cluster of this name leaves is cleaned up first: its end would take the new one along.
async fn wait_until_left(hub: &Writer, name: &str, timeout: Duration) -> Result<(), Failure> {
    let until = clock::monotonic() + timeout;
    let mut told = false;
    loop {
        let cluster: Option<MemberCluster> = hub
            .get(None, name)
            .await
            .map_err(|error| words("reading the MemberCluster", &error))?;
        if cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_none()) {
            return Ok(());
        }
        if clock::monotonic() >= until {
            return Err(format!(
                "{name} is still leaving, after {} s; see what it waits for: kubectl get cluster {name} -o yaml. If the \
                 earlier cluster will not come back: windlass leave {name} --force",
                timeout.as_secs()
            )
            .into());
        }
        if !told {
            say(&format!(
                "{name} is still leaving; waiting until it has left"
            ));
            told = true;
        }
        clock::sleep(LOOK).await;
    }
}

async fn install_on_member(member: &Writer, rules: &Value) -> Result<(), Failure> {
    let gone = wait_for(|| earlier_rights_are_gone(member)).await;
    gone.map_err(|error| {
        words(
            "waiting for the rights of an earlier stay to be gone",
            &error,
        )
    })?;
    apply(member, windlass_api::crd::applied_work()?).await?;
    let mut role = String::new();
    for object in install::objects(rules) {
        role = apply(member, object).await?.uid().unwrap_or_default();
    }
    for object in install::dependents(&role) {
        apply(member, object).await?;
    }
    let served = wait_for(|| served(member.client())).await;
    served.map_err(|error| words("waiting for the member to serve AppliedWork", &error))
}

/// What the hub removed when the cluster left the last time would take along what is applied now.
async fn earlier_rights_are_gone(member: &Writer) -> Result<(), ApiError> {
    let role: Option<ClusterRole> = member.get(None, install::SERVICE_ACCOUNT).await?;
    match role {
        Some(role) if role.metadata.deletion_timestamp.is_some() => Err(ApiError::transient(
            format!("ClusterRole {} is being deleted", install::SERVICE_ACCOUNT),
        )),
        _ => Ok(()),
    }
}

async fn apply(writer: &Writer, object: Value) -> Result<DynamicObject, Failure> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let object: DynamicObject = serde_json::from_value(object)?;
    let applied = writer.apply_dyn(&resource, &object, true).await;
    applied.map_err(|error| words(&format!("applying {kind} {name} to the member"), &error))
}

/// Whether AppliedWork can be used with these credentials.
async fn served(member: &Client) -> Result<(), ApiError> {
    let api: Api<AppliedWork> = Api::all(member.clone());
    api.list_metadata(&ListParams::default().limit(1))
        .await
        .map(drop)
        .map_err(ApiError::from_kube)
}

/// Tries until it works; rights and kinds take a moment to be known.
async fn wait_for<F: Future<Output = Result<(), ApiError>>>(
    attempt: impl Fn() -> F,
) -> Result<(), ApiError> {
    let until = clock::monotonic() + PATIENCE;
    loop {
        match attempt().await {
            Err(error) if clock::monotonic() > until => return Err(error),
            Err(_) => clock::sleep(Duration::from_millis(100)).await,
            Ok(()) => return Ok(()),
        }
    }
}

/// Uses the credentials once, as the hub will: read by the same rules, and sent to the same server.
async fn try_out(kubeconfig: &Value) -> Result<(), Failure> {
    let kubeconfig = parse_stored_kubeconfig(kubeconfig.to_string().as_bytes())?;
    if is_insecure(&kubeconfig) {
        say("warning: the member's kubeconfig does not verify the server; neither will the hub");
    }
    let client = cli::client(kubeconfig).await?;
    let works = wait_for(|| served(&client)).await;
    works.map_err(|error| words("trying the new credentials on the member", &error))
}

async fn store(hub: &Writer, secret: Secret) -> Result<(), Failure> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(names::HUB_NAMESPACE.to_owned());
    match hub.create(&namespace).await {
        Ok(_) | Err(ApiError::AlreadyExists(_)) => {}
        Err(error) => return Err(words("creating the namespace on the hub", &error)),
    }
    let result = match hub.create(&secret).await {
        Err(ApiError::AlreadyExists(_)) => renew(hub, &secret).await,
        other => other.map(drop),
    };
    result.map_err(|error| words("storing the credentials on the hub", &error))
}

/// New credentials in a Secret that is there; what others have added to it stays.
async fn renew(hub: &Writer, secret: &Secret) -> Result<(), ApiError> {
    let edit = |live: &mut Secret| {
        live.data.clone_from(&secret.data);
        live.labels_mut().extend(secret.labels().clone());
        live.annotations_mut().extend(secret.annotations().clone());
        true
    };
    cli::change(hub, Some(names::HUB_NAMESPACE), &secret.name_any(), edit)
        .await
        .map(drop)
}

async fn create_cluster(hub: &Writer, args: &Args, uid: &str) -> Result<(), Failure> {
    let result = match hub.create(&cluster(args, uid)).await {
        Err(ApiError::AlreadyExists(_)) => {
            let marks = |live: &mut MemberCluster| {
                let push = cli::annotate(live, labels::DELIVERY, labels::DELIVERY_PUSH);
                let known = cli::annotate(live, labels::CLUSTER_UID, uid);
                push || known
            };
            cli::change(hub, None, &args.name, marks).await.map(drop)
        }
        other => other.map(drop),
    };
    result.map_err(|error| words("creating the MemberCluster", &error))
}

fn cluster(args: &Args, uid: &str) -> MemberCluster {
    let identity = Identity {
        kind: "ServiceAccount".to_owned(),
        name: install::SERVICE_ACCOUNT.to_owned(),
        namespace: Some(names::HUB_NAMESPACE.to_owned()),
        api_group: None,
    };
    let spec = MemberClusterSpec {
        identity,
        heartbeat_period_seconds: args.heartbeat_period_seconds,
        ..Default::default()
    };
    let mut cluster = MemberCluster::new(&args.name, spec);
    cli::annotate(&mut cluster, labels::DELIVERY, labels::DELIVERY_PUSH);
    cli::annotate(&mut cluster, labels::CLUSTER_UID, uid);
    // The hub would add these two; with them there, it has nothing to write.
    cluster
        .labels_mut()
        .insert(labels::MEMBER_NAME.to_owned(), args.name.clone());
    cluster
        .finalizers_mut()
        .push(labels::MEMBER_FINALIZER.to_owned());
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_label_can_hold() {
        for name in ["a", "member-1", "eu.west-1", &"a".repeat(63)] {
            assert!(cluster_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "A",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a_b",
            "a b",
            "é",
            &"a".repeat(64),
        ] {
            assert!(cluster_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn rights_of_a_file_get_what_the_hub_needs() {
        let list = "- {apiGroups: [apps], resources: [deployments], verbs: ['*']}\n";
        let role = format!("kind: ClusterRole\nrules:\n{list}");
        for text in [list, &role] {
            let rules = chosen_rights(text).unwrap();
            assert_eq!(rules[0]["resources"], serde_json::json!(["deployments"]));
            assert!(
                rules.to_string().contains("appliedworks/finalizers"),
                "{rules}"
            );
        }
        for text in [
            "kind: ClusterRole\n",
            "all",
            "[{verbs: get}]",
            "[{apiGroups: [''], resources: [pods]}]",
            "[pods]",
            "[{resource: [pods], verbs: [get]}]",
            "{",
        ] {
            assert!(chosen_rights(text).is_err(), "{text}");
        }
        assert!(
            rights("/no/such/file")
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }
}
