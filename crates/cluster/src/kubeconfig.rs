//! Kubeconfigs that were stored by somebody else: read with suspicion (design §5.18).

use kube::config::Kubeconfig;

use crate::client::ConnectError;

/// Largest stored kubeconfig, in bytes.
const LIMIT: usize = 1024 * 1024;

/// Reads a stored kubeconfig. It may hold a server, CA data and a token or client certificate data;
/// whatever would run a program, or read a file of the hub's, is refused.
///
/// # Errors
/// When it can't be read, is too large, or asks for exec, an auth provider or files.
pub fn parse_stored_kubeconfig(bytes: &[u8]) -> Result<Kubeconfig, ConnectError> {
    if bytes.len() > LIMIT {
        return Err(ConnectError::Refused(format!(
            "it is larger than {LIMIT} bytes"
        )));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| ConnectError::Refused("it is not UTF-8 text".to_owned()))?;
    // The parser's error may quote the text, which holds a secret.
    let config = Kubeconfig::from_yaml(text)
        .map_err(|_| ConnectError::Refused("it is not a kubeconfig".to_owned()))?;
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
            return Err(ConnectError::Refused(format!(
                "user {:?} has {field}; only inline credentials are accepted",
                named.name
            )));
        }
    }
    for named in &config.clusters {
        if named
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.certificate_authority.is_some())
        {
            return Err(ConnectError::Refused(format!(
                "cluster {:?} has certificate-authority; only certificate-authority-data is accepted",
                named.name
            )));
        }
    }
    Ok(config)
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
    fn inline_credentials_are_accepted() {
        assert!(parse_stored_kubeconfig(config("token: abc", "").as_bytes()).is_ok());
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
        assert!(parse_stored_kubeconfig(b"token: secret").is_err());
    }
}
