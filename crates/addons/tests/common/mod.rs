//! A renderer with a folder of its own, packed charts, and scripts in Helm's place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that can't go on fails"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass_addons::render::{Limits, RenderError, RenderRequest, Rendered, Renderer};

/// Longest wait for what happens by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Helm: what `WINDLASS_TEST_HELM` names, or the launcher of the control planes has built.
pub fn helm() -> PathBuf {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        if let Some(helm) = std::env::var_os("WINDLASS_TEST_HELM") {
            return helm.into();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/fleet");
        let out = Command::new(script)
            .arg("tools")
            .output()
            .expect("hack/fleet runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "hack/fleet tools: {said}");
        Path::new(String::from_utf8(out.stdout).unwrap().trim()).join("helm")
    };
    HELM.get_or_init(find).clone()
}

/// The sample chart, packed.
pub fn archive() -> Vec<u8> {
    static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts");
    ARCHIVE.get_or_init(|| packed(&charts, "sample")).clone()
}

/// A chart of these files, packed.
pub fn archive_of(files: &[(&str, &str)]) -> Vec<u8> {
    let dir = Dir::new();
    for (name, text) in files {
        let file = dir.0.join("c").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    packed(&dir.0, "c")
}

fn packed(within: &Path, name: &str) -> Vec<u8> {
    let out = Command::new("tar")
        .arg("-C")
        .arg(within)
        .args(["-czf", "-", name])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    out.stdout
}

/// A folder that goes when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-addons-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A renderer and its folder.
pub struct Bed {
    dir: Dir,
    pub renderer: Renderer,
}

impl Bed {
    /// With real Helm and the usual limits.
    pub fn new() -> Self {
        Self::with(Some(helm()), |_| {})
    }

    pub fn with(helm: Option<PathBuf>, change: impl FnOnce(&mut Limits)) -> Self {
        Self::within(Dir::new(), helm, change)
    }

    /// With a script in Helm's place, which runs for everything but the question for its version.
    pub fn scripted(script: &str) -> Self {
        let dir = Dir::new();
        let version = if script.starts_with("echo v") {
            script
        } else {
            "echo v3.16.0"
        };
        let text =
            format!("#!/bin/sh\nif [ \"$1\" = version ]; then {version}; exit; fi\n{script}\n");
        let file = dir.0.join("helm");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Self::within(dir, Some(file), |_| {})
    }

    fn within(dir: Dir, helm: Option<PathBuf>, change: impl FnOnce(&mut Limits)) -> Self {
        let scratch = dir.0.join("scratch");
        let _ = fs::create_dir(&scratch);
        let mut limits = Limits::default();
        change(&mut limits);
        let renderer = Renderer::within(helm, limits, scratch);
        Self { dir, renderer }
    }

    /// The same with other limits.
    pub fn limited(self, change: impl FnOnce(&mut Limits)) -> Self {
        let script = self.script();
        Self::within(self.dir, Some(script), change)
    }

    pub fn script(&self) -> PathBuf {
        self.dir.0.join("helm")
    }

    /// Where the private folders are made.
    pub fn scratch(&self) -> PathBuf {
        self.dir.0.join("scratch")
    }

    pub async fn render(
        &self,
        request: &RenderRequest,
        archive: &[u8],
    ) -> Result<Rendered, RenderError> {
        self.renderer.render(request, archive, &|_, _| None).await
    }

    /// Nothing is left in the folder.
    pub fn assert_empty(&self) {
        let left: Vec<_> = fs::read_dir(self.scratch())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The process ids that a script writes into `scratch/pids`.
    pub async fn pids(&self) -> Vec<u32> {
        let file = self.scratch().join("pids");
        until("the script writes its process ids", || file.exists()).await;
        let text = fs::read_to_string(&file).unwrap();
        text.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }
}

/// Waits until processes have ended.
pub async fn wait_until_gone(pids: &[u32]) {
    until("the processes end", || {
        pids.iter().all(|pid| has_ended(*pid))
    })
    .await;
}

fn has_ended(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // Behind the name, which is in brackets: the state. A zombie only waits for somebody to ask.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
