//! `windlass join`: gives the hub rights and credentials on a member (design §5.17, §5.18).

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use prometheus::Registry;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use serde_json::{Value, json};
use windlass_api::member::{Identity, MemberCluster, MemberClusterSpec};
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ConnectOptions, RequestCounter, Writer, clock, connect};
use windlass_member::{credentials, install};

use crate::Failure;

/// How long the member's API server may take to serve the CRD.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster in the fleet.
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// Kubeconfig of the member, with an administrator's rights; it is not stored.
    #[arg(long, env = "WINDLASS_MEMBER_KUBECONFIG")]
    member_kubeconfig: PathBuf,
    /// Rights of the hub on the member: all, or a YAML file with a list of RBAC rules.
    #[arg(long, env = "WINDLASS_RIGHTS", default_value = "all")]
    rights: String,
    /// How often the cluster's status is refreshed, in seconds.
    #[arg(long, env = "WINDLASS_HEARTBEAT_PERIOD_SECONDS", value_parser = clap::value_parser!(i32).range(1..=600))]
    heartbeat_period_seconds: Option<i32>,
}

/// A client for a person's kubeconfig.
pub async fn client(path: &Path) -> Result<Client, Failure> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let requests = RequestCounter::new(&Registry::new())?;
    Ok(connect(kubeconfig, &ConnectOptions::new("cli"), &requests).await?)
}

pub async fn run(args: Args) -> Result<(), Failure> {
    if args.name.is_empty() || args.name.len() > 63 {
        return Err("the name of a cluster has 1 to 63 characters".into());
    }
    let hub = Writer::new(client(&args.hub_kubeconfig).await?, "windlass-join");
    let member = Writer::new(client(&args.member_kubeconfig).await?, "windlass-join");
    check_hub(hub.client()).await?;
    let rules = rights(&args.rights)?;
    println!("rights of the hub on {}:\n{}", args.name, yaml_serde::to_string(&rules)?.trim_end());
    install_on_member(&member, &rules).await?;
    println!("member: AppliedWork and the ServiceAccount {} are in place", install::SERVICE_ACCOUNT);
    let token = credentials::request_token(member.client()).await.map_err(|error| words("asking for a token", &error))?;
    let (server, ca) = address(&args.member_kubeconfig)?;
    let kubeconfig = credentials::kubeconfig(&args.name, &server, ca.as_deref(), &token.secret);
    store(&hub, &credentials::secret(&args.name, &kubeconfig, &token, clock::now())).await?;
    println!("hub: the credentials are in Secret {}/{}", names::HUB_NAMESPACE, names::credentials_secret(&args.name));
    create_cluster(&hub, &args).await?;
    println!("hub: MemberCluster {} is in place; see: kubectl get cluster", args.name);
    Ok(())
}

fn words(doing: &str, error: &ApiError) -> Failure {
    format!("{doing} failed: {}", error.message()).into()
}

async fn check_hub(hub: &Client) -> Result<(), Failure> {
    let api: Api<MemberCluster> = Api::all(hub.clone());
    match api.list_metadata(&kube::api::ListParams::default().limit(1)).await.map_err(ApiError::from_kube) {
        Ok(_) => Ok(()),
        Err(ApiError::NotFound(_)) => {
            Err("the hub does not know MemberCluster; run: windlass crds | kubectl apply --server-side -f -".into())
        }
        Err(error) => Err(words("asking the hub", &error)),
    }
}

fn rights(choice: &str) -> Result<Value, Failure> {
    if choice == "all" {
        return Ok(install::all_rights());
    }
    let text = std::fs::read_to_string(choice).map_err(|error| format!("--rights {choice}: {error}"))?;
    let rules: Value = yaml_serde::from_str(&text).map_err(|error| format!("--rights {choice}: {error}"))?;
    // A whole ClusterRole is as good as its rules.
    let rules = if rules.is_object() { rules["rules"].clone() } else { rules };
    if !rules.is_array() {
        return Err(format!("--rights {choice}: a list of RBAC rules, or a ClusterRole, is needed").into());
    }
    Ok(rules)
}

async fn install_on_member(member: &Writer, rules: &Value) -> Result<(), Failure> {
    let mut objects = vec![windlass_api::crd::applied_work()?];
    objects.extend(install::objects(rules));
    for object in objects {
        apply(member, object).await?;
    }
    let crd = ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
    let until = clock::monotonic() + ESTABLISH_LIMIT;
    loop {
        let live = member.get_dyn(&crd, None, "appliedworks.placement.kubernetes-fleet.io").await;
        let conditions = live.ok().flatten().and_then(|live| live.data.pointer("/status/conditions").cloned());
        let established = conditions
            .as_ref()
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
        if established {
            return Ok(());
        }
        if clock::monotonic() > until {
            return Err("the member does not serve AppliedWork; look at its CustomResourceDefinition".into());
        }
        clock::sleep(Duration::from_millis(100)).await;
    }
}

async fn apply(writer: &Writer, object: Value) -> Result<(), Failure> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let object: DynamicObject = serde_json::from_value(object)?;
    writer
        .apply_dyn(&resource, &object, true)
        .await
        .map_err(|error| words(&format!("applying {kind} {name}"), &error))?;
    Ok(())
}

/// Server and CA data of a person's kubeconfig; a CA file is read.
fn address(path: &Path) -> Result<(String, Option<String>), Failure> {
    use base64::Engine;
    let config = Kubeconfig::read_from(path)?;
    let current = config.current_context.clone().unwrap_or_default();
    let context = config.contexts.iter().find(|c| c.name == current).and_then(|c| c.context.clone());
    let wanted = context.ok_or("the member's kubeconfig has no current context")?.cluster;
    let cluster = config
        .clusters
        .into_iter()
        .find(|c| c.name == wanted)
        .and_then(|c| c.cluster)
        .ok_or("the member's kubeconfig does not name its cluster")?;
    let server = cluster.server.ok_or("the member's kubeconfig names no server")?;
    let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => Some(data),
        (None, Some(file)) => {
            let file = path.parent().unwrap_or(Path::new(".")).join(file);
            Some(base64::engine::general_purpose::STANDARD.encode(std::fs::read(file)?))
        }
        (None, None) => None,
    };
    Ok((server, ca))
}

async fn store(hub: &Writer, secret: &Secret) -> Result<(), Failure> {
    let namespace = Namespace {
        metadata: serde_json::from_value(json!({ "name": names::HUB_NAMESPACE }))?,
        ..Default::default()
    };
    match hub.create(&namespace).await {
        Ok(_) | Err(ApiError::AlreadyExists(_)) => {}
        Err(error) => return Err(words("creating the namespace", &error)),
    }
    let api: Api<Secret> = Api::namespaced(hub.client().clone(), names::HUB_NAMESPACE);
    let result = match api.get_opt(&secret.name_any()).await.map_err(ApiError::from_kube)? {
        None => hub.create(secret).await,
        Some(live) => {
            let mut changed = secret.clone();
            changed.metadata.resource_version = live.metadata.resource_version;
            hub.replace(&changed).await
        }
    };
    result.map(|_| ()).map_err(|error| words("storing the credentials", &error))
}

async fn create_cluster(hub: &Writer, args: &Args) -> Result<(), Failure> {
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
    cluster.annotations_mut().insert(labels::DELIVERY.to_owned(), labels::DELIVERY_PUSH.to_owned());
    // The hub would add them; with them there, it has nothing to write.
    cluster.labels_mut().insert(labels::MEMBER_NAME.to_owned(), args.name.clone());
    cluster.finalizers_mut().push(labels::MEMBER_FINALIZER.to_owned());
    match hub.create(&cluster).await {
        Ok(_) => return Ok(()),
        Err(ApiError::AlreadyExists(_)) => {}
        Err(error) => return Err(words("creating the MemberCluster", &error)),
    }
    let api: Api<MemberCluster> = Api::all(hub.client().clone());
    let mut live = api.get(&args.name).await.map_err(ApiError::from_kube)?;
    if live.metadata.deletion_timestamp.is_some() {
        return Err(format!("{} is still leaving; wait for that to end", args.name).into());
    }
    if live.annotations().get(labels::DELIVERY).is_some_and(|mode| mode == labels::DELIVERY_PUSH) {
        return Ok(());
    }
    live.annotations_mut().insert(labels::DELIVERY.to_owned(), labels::DELIVERY_PUSH.to_owned());
    hub.replace(&live).await.map_err(|error| words("changing the MemberCluster", &error))?;
    Ok(())
}
