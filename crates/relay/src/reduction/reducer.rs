//! One channel at the source: what QEMU sends is read, and becomes fewer bytes.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_lanes::read_some;
use drover_qstream::{Channel, Kind, Opaque};
use drover_reduce::decide::{Times, Tried, Way};
use drover_reduce::kept::source::Kept;
use drover_reduce::limits::raw_bytes_most;
use drover_reduce::{Choice, Class, Codec, Counts, Encoder, PackingTook, Sampler, Span, Told};
use drover_session::ChannelId;

use super::courtesy::with_less_priority;
use super::deciding::{Done, Stopwatch, worked};
use super::glance::Glance;
use super::pages::Pages;
use super::stored::Filling;
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
    /// Read into.
    staged: Vec<u8>,
    /// What of it was read, and is not yet in a chunk: the beginning of a page at the most, between two chunks.
    held: usize,
    /// Where in the channel that begins.
    begins: u64,
    page_bytes: usize,
    /// Where bytes may stay in the kernel.
    glance: Option<Glance>,
    watch: Stopwatch,
    times: Times,
}

impl Reducer {
    /// `glance` where its bytes may stay in the kernel.
    pub(crate) fn new(shared: &Shared, channel: ChannelId, glance: Option<Glance>) -> Self {
        let agreed = &shared.agreed;
        let page_bytes = agreed.page_bytes as usize;
        Self {
            id: channel,
            channel: Channel::new(agreed.page_bytes),
            pages: Pages::new(agreed.page_bytes),
            encoder: Encoder::new(channel, page_bytes, agreed.window_log),
            told: false,
            staged: Vec::new(),
            held: 0,
            begins: 0,
            page_bytes,
            glance,
            watch: Stopwatch::started(),
            times: Times::default(),
        }
    }

    /// What was done since the last word is this.
    fn worked(&mut self, what: impl FnOnce(&mut Times) -> &mut Duration) {
        let lap = self.watch.lap();
        *what(&mut self.times) += lap.worked;
        self.times.for_processors += lap.lasted - lap.worked;
    }

    /// Waits until the session wants more; nothing when it never will.
    pub(crate) fn wait(&mut self, reads: &Receiver<Reading>) -> Option<Reading> {
        self.worked(|times| &mut times.carrying);
        let reading = reads.recv().ok()?;
        let waited = self.watch.lap().lasted;
        if reading.arrived {
            self.times.for_destination += waited;
        } else {
            self.times.for_lines += waited;
        }
        Some(reading)
    }

    /// Fills the chunk with what QEMU has sent, and waits for the first of it.
    pub(crate) fn take(
        &mut self,
        shared: &Shared,
        from: &UnixStream,
        reading: &Reading,
        chunk: &mut Chunk,
    ) -> io::Result<Taken> {
        let order = shared.next();
        let most = raw_bytes_most(reading.most as usize, self.page_bytes).max(self.page_bytes);
        self.worked(|times| &mut times.carrying);
        let filling = shared.filling();
        let may_cut = order.way == Way::Off && filling.is_none();
        if may_cut && let Some(length) = self.splice(from, most, chunk)? {
            self.passed(shared, length);
            return Ok(Taken {
                length,
                reduced: false,
            });
        }
        let whole = self.read(from, most, may_cut)?;
        self.times.for_qemu += self.watch.lap().lasted;
        self.tell_what_is_found(shared);
        let worthwhile = whole >= WORTHWHILE_BYTES && self.is_worthwhile();
        // Once: who asks for them has them forgotten.
        let spans = if filling.is_some() || (worthwhile && order.way != Way::Off) {
            let ends = self.begins + whole as u64;
            self.pages.spans(self.begins..ends)
        } else {
            Vec::new()
        };
        if let Some(filling) = filling {
            self.store(filling, &spans, whole);
        }
        let mut done = Done::default();
        let taken = match (choice(order.way), &shared.end) {
            (Some(choice), End::Source(kept, known)) if worthwhile => {
                done = with_less_priority(|| {
                    self.describe(reading.sequence, (whole, &spans), kept, || {
                        known.asking(shared.bases.get().map(Arc::as_ref))
                    });
                    let tried = if order.sample {
                        self.sampled(&shared.sampler)?
                    } else {
                        Vec::new()
                    };
                    let (counts, took) = self.pack(whole, choice, chunk)?;
                    io::Result::Ok(Done {
                        counts,
                        packed: Some((choice, took)),
                        gathers: order.sample && tried.is_empty(),
                        tried,
                        ..Done::default()
                    })
                })?;
                Taken {
                    length: chunk.len(),
                    reduced: true,
                }
            }
            _ => {
                self.pass(whole, chunk);
                done.counts = Counts::passed(whole);
                Taken {
                    length: whole,
                    reduced: false,
                }
            }
        };
        if worthwhile {
            self.done(shared, done);
        }
        Ok(taken)
    }

    /// A chunk was carried as it is.
    fn passed(&mut self, shared: &Shared, length: usize) {
        self.times.for_qemu += self.watch.lap().lasted;
        self.tell_what_is_found(shared);
        if length >= WORTHWHILE_BYTES && self.is_worthwhile() {
            let counts = Counts::passed(length);
            self.done(
                shared,
                Done {
                    counts,
                    ..Done::default()
                },
            );
        }
    }

    /// What is not looked into says nothing of what would be gained: of that, nothing is told.
    fn done(&mut self, shared: &Shared, mut done: Done) {
        self.worked(|times| &mut times.carrying);
        done.times = std::mem::take(&mut self.times);
        shared.done(&done);
    }

    /// Fills the chunk with bytes that stay in the kernel: how many, if that is possible here and now.
    fn splice(
        &mut self,
        from: &UnixStream,
        most: usize,
        chunk: &mut Chunk,
    ) -> io::Result<Option<usize>> {
        let Some(glance) = self
            .glance
            .as_mut()
            .filter(|_| self.held == 0 && chunk.has_pipe())
        else {
            return Ok(None);
        };
        let length = chunk.take_from(from, most)?;
        chunk.tee(&glance.copy)?;
        let pages = &mut self.pages;
        glance.look(&mut self.channel, length, &mut |found| pages.add(found))?;
        self.begins += length as u64;
        self.pages.forget(self.begins);
        Ok(Some(length))
    }

    /// Has the pages in what was read stored for the guest's return.
    fn store(&mut self, filling: &Filling, spans: &[Span], whole: usize) {
        let mut at = 0;
        let pages: Vec<_> = spans
            .iter()
            .filter_map(|span| {
                let begins = at;
                let (length, is_page) = match span {
                    Span::Plain(length) => (*length, false),
                    Span::Page(_) => (self.page_bytes, true),
                };
                at += length;
                is_page.then_some(begins..at)
            })
            .collect();
        filling.offer(&self.staged[..whole], &pages);
        self.worked(|times| &mut times.carrying);
    }

    /// With what all channels share only for as long as that takes: digests, and pages from a disk, take longer.
    fn describe<T: Told>(
        &mut self,
        sequence: u64,
        (whole, spans): (usize, &[Span]),
        kept: &Mutex<Kept>,
        told: impl FnOnce() -> T,
    ) {
        let raw = &self.staged[..whole];
        let encoder = &mut self.encoder;
        encoder.look(raw, spans);
        encoder.find(sequence, raw, &mut lock(kept));
        encoder.write(raw, &mut told());
        self.worked(|times| &mut times.describing);
    }

    /// What codecs make of what was just described, once there is enough of it.
    fn sampled(&mut self, sampler: &Mutex<Sampler>) -> io::Result<Vec<Tried>> {
        let mut sampler = lock(sampler);
        let mut all = Vec::new();
        for class in [Class::Ordinary, Class::Dense] {
            let pages = self.encoder.section(class);
            let told = |tried| all.push(tried);
            let result = sampler.sample(class, pages, worked, told);
            result.map_err(io::Error::other)?;
        }
        self.worked(|times| &mut times.trying);
        Ok(all)
    }

    fn pack(
        &mut self,
        whole: usize,
        choice: Choice,
        chunk: &mut Chunk,
    ) -> io::Result<(Counts, PackingTook)> {
        let bytes = chunk.memory_to_fill();
        let raw = &self.staged[..whole];
        let packed = self.encoder.pack_timed(raw, choice, bytes, worked);
        let packed = packed.map_err(io::Error::other)?;
        let count = bytes.len();
        chunk.filled(count);
        self.watch.lap().packed(packed.1, &mut self.times);
        self.staged.copy_within(whole..self.held, 0);
        self.took(whole);
        Ok(packed)
    }

    /// What was read is the chunk, in exchange for its memory.
    fn pass(&mut self, whole: usize, chunk: &mut Chunk) {
        let rest = self.held - whole;
        let memory = chunk.memory_to_fill();
        memory.resize(memory.len().max(rest), 0);
        memory[..rest].copy_from_slice(&self.staged[whole..self.held]);
        std::mem::swap(memory, &mut self.staged);
        chunk.filled(whole);
        self.pages.forget(self.begins + whole as u64);
        self.took(whole);
    }

    /// So many bytes are in a chunk, and others at the beginning of what is staged.
    fn took(&mut self, whole: usize) {
        self.held -= whole;
        self.begins += whole as u64;
    }

    /// Reads until there is something, which may only end in the middle of a page if it is passed as it is; how much of it,
    /// none where QEMU sends nothing more.
    fn read(&mut self, from: &UnixStream, most: usize, may_cut: bool) -> io::Result<usize> {
        loop {
            let held = self.held;
            let place = most.max(held + 1);
            if self.staged.len() < place {
                self.staged.resize(place, 0);
            }
            let count = read_some(from, &mut self.staged[held..place])?;
            if count == 0 {
                return Ok(held);
            }
            self.held += count;
            let pages = &mut self.pages;
            self.channel
                .feed(&self.staged[held..self.held], &mut |found| pages.add(found));
            if may_cut {
                return Ok(self.held);
            }
            let whole = self.pages.whole(self.channel.passed());
            let whole = whole.saturating_sub(self.begins);
            if whole > 0 {
                return Ok(whole as usize);
            }
        }
    }

    fn tell_what_is_found(&mut self, shared: &Shared) {
        shared.add_zero(self.pages.take_zero());
        if let Kind::Opaque { from, why } = self.channel.kind()
            && why.hides_pages()
            && !std::mem::replace(&mut self.told, true)
        {
            shared.opaque(self.id, why.word(), format!("from byte {from}: {why}"));
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

/// What sections go through, if anything is described.
const fn choice(way: Way) -> Option<Choice> {
    match way {
        Way::Off => None,
        Way::On { codec, dense } => Some(Choice {
            ordinary: codec,
            dense: if dense { codec } else { Codec::None },
        }),
    }
}
