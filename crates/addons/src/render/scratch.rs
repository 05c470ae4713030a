//! A private folder for one run of Helm.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_cluster::clock;

/// How often a name that is taken, or a folder in which something still appears, is tried again.
const TRIES: usize = 8;

/// A folder that nobody else may open, and that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `parent`.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..TRIES {
            let name = format!("windlass-render-{:016x}", clock::random());
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
