//! Where a person's kubeconfig leads: the part of it that is stored. Credentials stay behind.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{Cluster, Kubeconfig};
use windlass_member::credentials::Endpoint;

use crate::cli::Failure;

/// The endpoint of the current context. A CA file is read, for the hub could not.
pub fn of(config: &Kubeconfig) -> Result<Endpoint, Failure> {
    let cluster = current(config)?;
    let server = cluster.server.clone().filter(|server| !server.is_empty());
    let ca_data = match (
        &cluster.certificate_authority_data,
        &cluster.certificate_authority,
    ) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(file)) => {
            let pem = std::fs::read(Path::new(file))
                .map_err(|error| format!("certificate-authority {file}: {error}"))?;
            Some(STANDARD.encode(pem))
        }
        (None, None) => None,
    };
    Ok(Endpoint {
        server: server.ok_or("the cluster of the kubeconfig's current context has no server")?,
        ca_data,
        tls_server_name: cluster.tls_server_name.clone(),
        insecure_skip_tls_verify: cluster.insecure_skip_tls_verify == Some(true),
        proxy_url: cluster.proxy_url.clone(),
    })
}

fn current(config: &Kubeconfig) -> Result<&Cluster, Failure> {
    let name = config
        .current_context
        .as_ref()
        .ok_or("the kubeconfig has no current context")?;
    let context = config
        .contexts
        .iter()
        .find(|context| context.name == *name)
        .and_then(|c| c.context.as_ref());
    let context =
        context.ok_or_else(|| format!("the kubeconfig's current context {name:?} is not in it"))?;
    let cluster = config
        .clusters
        .iter()
        .find(|c| c.name == context.cluster)
        .and_then(|c| c.cluster.as_ref());
    cluster.ok_or_else(|| {
        format!(
            "the kubeconfig's cluster {:?} is not in it",
            context.cluster
        )
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(&format!(
            "current-context: c\ncontexts: [{{name: b, context: {{cluster: other, user: u}}}}, \
             {{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: other, cluster: {{server: 'https://other'}}}}, {{name: k, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: /tmp/x, exec: {{command: sh, apiVersion: v1}}}}}}]\n"
        ))
        .unwrap()
    }

    #[test]
    fn the_current_context_is_followed_and_credentials_are_left_behind() {
        let endpoint = of(&config(
            "server: 'https://a:6443', certificate-authority-data: Y2E=, tls-server-name: k8s, proxy-url: 'http://p'",
        ))
        .unwrap();
        assert_eq!(
            endpoint,
            Endpoint {
                server: "https://a:6443".into(),
                ca_data: Some("Y2E=".into()),
                tls_server_name: Some("k8s".into()),
                insecure_skip_tls_verify: false,
                proxy_url: Some("http://p".into()),
            }
        );
        assert!(
            of(&config(
                "server: 'https://a', insecure-skip-tls-verify: true"
            ))
            .unwrap()
            .insecure_skip_tls_verify
        );
    }

    #[test]
    fn a_ca_file_is_read_into_the_endpoint() {
        let file = std::env::temp_dir().join(format!("windlass-ca-{}", std::process::id()));
        std::fs::write(&file, "ca").unwrap();
        let endpoint = of(&config(&format!(
            "server: 'https://a', certificate-authority: '{}'",
            file.display()
        )));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(endpoint.unwrap().ca_data.as_deref(), Some("Y2E="));
        let gone = of(&config(&format!(
            "server: 'https://a', certificate-authority: '{}'",
            file.display()
        )));
        assert!(
            gone.unwrap_err()
                .to_string()
                .contains("certificate-authority")
        );
    }

    #[test]
    fn what_leads_nowhere_says_why() {
        assert!(
            of(&config("server: ''"))
                .unwrap_err()
                .to_string()
                .contains("no server")
        );
        assert!(
            of(&Kubeconfig::default())
                .unwrap_err()
                .to_string()
                .contains("no current context")
        );
        let mut lost = config("server: 'https://a'");
        lost.current_context = Some("z".into());
        assert!(of(&lost).unwrap_err().to_string().contains("\"z\""));
        let mut lost = config("server: 'https://a'");
        lost.clusters.pop();
        assert!(of(&lost).unwrap_err().to_string().contains("\"k\""));
    }
}
