//! One channel at the destination: chunks become what QEMU sent.

use drover_reduce::{Decoder, Wrong};

use super::stored::Tap;
use super::{End, Shared};
use crate::pool::lock;

/// Writes one channel.
#[derive(Debug)]
pub(crate) struct Expander {
    decoder: Decoder,
    raw: Vec<u8>,
    /// Nothing once bytes were missed.
    tap: Option<Tap>,
}

impl Expander {
    /// Of chunks of at most so many bytes.
    pub(crate) fn new(shared: &Shared, chunk_bytes: u32) -> Self {
        let agreed = &shared.agreed;
        let (raw_most, page_bytes) = (chunk_bytes as usize, agreed.page_bytes as usize);
        Self {
            decoder: Decoder::new(raw_most, page_bytes, agreed.window_log),
            raw: Vec::new(),
            tap: Some(Tap::new(agreed.page_bytes)),
        }
    }

    /// Has the channel's next bytes recorded, where that is wanted.
    pub(crate) fn record(&mut self, shared: &Shared, raw: &[u8]) {
        if let Some((tap, recording)) = self.tap.as_mut().zip(shared.recording()) {
            tap.see(raw, recording);
        }
    }

    /// The channel's next bytes are not seen, so that nobody can tell what comes behind them.
    pub(crate) fn record_no_more(&mut self) {
        self.tap = None;
    }

    /// Finds the bytes that a chunk stands for.
    pub(crate) fn expand(&mut self, shared: &Shared, chunk: &[u8]) -> Result<(), Wrong> {
        let End::Destination(kept, store) = &shared.end else {
            return Err(Wrong::Layout("it comes from the destination"));
        };
        let unpacked = self.decoder.unpack(chunk)?;
        let fetched = unpacked.fetch(&store.reading())?;
        let expanded = fetched.expand(&mut lock(kept), &mut self.raw)?;
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
