//! One channel at the destination: chunks become what QEMU sent.

use drover_reduce::{Decoder, Wrong};

use super::{End, Shared};
use crate::pool::lock;

/// Writes one channel.
#[derive(Debug)]
pub(crate) struct Expander {
    decoder: Decoder,
    raw: Vec<u8>,
}

impl Expander {
    /// Of chunks of at most so many bytes.
    pub(crate) fn new(shared: &Shared, chunk_bytes: u32) -> Self {
        Self {
            decoder: Decoder::new(chunk_bytes as usize, shared.agreed.window_log),
            raw: Vec::new(),
        }
    }

    /// Finds the bytes that a chunk stands for.
    pub(crate) fn expand(&mut self, shared: &Shared, chunk: &[u8]) -> Result<(), Wrong> {
        let End::Destination(kept, store) = &shared.end else {
            return Err(Wrong::Layout("it comes from the destination"));
        };
        let unpacked = self.decoder.unpack(chunk)?;
        let mut stored = store.reading();
        let expanded = unpacked.expand(&mut lock(kept), &mut stored, &mut self.raw)?;
        drop(stored);
        let checked = expanded.check()?;
        if let Some(filling) = shared.filling() {
            filling.offer(checked.raw, &checked.crossed);
        }
        Ok(())
    }

    /// Puts the bytes of the last chunk there, in exchange for memory.
    pub(crate) fn give(&mut self, to: &mut Vec<u8>) {
        std::mem::swap(&mut self.raw, to);
    }
}
