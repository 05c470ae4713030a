//! What the commands share: a client for a person's kubeconfig, words for failures, output.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
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

/// Reads a time as Go writes it (`1h30m`, `90s`, `1.5m`, `500ms`), or as a number of seconds. Has to be above 0.
///
/// # Errors
/// What a time looks like.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let error = || "give a time such as 60, 60s, 5m or 1h30m".to_owned();
    if let Ok(number) = text.parse::<u32>() {
        let whole = (number > 0).then(|| Duration::from_secs(number.into()));
        return whole.ok_or_else(error);
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, tail) = rest.split_at(end.ok_or_else(error)?);
        let length = tail.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, tail) = tail.split_at(length.unwrap_or(tail.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| error())?;
        sum = sum.checked_add(part).ok_or_else(error)?;
        rest = tail;
    }
    (!sum.is_zero()).then_some(sum).ok_or_else(error)
}

/// Reads a truth value as Go does.
///
/// # Errors
/// What one looks like.
pub fn yes(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// Reads an address to listen on as Go does: `:8080` means every interface, `0` means nowhere.
///
/// # Errors
/// What one looks like.
pub fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    let whole = match text {
        "0" | "" => return Ok(None),
        _ if text.starts_with(':') => format!("0.0.0.0{text}"),
        _ => text.to_owned(),
    };
    let address = whole.parse().map(Some);
    address.map_err(|_| "give an address such as 127.0.0.1:8080 or :8080, or 0 for none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::member::MemberCluster;

    #[test]
    fn truths() {
        for (text, expected) in [
            ("true", Ok(true)),
            ("1", Ok(true)),
            ("F", Ok(false)),
            ("false", Ok(false)),
        ] {
            assert_eq!(yes(text), expected, "{text}");
        }
        assert!(yes("yes").is_err() && yes("").is_err());
    }

    #[test]
    fn addresses() {
        for (text, expected) in [
            (":8080", Some("0.0.0.0:8080")),
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("[::1]:80", Some("[::1]:80")),
            ("0", None),
        ] {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(address(text), Ok(expected), "{text}");
        }
        for text in ["8080", "localhost:80", ":x", ":70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("60", 60_000),
            ("60s", 60_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("15m0s", 900_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1500),
            ("500ms", 500),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in [
            "", "0", "0s", "0m0s", "s", "-1", "-1s", "1d", "60 s", "1m30", "1..5s", "1sm", "m1",
        ] {
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
