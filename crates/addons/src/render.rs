//! Charts rendered by Helm itself, as a child process (design §5.11).
//!
//! ```text
//! archive + RenderRequest ─▶ helm template ─▶ manifests (what is placed, what is left out) ─▶ pack
//! ```
//!
//! Helm sees nothing of the machine: its environment is empty but for a private folder, so that no user's
//! settings, plugins, repositories or credentials count, and rendering needs no network. It has limits on
//! time, memory and output, and at most two of it run at once.

mod child;
mod error;
mod scratch;
mod words;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use windlass_cluster::clock;
use windlass_status::Digest;

use self::child::{Ended, Stopped};
pub(crate) use self::error::cut;
pub use self::error::{RenderError, RenderFault};
use self::scratch::Scratch;
use crate::manifests::{self, Content, ScopeOf};

/// How many Helms run at once.
const AT_ONCE: usize = 2;
/// Counts up whenever what is made of the same output of Helm changes: then all is rendered anew.
const MEANING: u32 = 1;
/// Longest release name (Helm's own limit).
const LONGEST_RELEASE: usize = 53;

/// What a run of Helm may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time, from its start.
    pub time: Duration,
    /// Memory in bytes: what it may write to of its own.
    pub memory: u64,
    /// Output in bytes.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(30),
            memory: 512 * 1024 * 1024,
            output: 16 * 1024 * 1024,
        }
    }
}

/// What is rendered, besides the chart's archive.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct RenderRequest {
    /// Digest of the archive, or of its manifest (OCI): whatever tells two archives apart.
    pub chart_digest: String,
    /// Release name.
    pub release: String,
    /// The release's namespace.
    pub namespace: String,
    /// Values over those of the chart; null or an object.
    pub values: Value,
    /// Kubernetes version; absent means Helm's own assumption.
    pub kubernetes_version: Option<String>,
    /// API versions besides those that Helm knows.
    pub api_versions: Vec<String>,
}

impl RenderRequest {
    /// Digest of all that a render depends on, Helm's version included. The order of `api_versions` does
    /// not count.
    #[must_use]
    pub fn digest(&self, helm_version: &str) -> Digest {
        Digest::of_json(&json!({
            "meaning": MEANING,
            "helm": helm_version,
            "chart": self.chart_digest,
            "release": self.release,
            "namespace": self.namespace,
            "values": if self.values.is_null() { json!({}) } else { self.values.clone() },
            "kubernetes": self.kubernetes_version,
            "apis": self.apis(),
        }))
    }

    fn apis(&self) -> Vec<&str> {
        let mut apis: Vec<_> = self.api_versions.iter().map(String::as_str).collect();
        apis.sort_unstable();
        apis.dedup();
        apis
    }

    /// What Helm would take for something else than it is meant as.
    fn check(&self) -> Result<(), RenderError> {
        let refuse = |what: String| Err(RenderError::new(RenderFault::InvalidRequest, what));
        let is_label = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let (first, last) = (text.bytes().next(), text.bytes().last());
            first.is_some_and(plain)
                && last.is_some_and(plain)
                && text
                    .bytes()
                    .all(|byte| plain(byte) || byte == b'-' || byte == b'.')
        };
        if !is_label(&self.release) || self.release.len() > LONGEST_RELEASE {
            return refuse(format!(
                "{:?} is no release name: lower-case letters, digits, hyphens and dots, at most {LONGEST_RELEASE} \
                 of them; set spec.releaseName",
                self.release
            ));
        }
        if !is_label(&self.namespace) || self.namespace.len() > 63 || self.namespace.contains('.') {
            return refuse(format!("{:?} is no name of a namespace", self.namespace));
        }
        if !self.values.is_null() && !self.values.is_object() {
            return refuse("values have to be an object".to_owned());
        }
        // A comma would make two of one.
        match self.api_versions.iter().find(|api| api.contains(',')) {
            Some(api) => refuse(format!("{api:?} is no API version")),
            None => Ok(()),
        }
    }
}

/// What a chart comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// What is placed, and what is not.
    pub content: Content,
    /// Helm's version.
    pub helm_version: String,
}

impl Rendered {
    /// Digest of the objects: two renders of the same inputs that differ in it tell of random values or
    /// dates in the chart.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let objects = self.content.objects.iter().cloned().collect::<Value>();
        let namespace = self.content.namespace.clone();
        Digest::of_json(&json!([objects, namespace]))
    }
}

/// Renders charts.
#[derive(Debug)]
pub struct Renderer {
    helm: Option<PathBuf>,
    scratch: PathBuf,
    limits: Limits,
    turns: Semaphore,
    known: Mutex<Option<Known>>,
}

/// A Helm whose version was asked.
#[derive(Clone, Debug)]
struct Known {
    path: PathBuf,
    file: File,
    version: String,
}

/// What tells a program from one that took its place: device, inode, size and time of change.
type File = (u64, u64, u64, i64, i64);

impl Renderer {
    /// One that runs the Helm at a path, or the `helm` in `PATH` if none is given. Whether there is one is
    /// asked when it is needed first, and then until there is.
    #[must_use]
    pub fn new(helm: Option<PathBuf>, limits: Limits) -> Self {
        Self::within(helm, limits, std::env::temp_dir())
    }

    /// As [`Self::new`], with the folder in which the private ones are made.
    #[must_use]
    pub fn within(helm: Option<PathBuf>, limits: Limits, scratch: PathBuf) -> Self {
        Self {
            helm,
            scratch,
            limits,
            turns: Semaphore::new(AT_ONCE),
            known: Mutex::default(),
        }
    }

    /// Removes what runs of a killed hub have left behind. Call it once, at the start.
    pub fn sweep(&self) {
        scratch::sweep(&self.scratch);
    }

    /// Helm's version, such as `v3.22.0`. A Helm that was replaced is asked anew.
    ///
    /// # Errors
    /// When there is no usable Helm, or it can't be run now.
    pub async fn version(&self) -> Result<String, RenderError> {
        Ok(self.helm().await?.version)
    }

    /// Renders a chart, of which `archive` is the packed form that a repository offers.
    ///
    /// # Errors
    /// Whatever [`RenderFault`] lists but [`RenderFault::ObjectTooLarge`].
    pub async fn render(
        &self,
        request: &RenderRequest,
        archive: &[u8],
        scope_of: &ScopeOf<'_>,
    ) -> Result<Rendered, RenderError> {
        request.check()?;
        let helm = self.helm().await?;
        // Before anything is written: the folder may be small. The semaphore is never closed.
        let turn = self.turns.acquire().await;
        let scratch = Scratch::new(&self.scratch).map_err(|error| no_folder(&error))?;
        let arguments = arguments(request, archive, &scratch).map_err(|error| no_folder(&error))?;
        let ended = self.run(&helm.path, &arguments, &scratch).await?;
        if !ended.status.success() {
            return Err(words::failure(&ended, scratch.path(), self.limits.memory));
        }
        drop(scratch);
        drop(turn);
        let stdout = ended.stdout;
        // It takes a while of computing, for large charts.
        let read = clock::spawn_blocking("read a render", move || manifests::documents(&stdout));
        let documents = read
            .await
            .map_err(|_| RenderError::new(RenderFault::HelmFailed, "reading the render failed"))?;
        Ok(Rendered {
            content: Content::of(documents?, &request.namespace, scope_of)?,
            helm_version: helm.version,
        })
    }

    async fn helm(&self) -> Result<Known, RenderError> {
        let (path, file) = find(self.helm.as_deref(), std::env::var_os("PATH"))?;
        // Held while it is asked: others wait for the answer instead of asking, too.
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref()
            && known.path == path
            && known.file == file
        {
            return Ok(known.clone());
        }
        let version = self.ask(&path).await?;
        Ok(known
            .insert(Known {
                path,
                file,
                version,
            })
            .clone())
    }

    async fn ask(&self, helm: &Path) -> Result<String, RenderError> {
        let _turn = self.turns.acquire().await;
        let scratch = Scratch::new(&self.scratch).map_err(|error| no_folder(&error))?;
        let arguments = ["version", "--template", "{{.Version}}"].map(OsString::from);
        let ended = self.run(helm, &arguments, &scratch).await?;
        let said = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
        let version = semver::Version::parse(said.trim_start_matches('v')).ok();
        let known = version.is_some_and(|version| {
            let is_known = version.major == 3 && version.minor >= 16 || version.major == 4;
            is_known && said.starts_with('v')
        });
        if !ended.status.success() || !known || said.len() > 64 {
            let what = format!(
                "{} is no Helm 3.16 or later: `helm version` ended with {}",
                helm.display(),
                ended.status
            );
            return Err(RenderError::new(RenderFault::HelmNotUsable, what));
        }
        Ok(said)
    }

    async fn run(
        &self,
        helm: &Path,
        arguments: &[OsString],
        scratch: &Scratch,
    ) -> Result<Ended, RenderError> {
        let ended = child::run(helm, arguments, scratch.path(), &self.limits).await;
        ended.map_err(|why| self.stopped(helm, &why))
    }

    fn stopped(&self, helm: &Path, why: &Stopped) -> RenderError {
        match why {
            Stopped::Failed(error) => RenderError::new(
                RenderFault::HelmFailed,
                format!("{} can't be run: {error}", helm.display()),
            ),
            Stopped::Time => RenderError::new(
                RenderFault::TimeLimit,
                format!(
                    "rendering the chart takes longer than the {} s that Helm may take",
                    self.limits.time.as_secs_f64()
                ),
            ),
            Stopped::Output => RenderError::new(
                RenderFault::OutputTooLarge,
                format!(
                    "the chart renders more than the {} KiB that are read",
                    self.limits.output / 1024
                ),
            ),
        }
    }
}

fn no_folder(error: &std::io::Error) -> RenderError {
    let what = format!("no private folder could be made for Helm: {error}");
    RenderError::new(RenderFault::HelmFailed, what)
}

fn arguments(
    request: &RenderRequest,
    archive: &[u8],
    scratch: &Scratch,
) -> std::io::Result<Vec<OsString>> {
    let chart = scratch.write("chart.tgz", archive)?;
    // JSON is YAML.
    let values = match &request.values {
        Value::Null => "{}".to_owned(),
        values => values.to_string(),
    };
    let values = scratch.write("values.json", values.as_bytes())?;
    let flag = |name: &str, value: &str| OsString::from(format!("--{name}={value}"));
    let mut arguments = vec![
        "template".into(),
        "--include-crds".into(),
        // To check values, Helm fetches whatever url or file a chart's schema refers to.
        "--skip-schema-validation".into(),
    ];
    arguments.push(flag("namespace", &request.namespace));
    arguments.extend(["--values".into(), values.into_os_string()]);
    if let Some(version) = &request.kubernetes_version {
        arguments.push(flag("kube-version", version));
    }
    arguments.extend(
        request
            .apis()
            .into_iter()
            .map(|api| flag("api-versions", api)),
    );
    arguments.extend([
        "--".into(),
        OsString::from(&request.release),
        chart.into_os_string(),
    ]);
    Ok(arguments)
}

/// Where Helm is: as a path without an environment to look it up in; and which file that is now.
fn find(chosen: Option<&Path>, path: Option<OsString>) -> Result<(PathBuf, File), RenderError> {
    let program = |path: PathBuf| {
        let meta = path.metadata().ok()?;
        let file = (
            meta.dev(),
            meta.ino(),
            meta.len(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        (meta.is_file() && meta.mode() & 0o111 != 0).then_some((path, file))
    };
    let missing = |what: String| Err(RenderError::new(RenderFault::HelmNotFound, what));
    if let Some(helm) = chosen {
        return match std::path::absolute(helm).ok().and_then(program) {
            Some(found) => Ok(found),
            None => missing(format!(
                "{} is no program that can be run; --helm-binary has to name Helm 3.16 or later",
                helm.display()
            )),
        };
    }
    let path = path.unwrap_or_default();
    let mut candidates = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("helm"));
    match candidates.find_map(program) {
        Some(found) => Ok(found),
        None => missing(
            "there is no Helm where the hub runs: install Helm 3.16 or later there as `helm` in PATH, or start the hub \
             with --helm-binary=/path/to/helm"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
