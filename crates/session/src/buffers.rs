//! Which buffers are free.

use crate::BufferId;

/// Hands out buffer ids; the last one given back is the first one used again, as its memory is
/// still in the cache.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<BufferId>,
    made: u32,
}

impl Buffers {
    pub(crate) fn take(&mut self) -> BufferId {
        self.free.pop().unwrap_or_else(|| {
            let id = BufferId(self.made);
            self.made += 1;
            id
        })
    }

    pub(crate) fn give(&mut self, id: BufferId) {
        debug_assert!(
            !self.free.contains(&id),
            "buffer {id:?} was given back twice"
        );
        self.free.push(id);
    }

    /// Buffers that were ever needed at once.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// Buffers that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}
