//! Asking a server over HTTP: whom we trust, where redirects may lead, who gets credentials, what a failure
//! is called (reference, seed systems A6).
//!
//! * Redirects are followed by hand, ten at most. One from https to http, to another scheme than these two
//!   or to a link-local address is refused; at another origin (scheme, host or port differ) the request goes
//!   on without credentials and without our certificate.
//! * Link-local addresses are refused as they stand in a url and as they come out of a name's resolution:
//!   cloud machines serve their own credentials there.
//! * No proxy from the environment: it would resolve names in our place, past that check. No cookies.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{
    Certificate, Client, ClientBuilder, Identity, Method, Response, StatusCode, redirect,
};
use tokio::time::timeout_at;
use url::Url;
use windlass_cluster::clock::{self, Instant};

use crate::failure::{Failure, Fault};
use crate::source::{Credentials, Source, Tls};

mod local;

pub use self::local::is_link_local;
use self::local::{LinkLocal, NoLinkLocal};

/// How many redirects one request follows.
pub const MAX_REDIRECTS: usize = 10;
/// How many times one reading asks for the same thing, while what comes back may pass.
pub const TRIES: u32 = 3;
/// How long to wait before the second try; twice as long before the third.
pub const PAUSE: Duration = Duration::from_secs(1);

const LONGEST_CONNECT: Duration = Duration::from_secs(10);
const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

/// What asks a source's servers during one reading, for as long as the source's timeout from its making.
pub struct Http {
    client: Client,
    foreign: OnceLock<Client>,
    tls: Tls,
    origin: Url,
    timeout: Duration,
    deadline: Instant,
    pause: Duration,
}

/// A request.
#[derive(Clone)]
pub struct Ask {
    /// GET or HEAD.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// Headers other than Authorization; they go along with a redirect.
    pub headers: HeaderMap,
    /// Goes to the origin of `url` and to no other one. [`authorization`] makes one.
    pub authorization: Option<HeaderValue>,
}

impl Ask {
    /// A GET without headers and credentials.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            authorization: None,
        }
    }
}

/// The header that credentials are sent in; it is marked as sensitive, so that no debug text shows it.
///
/// # Errors
///
/// InvalidCredentials if a token holds characters that no header can.
pub fn authorization(credentials: &Credentials) -> Result<HeaderValue, Failure> {
    let text = match credentials {
        Credentials::Basic { username, password } => {
            let pair = format!("{username}:{}", password.reveal());
            format!("Basic {}", STANDARD.encode(pair))
        }
        Credentials::Token(token) => format!("Bearer {}", token.reveal()),
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| {
        Failure::terminal(
            Fault::InvalidCredentials,
            "token holds characters that can't be sent in a header",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A url for people: without query, fragment, user name and password.
#[must_use]
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // They fail for a url that can't have either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Whether scheme, host and port are the same.
#[must_use]
pub fn same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

impl Http {
    /// A client for one reading of a source; its time runs from now.
    ///
    /// # Errors
    ///
    /// InvalidCredentials if a certificate or key can't be used.
    pub fn new(source: &Source) -> Result<Self, Failure> {
        Ok(Self {
            client: client(&source.tls, source.timeout)?,
            foreign: OnceLock::new(),
            tls: source.tls.clone(),
            origin: source.url.clone(),
            timeout: source.timeout,
            deadline: clock::monotonic() + source.timeout,
            pause: PAUSE,
        })
    }

    /// The same with another pause before the second try.
    #[must_use]
    pub fn with_pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// When the time is up.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Asks once and follows redirects. An answer of any status is an answer: see [`Answer::failure`].
    ///
    /// # Errors
    ///
    /// Terminal if a redirect must not be followed; transient if no answer came.
    pub async fn send(&self, ask: &Ask) -> Result<Answer, Failure> {
        let mut url = ask.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            refuse_link_local(&url)?;
            let response = self.ask(ask, &url).await?;
            match redirect_of(&response, &url)? {
                Some(next) => url = next,
                None => return Ok(self.answer(ask, response)),
            }
        }
        Err(Failure::transient(format!(
            "{} was redirected more than {MAX_REDIRECTS} times, to {} at last",
            shown(&ask.url),
            shown(&url)
        )))
    }

    /// Does something up to [`TRIES`] times while it fails with what may pass, within the time that is left.
    /// A server that said how long to stay away is not asked again.
    ///
    /// # Errors
    ///
    /// The last failure. If that is only that the time was up, the one before it is told too.
    pub async fn retrying<T, F, O>(&self, mut attempt: F) -> Result<T, Failure>
    where
        F: FnMut() -> O,
        O: Future<Output = Result<T, Failure>>,
    {
        let mut earlier = None;
        let mut pause = self.pause;
        for _ in 1..TRIES {
            let failure = match attempt().await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let wait = clock::jitter(pause, 0.2);
            let again = clock::monotonic() + wait;
            if failure.fault().is_some()
                || failure.retry_after().is_some()
                || again >= self.deadline
            {
                return Err(self.told(failure, earlier));
            }
            earlier = Some(failure);
            clock::sleep_until(again).await;
            pause *= 2;
        }
        attempt()
            .await
            .map_err(|failure| self.told(failure, earlier))
    }

    fn told(&self, failure: Failure, earlier: Option<Failure>) -> Failure {
        match earlier {
            Some(earlier) if clock::monotonic() >= self.deadline => {
                Failure::transient(format!("{earlier}; tried again: {failure}"))
            }
            _ => failure,
        }
    }

    async fn ask(&self, ask: &Ask, url: &Url) -> Result<Response, Failure> {
        let client = if same_origin(url, &self.origin) {
            &self.client
        } else {
            self.foreign()?
        };
        let mut request = client
            .request(ask.method.clone(), url.clone())
            .headers(ask.headers.clone());
        if let Some(authorization) = &ask.authorization
            && same_origin(url, &ask.url)
        {
            request = request.header(AUTHORIZATION, authorization);
        }
        match timeout_at(self.deadline, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unreachable(url, &error)),
            Err(_) => Err(Failure::transient(format!(
                "{} gave no answer within {:?}",
                shown(url),
                self.timeout
            ))),
        }
    }

    /// The client for other origins: it trusts the same authorities and has no certificate of its own.
    fn foreign(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.foreign.get() {
            return Ok(client);
        }
        let tls = Tls {
            identity: None,
            ..self.tls.clone()
        };
        let client = client(&tls, self.timeout)?;
        Ok(self.foreign.get_or_init(|| client))
    }

    fn answer(&self, ask: &Ask, response: Response) -> Answer {
        let access = match &ask.authorization {
            None => Access::Anonymous,
            Some(_) if same_origin(response.url(), &ask.url) => Access::Given,
            Some(_) => Access::Withheld,
        };
        Answer {
            response,
            access,
            timeout: self.timeout,
            deadline: self.deadline,
            received: 0,
        }
    }
}

/// Whether credentials went along.
#[derive(Clone, Copy, Debug)]
enum Access {
    Anonymous,
    Given,
    Withheld,
}

/// What came back: a status and headers, and a body that is still to be read.
pub struct Answer {
    response: Response,
    access: Access,
    timeout: Duration,
    deadline: Instant,
    received: u64,
}

impl Answer {
    /// The same where what went along says nothing of us: a token that a registry gives to anybody.
    #[must_use]
    pub fn to_stranger(mut self) -> Self {
        if matches!(self.access, Access::Given) {
            self.access = Access::Anonymous;
        }
        self
    }

    /// Status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// One header, if it is there and plain text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Where it came from at last.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.response.url()
    }

    /// The url for people.
    #[must_use]
    pub fn shown(&self) -> String {
        shown(self.url())
    }

    /// How many bytes of the body have come.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// What the status comes to; none for 2xx and 304.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let status = self.response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return None;
        }
        let name = status.canonical_reason().unwrap_or("(unknown)");
        let mut message = format!("{} answered {} {name}", self.shown(), status.as_u16());
        let hint = match status.as_u16() {
            401 | 403 => self.access.hint(),
            404 => "; there is nothing of that name",
            300..=399 => "; that is no redirect that can be followed",
            _ => "",
        };
        message.push_str(hint);
        let wait = retry_after(self.headers(), clock::now());
        Failure::of_status(status.as_u16(), wait, message.clone())
            .or_else(|| Some(Failure::transient(message)))
    }

    /// The next piece of the body; none at its end.
    ///
    /// # Errors
    ///
    /// Transient if the connection breaks or the time is up.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match timeout_at(self.deadline, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk.map(|chunk| {
                self.received += chunk.len() as u64;
                chunk.into()
            })),
            Ok(Err(error)) => Err(Failure::transient(format!(
                "{} broke off after {} bytes: {}",
                self.shown(),
                self.received,
                cause(&error)
            ))),
            Err(_) => Err(Failure::transient(format!(
                "{} had sent only {} bytes within {:?}",
                self.shown(),
                self.received,
                self.timeout
            ))),
        }
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// As [`Answer::chunk`]; transient also if the body has more than `most` bytes.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > most {
                let shown = self.shown();
                return Err(Failure::transient(format!(
                    "{shown} answered with more than {most} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

impl Access {
    fn hint(self) -> &'static str {
        match self {
            Self::Anonymous => {
                "; it may want credentials (spec.secretRef), or there is nothing of that name"
            }
            Self::Given => "; the credentials do not do, or there is nothing of that name",
            Self::Withheld => {
                "; it was redirected there, and credentials are not sent to another host"
            }
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http").field(&shown(&self.origin)).finish()
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ask").field(&shown(&self.url)).finish()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, url) = (self.status(), self.shown());
        f.debug_tuple("Answer").field(&status).field(&url).finish()
    }
}

/// How long a server asks us to stay away: seconds, or an HTTP date.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// Where an answer sends us; none if it is to be taken as it is.
fn redirect_of(response: &Response, from: &Url) -> Result<Option<Url>, Failure> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let next = location.to_str().ok().and_then(|to| from.join(to).ok());
    let Some(mut next) = next else {
        let message = format!("{} redirects to what is no url", shown(from));
        return Err(Failure::transient(message));
    };
    let allowed = match next.scheme() {
        "https" => true,
        "http" => from.scheme() == "http",
        _ => false,
    };
    if !allowed || next.host().is_none() {
        let message = format!(
            "{} redirects to {}; a redirect from https to http, or to another scheme, is not followed",
            shown(from),
            shown(&next)
        );
        return Err(Failure::terminal(Fault::SourceRejectedRequest, message));
    }
    // What a server writes into its redirect is nobody's credentials.
    let _ = next.set_username("");
    let _ = next.set_password(None);
    Ok(Some(next))
}

fn client(tls: &Tls, timeout: Duration) -> Result<Client, Failure> {
    // reqwest panics where none is installed; where one is, this changes nothing.
    clock::install_crypto();
    let built = builder(tls, timeout)?.build();
    let built = match built {
        // An image without authorities of its own can still ask over plain HTTP: then nobody is trusted.
        Err(error) if tls.ca.is_none() => {
            tracing::warn!("the system's certificates can't be used: {}", cause(&error));
            builder(tls, timeout)?.tls_certs_only([]).build()
        }
        built => built,
    };
    built.map_err(|error| Failure::transient(format!("no HTTP client: {}", cause(&error))))
}

fn builder(tls: &Tls, timeout: Duration) -> Result<ClientBuilder, Failure> {
    let invalid = |key: &str| {
        let message = format!("{key} can't be used");
        Failure::terminal(Fault::InvalidCredentials, message)
    };
    let mut builder = Client::builder()
        .user_agent(AGENT)
        .no_proxy()
        .referer(false)
        .redirect(redirect::Policy::none())
        .dns_resolver(NoLinkLocal)
        .connect_timeout(LONGEST_CONNECT.min(timeout / 2))
        .tls_danger_accept_invalid_certs(tls.skip_verify);
    if let Some((certificate, key)) = &tls.identity {
        let both = format!("{certificate}\n{}", key.reveal());
        let identity = Identity::from_pem(both.as_bytes());
        builder = builder.identity(identity.map_err(|_| invalid("tls.crt with tls.key"))?);
    }
    if let Some(ca) = &tls.ca {
        let authorities = Certificate::from_pem_bundle(ca.as_bytes());
        builder = builder.tls_certs_only(authorities.map_err(|_| invalid("ca.crt"))?);
    }
    Ok(builder)
}

fn unreachable(url: &Url, error: &reqwest::Error) -> Failure {
    let shown = shown(url);
    if chain(error).any(<dyn Error>::is::<LinkLocal>) {
        let message = format!("{shown}: {LinkLocal}");
        return Failure::terminal(Fault::SourceRejectedRequest, message);
    }
    let why = if error.is_timeout() {
        "it took too long to connect".to_owned()
    } else {
        cause(error)
    };
    Failure::transient(format!("{shown} can't be reached: {why}"))
}

/// The innermost error that says something: what is around it only says that something went wrong.
#[must_use]
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let texts = chain(error).map(ToString::to_string);
    let last = texts.filter(|text| !text.is_empty()).last();
    last.unwrap_or_else(|| "unknown error".to_owned())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (*error).source()
    })
}

fn refuse_link_local(url: &Url) -> Result<(), Failure> {
    if is_link_local(url) {
        let message = format!("{}: {LinkLocal}", shown(url));
        return Err(Failure::terminal(Fault::SourceRejectedRequest, message));
    }
    Ok(())
}
