//! Helm as a child process: no environment, and limits on time, memory and output.
//!
//! | limit | how | when it holds |
//! |---|---|---|
//! | time | we wait no longer, and kill its process group | from its start |
//! | memory | `GOMEMLIMIT`, at which Go works harder to free some; and RLIMIT_DATA, at which the kernel refuses more and Go gives up | the former from its start, the latter a moment later, for all that it asks for from then on |
//! | processor time | RLIMIT_CPU, at four times the limit on time | as RLIMIT_DATA; it ends a child that outlives the hub |
//! | output | we read no further, and kill its process group | always |

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::Limits;

/// How much of what it says on standard error is kept: the end, where Helm says what is wrong.
const STDERR_KEPT: usize = 64 * 1024;

/// What came of a child that has ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// Why a child did not end by itself.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It could not be started or limited, or not be listened to.
    Failed(io::Error),
    /// It took too long.
    Time,
    /// It said too much.
    Output,
}

/// Runs a program in `dir`, which is all that it knows of the machine. When this future is dropped, the
/// child and whatever it has started are killed.
pub(super) async fn run(
    program: &Path,
    arguments: &[OsString],
    dir: &Path,
    limits: &Limits,
) -> Result<Ended, Stopped> {
    let mut child = command(program, arguments, dir, limits)
        .spawn()
        .map_err(Stopped::Failed)?;
    // Dropped before the child is, whose process id can't be another's until somebody has waited for it.
    let group = Group::of(&child);
    if let Some(pid) = group.0 {
        limit(pid, limits).map_err(Stopped::Failed)?;
    }
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Stopped::Failed(io::ErrorKind::BrokenPipe.into()));
    };
    let work = async {
        let (stdout, stderr) = tokio::try_join!(all(out, limits.output), end(err))?;
        // Whoever closes both is at its end; what it has left behind goes, too.
        drop(group);
        let status = child.wait().await.map_err(Stopped::Failed)?;
        Ok(Ended {
            status,
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    };
    match tokio::time::timeout(limits.time, work).await {
        Ok(ended) => ended,
        Err(_) => Err(Stopped::Time),
    }
}

fn command(program: &Path, arguments: &[OsString], dir: &Path, limits: &Limits) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("TMPDIR", dir)
        .env("HELM_CACHE_HOME", dir.join("cache"))
        .env("HELM_CONFIG_HOME", dir.join("config"))
        .env("HELM_DATA_HOME", dir.join("data"))
        .env("HELM_PLUGINS", dir.join("plugins"))
        // What Go can't free is not all that it uses.
        .env("GOMEMLIMIT", (limits.memory / 8 * 7).to_string())
        .env("GOTRACEBACK", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

fn limit(pid: Pid, limits: &Limits) -> io::Result<()> {
    let seconds = limits.time.saturating_mul(4).max(Duration::from_secs(1));
    let both = [
        (Resource::Data, limits.memory),
        (Resource::Cpu, seconds.as_secs()),
    ];
    for (resource, most) in both {
        let rlimit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(Some(pid), resource, rlimit)?;
    }
    Ok(())
}

/// The processes that a child has started, itself included; killed when dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // An error means that there is nobody left.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

async fn all(mut from: impl AsyncRead + Unpin, most: usize) -> Result<Vec<u8>, Stopped> {
    let mut text = Vec::new();
    while from.read_buf(&mut text).await.map_err(Stopped::Failed)? > 0 {
        if text.len() > most {
            return Err(Stopped::Output);
        }
    }
    Ok(text)
}

async fn end(mut from: impl AsyncRead + Unpin) -> Result<Vec<u8>, Stopped> {
    let mut text = Vec::new();
    while from.read_buf(&mut text).await.map_err(Stopped::Failed)? > 0 {
        if text.len() > 2 * STDERR_KEPT {
            text.drain(..text.len() - STDERR_KEPT);
        }
    }
    text.drain(..text.len().saturating_sub(STDERR_KEPT));
    Ok(text)
}
