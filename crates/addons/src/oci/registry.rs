//! Asking a registry: who we are to it, what is asked again after a refusal, and what comes back.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore};
use url::Url;
use windlass_cluster::clock::{self, Instant};
use windlass_status::Digest;

use super::challenge::{self, Bearer, Challenge};
use super::errors::{self, Secrets};
use crate::failure::{Failure, Fault};
use crate::http::{self, Answer, Ask, Http};
use crate::source::{Credentials, Hidden};

/// How many requests are under way at once.
pub const AT_ONCE: usize = 8;
/// Most bytes of a token endpoint's answer.
const TOKEN_BYTES: usize = 1 << 20;
/// How long a token holds if nobody says, and at the least (distribution's token specification).
const TOKEN_LIFE: u64 = 60;
/// How often one request is sent: as whom we are given, with a fresh token, anonymously, with a fresh token;
/// and once more for what another request has changed meanwhile.
const SENDS: usize = 5;

/// A registry.
pub struct Registry<'a> {
    http: &'a Http,
    root: Url,
    credentials: Option<&'a Credentials>,
    challenge: Option<Challenge>,
    secrets: std::sync::Mutex<Secrets>,
    permits: Semaphore,
}

/// As whom we ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Given,
    Anonymous,
}

/// What stands in the Authorization header for one repository.
struct Access {
    identity: Identity,
    challenge: Option<Challenge>,
    /// Outer none: not decided yet.
    authorization: Option<Option<HeaderValue>>,
    until: Option<Instant>,
    /// Grows with each change, so that of many requests that are refused at once one mends it for all.
    round: u32,
    /// Why the credentials were refused.
    refused: Option<String>,
    /// An anonymous request has succeeded.
    open: bool,
}

/// A repository of a registry: one chart.
pub struct Repository<'a> {
    registry: &'a Registry<'a>,
    name: String,
    access: Mutex<Access>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl<'a> Registry<'a> {
    /// Asks a registry what it wants to know of us.
    ///
    /// # Errors
    ///
    /// Transient if it does not answer, or is out of order. Any other answer is no failure yet: some serve
    /// their repositories although nothing stands at `/v2/`.
    pub async fn open(
        http: &'a Http,
        url: &Url,
        credentials: Option<&'a Credentials>,
    ) -> Result<Self, Failure> {
        let mut root = url.clone();
        root.set_query(None);
        root.set_fragment(None);
        root.set_path("/v2/");
        let mut registry = Self {
            http,
            root,
            credentials,
            challenge: None,
            secrets: std::sync::Mutex::new(secrets_of(credentials)),
            permits: Semaphore::new(AT_ONCE),
        };
        let ask = Ask::get(registry.root.clone());
        registry.challenge = http
            .retrying(async || {
                let answer = http.send(&ask).await?;
                match answer.failure() {
                    Some(failure) if failure.fault().is_none() => {
                        Err(registry.failure(answer).await)
                    }
                    _ => Ok(registry.challenge_of(&answer)),
                }
            })
            .await?;
        Ok(registry)
    }

    /// What the registry itself asks for. Another host, to which it has redirected us, asks for nothing: the
    /// credentials would go where that host says.
    fn challenge_of(&self, answer: &Answer) -> Option<Challenge> {
        if !http::same_origin(answer.url(), &self.root) {
            return None;
        }
        let headers = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        challenge::choose(headers.filter_map(|value| value.to_str().ok()))
    }

    /// The failure that an answer is.
    pub async fn failure(&self, answer: Answer) -> Failure {
        let secrets = self.secrets().clone();
        errors::failure(answer, clock::now(), &secrets).await
    }

    fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of its repositories.
    #[must_use]
    pub fn repository(&'a self, name: &str) -> Repository<'a> {
        let identity = match self.credentials {
            Some(_) => Identity::Given,
            None => Identity::Anonymous,
        };
        Repository {
            registry: self,
            name: name.to_owned(),
            access: Mutex::new(Access {
                identity,
                challenge: self.challenge.clone(),
                authorization: None,
                until: None,
                round: 0,
                refused: None,
                open: false,
            }),
        }
    }
}

/// What must not show up in a message, should a server repeat it.
fn secrets_of(credentials: Option<&Credentials>) -> Secrets {
    let mut secrets = Secrets::default();
    match credentials {
        Some(Credentials::Basic { password, .. }) => secrets.add(password.reveal()),
        Some(Credentials::Token(token)) => secrets.add(token.reveal()),
        None => {}
    }
    if let Some(header) = credentials.and_then(|given| http::authorization(given).ok())
        && let Some((_, value)) = header.to_str().unwrap_or_default().split_once(' ')
    {
        secrets.add(value);
    }
    secrets
}

/// Why we may not read.
enum Denied {
    /// The token endpoint does not want us.
    Refused(String),
    /// Something else.
    Failed(Failure),
}

impl From<Failure> for Denied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Ticket {
    authorization: Option<HeaderValue>,
    identity: Identity,
    round: u32,
}

impl Repository<'_> {
    /// Address of something of the repository, such as `tags/list`.
    ///
    /// # Errors
    ///
    /// InvalidRepositoryURL if that makes no url.
    pub fn url(&self, path: &str) -> Result<Url, Failure> {
        let path = format!("{}/{path}", self.name);
        self.registry.root.join(&path).map_err(|_| {
            let message = format!("{path} makes no url");
            Failure::terminal(Fault::InvalidRepositoryUrl, message)
        })
    }

    /// Asks, as whom the registry accepts us: with the credentials, else anonymously.
    ///
    /// # Errors
    ///
    /// AuthenticationFailed if neither does; its message names both. Other failures are answers.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        accept: &'static str,
    ) -> Result<Answer, Failure> {
        let mut ask = Ask::get(url);
        ask.method = method;
        ask.headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let _permit = self.registry.permits.acquire().await;
        let mut renewed = None;
        for _ in 0..SENDS {
            let ticket = self.ticket().await?;
            ask.authorization = ticket.authorization.clone();
            let mut answer = self.registry.http.send(&ask).await?;
            if ticket.identity == Identity::Anonymous {
                answer = answer.to_stranger();
            }
            if self.settled(&answer, &ticket).await {
                return Ok(answer);
            }
            // A fresh token helps only where the one that was refused came from a token endpoint.
            let renew = answer.status() == 401 && renewed != Some(ticket.identity);
            renewed = Some(ticket.identity);
            self.refused(answer, &ticket, renew).await?;
        }
        let message = format!("{} refuses each token that it gives", http::shown(&ask.url));
        Err(Failure::terminal(Fault::AuthenticationFailed, message))
    }

    /// The failure that an answer is.
    pub async fn failure(&self, answer: Answer) -> Failure {
        self.registry.failure(answer).await
    }

    /// A blob of at most so many bytes, which has the digest that it is addressed by.
    ///
    /// # Errors
    ///
    /// Transient if it is larger or another one; else what the answer's status comes to.
    pub async fn blob(&self, digest: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let Some(wanted) = sha256(digest) else {
            let message = format!("{}: a blob without a SHA-256 digest", self.name);
            return Err(Failure::transient(message));
        };
        let url = self.url(&format!("blobs/sha256:{wanted}"))?;
        let shown = http::shown(&url);
        let answer = self.send(Method::GET, url, "*/*").await?;
        if answer.status() != 200 {
            return Err(self.failure(answer).await);
        }
        let body = answer.whole(most).await?;
        if Digest::of_bytes(&body) != wanted {
            let message = format!("{shown}: what came back has another digest");
            return Err(Failure::transient(message));
        }
        Ok(body)
    }

    /// Whether an answer stands; otherwise we were refused.
    async fn settled(&self, answer: &Answer, ticket: &Ticket) -> bool {
        // Another host, to which it was redirected, was not asked as anybody.
        let ours = http::same_origin(answer.url(), &self.registry.root);
        let refused = ours && matches!(answer.status(), 401 | 403);
        if ticket.identity == Identity::Given {
            return !refused;
        }
        let mut access = self.access.lock().await;
        if answer.failure().is_none() {
            access.open = true;
        }
        // Where the credentials were refused and nobody else gets anything either, the credentials are what
        // is wrong, whatever the registry calls it to strangers.
        let hidden = answer.failure().is_some_and(|why| why.fault().is_some())
            && access.refused.is_some()
            && !access.open;
        !refused && !hidden
    }

    async fn ticket(&self) -> Result<Ticket, Failure> {
        let mut access = self.access.lock().await;
        let expired = access
            .until
            .is_some_and(|until| clock::monotonic() >= until);
        if access.authorization.is_none() || expired {
            self.authorize(&mut access).await?;
        }
        Ok(Ticket {
            authorization: access.authorization.clone().flatten(),
            identity: access.identity,
            round: access.round,
        })
    }

    /// After a refusal: a fresh token, else anonymously, else the end.
    async fn refused(&self, answer: Answer, ticket: &Ticket, renew: bool) -> Result<(), Failure> {
        let fresh = self.registry.challenge_of(&answer);
        let mut access = self.access.lock().await;
        if access.round != ticket.round {
            return Ok(());
        }
        if fresh.is_some() {
            access.challenge = fresh;
        }
        let exchanges = matches!(access.challenge, Some(Challenge::Bearer(_)));
        if renew && exchanges && !self.is_sent_as_is(&access) {
            return self.authorize(&mut access).await;
        }
        let failure = self.failure(answer).await;
        if failure.fault().is_none() {
            return Err(failure);
        }
        self.step_down(&mut access, failure.to_string())?;
        self.authorize(&mut access).await
    }

    /// Goes on anonymously, if that was not tried yet.
    fn step_down(&self, access: &mut Access, why: String) -> Result<(), Failure> {
        let message = match (access.identity, &access.refused) {
            (Identity::Given, _) => {
                access.identity = Identity::Anonymous;
                access.refused = Some(why);
                return Ok(());
            }
            (Identity::Anonymous, Some(before)) => {
                format!(
                    "the credentials were refused ({before}), and it failed without them too ({why})"
                )
            }
            (Identity::Anonymous, None) => why,
        };
        Err(Failure::terminal(Fault::AuthenticationFailed, message))
    }

    /// A token of the user's own is no user name and password that a token endpoint takes.
    fn is_sent_as_is(&self, access: &Access) -> bool {
        access.identity == Identity::Given
            && matches!(self.registry.credentials, Some(Credentials::Token(_)))
    }

    /// Makes the header anew.
    async fn authorize(&self, access: &mut Access) -> Result<(), Failure> {
        loop {
            access.round += 1;
            access.until = None;
            let given = self
                .registry
                .credentials
                .filter(|_| access.identity == Identity::Given);
            let header = match (&access.challenge, given) {
                (Some(Challenge::Bearer(bearer)), given) if !self.is_sent_as_is(access) => {
                    match self.exchange(bearer, given).await {
                        Ok((header, life)) => {
                            access.until = Some(clock::monotonic() + life);
                            Some(header)
                        }
                        Err(Denied::Failed(failure)) => return Err(failure),
                        Err(Denied::Refused(why)) => {
                            self.step_down(access, why)?;
                            continue;
                        }
                    }
                }
                (_, Some(given)) => Some(http::authorization(given)?),
                (_, None) => None,
            };
            access.authorization = Some(header);
            return Ok(());
        }
    }

    /// Asks the token endpoint.
    async fn exchange(
        &self,
        bearer: &Bearer,
        given: Option<&Credentials>,
    ) -> Result<(HeaderValue, Duration), Denied> {
        let mut url = challenge::realm(&bearer.realm, &self.registry.root).map_err(|why| {
            let message = format!(
                "{} wants a token from an endpoint that is not asked, for it {why}",
                http::shown(&self.registry.root)
            );
            Failure::terminal(Fault::SourceRejectedRequest, message)
        })?;
        let scope = challenge::scope(&self.name, bearer.scope.as_deref());
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = &bearer.service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let mut ask = Ask::get(url);
        ask.authorization = given.map(http::authorization).transpose()?;
        let answer = self.registry.http.send(&ask).await?;
        if answer.status() != 200 {
            let status = answer.status();
            let failure = self.failure(answer).await;
            return Err(match (status, failure.fault()) {
                (400 | 401 | 403, Some(_)) => Denied::Refused(failure.to_string()),
                _ => Denied::Failed(failure),
            });
        }
        let shown = answer.shown();
        let body = answer.whole(TOKEN_BYTES).await?;
        let unusable = || Failure::transient(format!("{shown} answered without a usable token"));
        let (token, life) = read_token(&body).ok_or_else(unusable)?;
        self.registry.secrets().add(token.reveal());
        let header = http::authorization(&Credentials::Token(token)).map_err(|_| unusable())?;
        Ok((header, life))
    }
}

fn read_token(body: &[u8]) -> Option<(Hidden, Duration)> {
    let token: Token = serde_json::from_slice(body).ok()?;
    let life = token.expires_in.unwrap_or(TOKEN_LIFE).max(TOKEN_LIFE);
    let text = [token.token, token.access_token]
        .into_iter()
        .flatten()
        .find(|text| !text.is_empty())?;
    // A little early, so that none expires on its way.
    Some((Hidden::new(text), Duration::from_secs(life.min(86_400) - 5)))
}

/// A digest that is a SHA-256.
#[must_use]
pub fn sha256(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}
