//! A guest that goes away and comes back: what arrived is recorded, and what changed since crosses as a change.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod files;
mod pair;
mod streams;

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::RecvTimeoutError;

use drover_pagestore::{Baseline, Segment, Shape, shape_within};
use drover_reduce::Counts;
use drover_relay::{ByeCode, Codec, End, NotAdded, Policy, StoredFile, StoredPages, Way};
use files::{baseline, checkpoint, given, sealed};
use pair::{BOTH, PATIENCE, Pair, Protected, ended, exchange, pair_of};
use streams::{PAGE, by, main_channel, of_stored, round, settings, stored, telling, until};

/// Carries what one channel sends, once that has returned, and holds what arrives against it.
fn carry(pair: &Pair, bytes: &[u8], ready: impl FnOnce()) {
    let near = UnixStream::connect(&pair.near).unwrap();
    let far = pair.far.accept().unwrap().0;
    ready();
    let (at_far, _) = exchange(&near, &far, bytes, b"the way back");
    assert!(at_far == bytes, "what arrived differs");
    assert_eq!(ended(&pair.source_events).0, End::Finished);
}

/// What a host has stored of a guest that left it, and another of how the guest arrived, in that last round.
fn went(protected: Protected, policy: Policy) -> (Segment, File) {
    let shape = shape_within(16 << 20, PAGE as u32, false).unwrap();
    let segment = Segment::in_memory(shape).unwrap();
    let file = baseline();
    let pair = pair_of(protected, telling(by(policy)));
    pair.source.add_stored(stored(&segment, true)).unwrap();
    pair.destination.add_baseline(given(&file)).unwrap();
    pair.connect();
    carry(&pair, &main_channel(&[round(0), round(1)]), || {});
    let all = [round(0), round(1)].concat();
    let different: HashSet<_> = all.into_iter().map(|(_, page)| page).collect();
    until(|| of_stored(&pair.source).added == different.len() as u64);
    until(|| of_stored(&pair.destination).recorded == 800);
    assert_eq!(of_stored(&pair.destination).unrecorded, 0);
    (segment, file)
}

/// What becomes of the pages when the guest comes back with them in another round.
fn comes_back(protected: Protected, segment: &Segment, file: &File) -> (Counts, StoredPages) {
    let pair = pair_of(protected, telling(settings()));
    pair.destination.add_stored(stored(segment, false)).unwrap();
    pair.source.add_baseline(given(file)).unwrap();
    // Read in a thread of its own.
    until(|| of_stored(&pair.source).recorded == 400);
    pair.connect();
    let there = u64::from(segment.count().unwrap());
    carry(&pair, &main_channel(&[round(9)]), || {
        until(|| of_stored(&pair.source).told == there);
    });
    let report = pair.source.report();
    (report.reduced.unwrap().counts, report.stored.unwrap())
}

#[test]
fn what_changed_of_a_page_since_the_guest_arrived_crosses_as_a_change() {
    let reduced = Policy::Always(Way::On {
        codec: Codec::Lz4,
        dense: true,
    });
    // What was carried as it is, is found by its address as well.
    for policy in [reduced, Policy::Always(Way::Off)] {
        for protected in BOTH {
            let (segment, file) = went(protected, policy);
            let (counts, pages) = comes_back(protected, &segment, &file);
            let compared = pages.compared;
            // Those that are like another one are referred to.
            assert_eq!(counts.stored_changed + counts.same, 400, "{counts:?}");
            assert_eq!(counts.stored_changed, compared);
            assert!(compared > 200, "{counts:?}");
            assert!(counts.change_bytes < compared * 64, "{counts:?}");
        }
    }
}

#[test]
fn a_baseline_that_was_damaged_or_is_another_guests_costs_bytes_and_nothing_else() {
    let reduced = Policy::Always(Way::with(Codec::Lz4));
    let (segment, file) = went(Protected::Plain, reduced);
    file.write_all_at(&vec![0; 1 << 20], 64 << 10).unwrap();
    let (counts, pages) = comes_back(Protected::Plain, &segment, &file);
    let found = counts.stored_changed;
    assert_eq!((found, pages.trouble), (pages.compared, None));
    let as_they_are = counts.ordinary + counts.dense;
    assert!(found > 0 && as_they_are > 0, "{counts:?}");
    assert_eq!(found + as_they_are + counts.same, 400, "{counts:?}");
    // In the middle of the first page.
    file.set_len(37 << 10).unwrap();
    let (counts, pages) = comes_back(Protected::Plain, &segment, &file);
    assert_eq!(counts.stored_changed, 0);
    let trouble = pages.trouble.unwrap();
    assert!(trouble.contains("baseline cannot be read"), "{trouble}");
    // Pages of which the destination has no such version.
    let (_, file) = went(Protected::Plain, reduced);
    let (counts, pages) = comes_back(Protected::Plain, &brief(), &file);
    assert!(
        counts.stored_changed == 0 && pages.compared > 200,
        "{counts:?}"
    );
}

#[test]
fn what_waits_to_be_stored_is_written_before_nothing_of_the_relay_is_left() {
    let segment = checkpoint();
    let pair = pair_of(Protected::ByTls, settings());
    let waits = StoredFile {
        waiting_bytes: 64 << 20,
        ..sealed(&segment, true)
    };
    pair.source.add_stored(waits).unwrap();
    pair.connect();
    let all = [round(0), round(1)];
    carry(&pair, &main_channel(&all), || {});
    let Pair {
        source,
        source_events,
        ..
    } = pair;
    let (mut stored, behind) = (of_stored(&source), source.behind().unwrap());
    source.close(ByeCode::Finished);
    drop(source);
    let over = loop {
        if let Err(over) = source_events.recv_timeout(PATIENCE) {
            break over;
        }
    };
    assert_eq!(over, RecvTimeoutError::Disconnected);
    let different: HashSet<_> = all.concat().into_iter().map(|(_, page)| page).collect();
    assert_eq!(segment.count().unwrap() as usize, different.len());
    behind.report_end(&mut stored);
    assert_eq!(
        (stored.added, stored.waiting, stored.left_out),
        (different.len() as u64, 0, 0)
    );
}

/// A file with one page that no guest has.
fn brief() -> Segment {
    let shape = shape_within(16 << 20, PAGE as u32, false).unwrap();
    let segment = Segment::in_memory(shape).unwrap();
    let filled = stored(&segment, true);
    let mut filler = drover_pagestore::Filler::new(segment.file(), filled.key, None).unwrap();
    filler.add(&[200; PAGE]).unwrap();
    segment
}

#[test]
fn a_baseline_that_does_not_fit_is_refused_and_no_second_one_taken() {
    let pair = pair_of(Protected::Plain, telling(settings()));
    let other = tempfile::tempfile().unwrap();
    let (page_bytes, places) = (1024, 8);
    Baseline::make(&other, Shape { page_bytes, places }).unwrap();
    for relay in [&pair.source, &pair.destination] {
        let refused = relay.add_baseline(given(&other)).unwrap_err();
        assert!(matches!(refused, NotAdded::PageBytes { found: 1024, .. }));
        let none = relay.add_baseline(given(&tempfile::tempfile().unwrap()));
        assert!(matches!(none, Err(NotAdded::Segment(_))));
        relay.add_baseline(given(&baseline())).unwrap();
        let again = relay.add_baseline(given(&baseline())).unwrap_err();
        assert!(matches!(again, NotAdded::BaselineAlready));
    }
}
