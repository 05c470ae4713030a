//! A private folder for one run of Helm.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use windlass_cluster::clock;

/// How often a name that is taken, or a folder in which something still appears, is tried again.
const TRIES: usize = 8;

/// What the names of the folders begin with.
const PREFIX: &str = "windlass-render-";
/// No run of Helm takes so long.
const OLD: SignedDuration = SignedDuration::from_mins(5);

/// Removes folders that a killed hub has left behind: ours alone, and none that another hub may be working in.
pub(super) fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let is_named = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        // Not that of what a link leads to.
        let is_old = entry.metadata().is_ok_and(|meta| {
            let at = meta.modified().ok();
            let at = at.and_then(|at| Timestamp::try_from(at).ok());
            meta.is_dir() && at.is_some_and(|at| clock::now().duration_since(at) > OLD)
        });
        // Somebody else's can't be removed, and is not ours to remove.
        if is_named && is_old && fs::remove_dir_all(entry.path()).is_ok() {
            tracing::info!(folder = %entry.path().display(), "a folder that a killed hub has left behind is removed");
        }
    }
}

/// A folder that nobody else may open, and that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `parent`.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..TRIES {
            let name = format!("{PREFIX}{:016x}", clock::random());
            let dir = parent.join(name);
            // Never one that is there already: it may be somebody else's.
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path)?.write_all(content)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A process that has just been killed may yet finish the write that it was in.
        for _ in 0..TRIES {
            match fs::remove_dir_all(&self.0) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::NotFound => return,
                Err(_) => {}
            }
        }
        tracing::warn!(folder = %self.0.display(), "a folder that Helm was run in could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_old_folders_of_ours_are_swept() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let old = fs::FileTimes::new()
            .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let made = |name: &str, aged: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("chart.tgz"), "x").unwrap();
            if aged {
                fs::File::open(&path).unwrap().set_times(old).unwrap();
            }
            path
        };
        for (name, aged, stays) in [
            ("windlass-render-0123", true, false),
            ("windlass-render-4567", false, true),
            ("somebody-else", true, true),
        ] {
            let path = made(name, aged);
            sweep(parent.path());
            assert_eq!(path.exists(), stays, "{name}");
        }
    }
}
