//! What the commands share: a client for a person's kubeconfig, words for failures, output.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, Resource, ResourceExt};
use prometheus::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_cluster::{ApiError, ConnectOptions, RequestCounter, Writer, clock, connect};

/// What a command failed with, in words for a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How often a change is tried again that met somebody else's.
const TRIES: usize = 5;

/// A client for a person's kubeconfig.
pub async fn client(kubeconfig: Kubeconfig) -> Result<Client, Failure> {
    let requests = RequestCounter::new(&Registry::new())?;
    Ok(connect(kubeconfig, &ConnectOptions::new("cli"), &requests).await?)
}

/// Reads a person's kubeconfig; paths in it are relative to it.
pub fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, Failure> {
    let name = path.display().to_string();
    Kubeconfig::read_from(path).map_err(|error| match error.to_string() {
        text if text.contains(&name) => text.into(),
        text => format!("{name}: {text}").into(),
    })
}

/// The kubeconfig that kubectl uses.
pub fn kubectls() -> PathBuf {
    let listed = std::env::var_os("KUBECONFIG");
    let first = listed
        .as_deref()
        .and_then(|list| std::env::split_paths(list).find(|path| !path.as_os_str().is_empty()));
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    first.unwrap_or_else(|| home().join(".kube/config"))
}

/// A writer on the hub, once that is known to be one.
pub async fn hub(path: &Path, field_manager: &'static str) -> Result<Writer, Failure> {
    let client = client(read_kubeconfig(path)?).await?;
    require_hub(&client, path).await?;
    Ok(Writer::new(client, field_manager))
}

/// Fails, in words for a person, when a client does not lead to a hub.
pub async fn require_hub(client: &Client, path: &Path) -> Result<(), Failure> {
    for (kind, answer) in [
        (
            "MemberCluster",
            lists::<windlass_api::member::MemberCluster>(client).await,
        ),
        (
            "ClusterResourcePlacement",
            lists::<windlass_api::placement::ClusterResourcePlacement>(client).await,
        ),
    ] {
        match answer {
            Ok(()) => {}
            Err(ApiError::NotFound(_)) => {
                return Err(format!(
                    "{} leads to an API server that does not know {kind}; to make it a hub, run: \
                     windlass crds | kubectl apply --server-side -f -",
                    path.display()
                )
                .into());
            }
            Err(error) => return Err(words("asking the hub", &error)),
        }
    }
    Ok(())
}

async fn lists<K>(client: &Client) -> Result<(), ApiError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    api.list_metadata(&ListParams::default().limit(1))
        .await
        .map(drop)
        .map_err(ApiError::from_kube)
}

/// What failed, and the server's words for why.
pub fn words(doing: &str, error: &ApiError) -> Failure {
    let hint = match error {
        ApiError::Unauthorized(_) => "; the kubeconfig's credentials are not accepted",
        _ => "",
    };
    format!("{doing} failed: {}{hint}", error.message()).into()
}

/// Changes an object as it is now, also while others do. `edit` tells whether there is anything to write.
/// None when the object does not exist.
pub async fn change<K>(
    writer: &Writer,
    namespace: Option<&str>,
    name: &str,
    edit: impl Fn(&mut K) -> bool,
) -> Result<Option<K>, ApiError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let mut conflict = ApiError::transient("it keeps changing");
    for _ in 0..TRIES {
        let Some(mut live) = writer.get::<K>(namespace, name).await? else {
            return Ok(None);
        };
        if !edit(&mut live) {
            return Ok(Some(live));
        }
        match writer.replace(&live).await {
            Err(error @ ApiError::Conflict(_)) => conflict = error,
            other => return other.map(Some),
        }
        clock::sleep(clock::jitter(Duration::from_millis(100), 0.5)).await;
    }
    Err(conflict)
}

/// Sets an annotation; tells whether that changes anything.
pub fn annotate<K: ResourceExt>(object: &mut K, key: &str, value: &str) -> bool {
    object
        .annotations_mut()
        .insert(key.to_owned(), value.to_owned())
        .as_deref()
        != Some(value)
}

/// A line about what goes on. Nobody listening is no reason to stop half-way.
pub fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// A command's result. A reader that has seen enough (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Reads a number of seconds above 0: `60`, `60s`, `5m` or `1h`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let seconds = number
        .parse::<u32>()
        .ok()
        .filter(|number| *number > 0)
        .map(|number| u64::from(number) * unit);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "give a time such as 60, 60s or 5m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::member::MemberCluster;

    #[test]
    fn times() {
        for (text, expected) in [("60", 60), ("60s", 60), ("5m", 300), ("1h", 3600)] {
            assert_eq!(seconds(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for text in ["", "0", "0s", "s", "-1", "1d", "1.5s", "60 s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_annotation_that_is_there_is_no_change() {
        let mut cluster = MemberCluster::default();
        assert!(annotate(&mut cluster, "a", "b"));
        assert!(!annotate(&mut cluster, "a", "b"));
        assert!(annotate(&mut cluster, "a", "c"));
    }

    #[test]
    fn refused_credentials_are_called_that() {
        let text = words(
            "asking the hub",
            &ApiError::Unauthorized("Unauthorized".into()),
        )
        .to_string();
        assert_eq!(
            text,
            "asking the hub failed: Unauthorized; the kubeconfig's credentials are not accepted"
        );
    }
}
