//! Several channels of one session, packed and read in any order that the session allows, and what a peer that lies or
//! is broken can do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use std::cell::RefCell;
use std::collections::VecDeque;

use drover_reduce::kept::{destination, source};
use drover_reduce::limits::raw_bytes_most;
use drover_reduce::{
    Choice, Codec, Decoder, Encoder, Level, PageId, Span, Stored, StoredId, Told, Wrong,
};
use proptest::prelude::*;

const PAGE: usize = 1024;
const CHUNK: usize = 32 << 10;
const WINDOW_LOG: u32 = 16;
const SLOTS: u32 = 24;

fn zstd(level: i8) -> Codec {
    Codec::Zstd(Level::new(level).unwrap())
}

fn choice(codec: Codec) -> Choice {
    Choice {
        ordinary: codec,
        dense: codec,
    }
}

/// A page's content: of few kinds, so that pages come again, and with a part that changes.
#[derive(Debug, Clone, Copy)]
struct Content {
    kind: u8,
    changed_at: usize,
    change: u8,
}

impl Content {
    fn bytes(self) -> Vec<u8> {
        let mut state = u32::from(self.kind) | 1;
        let mut page: Vec<u8> = match self.kind % 4 {
            0 => vec![self.kind; PAGE],
            1 => b"some words, again and again; ".repeat(40)[..PAGE].to_vec(),
            _ => std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .take(PAGE)
            .collect(),
        };
        let end = (self.changed_at + 40).min(PAGE);
        page[self.changed_at..end].fill(self.change);
        page
    }
}

fn content() -> impl Strategy<Value = Content> {
    (0..12_u8, 0..PAGE, 0..3_u8).prop_map(|(kind, changed_at, change)| Content {
        kind,
        changed_at,
        change,
    })
}

#[derive(Debug, Clone)]
enum Step {
    /// The channel's next chunk: bytes that are no page, and a page, some times.
    Send {
        channel: u16,
        codec: Codec,
        parts: Vec<(usize, u64, Content)>,
    },
    /// The destination works off the channel's next chunk.
    Work { channel: u16 },
    /// The source hears how far it is.
    Hear { channel: u16 },
    /// The destination's host stores a page of that content.
    Store(Content),
    /// The source hears which pages are stored.
    Tell,
}

/// Stored pages by their numbers.
#[derive(Debug, Clone, Default)]
struct Library(Vec<Vec<u8>>);

impl Told for Library {
    fn find(&mut self, page: &[u8]) -> Option<StoredId> {
        let at = self.0.iter().position(|stored| stored == page)?;
        Some(StoredId(at as u32))
    }

    /// Any: nothing depends on whether it is like the page.
    fn base(&mut self, page: PageId) -> Option<(StoredId, &[u8])> {
        let at = page.0.checked_rem(self.0.len() as u64)?;
        let stored = self.0.get(at as usize)?;
        Some((StoredId(at as u32), stored))
    }
}

impl Stored for Library {
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong> {
        for (page, id) in pages.chunks_exact_mut(PAGE).zip(first.0..) {
            let stored = self.0.get(id as usize);
            page.copy_from_slice(stored.ok_or(Wrong::NotStored(StoredId(id)))?);
        }
        Ok(())
    }
}

const CHANNELS: u16 = 3;

/// Of few pages with few contents, so that all channels want the same places.
fn contended() -> impl Strategy<Value = Step> {
    let content = (2..5_u8, 0..2_u8).prop_map(|(kind, change)| Content {
        kind,
        changed_at: 500,
        change,
    });
    let parts = prop::collection::vec((Just(0), 0..4_u64, content), 1..3);
    prop_oneof![
        3 => (0..CHANNELS, parts)
            .prop_map(|(channel, parts)| Step::Send { channel, codec: Codec::None, parts }),
        2 => (0..CHANNELS).prop_map(|channel| Step::Work { channel }),
        2 => (0..CHANNELS).prop_map(|channel| Step::Hear { channel }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let codec = prop_oneof![
        Just(Codec::None),
        Just(Codec::Lz4),
        Just(zstd(-5)),
        Just(zstd(1)),
        Just(zstd(3)),
    ];
    let parts = prop::collection::vec((0..40_usize, 0..30_u64, content()), 0..12);
    prop_oneof![
        2 => (0..CHANNELS, codec, parts)
            .prop_map(|(channel, codec, parts)| Step::Send { channel, codec, parts }),
        2 => (0..CHANNELS).prop_map(|channel| Step::Work { channel }),
        1 => (0..CHANNELS).prop_map(|channel| Step::Hear { channel }),
        1 => content().prop_map(Step::Store),
        1 => Just(Step::Tell),
    ]
}

/// Both ends of a session, and what is between them.
struct Ends {
    source: source::Kept,
    destination: destination::Kept,
    told: Library,
    stored: Library,
    channels: Vec<Ways>,
}

struct Ways {
    encoder: Encoder,
    decoder: Decoder,
    sent: u64,
    worked_off: u64,
    under_way: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Ends {
    fn new() -> Self {
        Self::with_places(SLOTS)
    }

    fn with_places(most: u32) -> Self {
        let ways = |channel| Ways {
            encoder: Encoder::new(channel, PAGE, WINDOW_LOG),
            decoder: Decoder::new(CHUNK, PAGE, WINDOW_LOG),
            sent: 0,
            worked_off: 0,
            under_way: VecDeque::new(),
        };
        Self {
            source: source::Kept::new(PAGE, most),
            destination: destination::Kept::new(PAGE, most),
            told: Library::default(),
            stored: Library::default(),
            channels: (0..CHANNELS).map(ways).collect(),
        }
    }

    fn send(&mut self, channel: u16, codec: Codec, parts: &[(usize, u64, Content)]) {
        let (mut raw, mut spans) = (Vec::new(), Vec::new());
        for (plain, page, content) in parts {
            raw.extend(std::iter::repeat_n(7, *plain));
            spans.extend([Span::Plain(*plain), Span::Page(PageId(*page))]);
            raw.extend(content.bytes());
        }
        let ways = &mut self.channels[usize::from(channel)];
        ways.encoder
            .describe(ways.sent, &raw, &spans, &mut self.source, &mut self.told);
        ways.sent += 1;
        let mut chunk = Vec::new();
        let counts = ways.encoder.pack(&raw, choice(codec), &mut chunk).unwrap();
        assert_eq!(counts.wire, chunk.len() as u64);
        assert_eq!(counts.raw, raw.len() as u64);
        ways.under_way.push_back((raw, chunk));
    }

    fn work(&mut self, channel: u16) {
        let ways = &mut self.channels[usize::from(channel)];
        if let Some((raw, chunk)) = ways.under_way.pop_front() {
            let mut read = Vec::new();
            let unpacked = ways.decoder.unpack(&chunk).unwrap();
            let fetched = unpacked.fetch(&self.stored).unwrap();
            let expanded = fetched.expand(&mut self.destination, &mut read).unwrap();
            assert_eq!(expanded.check().unwrap().raw, raw);
            ways.worked_off += 1;
        }
    }

    /// All steps, and what is then still under way.
    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Send {
                    channel,
                    codec,
                    parts,
                } => self.send(*channel, *codec, parts),
                Step::Work { channel } => self.work(*channel),
                Step::Hear { channel } => self.hear(*channel),
                Step::Store(content) => self.stored.0.push(content.bytes()),
                Step::Tell => self.told = self.stored.clone(),
            }
        }
        for channel in 0..CHANNELS {
            while !self.channels[usize::from(channel)].under_way.is_empty() {
                self.work(channel);
            }
        }
    }

    fn hear(&mut self, channel: u16) {
        let before = self.channels[usize::from(channel)].worked_off;
        self.source.worked_off(channel, before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_byte_arrives_whatever_is_kept_and_however_channels_overtake_each_other(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut ends = Ends::new();
        ends.run(&steps);
        prop_assert!(ends.destination.bytes() <= u64::from(SLOTS) * PAGE as u64);
        prop_assert_eq!(ends.destination.bytes(), ends.source.bytes());
    }

    #[test]
    fn every_byte_arrives_where_all_channels_want_the_same_places(
        places in 1..4_u32,
        steps in prop::collection::vec(contended(), 1..60)
    ) {
        let mut ends = Ends::with_places(places);
        ends.run(&steps);
        prop_assert_eq!(ends.destination.bytes(), ends.source.bytes());
    }

    #[test]
    fn a_chunk_is_never_longer_than_agreed_on_whatever_is_in_it(
        bytes in prop::collection::vec(any::<u8>(), CHUNK..=CHUNK),
        cuts in prop::collection::vec((0..3_usize, any::<bool>()), 0..60),
    ) {
        let raw = &bytes[..raw_bytes_most(CHUNK, PAGE)];
        let span = |(at, (plain, page)): (usize, &(usize, bool))| {
            [Span::Plain(*plain), if *page { Span::Page(PageId(at as u64)) } else { Span::Plain(PAGE) }]
        };
        let spans: Vec<Span> = cuts.iter().enumerate().flat_map(span).collect();
        for codec in [Codec::None, Codec::Lz4, zstd(-7), zstd(3)] {
            let mut encoder = Encoder::new(0, PAGE, WINDOW_LOG);
            let mut kept = source::Kept::new(PAGE, SLOTS);
            let mut chunk = Vec::new();
            encoder.describe(0, raw, &spans, &mut kept, &mut ());
            encoder.pack(raw, choice(codec), &mut chunk).unwrap();
            prop_assert!(chunk.len() <= CHUNK, "{} with {codec:?}", chunk.len());
        }
    }

    #[test]
    fn a_chunk_that_was_changed_on_its_way_is_refused_or_gives_what_was_sent(
        codec in prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(zstd(1))],
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<usize>()),
        parts in prop::collection::vec((0..40_usize, 0..30_u64, content()), 1..12),
    ) {
        let mut ends = Ends::new();
        ends.send(0, codec, &parts);
        let (raw, mut chunk) = ends.channels[0].under_way.pop_front().unwrap();
        for (at, byte) in changes {
            let at = at % chunk.len();
            chunk[at] = byte;
        }
        chunk.truncate(cut.map_or(chunk.len(), |cut| cut % (chunk.len() + 1)));
        prop_assert!(read(&chunk).is_none_or(|read| read == raw));
    }

    #[test]
    fn any_bytes_are_a_chunk_or_refused(header: [u8; 32], body: Vec<u8>) {
        let small = |at: usize| if at.is_multiple_of(4) && at >= 12 { 0 } else { header[at] };
        for header in [header, std::array::from_fn(small)] {
            let _ = read(&[&header[..], &body].concat());
        }
    }
}

/// What a decoder that has seen nothing gives.
fn read(chunk: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let unpacked = decoder.unpack(chunk).ok()?;
    let mut kept = destination::Kept::new(PAGE, SLOTS);
    let fetched = unpacked.fetch(&()).ok()?;
    let expanded = fetched.expand(&mut kept, &mut raw).ok()?;
    let given = expanded.check().ok()?.raw.to_vec();
    assert!(raw.capacity() <= 2 * CHUNK);
    Some(given)
}

/// A chunk of these operations, nothing of it packed.
fn forged(raw: u32, operations: &[u8], checksum: u64) -> Vec<u8> {
    let mut chunk = raw.to_be_bytes().to_vec();
    chunk.extend(checksum.to_be_bytes());
    let count = operations.len() as u32;
    for length in [0, count, 0, count] {
        chunk.extend(length.to_be_bytes());
    }
    chunk.extend([0; 4]);
    chunk.extend(operations);
    chunk
}

fn refused(chunk: &[u8]) -> Wrong {
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let mut kept = destination::Kept::new(PAGE, SLOTS);
    let mut raw = Vec::new();
    let checked = decoder
        .unpack(chunk)
        .and_then(|unpacked| unpacked.fetch(&()))
        .and_then(|fetched| fetched.expand(&mut kept, &mut raw))
        .and_then(|expanded| expanded.check().map(drop));
    checked.unwrap_err()
}

#[test]
fn what_a_lying_peer_says_is_refused_by_name() {
    let page = PAGE as u32;
    let unknown = refused(&forged(page, &[6, 1, 5], 0));
    assert_eq!(
        unknown.to_string(),
        "it refers to kept page 5, which is not there"
    );
    let beyond = refused(&forged(page, &[6, 1, 0xff, 0xff, 0xff, 0xff, 0x0f], 0));
    assert!(matches!(beyond, Wrong::Layout(_)), "{beyond}");
    let stored = refused(&forged(page, &[9, 1, 5], 0));
    assert_eq!(
        stored.to_string(),
        "it refers to stored page 5, which is not there"
    );
    let bomb = refused(&forged(page, &[9, 0xff, 0xff, 0xff, 0x7f, 0], 0));
    assert!(matches!(bomb, Wrong::Layout(_)), "{bomb}");
    let content = refused(&forged(page, &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 77));
    assert!(
        matches!(content, Wrong::Content { said: 77, .. }),
        "{content}"
    );
    let much = refused(&forged(1 << 30, &[], 0));
    assert!(
        matches!(much, Wrong::TooMuch { what: "QEMU", .. }),
        "{much}"
    );
    // 4 GiB of zeros in 10 bytes.
    let bomb = refused(&forged(
        page,
        &[1, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0],
        0,
    ));
    assert!(matches!(bomb, Wrong::Layout(_)), "{bomb}");
}

/// Which runs of stored pages are read.
#[derive(Default)]
struct Runs(RefCell<Vec<(u32, usize)>>);

impl Stored for Runs {
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong> {
        self.0.borrow_mut().push((first.0, pages.len() / PAGE));
        Ok(())
    }
}

#[test]
fn stored_pages_that_follow_each_other_are_read_at_once_also_where_something_else_is_between_them()
{
    let operations = [
        9, 1, 5, 6, 1, 0, 9, 2, 6, 6, 1, 0, 10, 1, 8, 0, 9, 1, 3, 9, 1, 3,
    ];
    let chunk = forged(32 * PAGE as u32, &operations, 0);
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let runs = Runs::default();
    decoder.unpack(&chunk).unwrap().fetch(&runs).unwrap();
    assert_eq!(runs.0.into_inner(), [(5, 4), (3, 1), (3, 1)]);
}

#[test]
fn what_was_evicted_at_the_destination_is_refused_and_not_guessed() {
    let mut ends = Ends::new();
    let content = Content {
        kind: 2,
        changed_at: 0,
        change: 1,
    };
    ends.send(0, zstd(1), &[(0, 1, content)]);
    ends.work(0);
    ends.destination = destination::Kept::new(PAGE, SLOTS);
    ends.send(0, zstd(1), &[(0, 2, content)]);
    let (_, chunk) = ends.channels[0].under_way.pop_front().unwrap();
    let unpacked = ends.channels[0].decoder.unpack(&chunk).unwrap();
    let lost = unpacked.fetch(&ends.stored).and_then(|fetched| {
        fetched
            .expand(&mut ends.destination, &mut Vec::new())
            .map(drop)
    });
    assert!(matches!(lost, Err(Wrong::Unknown(_))), "{lost:?}");
}

#[test]
fn a_stored_page_crosses_as_its_number_and_only_what_crossed_is_told_as_such() {
    let mut ends = Ends::new();
    let content = |kind| Content {
        kind,
        changed_at: 0,
        change: 1,
    };
    ends.stored.0 = vec![content(2).bytes(), content(6).bytes()];
    ends.told = ends.stored.clone();
    let parts = [2, 6, 10, 14].map(|kind| (0, u64::from(kind), content(kind)));
    ends.send(1, Codec::None, &parts);
    let ways = &mut ends.channels[1];
    let (raw, chunk) = ways.under_way.pop_front().unwrap();
    assert!(chunk.len() < 2 * PAGE + 64, "{}", chunk.len());
    let mut given = Vec::new();
    let expanded = ways
        .decoder
        .unpack(&chunk)
        .and_then(|unpacked| unpacked.fetch(&ends.stored))
        .and_then(|fetched| fetched.expand(&mut ends.destination, &mut given))
        .unwrap();
    let checked = expanded.check().unwrap();
    assert_eq!(checked.raw, raw);
    let crossed = 2 * PAGE..4 * PAGE;
    assert_eq!(checked.crossed, std::slice::from_ref(&crossed));
    // Kept as well: what changes of it is sent as a change.
    let changed = Content {
        change: 9,
        ..content(2)
    };
    ends.send(1, Codec::None, &[(0, 2, changed)]);
    assert!(ends.channels[1].under_way[0].1.len() < 200);
    ends.work(1);
}

#[test]
fn a_stored_page_that_changed_a_little_crosses_as_what_changed_and_is_kept() {
    let mut ends = Ends::new();
    let content = |change| Content {
        kind: 2,
        changed_at: 100,
        change,
    };
    let dense = |kind| Content { kind, ..content(0) };
    ends.stored.0 = [2, 3].map(|kind| dense(kind).bytes()).to_vec();
    ends.told = ends.stored.clone();
    // The base of page 6 is the first, that of 7 the second.
    ends.send(
        1,
        Codec::None,
        &[(3, 6, content(1)), (0, 7, dense(7)), (0, 9, dense(3))],
    );
    let (_, chunk) = &ends.channels[1].under_way[0];
    assert!(chunk.len() < PAGE + 200, "{}", chunk.len());
    ends.work(1);
    ends.send(1, Codec::None, &[(0, 6, content(2))]);
    assert!(ends.channels[1].under_way[0].1.len() < 120);
    ends.work(1);
}

#[test]
fn a_change_of_a_stored_page_that_fits_none_or_of_a_page_that_is_not_there_is_refused() {
    let page = PAGE as u32;
    // Bytes 1000 to 1024 stay, one more changes.
    let change = [11, 1, 4, 0x80, 0x08, 1, 7];
    assert_eq!(
        refused(&forged(page, &change, 0)),
        Wrong::NotStored(StoredId(1))
    );
    let chunk = forged(page, &change, 0);
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let fetched = decoder.unpack(&chunk).unwrap().fetch(&Runs::default());
    let mut kept = destination::Kept::new(PAGE, SLOTS);
    let changed = fetched
        .unwrap()
        .expand(&mut kept, &mut Vec::new())
        .map(drop);
    assert_eq!(changed.unwrap_err(), Wrong::Change);
}

#[test]
fn channels_that_look_at_pages_and_write_at_the_same_time_describe_them_as_one_after_the_other() {
    let dense = |kind| Content {
        kind,
        changed_at: 0,
        change: 0,
    };
    let raws =
        [[2, 3, 2, 6], [3, 7, 6, 2]].map(|kinds| kinds.map(|kind| dense(kind).bytes()).concat());
    let spans: Vec<Span> = (0..4).map(|page| Span::Page(PageId(page))).collect();
    let encoders = || [1, 2].map(|channel| Encoder::new(channel, PAGE, WINDOW_LOG));
    let packed = |encoder: &mut Encoder, raw: &[u8]| {
        let mut chunk = Vec::new();
        encoder.pack(raw, choice(Codec::None), &mut chunk).unwrap();
        chunk
    };
    let mut kept = source::Kept::new(PAGE, SLOTS);
    let [mut one, mut other] = encoders();
    one.look(&raws[0], &spans);
    other.look(&raws[1], &spans);
    one.find(1, &raws[0], &mut kept);
    other.find(1, &raws[1], &mut kept);
    other.write(&raws[1], &mut ());
    one.write(&raws[0], &mut ());
    let at_once = [packed(&mut one, &raws[0]), packed(&mut other, &raws[1])];

    let mut kept = source::Kept::new(PAGE, SLOTS);
    for ((mut encoder, raw), chunk) in encoders().into_iter().zip(&raws).zip(at_once) {
        encoder.describe(1, raw, &spans, &mut kept, &mut ());
        assert_eq!(packed(&mut encoder, raw), chunk);
    }
}

#[test]
fn a_page_that_changes_a_little_takes_little_and_one_seen_before_nearly_nothing() {
    let mut ends = Ends::new();
    let wire = |ends: &mut Ends, part| {
        ends.send(1, Codec::None, &[part]);
        let chunk = ends.channels[1].under_way.back().unwrap().1.len();
        ends.work(1);
        ends.hear(1);
        chunk
    };
    let content = |change| Content {
        kind: 2,
        changed_at: 100,
        change,
    };
    assert!(wire(&mut ends, (0, 1, content(0))) > PAGE);
    assert!(wire(&mut ends, (0, 1, content(1))) < 100);
    assert!(wire(&mut ends, (0, 9, content(1))) < 40);
}
