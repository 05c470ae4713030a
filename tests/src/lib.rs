//! Shared harness of the end-to-end suites: a real fleet, the real binary, and kubectl as a user has it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a harness that can't go on fails the test"
)]

pub mod agents;
pub mod charts;
pub mod deaths;
mod jsonpath;
pub mod pages;
mod process;
mod reader;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use process::HubProcess;
pub use waiting::{eventually, within};

/// At rest is who has written nothing for so long.
const QUIET: Duration = Duration::from_secs(4);

/// What kubectl says of what is not there, as opposed to what it can't tell.
const NOTHING_THERE: [&str; 3] = [
    "(NotFound)",
    "the server doesn't have a resource type",
    "array index out of bounds",
];

/// The repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the repository exists")
}

/// A hub and its members, started by `hack/fleet` and ended when dropped.
pub struct Fleet {
    dir: PathBuf,
    kubectl: PathBuf,
    reader: std::sync::Mutex<reader::Reader>,
    hub: Option<HubProcess>,
}

impl Fleet {
    /// Starts a fleet of its own for a suite.
    ///
    /// # Panics
    /// When it can't be started: then no test of the suite means anything.
    #[must_use]
    pub fn up(suite: &str, members: usize) -> Self {
        Self::up_with(suite, members, &[])
    }

    /// As [`Self::up`], with environment variables for `hack/fleet`.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn up_with(suite: &str, members: usize, environment: &[(&str, &str)]) -> Self {
        let dir = std::env::temp_dir().join(format!("windlass-{suite}-{}", std::process::id()));
        let script = root().join("hack/fleet");
        let out = Command::new(&script)
            .arg("up")
            .arg(&dir)
            .arg("--members")
            .arg(members.to_string())
            .envs(environment.iter().copied())
            .output();
        let out = out.expect("hack/fleet runs");
        assert!(
            out.status.success(),
            "fleet up: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let bin = Command::new(&script)
            .arg("bin")
            .output()
            .expect("hack/fleet runs")
            .stdout;
        let kubectl = PathBuf::from(String::from_utf8_lossy(&bin).trim()).join("kubectl");
        Self {
            dir,
            kubectl,
            reader: std::sync::Mutex::new(reader::Reader::new()),
            hub: None,
        }
    }

    /// Where a control plane's kubeconfig is.
    #[must_use]
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.kubeconfig"))
    }

    /// A kubeconfig of the hub that holds nothing but a token of an account in `fleet-system`.
    ///
    /// # Panics
    /// When there is no such account.
    #[must_use]
    pub fn account(&self, name: &str) -> PathBuf {
        let token = self.kubectl("hub", &format!("create token {name} -n fleet-system"));
        let admin = std::fs::read_to_string(self.kubeconfig("hub")).expect("it was written");
        let mut config: serde_json::Value = yaml_serde::from_str(&admin).expect("it is YAML");
        config["users"][0]["user"] = serde_json::json!({ "token": token.trim() });
        let path = self.kubeconfig(&format!("hub-{name}"));
        std::fs::write(&path, config.to_string()).expect("it can be written");
        path
    }

    /// The kubeconfig that hubs run with: the account of `deploy/base`, which has no more rights than there,
    /// so that a missing one shows in every suite.
    ///
    /// # Panics
    /// When the manifests can't be applied.
    #[must_use]
    pub fn hub_kubeconfig(&self) -> PathBuf {
        let path = self.kubeconfig("hub-windlass");
        if path.exists() {
            return path;
        }
        let folder = root().join("deploy/base");
        self.kubectl(
            "hub",
            &format!("apply --server-side -k {}", folder.display()),
        );
        self.account("windlass")
    }

    /// A search path with the binary and this fleet's kubectl.
    ///
    /// # Panics
    /// When they are nowhere.
    #[must_use]
    pub fn path(&self) -> String {
        let folders = [binary(), self.kubectl.clone()].map(|program| {
            let folder = program.parent().expect("a program lies in a folder");
            folder.display().to_string()
        });
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{rest}", folders.join(":"))
    }

    /// Runs kubectl against a control plane; its output, or what it says went wrong.
    ///
    /// # Errors
    /// What kubectl printed.
    ///
    /// # Panics
    /// When kubectl can't be run.
    pub fn try_kubectl(
        &self,
        name: &str,
        args: &str,
        input: Option<&str>,
    ) -> Result<String, String> {
        run(self.command(name, args), input)
    }

    fn command(&self, name: &str, args: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig(name))
            .args(args.split_whitespace());
        command
    }

    /// As [`Self::try_kubectl`], when it has to succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn kubectl(&self, name: &str, args: &str) -> String {
        self.try_kubectl(name, args, None)
            .unwrap_or_else(|error| panic!("kubectl {args} on {name}: {error}"))
    }

    /// Applies manifests.
    ///
    /// # Panics
    /// When they are refused.
    pub fn apply(&self, name: &str, manifests: &str) {
        self.try_kubectl(name, "apply --server-side -f -", Some(manifests))
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs the binary; its output, or what it says went wrong.
    ///
    /// # Errors
    /// What it printed.
    pub fn windlass(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(binary());
        command.args(args);
        run(command, None)
    }

    /// Joins a member of the same name.
    ///
    /// # Panics
    /// When it can't join.
    pub fn join(&self, name: &str) {
        self.join_with(name, &[]);
    }

    /// As [`Self::join`], with further arguments.
    ///
    /// # Panics
    /// When it can't join.
    pub fn join_with(&self, name: &str, args: &[&str]) {
        let (hub, member) = (self.kubeconfig("hub"), self.kubeconfig(name));
        let (hub, member) = (hub.to_string_lossy(), member.to_string_lossy());
        let mut all = vec![
            "join",
            name,
            "--hub-kubeconfig",
            &hub,
            "--member-kubeconfig",
            &member,
        ];
        all.extend(args);
        self.windlass(&all)
            .unwrap_or_else(|error| panic!("join {name}: {error}"));
    }

    /// Has a member leave the fleet; what is said about that.
    ///
    /// # Errors
    /// What `windlass leave` says went wrong.
    pub fn leave(&self, name: &str, args: &[&str]) -> Result<String, String> {
        let hub = self.kubeconfig("hub");
        let mut all = vec!["leave", name, "--hub-kubeconfig"];
        let hub = hub.to_string_lossy();
        all.push(&hub);
        all.extend(args);
        self.windlass(&all)
    }

    /// Starts a hub process with further flags, and waits for nothing.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn spawn_hub(&self, flags: &[&str]) -> HubProcess {
        self.spawn_hub_with(&self.hub_kubeconfig(), flags, &[])
    }

    /// As [`Self::spawn_hub`], with somebody else's kubeconfig, and variables in its environment.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn spawn_hub_with(
        &self,
        kubeconfig: &Path,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> HubProcess {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("hub.log"));
        let child = Command::new(binary())
            .args(["hub", "--kubeconfig", &kubeconfig.to_string_lossy()])
            .args(["--metrics-bind-address", &format!("127.0.0.1:{port}")])
            .args(["--cluster-unhealthy-threshold", "10"])
            .args(flags)
            .envs(variables.iter().copied())
            .stderr(log.expect("the log can be written"))
            .spawn()
            .expect("the hub starts");
        HubProcess { child, port }
    }

    /// Starts the hub and waits until it is ready and leads.
    ///
    /// # Panics
    /// When that does not come about.
    pub fn start_hub(&mut self) {
        self.start_hub_with(&[]);
    }

    /// As [`Self::start_hub`], with further flags.
    ///
    /// # Panics
    /// When that does not come about.
    pub fn start_hub_with(&mut self, flags: &[&str]) {
        self.start_hub_as(&self.hub_kubeconfig(), flags);
    }

    /// As [`Self::start_hub`], with somebody else's kubeconfig and further flags.
    ///
    /// # Panics
    /// When that does not come about.
    pub fn start_hub_as(&mut self, kubeconfig: &Path, flags: &[&str]) {
        self.start_hub_in(kubeconfig, flags, &[]);
    }

    /// As [`Self::start_hub_as`], with variables in its environment.
    ///
    /// # Panics
    /// When that does not come about.
    pub fn start_hub_in(&mut self, kubeconfig: &Path, flags: &[&str], variables: &[(&str, &str)]) {
        let hub = self.spawn_hub_with(kubeconfig, flags, variables);
        eventually("the hub is ready and leads", || {
            hub.is_ready() && hub.leads()
        });
        self.hub = Some(hub);
    }

    /// The certificate that the hub's API server serves with, for another server on a loopback address.
    #[must_use]
    pub fn tls(&self) -> charts::Tls {
        let of = |name: &str| self.dir.join("data/hub").join(name);
        charts::Tls {
            certificate: of("serving.crt"),
            key: of("serving.key"),
            authority: of("ca.crt"),
        }
    }

    /// What the hub has logged so far, over all its processes.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("hub.log")).unwrap_or_default()
    }

    /// Ends the hub with SIGKILL. Its lease goes too, so that suites need not wait for the end of it after
    /// each restart; `replicas.rs` is about that wait.
    pub fn kill_hub(&mut self) {
        if let Some(hub) = self.hub.take() {
            drop(hub);
            let lease = "delete lease windlass-hub -n fleet-system --ignore-not-found";
            drop(self.try_kubectl("hub", lease, None));
        }
    }

    /// Tells the hub to end, and goes on with another one that stands by, as soon as that leads.
    ///
    /// # Panics
    /// When it does not come to lead.
    pub fn hand_over(&mut self, other: HubProcess) {
        if let Some(hub) = &self.hub {
            hub.signal("TERM");
        }
        eventually("the other one leads", || other.leads());
        self.hub = Some(other);
    }

    /// The hub's process id, while it runs.
    #[must_use]
    pub fn hub_pid(&self) -> Option<u32> {
        self.hub.as_ref().map(|hub| hub.child.id())
    }

    /// Fetches a page of the hub's.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn http(&self, path: &str) -> std::io::Result<String> {
        match &self.hub {
            Some(hub) => hub.http(path),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Mutating requests that the hub has sent so far; see [`HubProcess::writes`].
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        self.hub
            .as_ref()
            .map(HubProcess::writes)
            .unwrap_or_default()
    }

    /// Mutating requests that a control plane has served for what hubs write, by its own count: the fleet's
    /// kinds, and those that suites place. Statuses of member clusters are left out, for they hold the
    /// heartbeats; so is what a cluster's own controllers write.
    ///
    /// # Panics
    /// When the control plane does not tell.
    #[must_use]
    pub fn served_writes(&self, name: &str) -> Vec<String> {
        let text = self.kubectl(name, "get --raw /metrics");
        let label = |line: &str, key: &str| -> String {
            let value = line.split_once(&format!("{key}=\""));
            let value = value.and_then(|(_, rest)| rest.split_once('"'));
            value.map_or(String::new(), |(value, _)| value.to_owned())
        };
        let counts = |line: &str| {
            let (group, resource) = (label(line, ",group"), label(line, ",resource"));
            let subresource = label(line, "subresource");
            let write =
                ["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&label(line, "verb").as_str());
            let placed = [
                "namespaces",
                "configmaps",
                "services",
                "deployments",
                "secrets",
            ]
            .contains(&resource.as_str())
                && subresource.is_empty();
            let heartbeat = resource == "memberclusters" && subresource == "status";
            write && !heartbeat && (placed || group.ends_with("kubernetes-fleet.io"))
        };
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && counts(line))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    }

    /// Waits until the hub has sent no mutating request for a while, and tells which it has sent so far.
    /// What `counts` leaves out is not looked at.
    ///
    /// # Panics
    /// When it goes on writing for a minute.
    #[must_use]
    pub fn settled(&self, counts: impl Fn(&str) -> bool) -> Vec<String> {
        let writes = || -> Vec<String> {
            let all = self.writes();
            all.into_iter().filter(|line| counts(line)).collect()
        };
        let mut seen = (writes(), Instant::now());
        eventually("the hub is at rest", || {
            let now = writes();
            if now != seen.0 {
                seen = (now, Instant::now());
            }
            seen.1.elapsed() >= QUIET
        });
        seen.0
    }

    /// What kubectl reads, empty when there is no such object, kind or entry. Who waits and gets no answer asks
    /// again.
    fn get_by_kubectl(&self, name: &str, what: &str, path: &str) -> String {
        let mut command = self.command(name, &format!("get {what}"));
        command.arg("-o").arg(format!("jsonpath={path}"));
        run(command, None).unwrap_or_else(|error| {
            if !NOTHING_THERE.iter().any(|words| error.contains(words)) {
                waiting::unanswered(&format!("kubectl get {what} on {name}: {error}"));
            }
            String::new()
        })
    }

    /// Stops or starts an API server of the fleet.
    ///
    /// # Panics
    /// When that fails.
    pub fn control(&self, command: &str, name: &str) {
        let out = Command::new(root().join("hack/fleet"))
            .arg(command)
            .arg(&self.dir)
            .arg(name)
            .output();
        let out = out.expect("hack/fleet runs");
        assert!(
            out.status.success(),
            "{command} {name}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.hub = None;
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "last lines of the hub's log:\n{}",
                lines[lines.len().saturating_sub(30)..].join("\n")
            );
            for what in ["crp", "crb", "cluster"] {
                eprintln!("{}", self.get("hub", what, "{.items[*].status}"));
            }
        }
        drop(
            Command::new(root().join("hack/fleet"))
                .arg("down")
                .arg(&self.dir)
                .output(),
        );
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WINDLASS_BINARY") {
        return path.into();
    }
    // Tests lie in target/PROFILE/deps, examples beside; the binary is one folder up.
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop();
    path.pop();
    path.join("windlass")
}

fn run(mut command: Command, input: Option<&str>) -> Result<String, String> {
    use std::io::Write;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.unwrap_or_default().as_bytes())
            .map_err(|error| error.to_string())?;
    }
    let out = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        Ok(text)
    } else {
        Err(format!("{text}{}", String::from_utf8_lossy(&out.stderr)))
    }
}

/// A field of a placement's condition; its type without the prefix that all of them have.
#[must_use]
pub fn condition(fleet: &Fleet, placement: &str, type_: &str, field: &str) -> String {
    let path =
        format!("{{.status.conditions[?(@.type==\"ClusterResourcePlacement{type_}\")].{field}}}");
    fleet.get("hub", &format!("crp {placement}"), &path)
}
