//! The memory behind the session's buffer ids.

use std::sync::{Arc, Mutex, PoisonError};

use drover_session::BufferId;

/// One buffer per id, made when it is first used and used again afterwards.
#[derive(Debug)]
pub(crate) struct Pool {
    bytes: usize,
    slots: Vec<Mutex<Option<Arc<Vec<u8>>>>>,
}

impl Pool {
    pub(crate) fn new(bytes: usize, count: usize) -> Self {
        Self {
            bytes,
            slots: (0..count).map(|_| Mutex::new(None)).collect(),
        }
    }

    fn slot(&self, id: BufferId) -> Option<&Mutex<Option<Arc<Vec<u8>>>>> {
        self.slots.get(id.0 as usize)
    }

    /// The buffer's bytes as they are, to read from; `None` while it is being filled anew, or was
    /// never filled.
    pub(crate) fn share(&self, id: BufferId) -> Option<Arc<Vec<u8>>> {
        lock(self.slot(id)?).clone()
    }

    /// Fills the buffer by `fill`. A lane that still sends the buffer's last content, resent and
    /// confirmed meanwhile, keeps that; the buffer then gets new memory.
    pub(crate) fn fill<T>(&self, id: BufferId, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut held = self.slot(id).and_then(|slot| lock(slot).take());
        if let Some(bytes) = held.as_mut().and_then(Arc::get_mut) {
            let result = fill(bytes);
            self.put(id, held);
            return result;
        }
        let mut bytes = vec![0; self.bytes];
        let result = fill(&mut bytes);
        self.put(id, Some(Arc::new(bytes)));
        result
    }

    fn put(&self, id: BufferId, bytes: Option<Arc<Vec<u8>>>) {
        if let Some(slot) = self.slot(id) {
            *lock(slot) = bytes;
        }
    }
}

/// Locks, also after a thread panicked while it held the lock: what these locks guard is replaced
/// whole, never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_reads_it() {
        let pool = Pool::new(4, 1);
        pool.fill(BufferId(0), |bytes| bytes.copy_from_slice(b"abcd"));
        let first = pool.share(BufferId(0)).unwrap().as_ptr();
        pool.fill(BufferId(0), |bytes| bytes.copy_from_slice(b"efgh"));
        assert_eq!(pool.share(BufferId(0)).unwrap().as_ptr(), first);
    }

    #[test]
    fn a_reader_keeps_what_it_reads_while_the_buffer_is_filled_anew() {
        let pool = Pool::new(4, 1);
        pool.fill(BufferId(0), |bytes| bytes.copy_from_slice(b"abcd"));
        let reading = pool.share(BufferId(0)).unwrap();
        pool.fill(BufferId(0), |bytes| bytes.copy_from_slice(b"efgh"));
        assert_eq!(reading.as_slice(), b"abcd");
        assert_eq!(pool.share(BufferId(0)).unwrap().as_slice(), b"efgh");
    }

    #[test]
    fn a_buffer_that_was_never_filled_has_no_bytes() {
        let pool = Pool::new(4, 1);
        assert_eq!(pool.share(BufferId(0)), None);
        assert_eq!(pool.share(BufferId(7)), None);
    }
}
