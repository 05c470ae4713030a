//! Charts and where they are kept, for suites about add-ons: packed, indexed and pushed by the real Helm
//! ([`Helm`]), in a folder behind a web server that can be told to misbehave ([`Web`]), or in a real registry
//! ([`Registry`]). All of them listen on a loopback address.
//!
//! ```no_run
//! use windlass_tests::charts::{Chart, Helm, Web};
//!
//! let (helm, web) = (Helm::new("suite"), Web::start());
//! helm.pack("charts", &Chart::new("web", "1.0.0"));
//! helm.index("charts");
//! web.serve("/charts", &helm.path("charts"));
//! let url = format!("{}/charts", web.url());
//! ```

mod registry;
mod web;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use registry::{Auth, Registry, Tls};
pub use web::{Reply, Request, Web};

/// One version of a chart, to be packed.
#[derive(Clone, Debug)]
pub struct Chart {
    name: String,
    version: String,
    metadata: String,
    files: Vec<(String, String)>,
}

impl Chart {
    /// A chart without templates.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            metadata: String::new(),
            files: Vec::new(),
        }
    }

    /// Further lines of its Chart.yaml.
    #[must_use]
    pub fn with(mut self, lines: &str) -> Self {
        self.metadata.push_str(lines);
        self.metadata.push('\n');
        self
    }

    /// A file of it, such as `templates/app.yaml` or `values.yaml`.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }
}

/// The real Helm with a folder of its own, which goes when it is dropped.
#[derive(Debug)]
pub struct Helm {
    dir: PathBuf,
}

/// The folder with Helm and the registry.
pub(crate) fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let out = Command::new(crate::root().join("hack/fleet"))
            .arg("tools")
            .output()
            .expect("hack/fleet runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "hack/fleet tools: {said}");
        PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())
    })
}

impl Helm {
    /// Makes its folder.
    ///
    /// # Panics
    /// When that can't be made.
    #[must_use]
    pub fn new(suite: &str) -> Self {
        let name = format!("windlass-{suite}-charts-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("home")).expect("a folder can be made");
        Self { dir }
    }

    /// The binary, for a hub's `--helm-binary`.
    #[must_use]
    pub fn binary() -> PathBuf {
        tools().join("helm")
    }

    /// A path within the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs Helm within the folder; what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, args: &[&str]) -> String {
        let home = self.dir.join("home");
        let out = Command::new(Self::binary())
            .args(args)
            .current_dir(&self.dir)
            .env("HELM_CACHE_HOME", &home)
            .env("HELM_CONFIG_HOME", &home)
            .env("HELM_DATA_HOME", &home)
            .output()
            .expect("helm runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "helm {}: {said}", args.join(" "));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Packs a chart into a folder within Helm's own; where the archive is.
    ///
    /// # Panics
    /// When Helm does not take it.
    pub fn pack(&self, folder: &str, chart: &Chart) -> PathBuf {
        let source = self.dir.join("source").join(&chart.name);
        // What another version left behind is no part of this one.
        drop(std::fs::remove_dir_all(&source));
        let metadata = format!(
            "apiVersion: v2\nname: {}\nversion: '{}'\n{}",
            chart.name, chart.version, chart.metadata
        );
        let files = chart.files.iter().cloned();
        for (path, text) in files.chain([("Chart.yaml".to_owned(), metadata)]) {
            let path = source.join(path);
            let parent = path.parent().expect("a file lies in a folder");
            std::fs::create_dir_all(parent).expect("a folder can be made");
            std::fs::write(&path, text).expect("a file can be written");
        }
        self.run(&["package", &source.to_string_lossy(), "-d", folder]);
        let archive = format!("{}-{}.tgz", chart.name, chart.version);
        self.dir.join(folder).join(archive)
    }

    /// Writes `index.yaml` of a folder of archives, and gives its text.
    ///
    /// # Panics
    /// When Helm fails.
    pub fn index(&self, folder: &str) -> String {
        self.run(&["repo", "index", folder]);
        let path = self.dir.join(folder).join("index.yaml");
        std::fs::read_to_string(path).expect("Helm has written it")
    }
}

impl Drop for Helm {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
