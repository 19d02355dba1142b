//! One channel at the source: what QEMU sends is read, and becomes fewer bytes.

use std::io;
use std::os::unix::net::UnixStream;

use drover_lanes::read_some;
use drover_qstream::{Channel, Kind, Opaque};
use drover_reduce::Encoder;
use drover_reduce::limits::raw_bytes_most;
use drover_session::ChannelId;

use super::pages::Pages;
use super::{End, Shared};
use crate::chunk::Chunk;
use crate::pool::lock;
use crate::shared::Reading;

/// Chunks of fewer bytes go as they are: what they would save is less than their frame.
const WORTHWHILE_BYTES: usize = 512;

/// What a channel's thread read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes in the chunk; none when QEMU sends nothing more.
    pub(crate) length: usize,
    /// They stand for what was read.
    pub(crate) reduced: bool,
}

impl Taken {
    pub(crate) const NOTHING: Self = Self {
        length: 0,
        reduced: false,
    };
}

/// Reads one channel.
#[derive(Debug)]
pub(crate) struct Reducer {
    id: ChannelId,
    channel: Channel,
    pages: Pages,
    encoder: Encoder,
    /// That pages are no longer found was told.
    told: bool,
    /// Read, and not yet in a chunk: the beginning of a page at the most, between two chunks.
    staged: Vec<u8>,
    /// Where in the channel that begins.
    begins: u64,
    page_bytes: usize,
}

impl Reducer {
    pub(crate) fn new(shared: &Shared, channel: ChannelId) -> Self {
        let agreed = &shared.agreed;
        let page_bytes = agreed.page_bytes as usize;
        Self {
            id: channel,
            channel: Channel::new(agreed.page_bytes),
            pages: Pages::default(),
            encoder: Encoder::new(channel, page_bytes, agreed.window_log),
            told: false,
            staged: Vec::new(),
            begins: 0,
            page_bytes,
        }
    }

    /// Fills the chunk with what QEMU has sent, and waits for the first of it.
    pub(crate) fn take(
        &mut self,
        shared: &Shared,
        from: &UnixStream,
        reading: &Reading,
        chunk: &mut Chunk,
    ) -> io::Result<Taken> {
        let most = raw_bytes_most(reading.most as usize, self.page_bytes).max(self.page_bytes);
        let whole = self.read(from, most)?;
        self.tell_when_opaque(shared);
        let raw_end = self.begins + whole as u64;
        let spans = self.pages.spans(self.begins..raw_end);
        let raw = &self.staged[..whole];
        let reduced = whole >= WORTHWHILE_BYTES && self.is_worthwhile();
        let bytes = chunk.memory_to_fill();
        if reduced && let End::Source(kept) = &shared.end {
            let method = &shared.agreed.method;
            self.encoder.describe(
                reading.sequence,
                raw,
                &spans,
                &mut lock(kept),
                method.measures,
            );
            let packed = self.encoder.pack(raw, method.choice, bytes);
            shared.count(packed.map_err(io::Error::other)?);
        } else {
            bytes.clear();
            bytes.extend_from_slice(raw);
        }
        let length = bytes.len();
        chunk.filled();
        self.staged.drain(..whole);
        self.begins = raw_end;
        Ok(Taken { length, reduced })
    }

    /// Reads until there is something that does not end in the middle of a page; how much of it, none where QEMU sends
    /// nothing more.
    fn read(&mut self, from: &UnixStream, most: usize) -> io::Result<usize> {
        loop {
            let held = self.staged.len();
            self.staged.resize(most.max(held + 1), 0);
            let read = read_some(from, &mut self.staged[held..]);
            let count = *read.as_ref().unwrap_or(&0);
            self.staged.truncate(held + count);
            read?;
            if count == 0 {
                return Ok(held);
            }
            let pages = &mut self.pages;
            self.channel
                .feed(&self.staged[held..], &mut |packet| pages.add(packet));
            let whole = self.pages.whole(self.channel.passed()) - self.begins;
            if whole > 0 {
                return Ok(whole as usize);
            }
        }
    }

    fn tell_when_opaque(&mut self, shared: &Shared) {
        if let Kind::Opaque { from, why } = self.channel.kind()
            && why != Opaque::Main
            && !std::mem::replace(&mut self.told, true)
        {
            shared.opaque(self.id, format!("from byte {from}: {why}"));
        }
    }

    /// Not what QEMU has compressed by itself.
    fn is_worthwhile(&self) -> bool {
        !matches!(
            self.channel.kind(),
            Kind::Opaque {
                why: Opaque::Compressed(_),
                ..
            }
        )
    }
}
