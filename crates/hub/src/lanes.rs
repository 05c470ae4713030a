//! How many bindings of one cluster are worked on at once, so that one that hangs holds up no other
//! cluster (design §2: fair, bounded concurrency).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_cluster::ObjectKey;

/// Bindings of one cluster at once. A worker that meets a full lane leaves its key there and goes on.
const WIDTH: usize = 4;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Lanes {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: Mutex<HashMap<String, Lane>>,
    /// Told a key whose turn has come.
    resume: Box<dyn Fn(ObjectKey) + Send + Sync>,
}

#[derive(Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<ObjectKey>,
}

/// A place in a lane; leaving it lets the next one in.
pub struct Place {
    inner: Arc<Inner>,
    cluster: String,
}

impl Lanes {
    /// All lanes are empty.
    #[must_use]
    pub fn new(resume: impl Fn(ObjectKey) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            lanes: Mutex::default(),
            resume: Box::new(resume),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A place for a key. None when the lane is full: the key is told to `resume` when it is its turn.
    #[must_use]
    pub fn enter(&self, cluster: &str, key: &ObjectKey) -> Option<Place> {
        let mut lanes = self
            .inner
            .lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(cluster.to_owned()).or_default();
        if lane.running >= WIDTH {
            if !lane.waiting.iter().any(|waiting| waiting == key) {
                lane.waiting.push_back(key.clone());
            }
            return None;
        }
        lane.running += 1;
        Some(Place {
            inner: Arc::clone(&self.inner),
            cluster: cluster.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut lanes = self
                .inner
                .lanes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let Some(lane) = lanes.get_mut(&self.cluster) else {
                return;
            };
            lane.running -= 1;
            let next = lane.waiting.pop_front();
            if lane.running == 0 && lane.waiting.is_empty() {
                lanes.remove(&self.cluster);
            }
            next
        };
        if let Some(key) = next {
            (self.inner.resume)(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_keeps_its_keys_and_lets_others_pass() {
        let key = |name: &str| ObjectKey::cluster(name);
        let resumed: Arc<Mutex<Vec<ObjectKey>>> = Arc::default();
        let told = Arc::clone(&resumed);
        let lanes = Lanes::new(move |key| told.lock().unwrap().push(key));
        let mut places: Vec<_> = (0..WIDTH)
            .map(|n| lanes.enter("slow", &key(&n.to_string())).unwrap())
            .collect();
        for name in ["x", "y", "x"] {
            assert!(lanes.enter("slow", &key(name)).is_none());
        }
        assert!(lanes.enter("other", &key("z")).is_some());
        assert!(resumed.lock().unwrap().is_empty());
        places.truncate(WIDTH - 2);
        assert_eq!(
            *resumed.lock().unwrap(),
            ["x", "y"].map(key),
            "each once, in order"
        );
        assert!(lanes.enter("slow", &key("x")).is_some());
        drop(places);
        assert!(
            lanes.inner.lanes.lock().unwrap().is_empty(),
            "nothing is kept of clusters at rest"
        );
    }
}
