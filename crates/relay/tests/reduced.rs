//! Two relays that agreed to reduce, with channels such as QEMU's.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod files;
mod pair;
mod streams;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use drover_pagestore::{Segment, Shape, shape_within};
use drover_reduce::Counts;
use drover_relay::{
    Codec, DataPath, End, Event, Level, NotAdded, Policy, Reduction, Relay, Settings, Sockets, Way,
};
use files::{checkpoint, sealed};
use pair::{BOTH, PATIENCE, Pair, Protected, content, ended, exchange, pair_of};
use streams::{
    BEGINNING_BYTES, HEADER_BYTES, PAGE, adds_up, by, main_channel, multifd, of_stored, page,
    rounds, settings, stored, telling, until,
};

/// Carries what two channels of multifd and a main channel send, and holds what arrives against it.
fn carries(pair: &Pair) {
    carries_once(pair, || {});
}

/// The same, once all channels are there and that has returned.
fn carries_once(pair: &Pair, ready: impl FnOnce()) {
    let sent = [main_channel(&[]), rounds(0), rounds(1)];
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
            adds_up(&pair, &[main_channel(&[]), rounds(0), rounds(1)]);
            // What stays in the kernel is looked at all the same.
            assert_eq!(reduced.opaque, []);
            let spliced = matches!(report.data_path, DataPath::Splice { .. });
            assert_eq!(spliced, settings.pass_through, "{}", report.data_path);
        }
    }
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

#[test]
fn a_guest_that_left_does_not_bring_back_what_was_stored_where_it_was() {
    for (policy, pass_through) in [
        (Policy::Always(Way::with(Codec::Lz4)), false),
        (Policy::Always(Way::Off), true),
    ] {
        let segment = checkpoint();
        let leaves = Settings {
            pass_through,
            ..by(policy)
        };
        let pair = pair_of(Protected::Plain, leaves);
        pair.source.add_stored(sealed(&segment, true)).unwrap();
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
            .add_stored(sealed(&segment, false))
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
    let main = [main, pair.far.accept().unwrap().0];
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
    assert!(told.contains("cannot be read as it was written"), "{told}");
    // QEMU at either end sees the migration fail.
    for mut end in main {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(end.read(&mut [0]).unwrap_or(0), 0);
    }
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
    let reduced = pair.source.report().reduced.unwrap();
    let opaque = reduced.opaque;
    assert_eq!(opaque.len(), 1, "{opaque:?}");
    let word = (opaque[0].0, "unknown".to_owned());
    assert_eq!(reduced.opaque_words, [word]);
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
    let (first, rest) = sent.split_at(BEGINNING_BYTES + HEADER_BYTES + PAGE - 1);
    near.write_all(first).unwrap();
    let mut arrived = vec![0; BEGINNING_BYTES + HEADER_BYTES];
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
fn a_channel_that_the_destinations_qemu_closes_before_it_read_the_last_byte_leaves_the_main_one_whole()
 {
    let pair = pair_of(Protected::ByTls, settings());
    pair.connect();
    let (main, main_far) = channel_of(&pair);
    let (near, mut far) = channel_of(&pair);
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = multifd(&[vec![(1, page(1))]]);
    (&near).write_all(&sent).unwrap();
    let mut most = vec![0; sent.len() - 1];
    far.read_exact(&mut most).unwrap();
    drop(far);
    loop {
        let event = pair.destination_events.recv_timeout(PATIENCE).unwrap();
        if matches!(event, Event::ChannelBroke { channel: 1, .. }) {
            break;
        }
    }
    let up = main_channel(&[]);
    let (at_far, at_near) = exchange(&main, &main_far, &up, b"I have it all");
    assert!(at_far == up, "what arrived differs");
    assert_eq!(at_near, b"I have it all");
}

/// A channel, at both QEMUs.
fn channel_of(pair: &Pair) -> (UnixStream, UnixStream) {
    let near = UnixStream::connect(&pair.near).unwrap();
    let far = pair.far.accept().unwrap().0;
    (near, far)
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

#[test]
fn a_peer_that_reduces_what_is_not_memory_breaks_its_channel_and_nobody_gets_anything_of_it() {
    fn driven(socket: &Path) -> Sockets<'_> {
        Sockets {
            control: Some(socket),
            ..socket.into()
        }
    }
    broken_at(driven, settings(), settings(), "which was not agreed on");
}

/// Two ends that do not agree: the destination's channel breaks for that reason.
fn broken(near: Settings, far: Settings, reason: &str) {
    broken_at(|memory| memory.into(), near, far, reason);
}

/// The same, with these channels at the destination.
fn broken_at(sockets: fn(&Path) -> Sockets<'_>, near: Settings, far: Settings, reason: &str) {
    let mut pair = pair_of(Protected::ByTls, near);
    let (tell, events) = std::sync::mpsc::channel();
    let socket = pair.far.local_addr().unwrap();
    let sockets = sockets(socket.as_pathname().unwrap());
    let far = Relay::destination(far, sockets, move |e| drop(tell.send(e)));
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
