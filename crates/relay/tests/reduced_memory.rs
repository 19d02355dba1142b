//! The memory that two relays in one process take while all that reduction does goes on at once, held against what bounds each
//! part. Each test is to be run in a process of its own, whose memory is measured, as nextest does.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod bounds;
mod pair;
mod streams;

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use bounds::{Files, MIB, Session};
use drover_pagestore::{Baseline, Recorder, SealKey, Segment, shape_within};
use drover_qstream::Block;
use drover_relay::{
    BaselineFile, Codec, End, Level, Policy, Reduction, Relay, Settings, Sizes, Way, sizes,
};
use drover_types::{BitRate, ByteRate};
use pair::{Pair, Protected, ended, pair_of};
use streams::{PAGE, by, main_channel, multifd, of_stored, packet, stored, until};

/// Of QEMU's, beside the main channel.
const CHANNELS: u64 = 2;

/// Pages of the guest, of which each channel sends its share, and then so many of them again.
const PAGES: u64 = 24_000;
const AGAIN: u64 = 6_000;

/// Fewer than the guest has, so that places are given to other pages.
const KEPT: u32 = 12 << 10;

/// Pages of the guest's baseline at the source.
const COMPARED: u64 = 4_000;

/// In packets as QEMU's.
const PACKET: usize = 128;

/// What lines carry on which it is worth while to make fewer bytes, also where nothing is optimised.
const LINE: ByteRate = ByteRate(8_000_000);

/// Lanes of [`pair::order`].
const LANES: u64 = 4;

/// A page of a guest: noise, which nothing makes smaller, and text, in turn.
fn page(number: u64, round: u64) -> Vec<u8> {
    let mut state = (number << 8 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page: Vec<u8> = if (number / CHANNELS).is_multiple_of(2) {
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..PAGE / 8).flat_map(|_| next().to_le_bytes()).collect()
    } else {
        format!("page {number:08}: orders, customers and tickets. ")
            .into_bytes()
            .repeat(PAGE / 40)
    };
    page.truncate(PAGE);
    page[..8].copy_from_slice(&(number << 8 | round).to_be_bytes());
    page
}

/// Sends what a channel has of the guest, and returns what that was.
fn sends(mut to: UnixStream, channel: u64) -> u64 {
    let mut sent = DefaultHasher::new();
    let mut send = |bytes: &[u8]| {
        sent.write(bytes);
        to.write_all(bytes).unwrap();
    };
    send(&multifd(&[]));
    for (round, count) in [(0, PAGES), (1, AGAIN)] {
        let numbers: Vec<_> = (0..count).filter(|n| n % CHANNELS == channel).collect();
        for numbers in numbers.chunks(PACKET) {
            let pages = numbers.iter().map(|number| (*number, page(*number, round)));
            send(&packet(&pages.collect()));
        }
    }
    to.shutdown(Shutdown::Write).unwrap();
    sent.finish()
}

/// Takes what a channel gives, and returns what that was.
fn takes(mut from: UnixStream) -> u64 {
    let (mut taken, mut buffer) = (DefaultHasher::new(), vec![0; 256 << 10]);
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return taken.finish(),
            count => taken.write(&buffer[..count]),
        }
    }
}

fn settings(sizes: Sizes, policy: Policy) -> Settings {
    let settings = by(policy);
    Settings {
        sizes,
        channels_max: 5,
        reduction: settings.reduction.map(|agreed| Reduction {
            kept_pages: KEPT,
            window_log: 22,
            stored_pages: 400_000,
            ..agreed
        }),
        ..settings
    }
}

fn segment() -> Segment {
    let shape = shape_within(2 * PAGES * PAGE as u64, PAGE as u32, false).unwrap();
    Segment::in_memory(shape).unwrap()
}

fn seal() -> SealKey {
    SealKey::new([3; 32])
}

fn baseline() -> File {
    let file = tempfile::tempfile().unwrap();
    let shape = Baseline::shape_within(2 * PAGES * PAGE as u64, PAGE as u32).unwrap();
    Baseline::make(&file, shape).unwrap();
    file
}

fn given(file: &File) -> BaselineFile {
    BaselineFile {
        file: file.try_clone().unwrap(),
        seal: seal(),
        waiting_bytes: 0,
    }
}

/// The guest as it arrived at the source, in an earlier round.
fn arrived() -> File {
    let file = baseline();
    let mut recorder = Recorder::new(file.try_clone().unwrap(), &seal()).unwrap();
    let block = u64::from(Block::named(b"pc.ram").number()) << 40;
    for number in 0..COMPARED {
        let left_out = recorder.record(&[block | number], &page(number, 9));
        assert_eq!(left_out.unwrap(), 0);
    }
    file
}

/// A line of `/proc/self/status`, in bytes.
fn status(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|own| own.strip_prefix(line));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap() << 10
}

/// Moves a guest, and returns how much memory that took at most.
fn moved(pair: &Pair) -> u64 {
    // The most from now on (`proc_pid_clear_refs(5)`).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    pair.connect();
    let open = || {
        let near = UnixStream::connect(&pair.near).unwrap();
        (near, pair.far.accept().unwrap().0)
    };
    let (mut main, main_far) = open();
    let channels: Vec<_> = (0..CHANNELS).map(|channel| (channel, open())).collect();
    let back = main_far.try_clone().unwrap();
    let main_taken = thread::spawn(move || takes(main_far));
    let threads: Vec<_> = channels
        .into_iter()
        .map(|(channel, (near, far))| {
            let sent = thread::spawn(move || sends(near, channel));
            (sent, thread::spawn(move || takes(far)))
        })
        .collect();
    for (sent, taken) in threads {
        assert_eq!(sent.join().unwrap(), taken.join().unwrap());
    }
    let devices = main_channel(&[]);
    main.write_all(&devices).unwrap();
    main.shutdown(Shutdown::Write).unwrap();
    back.shutdown(Shutdown::Write).unwrap();
    let mut all = DefaultHasher::new();
    all.write(&devices);
    assert_eq!(main_taken.join().unwrap(), all.finish());
    assert_eq!(ended(&pair.source_events).0, End::Finished);
    status("VmHWM:") - before
}

/// Waits until each page was stored, recorded or left out.
fn settled(relay: &Relay) -> [u64; 2] {
    let all = || {
        let stored = of_stored(relay);
        [stored.added, stored.recorded]
    };
    let mut last = all();
    until(|| std::mem::replace(&mut last, all()) == last);
    last
}

/// What a move takes at most at both ends together, and what bounds that.
fn measured(policy: Policy) -> [u64; 2] {
    let line = Some(BitRate(1_000_000_000));
    let sizes = sizes(&[line, line], 5);
    let settings = settings(sizes, policy);
    let pair = pair_of(Protected::ByTls, settings);
    let (left, shared) = (segment(), segment());
    pair.source.add_stored(stored(&left, true)).unwrap();
    pair.source.add_baseline(given(&arrived())).unwrap();
    pair.destination.add_stored(stored(&shared, true)).unwrap();
    pair.destination.add_baseline(given(&baseline())).unwrap();
    until(|| of_stored(&pair.source).recorded == COMPARED);
    if policy == Policy::Fastest {
        pair.source.limit(None, Some(LINE));
    }

    let took = moved(&pair);
    let [added, _] = settled(&pair.source);
    let [shares, recorded] = settled(&pair.destination);
    assert!(
        added > PAGES / 8 && recorded > PAGES / 8,
        "{added} {recorded}"
    );
    let told = of_stored(&pair.source).told;
    println!(
        "{added} pages stored at the source, {shares} at the destination, which told {told} and recorded {recorded}"
    );

    let session = Session {
        chunk_bytes: sizes.chunk_bytes.into(),
        lanes: LANES,
        channels: CHANNELS + 3,
    };
    let agreed = settings.reduction.unwrap();
    let windows = u64::from(sizes.window) * session.chunk_bytes * session.channels;
    let files = |stored: &Segment, baseline| Files {
        stored: stored.count().unwrap().into(),
        baseline,
    };
    let both = 2 * (windows + session.beside_the_windows())
        + bounds::agreed_memory(&agreed, session.channels, told)
        + session.reduced_at_source(&agreed, files(&left, COMPARED))
        + bounds::agreed_memory(&agreed, session.channels, 0)
        + session.reduced_at_destination(&agreed, files(&shared, PAGES));
    [took, both]
}

/// Holds it against that, and returns what it took.
fn is_bounded(policy: Policy) -> u64 {
    let [took, both] = measured(policy);
    println!("{policy:?}: {} MiB of {} MiB", took / MIB, both / MIB);
    assert!(took <= both, "{policy:?}: {took} of {both}");
    took
}

#[test]
fn two_relays_that_decide_share_store_and_record_take_no_more_than_the_sum_of_their_bounds() {
    is_bounded(Policy::Fastest);
}

#[test]
fn two_relays_that_pack_as_slowly_as_they_can_take_no_more_than_the_sum_of_their_bounds() {
    let took = is_bounded(Policy::Always(Way::On {
        codec: Codec::Zstd(Level::SLOWEST),
        dense: true,
    }));
    // As both ends keep as many pages as were agreed on.
    let kept = 2 * u64::from(KEPT) * PAGE as u64;
    assert!(took > kept * 9 / 10, "{took} of {kept}");
}
