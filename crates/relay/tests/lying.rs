//! A peer that is let in, and whose chunks are lies: a real lane to a real relay, and frames that no relay sends.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;
mod streams;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::net::UnixStream;

use drover_lanes::Lane;
use drover_reduce::kept::source::Kept;
use drover_reduce::{Choice, Codec, Encoder, Level, PageId, Span};
use drover_relay::{BrokenBy, Event, open_lane};
use drover_wire::{ChunkFlags, Frame, HEADER_BYTES};
use pair::{PATIENCE, Pair, Protected, content, loopback_path, pair_of};
use streams::{PAGE, settings};

/// QEMU's second channel.
const CHANNEL: u16 = 1;

/// A source that says what it likes.
struct Liar {
    lane: Lane,
    at_qemu: UnixStream,
    said: u64,
    /// The main channel at QEMU.
    main: UnixStream,
    pair: Pair,
}

impl Liar {
    fn new() -> Self {
        let pair = pair_of(Protected::ByTls, settings());
        let order = pair.order();
        let lane = open_lane(&order, &order.plan(0, &loopback_path(0))).unwrap();
        say(&lane, 0, 0, ChunkFlags::OPEN, &[]);
        let main = pair.far.accept().unwrap().0;
        main.set_read_timeout(Some(PATIENCE)).unwrap();
        say(&lane, CHANNEL, 0, ChunkFlags::OPEN, &[]);
        let at_qemu = pair.far.accept().unwrap().0;
        at_qemu.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            lane,
            at_qemu,
            said: 0,
            main,
            pair,
        }
    }

    fn reduced(&mut self, chunk: &[u8]) {
        self.said += 1;
        say(&self.lane, CHANNEL, self.said, ChunkFlags::REDUCED, chunk);
    }

    /// QEMU has got this and nothing else, the agent hears why, and the peer that its channel is broken.
    fn found_out(mut self, got: &[u8], why: &str) {
        let mut arrived = Vec::new();
        // Reset, or ended: both are an error to QEMU.
        let _ = self.at_qemu.read_to_end(&mut arrived);
        assert!(arrived == got, "QEMU read {} bytes", arrived.len());
        let reason = loop {
            let event = self.pair.destination_events.recv_timeout(PATIENCE).unwrap();
            if let Event::ChannelBroke {
                channel,
                by,
                reason,
            } = event
            {
                assert_eq!((channel, by), (CHANNEL, BrokenBy::Chunk));
                break reason;
            }
        };
        assert!(reason.contains(why), "{reason}");
        // Without it QEMU waits for the channel's bytes for ever.
        assert_eq!(self.main.read(&mut [0]).unwrap_or(0), 0);
        self.hears_of_it();
        // That the main channel was closed by us is no news.
        let mut events = self.pair.destination_events.try_iter();
        let broke = events.find(|event| matches!(event, Event::ChannelBroke { .. }));
        assert!(broke.is_none(), "{broke:?}");
    }

    /// That both channels are broken. Says what it has taken, as a lane from which nothing comes is given nothing.
    fn hears_of_it(&self) {
        let (mut frames, mut broken) = (0, BTreeSet::new());
        while broken.len() < 2 {
            let mut header = [0; HEADER_BYTES];
            self.lane.receive(&mut header).unwrap();
            let (frame, _) = Frame::decode(&header).unwrap();
            if let Frame::Chunk {
                channel,
                flags: ChunkFlags::RESET,
                ..
            } = frame
            {
                broken.insert(channel);
            }
            let mut payload = vec![0; frame.payload_length() as usize];
            self.lane.receive(&mut payload).unwrap();
            frames += u64::from(frame.is_receipted());
            let receipt = Frame::Receipt { frames };
            self.lane.send(&receipt.encode(None), &[]).unwrap();
        }
    }
}

fn say(lane: &Lane, channel: u16, sequence: u64, flags: ChunkFlags, bytes: &[u8]) {
    let frame = Frame::Chunk {
        channel,
        sequence,
        flags,
        length: bytes.len() as u32,
    };
    lane.send(&frame.encode(None), bytes).unwrap();
}

/// An honest source's end of the channel.
struct Honest {
    encoder: Encoder,
    kept: Kept,
    codec: Codec,
    chunks: u64,
}

impl Honest {
    fn with(codec: Codec) -> Self {
        Self {
            encoder: Encoder::new(CHANNEL, PAGE, 20),
            kept: Kept::new(PAGE, 512),
            codec,
            chunks: 0,
        }
    }

    fn pack(&mut self, raw: &[u8], spans: &[Span]) -> Vec<u8> {
        self.chunks += 1;
        let kept = &mut self.kept;
        self.encoder
            .describe(self.chunks, raw, spans, kept, &mut ());
        let choice = Choice {
            ordinary: self.codec,
            dense: self.codec,
        };
        let mut chunk = Vec::new();
        self.encoder.pack(raw, choice, &mut chunk).unwrap();
        chunk
    }

    fn page(&mut self, number: u64, page: &[u8]) -> Vec<u8> {
        self.pack(page, &[Span::Page(PageId(number))])
    }
}

/// A chunk of these operations, which is to give so many bytes.
fn forged(raw: usize, operations: &[u8]) -> Vec<u8> {
    let mut chunk = (raw as u32).to_be_bytes().to_vec();
    chunk.extend([0; 8]);
    let count = operations.len() as u32;
    for length in [0, count, 0, count] {
        chunk.extend(length.to_be_bytes());
    }
    chunk.extend([0; 4]);
    chunk.extend(operations);
    chunk
}

const MUCH: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];

/// Zeros of which zstd makes next to nothing, and a header that says that they are few.
fn bomb() -> Vec<u8> {
    let zeros = vec![0; 4 << 20];
    let mut honest = Honest::with(Codec::Zstd(Level::USUAL));
    let mut chunk = honest.pack(&zeros, &[Span::Plain(zeros.len())]);
    assert!(chunk.len() < PAGE);
    for at in [0, 12] {
        chunk[at..at + 4].copy_from_slice(&(PAGE as u32).to_be_bytes());
    }
    chunk
}

#[test]
fn whatever_a_peer_makes_up_qemu_gets_nothing_of_it_and_both_ends_hear_why() {
    let fill = |pages: &[u8]| [&[1][..], pages, &[0; 8]].concat();
    let stored = |pages: &[u8]| [&[9][..], pages, &[5]].concat();
    let lies = [
        (
            forged(PAGE, &fill(&[1])),
            "it gives other bytes than the source had",
        ),
        (
            forged(PAGE, &[6, 1, 5]),
            "it refers to kept page 5, which is not there",
        ),
        (
            forged(PAGE, &stored(&[1])),
            "it refers to stored page 5, which is not there",
        ),
        (forged(PAGE, &fill(&MUCH)), "more bytes than it says"),
        (forged(PAGE, &stored(&MUCH)), "more bytes than it says"),
        (forged(1 << 30, &[]), "it has 1073741824 bytes of QEMU"),
        (forged(PAGE, &[]), "fewer bytes than it says"),
        (forged(PAGE, &[77]), "an operation that is not known"),
        (forged(0, &[])[..20].to_vec(), "its header"),
        (bomb(), "its zstd part cannot be read"),
    ];
    for (lie, why) in lies {
        let mut liar = Liar::new();
        let page = content(3, PAGE);
        // The first is true, and arrives.
        liar.reduced(&Honest::with(Codec::Lz4).page(7, &page));
        liar.reduced(&lie);
        liar.found_out(&page, why);
    }
}

#[test]
fn a_chunk_that_is_cut_short_gives_qemu_nothing_whatever_it_went_through() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(Level::USUAL)] {
        let (first, second) = (streams::page(2), streams::page(4));
        let mut honest = Honest::with(codec);
        let chunks = [honest.page(7, &first), honest.page(8, &second)];
        for cut in [1, chunks[1].len() / 2, chunks[1].len() - 33] {
            let mut liar = Liar::new();
            liar.reduced(&chunks[0]);
            liar.reduced(&chunks[1][..chunks[1].len() - cut]);
            liar.found_out(&first, "a chunk cannot be used");
        }
    }
}

#[test]
fn a_frame_that_ends_with_its_lane_gives_qemu_nothing() {
    let mut liar = Liar::new();
    let page = streams::page(2);
    let mut honest = Honest::with(Codec::Lz4);
    liar.reduced(&honest.page(7, &page));
    let mut arrived = vec![0; PAGE];
    liar.at_qemu.read_exact(&mut arrived).unwrap();
    assert!(arrived == page);
    let chunk = honest.page(8, &content(4, PAGE));
    let frame = Frame::Chunk {
        channel: CHANNEL,
        sequence: 2,
        flags: ChunkFlags::REDUCED,
        length: chunk.len() as u32,
    };
    liar.lane.send(&frame.encode(None), &chunk[..100]).unwrap();
    liar.lane.shut_down();
    assert_eq!(liar.at_qemu.read(&mut arrived).unwrap_or(0), 0);
    let (_, reason) = pair::ended(&liar.pair.destination_events);
    assert!(reason.contains("no lane to the other host"), "{reason}");
}

#[test]
fn a_page_that_another_took_the_place_of_is_not_given_for_the_one_that_was_there() {
    let (first, second) = (content(3, PAGE), content(4, PAGE));
    // Each has the first place for its page, as if nothing had been there.
    let mut honest = Honest::with(Codec::None);
    let keeps = honest.page(7, &first);
    let refers = honest.page(8, &first);
    let evicts = Honest::with(Codec::None).page(9, &second);
    let mut liar = Liar::new();
    for chunk in [&keeps, &refers, &evicts, &refers] {
        liar.reduced(chunk);
    }
    let got = [&first[..], &first, &second].concat();
    liar.found_out(&got, "it gives other bytes than the source had");
}
