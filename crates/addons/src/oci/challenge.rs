//! What a registry asks of who wants to read it: the `WWW-Authenticate` header (RFC 9110, 11.6.1), and
//! which token endpoints are asked.

use std::net::IpAddr;

use url::{Host, Url};

use crate::http;

/// One way to prove who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User name and password.
    Basic,
    /// A token, from the endpoint named.
    Bearer(Bearer),
}

/// Where a token is to be had, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bearer {
    /// Address of the token endpoint, as the registry spells it.
    pub realm: String,
    /// Name of the registry, for the token endpoint.
    pub service: Option<String>,
    /// What the registry wants a token for.
    pub scope: Option<String>,
}

/// The challenge to answer, out of all values of the header; Bearer before Basic, as the narrower one. None
/// if there is none that we can answer.
pub fn choose<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = false;
    for header in headers {
        for (scheme, params) in schemes(header) {
            if scheme.eq_ignore_ascii_case("basic") {
                basic = true;
            } else if scheme.eq_ignore_ascii_case("bearer")
                && let Some(bearer) = bearer(params)
            {
                return Some(Challenge::Bearer(bearer));
            }
        }
    }
    basic.then_some(Challenge::Basic)
}

type Params = Vec<(String, String)>;

fn bearer(params: Params) -> Option<Bearer> {
    let mut found = Bearer::default();
    for (name, value) in params {
        match name.to_ascii_lowercase().as_str() {
            "realm" => found.realm = value,
            "service" => found.service = Some(value),
            "scope" => found.scope = Some(value),
            _ => {}
        }
    }
    (!found.realm.is_empty()).then_some(found)
}

/// Schemes and their parameters; what can't be read is passed over.
fn schemes(header: &str) -> Vec<(&str, Params)> {
    let mut found: Vec<(&str, Params)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return found;
        }
        let (name, after) = token(rest);
        if name.is_empty() {
            // Not a token: up to the next comma nothing makes sense.
            rest = rest.find(',').map_or("", |at| rest.get(at..).unwrap_or(""));
            continue;
        }
        match after.trim_start().strip_prefix('=') {
            Some(value) => {
                let (value, after) = value_of(value.trim_start());
                if let Some((_, params)) = found.last_mut() {
                    params.push((name.to_owned(), value));
                }
                rest = after;
            }
            None => {
                found.push((name, Params::new()));
                rest = after;
            }
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)));
    text.split_at(end.unwrap_or(text.len()))
}

fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.chars();
    while let Some(next) = chars.next() {
        match next {
            '"' => break,
            '\\' => value.extend(chars.next()),
            other => value.push(other),
        }
    }
    (value, chars.as_str())
}

/// The token endpoint, if it may be asked; otherwise why not.
///
/// It may be any host that the registry names, as every registry does it; but over https unless the registry
/// itself is plain, never a link-local address (a cloud's metadata), and a loopback address only for a
/// registry that is there too.
pub fn realm(text: &str, registry: &Url) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is no url")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name");
    }
    match (url.scheme(), registry.scheme()) {
        ("https", _) | ("http", "http") => {}
        ("http", _) => return Err("is not https"),
        _ => return Err("is neither https nor http"),
    }
    reachable(&url, registry)?;
    Ok(url)
}

/// Whether a host that a server named may be asked: never a link-local one, and a loopback address only if
/// the server itself is there; otherwise why not.
pub fn reachable(url: &Url, server: &Url) -> Result<(), &'static str> {
    if url.host().is_none() {
        return Err("has no host");
    }
    if http::is_link_local(url) {
        return Err("is a link-local address");
    }
    if is_loopback(url) && !is_loopback(server) {
        return Err("is a loopback address");
    }
    Ok(())
}

fn address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(address.to_canonical()),
        Host::Domain(_) => None,
    }
}

/// Whether a url's host is this machine.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match address(url) {
        Some(address) => address.is_loopback(),
        None => matches!(url.host_str(), Some("localhost")),
    }
}

/// What to ask a token for: to pull from the repository, and what else the registry wants for it, as long
/// as that is only reading (Azure wants `metadata_read` for a list of tags).
#[must_use]
pub fn scope(repository: &str, wanted: Option<&str>) -> String {
    let mut actions = vec!["pull"];
    for scope in wanted.unwrap_or_default().split(' ') {
        let parts = scope
            .strip_prefix("repository:")
            .and_then(|rest| rest.rsplit_once(':'));
        if let Some((name, wanted)) = parts
            && name == repository
        {
            let extra = wanted
                .split(',')
                .filter(|action| *action == "metadata_read");
            actions.extend(extra);
        }
    }
    actions.dedup();
    format!("repository:{repository}:{}", actions.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer(Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }))
    }

    #[test]
    fn the_challenge_that_is_answered() {
        let hub = "https://auth.docker.io/token";
        let cases: &[(&[&str], Option<Challenge>)] = &[
            (&[], None),
            (&[""], None),
            (&["Basic realm=\"Registry Realm\""], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (&["Digest realm=\"x\", nonce=\"Basic\""], None),
            (
                &[
                    "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"repository:a/b:pull\"",
                ],
                bearer(hub, Some("registry.docker.io"), Some("repository:a/b:pull")),
            ),
            (
                &["BEARER Service=s , REALM = \"https://auth.docker.io/token\""],
                bearer(hub, Some("s"), None),
            ),
            (
                &["Basic realm=\"x\", Bearer realm=\"https://auth.docker.io/token\""],
                bearer(hub, None, None),
            ),
            (
                &[
                    "Basic realm=\"x\"",
                    "Bearer realm=https://auth.docker.io/token",
                ],
                bearer(hub, None, None),
            ),
            (
                &["Negotiate YWJj==, Basic realm=\"x\""],
                Some(Challenge::Basic),
            ),
            (
                &["Bearer realm=\"a \\\"b\\\", c\", scope=\"repository:a:pull,push\""],
                bearer("a \"b\", c", None, Some("repository:a:pull,push")),
            ),
            // A Bearer challenge without a realm can't be answered.
            (&["Bearer service=\"x\""], None),
            (&["Bearer service=\"x\", Basic"], Some(Challenge::Basic)),
            (
                &["\"\"\", ;;, Basic realm=\"unfinished"],
                Some(Challenge::Basic),
            ),
        ];
        for (headers, expected) in cases {
            assert_eq!(choose(headers.iter().copied()), *expected, "{headers:?}");
        }
    }

    #[test]
    fn the_token_endpoints_that_are_asked() {
        let cases = [
            ("https://ghcr.io", "https://ghcr.io/token", Ok(())),
            (
                "https://registry-1.docker.io",
                "https://auth.docker.io/token",
                Ok(()),
            ),
            (
                "https://harbor.corp",
                "http://harbor.corp/service/token",
                Err("is not https"),
            ),
            (
                "http://127.0.0.1:5000",
                "http://127.0.0.1:5001/token",
                Ok(()),
            ),
            ("http://registry.corp", "http://auth.corp/token", Ok(())),
            (
                "https://registry.corp",
                "ftp://auth.corp/token",
                Err("is neither https nor http"),
            ),
            ("https://registry.corp", "/token", Err("is no url")),
            (
                "https://registry.corp",
                "https://u:p@auth.corp/",
                Err("holds a user name"),
            ),
            (
                "https://registry.corp",
                "https://169.254.169.254/",
                Err("is a link-local address"),
            ),
            (
                "http://registry.corp",
                "http://[fe80::1]/",
                Err("is a link-local address"),
            ),
            (
                "http://registry.corp",
                "http://[::ffff:169.254.169.254]/",
                Err("is a link-local address"),
            ),
            (
                "http://registry.corp",
                "http://[fd00:ec2::254]/",
                Err("is a link-local address"),
            ),
            (
                "http://registry.corp",
                "http://127.0.0.1/",
                Err("is a loopback address"),
            ),
            (
                "https://registry.corp",
                "https://localhost/",
                Err("is a loopback address"),
            ),
            // The same number, written in another way.
            (
                "http://registry.corp",
                "http://0xa9fea9fe/",
                Err("is a link-local address"),
            ),
        ];
        for (registry, text, expected) in cases {
            let registry = Url::parse(registry).unwrap();
            assert_eq!(realm(text, &registry).map(drop), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_asked_for_to_read_only() {
        let cases = [
            (None, "repository:a/b:pull"),
            (Some("repository:a/b:pull"), "repository:a/b:pull"),
            (
                Some("repository:a/b:pull,push,delete"),
                "repository:a/b:pull",
            ),
            (Some("repository:other:pull"), "repository:a/b:pull"),
            (Some("registry:catalog:*"), "repository:a/b:pull"),
            (
                Some("repository:a/b:metadata_read"),
                "repository:a/b:pull,metadata_read",
            ),
        ];
        for (wanted, expected) in cases {
            assert_eq!(scope("a/b", wanted), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_challenge_is_found_whatever_stands_before_it(before in "[a-z=\"\\\\ ,;]{0,40}") {
            // An open quotation takes what comes next with it; in a header of its own nothing does.
            let headers = [before.as_str(), "Bearer realm=\"https://auth.example/\""];
            let found = choose(headers.into_iter());
            proptest::prop_assert!(matches!(found, Some(Challenge::Bearer(_))));
        }
    }
}
