//! One channel at the destination: chunks become what QEMU sent.

use std::time::Duration;

use drover_reduce::{Decoder, Wrong};
use serde::{Deserialize, Serialize};

use super::courtesy::with_less_priority;
use super::deciding::Stopwatch;
use super::stored::Tap;
use super::{End, Shared};
use crate::pool::lock;

/// What became of what arrived, at the end that writes it to QEMU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expanded {
    /// Chunks that were reduced.
    pub chunks: u64,
    /// Bytes that QEMU got.
    pub raw: u64,
    /// Bytes that arrived for them, headers of frames not counted.
    pub wire: u64,
    /// Of them, bytes that were carried as they are.
    pub passed: u64,
    /// Where the time went of the threads that write channels.
    pub times: ExpandTimes,
}

/// Where the time went of the threads that write channels, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpandTimes {
    /// Through the codecs; of processors, as all but the last two.
    pub unpacking: Duration,
    /// Read stored pages.
    pub fetching: Duration,
    /// Put together what a chunk stands for.
    pub expanding: Duration,
    /// Compared its checksum.
    pub checking: Duration,
    /// Handed pages on that are to be stored, and found those that are recorded.
    pub storing: Duration,
    /// Waited for a processor, for each other or for a disk, with work to do.
    pub for_processors: Duration,
    /// Waited for QEMU, and gave it its bytes.
    pub for_qemu: Duration,
}

impl std::ops::AddAssign for ExpandTimes {
    fn add_assign(&mut self, other: Self) {
        self.unpacking += other.unpacking;
        self.fetching += other.fetching;
        self.expanding += other.expanding;
        self.checking += other.checking;
        self.storing += other.storing;
        self.for_processors += other.for_processors;
        self.for_qemu += other.for_qemu;
    }
}

impl std::ops::AddAssign for Expanded {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.raw += other.raw;
        self.wire += other.wire;
        self.passed += other.passed;
        self.times += other.times;
    }
}

/// Writes one channel.
#[derive(Debug)]
pub(crate) struct Expander {
    decoder: Decoder,
    raw: Vec<u8>,
    /// Nothing once bytes were missed.
    tap: Option<Tap>,
    watch: Stopwatch,
    /// Since it was last told.
    done: Expanded,
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
            watch: Stopwatch::started(),
            done: Expanded::default(),
        }
    }

    /// Has the channel's next bytes recorded, where that is wanted.
    pub(crate) fn record(&mut self, shared: &Shared, raw: &[u8]) {
        if let Some((tap, recording)) = self.tap.as_mut().zip(shared.recording()) {
            self.watch.lap();
            tap.see(raw, recording);
            self.done.times.storing += self.watch.lap().worked;
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
        let Self {
            decoder,
            raw,
            watch,
            done,
            ..
        } = self;
        // What it waited for until now was this chunk.
        watch.lap();
        with_less_priority(|| {
            let times = &mut done.times;
            let mut worked = |what: fn(&mut ExpandTimes) -> &mut Duration| {
                let lap = watch.lap();
                *what(times) += lap.worked;
                times.for_processors += lap.lasted.saturating_sub(lap.worked);
            };
            let unpacked = decoder.unpack(chunk)?;
            worked(|times| &mut times.unpacking);
            let fetched = unpacked.fetch(&store.reading())?;
            worked(|times| &mut times.fetching);
            let expanded = fetched.expand(&mut lock(kept), raw)?;
            worked(|times| &mut times.expanding);
            let checked = expanded.check()?;
            worked(|times| &mut times.checking);
            if let Some(filling) = shared.filling() {
                filling.offer(checked.raw, &checked.crossed);
                worked(|times| &mut times.storing);
            }
            Ok(())
        })
    }

    /// Puts the bytes of the last chunk there, in exchange for memory.
    pub(crate) fn give(&mut self, to: &mut Vec<u8>) {
        std::mem::swap(&mut self.raw, to);
    }

    /// A chunk was written to QEMU: so many bytes for so many that arrived, which is told.
    pub(crate) fn gave(&mut self, shared: &Shared, raw: u64, wire: u64, reduced: bool) {
        let mut done = std::mem::take(&mut self.done);
        done.raw = raw;
        done.wire = wire;
        if reduced {
            done.chunks = 1;
            done.times.for_qemu += self.watch.lap().lasted;
        } else {
            done.passed = wire;
        }
        shared.expanded(&done);
    }
}
