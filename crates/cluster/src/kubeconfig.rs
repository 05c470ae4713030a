//! Kubeconfigs that were stored by somebody else: read with suspicion (design §5.18). And the one of a Pod.

use std::path::Path;

use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};

use crate::client::ConnectError;

/// Where a Pod finds its ServiceAccount's token and the API server's CA.
const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API server of the cluster that this process runs in, as its ServiceAccount. None outside of a Pod.
#[must_use]
pub fn in_cluster() -> Option<Kubeconfig> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    Some(account(&host, &port, Path::new(ACCOUNT_DIR)))
}

/// Paths, not contents: the kubelet replaces the token, and the client reads it again.
fn account(host: &str, port: &str, dir: &Path) -> Kubeconfig {
    const NAME: &str = "in-cluster";
    // An IPv6 address needs brackets.
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let file = |name| Some(dir.join(name).to_string_lossy().into_owned());
    let context = NamedContext {
        name: NAME.to_owned(),
        context: Some(Context {
            cluster: NAME.to_owned(),
            user: Some(NAME.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let cluster = NamedCluster {
        name: NAME.to_owned(),
        cluster: Some(Cluster {
            server: Some(format!("https://{host}:{port}")),
            certificate_authority: file("ca.crt"),
            ..Default::default()
        }),
        ..Default::default()
    };
    let user = NamedAuthInfo {
        name: NAME.to_owned(),
        auth_info: Some(AuthInfo {
            token_file: file("token"),
            ..Default::default()
        }),
        ..Default::default()
    };
    Kubeconfig {
        current_context: Some(NAME.to_owned()),
        contexts: vec![context],
        clusters: vec![cluster],
        auth_infos: vec![user],
        ..Default::default()
    }
}

/// Largest stored kubeconfig, in bytes.
const LIMIT: usize = 1024 * 1024;

/// Reads a stored kubeconfig. It may hold a server, CA data and a token or client certificate data;
/// whatever would run a program, or read a file of the hub's, is refused, in every user and cluster that
/// it lists.
///
/// # Errors
/// When it can't be read, is too large, leads nowhere, or asks for exec, an auth provider or files.
pub fn parse_stored_kubeconfig(bytes: &[u8]) -> Result<Kubeconfig, ConnectError> {
    if bytes.len() > LIMIT {
        return refuse(format!("it is larger than {LIMIT} bytes"));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return refuse("it is not UTF-8 text");
    };
    // The parser's error may quote the text, which holds a secret.
    let Ok(config) = Kubeconfig::from_yaml(text) else {
        return refuse("it is not a kubeconfig");
    };
    refuse_outside_references(&config)?;
    match current_cluster(&config) {
        Some(cluster)
            if cluster
                .server
                .as_ref()
                .is_some_and(|server| !server.is_empty()) =>
        {
            Ok(config)
        }
        Some(_) => refuse("the cluster of its current context has no server"),
        None => refuse("it has no current context that names one of its clusters"),
    }
}

/// Whether a connection by this kubeconfig can be listened to or redirected: plain HTTP, or a server
/// whose certificate nobody looks at. Accepted, for it is its owner's choice; to be shown to the user.
#[must_use]
pub fn is_insecure(config: &Kubeconfig) -> bool {
    current_cluster(config).is_some_and(|cluster| {
        cluster.insecure_skip_tls_verify == Some(true)
            || cluster
                .server
                .as_ref()
                .is_some_and(|server| !server.starts_with("https://"))
    })
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ConnectError> {
    Err(ConnectError::Refused(why.into()))
}

fn refuse_outside_references(config: &Kubeconfig) -> Result<(), ConnectError> {
    for named in &config.auth_infos {
        let Some(user) = &named.auth_info else {
            continue;
        };
        let refused = [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ];
        if let Some((_, field)) = refused.iter().find(|(present, _)| *present) {
            return refuse(format!(
                "user {:?} has {field}; only inline credentials are accepted",
                named.name
            ));
        }
    }
    for named in &config.clusters {
        if named
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.certificate_authority.is_some())
        {
            return refuse(format!(
                "cluster {:?} has certificate-authority; only certificate-authority-data is accepted",
                named.name
            ));
        }
    }
    Ok(())
}

fn current_cluster(config: &Kubeconfig) -> Option<&Cluster> {
    let current = config.current_context.as_ref()?;
    let context = config
        .contexts
        .iter()
        .find(|context| context.name == *current)?
        .context
        .as_ref()?;
    config
        .clusters
        .iter()
        .find(|cluster| cluster.name == context.cluster)?
        .cluster
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(user: &str, cluster: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn in_a_pod_the_token_stays_a_file() {
        for (host, server) in [
            ("10.96.0.1", "https://10.96.0.1:443"),
            ("fd00::1", "https://[fd00::1]:443"),
        ] {
            let config = account(host, "443", Path::new("/account"));
            let cluster = current_cluster(&config).unwrap();
            assert_eq!(cluster.server.as_deref(), Some(server));
            assert_eq!(
                cluster.certificate_authority.as_deref(),
                Some("/account/ca.crt")
            );
            let user = config.auth_infos[0].auth_info.as_ref().unwrap();
            assert_eq!(user.token_file.as_deref(), Some("/account/token"));
        }
    }

    #[test]
    fn inline_credentials_are_accepted() {
        let parsed = parse_stored_kubeconfig(config("token: abc", "").as_bytes()).unwrap();
        assert!(!is_insecure(&parsed));
    }

    #[test]
    fn a_connection_without_proof_of_identity_is_accepted_and_flagged() {
        let skip = config("token: abc", ", insecure-skip-tls-verify: true");
        assert!(is_insecure(
            &parse_stored_kubeconfig(skip.as_bytes()).unwrap()
        ));
        let plain = config("token: abc", "").replace("https", "http");
        assert!(is_insecure(
            &parse_stored_kubeconfig(plain.as_bytes()).unwrap()
        ));
    }

    #[test]
    fn whatever_reaches_outside_is_refused_and_named() {
        for (user, cluster, field) in [
            (
                "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}",
                "",
                "exec",
            ),
            ("auth-provider: {name: x, config: {}}", "", "auth-provider"),
            ("tokenFile: /etc/passwd", "", "tokenFile"),
            ("client-certificate: /a", "", "client-certificate"),
            ("client-key: /a", "", "client-key"),
            (
                "token: secret-word",
                ", certificate-authority: /a",
                "certificate-authority",
            ),
        ] {
            let error = parse_stored_kubeconfig(config(user, cluster).as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(field), "{error}");
            assert!(!error.contains("secret-word"), "{error}");
        }
    }

    #[test]
    fn a_user_that_is_not_the_current_one_may_not_reach_outside_either() {
        let text = format!(
            "{}- {{name: v, user: {{tokenFile: /etc/passwd}}}}\n",
            config("token: a", "")
        )
        .replace(
            "users: [{name: u, user: {token: a}}]\n",
            "users:\n- {name: u, user: {token: a}}\n",
        );
        let error = parse_stored_kubeconfig(text.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains("tokenFile"), "{error}");
    }

    #[test]
    fn what_leads_nowhere_is_refused_without_being_quoted() {
        let nowhere =
            config("token: hunter2", "").replace("current-context: c", "current-context: d");
        let serverless = config("token: hunter2", "").replace("https://127.0.0.1:1", "");
        let large = vec![b' '; LIMIT + 1];
        for bytes in [
            b"token: hunter2".as_slice(),
            b"[hunter2",
            b"\xff",
            nowhere.as_bytes(),
            serverless.as_bytes(),
            &large,
        ] {
            let error = parse_stored_kubeconfig(bytes).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
