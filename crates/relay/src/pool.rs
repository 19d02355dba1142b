//! What is behind the session's buffer ids.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use drover_session::BufferId;

use crate::chunk::Chunk;
use crate::pipes::Pipes;
use crate::report::DataPath;

/// One chunk per id, made when it is first used and used again afterwards.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Vec<Mutex<Option<Arc<Chunk>>>>,
    /// Where the chunks' pipes come from, or that they are in memory.
    pipes: Result<Pipes, DataPath>,
}

impl Pool {
    /// `in_pipes`: the chunks are in pipes, if that is possible here, and have so many bytes at most;
    /// or why they are not to be.
    pub(crate) fn new(count: usize, in_pipes: Result<u32, &str>) -> Self {
        let copy = |why, fallback| DataPath::Copy { why, fallback };
        let pipes = match in_pipes {
            Ok(chunk_bytes) => Pipes::new(chunk_bytes).map_err(|why| copy(why, true)),
            Err(why) => Err(copy(why.to_owned(), false)),
        };
        Self {
            slots: (0..count).map(|_| Mutex::new(None)).collect(),
            pipes,
        }
    }

    /// Where pipes come from, if chunks are in pipes.
    pub(crate) fn pipes(&self) -> Option<&Pipes> {
        self.pipes.as_ref().ok()
    }

    /// `reduced`: some bytes are.
    pub(crate) fn data_path(&self, reduced: bool) -> DataPath {
        match &self.pipes {
            Ok(pipes) => pipes.data_path(reduced),
            Err(copy) => copy.clone(),
        }
    }

    fn slot(&self, id: BufferId) -> Option<&Mutex<Option<Arc<Chunk>>>> {
        self.slots.get(id.0 as usize)
    }

    /// The chunk as it is, to read from; it stays so for as long as somebody holds it. `None` while
    /// it is being filled anew, or was never filled.
    pub(crate) fn share(&self, id: BufferId) -> Option<Arc<Chunk>> {
        lock(self.slot(id)?).clone()
    }

    /// Fills the chunk by `fill`. A lane that still sends its last content, resent and confirmed
    /// meanwhile, keeps that, and the id gets another chunk. After an error nobody knows what is in
    /// the chunk, so it is thrown away.
    pub(crate) fn fill<T>(
        &self,
        id: BufferId,
        fill: impl FnOnce(&mut Chunk) -> io::Result<T>,
    ) -> io::Result<T> {
        let held = self.slot(id).and_then(|slot| lock(slot).take());
        let mut chunk = held
            .and_then(|held| self.cleared(held))
            .unwrap_or_else(|| self.make());
        let result = fill(&mut chunk)?;
        self.put(id, chunk);
        Ok(result)
    }

    /// Takes the bytes out of a chunk by `take`; `None` when it has none.
    pub(crate) fn empty<T>(&self, id: BufferId, take: impl FnOnce(&mut Chunk) -> T) -> Option<T> {
        let held = lock(self.slot(id)?).take()?;
        let mut chunk = Arc::into_inner(held)?;
        let result = take(&mut chunk);
        self.put(id, chunk);
        Some(result)
    }

    /// The chunk to be filled again, unless somebody still reads it.
    fn cleared(&self, held: Arc<Chunk>) -> Option<Chunk> {
        let mut chunk = Arc::into_inner(held)?;
        if let Some(pipes) = self.pipes() {
            chunk.clear(pipes.nowhere()).ok()?;
        }
        Some(chunk)
    }

    fn make(&self) -> Chunk {
        Chunk::new(self.pipes().and_then(Pipes::make))
    }

    fn put(&self, id: BufferId, chunk: Chunk) {
        if let Some(slot) = self.slot(id) {
            *lock(slot) = Some(Arc::new(chunk));
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
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use drover_lanes::Patience;

    use super::*;

    fn pools() -> [Pool; 2] {
        [Pool::new(1, Err("unwanted")), Pool::new(1, Ok(4096))]
    }

    fn fill(pool: &Pool, content: &[u8]) {
        let (mut from, to) = UnixStream::pair().unwrap();
        from.write_all(content).unwrap();
        let count = pool.fill(BufferId(0), |chunk| chunk.take_from(&to, 4096));
        assert_eq!(count.unwrap(), content.len());
    }

    #[test]
    fn a_reader_keeps_what_it_reads_while_the_chunk_is_filled_anew() {
        for pool in pools() {
            fill(&pool, b"abcd");
            let reading = pool.share(BufferId(0)).unwrap();
            fill(&pool, b"efg");
            assert_eq!(reading.bytes(), b"abcd");
            assert_eq!(pool.share(BufferId(0)).unwrap().bytes(), b"efg");
        }
    }

    #[test]
    fn a_chunk_that_was_not_emptied_has_only_its_new_bytes_when_it_is_filled_again() {
        for pool in pools() {
            fill(&pool, b"abcd");
            fill(&pool, b"efg");
            let (to, mut from) = UnixStream::pair().unwrap();
            pool.empty(BufferId(0), |chunk| chunk.give_to(&to, Patience::Wait))
                .unwrap()
                .unwrap();
            drop(to);
            let mut seen = Vec::new();
            std::io::Read::read_to_end(&mut from, &mut seen).unwrap();
            assert_eq!(seen, b"efg");
        }
    }

    #[test]
    fn what_a_failed_fill_left_behind_is_never_seen() {
        for pool in pools() {
            let failed = pool.fill(BufferId(0), |chunk| {
                let (mut from, to) = UnixStream::pair().unwrap();
                from.write_all(b"half").unwrap();
                chunk.take_from(&to, 4096)?;
                Err::<(), _>(io::ErrorKind::ConnectionReset.into())
            });
            assert!(failed.is_err() && pool.share(BufferId(0)).is_none());
            fill(&pool, b"whole");
            assert_eq!(pool.share(BufferId(0)).unwrap().bytes(), b"whole");
        }
    }

    #[test]
    fn a_chunk_that_was_never_filled_has_no_bytes() {
        for pool in pools() {
            assert!(pool.share(BufferId(0)).is_none() && pool.share(BufferId(7)).is_none());
        }
    }
}
