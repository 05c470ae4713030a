//! A real OCI registry (the distribution project's) in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Helm, tools};
use crate::eventually;

/// Who may use a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Everybody.
    Open,
    /// [`Registry::USER`] with [`Registry::PASSWORD`].
    Basic,
}

/// A server's certificate and key, and the authority that has signed it: files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificate, for 127.0.0.1 and localhost.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Certificate of the authority.
    pub authority: PathBuf,
}

/// See the module. It ends when it is dropped.
pub struct Registry {
    child: Child,
    port: u16,
    dir: PathBuf,
}

/// Of [`Registry::PASSWORD`], in bcrypt.
const HASH: &str = "$2y$05$windlassRegistrySaltAOzXiOaBprJSw/Tpgvaz653hkYCrHk82a";

impl Registry {
    /// Who may use a registry with [`Auth::Basic`].
    pub const USER: &str = "harbourmaster";
    /// Their password.
    pub const PASSWORD: &str = "tide-table-77";

    /// Starts one that holds nothing. With `tls` it speaks HTTPS, else plain HTTP.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(suite: &str, auth: Auth, tls: Option<&Tls>) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let name = format!("windlass-{suite}-registry-{port}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a folder can be made");
        let passwords = dir.join("htpasswd");
        std::fs::write(&passwords, format!("{}:{HASH}\n", Self::USER)).expect("it can be written");
        let config = dir.join("config.yaml");
        std::fs::write(&config, configuration(port, &dir, auth, tls)).expect("it can be written");
        let log = std::fs::File::create(dir.join("log")).expect("a log can be made");
        let child = Command::new(tools().join("registry"))
            .arg("serve")
            .arg(&config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn()
            .expect("the registry starts");
        let this = Self { child, port, dir };
        eventually("the registry listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        this
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Pushes an archive with the real Helm, below a path such as `charts`.
    ///
    /// # Panics
    /// When the registry does not take it.
    pub fn push(&self, helm: &Helm, archive: &Path, path: &str, tls: Option<&Tls>) {
        let to = format!("oci://{}/{path}", self.host());
        let archive = archive.to_string_lossy();
        let mut args = vec!["push", &*archive, &*to];
        args.extend(["--username", Self::USER, "--password", Self::PASSWORD]);
        let authority = tls.map(|tls| tls.authority.to_string_lossy());
        match &authority {
            Some(authority) => args.extend(["--ca-file", authority]),
            None => args.push("--plain-http"),
        }
        helm.run(&args);
    }
}

fn configuration(port: u16, dir: &Path, auth: Auth, tls: Option<&Tls>) -> String {
    let tls = tls.map_or(String::new(), |tls| {
        format!(
            ", tls: {{certificate: {}, key: {}}}",
            tls.certificate.display(),
            tls.key.display()
        )
    });
    let auth = match auth {
        Auth::Open => String::new(),
        Auth::Basic => format!(
            "auth: {{htpasswd: {{realm: charts, path: {}}}}}\n",
            dir.join("htpasswd").display()
        ),
    };
    format!(
        "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
         http: {{addr: '127.0.0.1:{port}'{tls}}}\n{auth}",
        dir.join("data").display()
    )
}

impl Drop for Registry {
    fn drop(&mut self) {
        // One that has ended already is as wanted.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
