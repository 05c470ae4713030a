//! Overrides of which the present version has no snapshot yet, and why not.
//!
//! Where such a version would change something, nothing moves until it is stored; where the server refuses for
//! good to store it, the override counts as one that can't be worked in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_cluster::{ApiError, ObjectKey};

use super::kind::Kind;
use super::{Overrides, Version};

/// How many characters of the server's words are repeated: they may quote what somebody wrote.
const WORDS: usize = 300;

/// Why a version has no snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing is known to be wrong: it is about to be made.
    #[default]
    None,
    /// It could not be stored, which is tried again.
    ForNow(String),
    /// The server refuses to store it: somebody has to act.
    Refused(String),
}

impl Trouble {
    fn of(error: &ApiError) -> Self {
        let words = error.message().chars().take(WORDS).collect();
        match error {
            ApiError::Rejected(_) => Self::Refused(words),
            _ => Self::ForNow(words),
        }
    }
}

/// An override of which the present version has no snapshot yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The snapshot that is still to be made.
    pub version: Version,
    /// Why there is none.
    pub trouble: Trouble,
}

impl Pending {
    /// Kind and key of the override.
    #[must_use]
    pub fn of(&self) -> String {
        self.version.parent_text()
    }
}

/// What a person should know.
impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.of();
        match &self.trouble {
            Trouble::None => write!(f, "waits for the present version of {of} to be stored"),
            Trouble::ForNow(why) => write!(
                f,
                "waits for the present version of {of}, which can't be stored for now: {why}"
            ),
            Trouble::Refused(why) => write!(
                f,
                "the present version of {of} can't be stored, so that clusters which it would change stay as they are: {why}"
            ),
        }
    }
}

/// A snapshot that a binding names and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its key.
    pub key: ObjectKey,
    /// Why not, if that is known.
    pub why: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        write!(f, "override snapshot {key} does not exist")?;
        match &self.why {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// What was met when versions were to be stored. Clones share it. All of it may be lost: the next attempt
/// finds it again.
#[derive(Clone, Default)]
pub(super) struct Troubles(Arc<Mutex<HashMap<ObjectKey, Noted>>>);

#[derive(PartialEq, Eq)]
struct Noted {
    uid: Option<String>,
    generation: Option<i64>,
    trouble: Trouble,
}

impl Noted {
    fn of<K: Kind>(of: &K, trouble: Trouble) -> Self {
        Self {
            uid: of.meta().uid.clone(),
            generation: of.meta().generation,
            trouble,
        }
    }
}

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overrides {
    /// Nothing is wrong with an override any more, or there is none.
    pub(super) fn no_trouble(&self, key: &ObjectKey) {
        self.troubles.lock().remove(key);
    }

    /// Notes that this version could not be stored. Whether that is news.
    pub(super) fn note_trouble<K: Kind>(&self, of: &K, error: &ApiError) -> bool {
        let noted = Noted::of(of, Trouble::of(error));
        let mut known = self.troubles.lock();
        let key = ObjectKey::of(of);
        let is_news = known.get(&key) != Some(&noted);
        known.insert(key, noted);
        is_news
    }

    /// Why this version has no snapshot. What was met with another one says nothing of it.
    pub(super) fn trouble_with<K: Kind>(&self, of: &K) -> Trouble {
        let known = self.troubles.lock();
        let noted = known.get(&ObjectKey::of(of));
        let same = noted.filter(|noted| **noted == Noted::of(of, noted.trouble.clone()));
        same.map(|noted| noted.trouble.clone()).unwrap_or_default()
    }

    /// A snapshot that is not there.
    pub(super) fn missing(&self, key: ObjectKey) -> Missing {
        let pending = self.due(&key);
        Missing {
            why: pending.map(|pending| pending.to_string()),
            key,
        }
    }
}
