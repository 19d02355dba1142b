//! How many may stand at the door at once: in all, and from one address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places for connections, with a share for each key.
#[derive(Debug)]
pub struct Doors<K: Eq + Hash + Clone> {
    taken: Mutex<HashMap<K, usize>>,
    most: usize,
    share: usize,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub struct Place<K: Eq + Hash + Clone> {
    doors: Arc<Doors<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Doors<K> {
    /// So many places, and so many of them for one key.
    pub fn new(most: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            most,
            share,
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one.
    pub fn enter(self: &Arc<Self>, key: K) -> Option<Place<K>> {
        let mut taken = self.taken();
        if taken.values().sum::<usize>() >= self.most {
            return None;
        }
        let own = taken.entry(key.clone()).or_default();
        if *own >= self.share {
            return None;
        }
        *own += 1;
        drop(taken);
        Some(Place {
            doors: Arc::clone(self),
            key,
        })
    }
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.doors.taken();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cannot_take_the_places_of_all() {
        let doors = Doors::new(3, 2);
        let first = doors.enter("a").unwrap();
        let _second = doors.enter("a").unwrap();
        assert!(doors.enter("a").is_none(), "its share is taken");
        let _third = doors.enter("b").unwrap();
        assert!(doors.enter("c").is_none(), "every place is taken");
        drop(first);
        assert!(doors.enter("c").is_some());
        assert_eq!(doors.taken().len(), 2, "nobody is remembered who is gone");
    }
}
