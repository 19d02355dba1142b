//! Two relays that agreed to reduce, with channels such as QEMU's.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use drover_pagestore::{Segment, Shape, shape_within};
use drover_reduce::Counts;
use drover_relay::{
    Codec, DataPath, DigestKey, End, Event, Level, NotAdded, Policy, Reduction, Relay, SealKey,
    Settings, Sizes, StoredFile, StoredPages, Way,
};
use pair::{BOTH, PATIENCE, Pair, Protected, SETTINGS, content, ended, exchange, pair_of};

const PAGE: usize = 4096;

/// Such settings as agents agree on, with zstd.
fn settings() -> Settings {
    by(Policy::Always(Way::with(Codec::Zstd(Level::USUAL))))
}

fn by(policy: Policy) -> Settings {
    Settings {
        sizes: Sizes {
            chunk_bytes: 64 << 10,
            window: 6,
        },
        reduction: Some(Reduction {
            page_bytes: PAGE as u32,
            kept_pages: 512,
            stored_pages: 0,
            window_log: 20,
            policy,
        }),
        ..SETTINGS
    }
}

/// A page of a guest: text, one word, numbers or noise.
fn page(at: u32) -> Vec<u8> {
    let text = match at % 4 {
        0 => format!("page {at}: the same words, again and again. ").repeat(200),
        1 => format!("{:08}", at / 8).repeat(512),
        2 => (0..PAGE as u32).map(|n| format!("{},", n * at)).collect(),
        _ => return content(at as u8, PAGE),
    };
    text.into_bytes()[..PAGE].to_vec()
}

/// What a channel of multifd sends: these pages, in packets of so many.
fn multifd(packets: &[Vec<(u64, Vec<u8>)>]) -> Vec<u8> {
    let mut bytes = [0x1122_3344_u32, 1].map(u32::to_be_bytes).concat();
    bytes.resize(64, 0);
    for pages in packets {
        let count = pages.len() as u32;
        let words = [0x1122_3344, 1, 0, 128, count, count * PAGE as u32, 0, 1, 0];
        let mut header: Vec<u8> = words
            .iter()
            .flat_map(|word: &u32| word.to_be_bytes())
            .collect();
        header.resize(64, 0);
        header.extend(b"pc.ram");
        header.resize(320, 0);
        header.extend(
            pages
                .iter()
                .flat_map(|(at, _)| (at * PAGE as u64).to_be_bytes()),
        );
        header.resize(1344, 0);
        bytes.extend(header);
        bytes.extend(pages.iter().flat_map(|(_, page)| page));
    }
    bytes
}

/// Three rounds over the channel's share of a guest's pages, in each of which a part of each page was changed.
fn rounds(channel: u32) -> Vec<u8> {
    let round = |round: u8| {
        let pages = (0..200).map(|at| {
            let number = at * 2 + channel;
            let mut page = page(number);
            page[100..150].fill(round);
            (u64::from(number), page)
        });
        pages.collect::<Vec<_>>()
    };
    let packets: Vec<_> = (0..3)
        .flat_map(|n| round(n).chunks(37).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect();
    multifd(&packets)
}

/// Carries what two channels of multifd and a main channel send, and holds what arrives against it.
fn carries(pair: &Pair) {
    carries_once(pair, || {});
}

/// The same, once all channels are there and that has returned.
fn carries_once(pair: &Pair, ready: impl FnOnce()) {
    let main = [&b"QEVM"[..], &b"a device and its state, ".repeat(20_000)].concat();
    let sent = [main, rounds(0), rounds(1)];
    let streams = sent.map(|bytes| {
        let near = UnixStream::connect(&pair.near).unwrap();
        (bytes, near, pair.far.accept().unwrap().0)
    });
    ready();
    thread::scope(|scope| {
        for (bytes, near, far) in &streams {
            scope.spawn(move || {
                let (at_far, at_near) = exchange(near, far, bytes, b"the way back");
                assert!(at_far == *bytes, "what arrived differs");
                assert_eq!(at_near, b"the way back");
            });
        }
    });
    assert_eq!(ended(&pair.source_events).0, End::Finished);
    assert_eq!(ended(&pair.destination_events).0, End::Finished);
}

#[test]
fn channels_of_qemu_arrive_as_they_were_sent_and_take_a_fraction() {
    for protected in BOTH {
        let pair = pair_of(protected, settings());
        pair.connect();
        carries(&pair);
        let report = pair.source.report();
        let counts = report.reduced.unwrap().counts;
        assert_eq!(
            counts.filled + counts.same + counts.changed + counts.ordinary + counts.dense,
            1200
        );
        assert!(counts.same + counts.changed > 600, "{counts:?}");
        assert!(counts.wire * 4 < counts.raw, "{counts:?}");
        let carried: u64 = report.lanes.iter().map(|lane| lane.stats.sent_bytes).sum();
        assert!(carried < counts.wire + 100_000, "{carried}, {counts:?}");
        assert!(pair.destination.report().reduced.is_none());
    }
}

#[test]
fn every_way_gives_what_was_sent() {
    let on = |codec, dense| Way::On { codec, dense };
    let quick = Codec::Zstd(Level::new(-3).unwrap());
    let ways = [
        Way::Off,
        on(Codec::None, false),
        on(Codec::Lz4, true),
        on(quick, true),
    ];
    let policies = ways.map(Policy::Always);
    for policy in policies.into_iter().chain([Policy::Fastest]) {
        for protected in BOTH {
            let settings = Settings {
                pass_through: protected == Protected::Plain,
                ..by(policy)
            };
            let pair = pair_of(protected, settings);
            pair.connect();
            carries(&pair);
            let report = pair.source.report();
            let reduced = report.reduced.unwrap();
            assert_eq!(reduced.decided.is_some(), policy == Policy::Fastest);
            assert!(reduced.times.all() > std::time::Duration::ZERO);
            // What stays in the kernel is looked at all the same.
            assert_eq!(reduced.opaque, []);
            let spliced = matches!(report.data_path, DataPath::Splice { .. });
            assert_eq!(spliced, settings.pass_through, "{}", report.data_path);
        }
    }
}

/// The same, where the destination tells of stored pages.
fn telling(settings: Settings) -> Settings {
    let reduction = settings.reduction.map(|agreed| Reduction {
        stored_pages: 2000,
        ..agreed
    });
    Settings {
        reduction,
        ..settings
    }
}

fn stored(segment: &Segment, fill: bool) -> StoredFile {
    StoredFile {
        file: segment.file().try_clone().unwrap(),
        key: DigestKey::new([7; 32]),
        seal: None,
        fill,
    }
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it is not so");
        thread::sleep(Duration::from_millis(1));
    }
}

fn of_stored(relay: &Relay) -> StoredPages {
    relay.report().stored.unwrap()
}

/// A file of the pages that a guest has just brought, and what became of its bytes.
fn brought(protected: Protected) -> (Segment, Counts) {
    let segment = Segment::in_memory(shape_within(16 << 20, PAGE as u32, false).unwrap()).unwrap();
    let pair = pair_of(protected, telling(settings()));
    pair.destination.add_stored(stored(&segment, true)).unwrap();
    pair.connect();
    carries(&pair);
    until(|| of_stored(&pair.destination).added >= 250);
    (segment, pair.source.report().reduced.unwrap().counts)
}

#[test]
fn pages_that_one_guest_sent_are_referred_to_by_the_next() {
    for protected in BOTH {
        let (segment, before) = brought(protected);
        let second = pair_of(protected, telling(settings()));
        let there = segment.count().unwrap();
        second.connect();
        // Added late, and told all the same.
        carries_once(&second, || {
            second
                .destination
                .add_stored(stored(&segment, false))
                .unwrap();
            until(|| of_stored(&second.source).told >= u64::from(there));
        });
        let counts = second.source.report().reduced.unwrap().counts;
        assert!(counts.stored >= 250, "{counts:?}");
        assert!(counts.wire < before.wire / 3, "{counts:?}, {before:?}");
    }
}

/// A sealed file on a disk.
fn sealed(file: File, seal: &SealKey, fill: bool) -> StoredFile {
    StoredFile {
        file,
        key: DigestKey::new([7; 32]),
        seal: Some(seal.clone()),
        fill,
    }
}

#[test]
fn a_guest_that_left_does_not_bring_back_what_was_stored_where_it_was() {
    for (policy, pass_through) in [
        (Policy::Always(Way::with(Codec::Lz4)), false),
        (Policy::Always(Way::Off), true),
    ] {
        let seal = SealKey::random().unwrap();
        let file = tempfile::tempfile().unwrap();
        let shape = shape_within(16 << 20, PAGE as u32, true).unwrap();
        let segment = Segment::sealed(file, shape, &seal).unwrap();
        let own = || segment.file().try_clone().unwrap();
        let leaves = Settings {
            pass_through,
            ..by(policy)
        };
        let pair = pair_of(Protected::Plain, leaves);
        pair.source.add_stored(sealed(own(), &seal, true)).unwrap();
        pair.connect();
        carries(&pair);
        until(|| of_stored(&pair.source).added >= 250);
        assert_eq!(pair.destination.report().stored, None);
        let counts = pair.source.report().reduced.unwrap().counts;
        // Who stores pages takes none from who describes them.
        let pages = (counts.raw - counts.plain - counts.passed) / PAGE as u64;
        assert!(counts.passed > 0 || pages == 1200, "{counts:?}");
        drop(pair);

        let there = segment.count().unwrap();
        let back = pair_of(Protected::ByTls, telling(settings()));
        back.destination
            .add_stored(sealed(own(), &seal, false))
            .unwrap();
        back.connect();
        carries_once(&back, || {
            until(|| of_stored(&back.source).told >= u64::from(there));
        });
        let counts = back.source.report().reduced.unwrap().counts;
        assert!(counts.stored >= 250, "{counts:?}");
    }
}

#[test]
fn what_stays_in_the_kernel_arrives_beside_stored_pages_that_are_told() {
    let segment = Segment::in_memory(shape_within(16 << 20, PAGE as u32, false).unwrap()).unwrap();
    for policy in [Policy::Always(Way::Off), Policy::Fastest] {
        let settings = Settings {
            pass_through: true,
            ..telling(by(policy))
        };
        let pair = pair_of(Protected::Plain, settings);
        pair.destination.add_stored(stored(&segment, true)).unwrap();
        pair.connect();
        carries(&pair);
    }
}

#[test]
fn a_stored_page_that_cannot_be_read_breaks_its_channel_and_qemu_gets_nothing_of_it() {
    let (segment, _) = brought(Protected::ByTls);
    let pair = pair_of(Protected::ByTls, telling(settings()));
    pair.destination
        .add_stored(stored(&segment, false))
        .unwrap();
    pair.connect();
    let main = UnixStream::connect(&pair.near).unwrap();
    let _main = (main, pair.far.accept().unwrap().0);
    let near = UnixStream::connect(&pair.near).unwrap();
    let mut at_qemu = pair.far.accept().unwrap().0;
    at_qemu.set_read_timeout(Some(PATIENCE)).unwrap();
    let there = u64::from(segment.count().unwrap());
    until(|| of_stored(&pair.source).told >= there);
    let Shape { places, .. } = segment.shape();
    segment
        .file()
        .set_len(4096 + 16 * u64::from(places))
        .unwrap();
    let writes = thread::spawn(move || (&near).write_all(&rounds(0)));
    let mut arrived = Vec::new();
    let _ = at_qemu.read_to_end(&mut arrived);
    assert_eq!(arrived, b"");
    let told = loop {
        let event = pair.destination_events.recv_timeout(PATIENCE).unwrap();
        if let Event::ChannelBroke { reason, .. } = event {
            break reason;
        }
    };
    assert!(told.contains("which cannot be had"), "{told}");
    // The source reads on what its QEMU still sends, until the session is closed.
    drop(pair);
    drop(writes.join().unwrap());
}

#[test]
fn stored_pages_are_refused_where_nobody_agreed_on_them() {
    let segment = Segment::in_memory(shape_within(1 << 20, PAGE as u32, false).unwrap()).unwrap();
    let pair = pair_of(Protected::Plain, settings());
    let refused = pair.destination.add_stored(stored(&segment, true));
    assert!(matches!(refused, Err(NotAdded::NotAgreed)));
    let pair = pair_of(Protected::Plain, telling(settings()));
    let refused = pair.source.add_stored(stored(&segment, false));
    assert!(matches!(refused, Err(NotAdded::NotAgreed)));
    pair.destination.add_stored(stored(&segment, true)).unwrap();
    let refused = pair.destination.add_stored(stored(&segment, true));
    assert!(matches!(refused, Err(NotAdded::FilledAlready)));
}

#[test]
fn bytes_of_no_known_channel_arrive_and_are_told_of() {
    let pair = pair_of(Protected::ByTls, settings());
    pair.connect();
    let near = UnixStream::connect(&pair.near).unwrap();
    let far = pair.far.accept().unwrap().0;
    let up = content(3, 3_000_000);
    let (at_far, _) = exchange(&near, &far, &up, b"");
    assert!(at_far == up, "what arrived differs");
    let opaque = pair.source.report().reduced.unwrap().opaque;
    assert_eq!(opaque.len(), 1, "{opaque:?}");
    assert!(
        opaque[0].1.contains("like no channel of QEMU"),
        "{opaque:?}"
    );
}

#[test]
fn a_page_that_comes_in_pieces_waits_for_its_end_and_a_channel_that_ends_within_one_loses_nothing()
{
    let pair = pair_of(Protected::Plain, settings());
    pair.connect();
    let mut near = UnixStream::connect(&pair.near).unwrap();
    let mut far = pair.far.accept().unwrap().0;
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = multifd(&[vec![(1, page(1)), (2, page(2)), (3, page(3))]]);
    // A packet's header, and its first page without its end.
    let (first, rest) = sent.split_at(64 + 1344 + PAGE - 1);
    near.write_all(first).unwrap();
    let mut arrived = vec![0; 64 + 1344];
    far.read_exact(&mut arrived).unwrap();
    near.write_all(&rest[..PAGE / 2]).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    far.read_to_end(&mut arrived).unwrap();
    assert!(
        arrived == sent[..first.len() + PAGE / 2],
        "what arrived differs"
    );
}

#[test]
fn a_peer_that_reduces_without_leave_breaks_its_channel_and_qemu_gets_nothing_of_it() {
    let near = settings();
    let far = Settings {
        reduction: None,
        ..near
    };
    broken(near, far, "which was not agreed on");
}

#[test]
fn a_peer_whose_kept_pages_are_others_breaks_its_channel_and_qemu_gets_nothing_of_it() {
    let near = settings();
    let reduction = near.reduction.map(|agreed| Reduction {
        kept_pages: 2,
        ..agreed
    });
    broken(near, Settings { reduction, ..near }, "there are 2 places");
}

/// Two ends that do not agree: the destination's channel breaks for that reason.
fn broken(near: Settings, far: Settings, reason: &str) {
    let mut pair = pair_of(Protected::ByTls, near);
    let (tell, events) = std::sync::mpsc::channel();
    let socket = pair.far.local_addr().unwrap();
    let far = Relay::destination(far, socket.as_pathname().unwrap(), move |e| {
        drop(tell.send(e))
    });
    pair.replace_destination(far.unwrap());
    pair.connect();
    let near = UnixStream::connect(&pair.near).unwrap();
    let mut at_qemu = pair.far.accept().unwrap().0;
    at_qemu.set_read_timeout(Some(PATIENCE)).unwrap();
    let writes = thread::spawn(move || (&near).write_all(&rounds(0)));
    let mut arrived = Vec::new();
    let _ = at_qemu.read_to_end(&mut arrived);
    assert_eq!(arrived, b"");
    let told = loop {
        if let Event::ChannelBroke { reason, .. } = events.recv_timeout(PATIENCE).unwrap() {
            break reason;
        }
    };
    assert!(told.contains(reason), "{told}");
    // QEMU sees its connection fail.
    assert!(writes.join().unwrap().is_err());
}
