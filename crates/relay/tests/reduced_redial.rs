//! Lanes that are lost and come back while bytes are reduced.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod files;
mod network;
mod pair;
mod streams;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use drover_pagestore::{Segment, shape_within};
use drover_reduce::Counts;
use drover_relay::{
    BaselineFile, Codec, End, Level, Policy, Settings, StoredFile, StoredPages, Way, open_lanes,
};
use drover_sim::rng::Rng;
use files::{baseline, checkpoint, given, sealed};
use network::Network;
use pair::{PATIENCE, Pair, Protected, ended, order, pair_of};
use streams::{PAGE, adds_up, by, main_channel, of_stored, rounds_of, stored, telling, until};

/// Of the faults, with each policy, in the clear and encrypted.
const SEEDS: u64 = 3;

/// Most bytes that the far QEMU reads before a lane may be cut again.
const READ_BYTES: u64 = 96 << 10;

/// What a host brings to a session.
#[derive(Default)]
struct Brings {
    stored: Vec<StoredFile>,
    baseline: Option<BaselineFile>,
}

/// What became of a guest's pages at both ends.
struct Became {
    counts: Counts,
    source: StoredPages,
    destination: StoredPages,
}

/// Carries these channels, of which the first is the main one, over lanes that are cut all the time, and holds what arrives against
/// what was sent. Begins once the source has heard of so many stored pages.
fn carries(
    (pair, told): (&Pair, u64),
    sent: &[Vec<u8>],
    dice: &mut Rng,
    [source, destination]: [Brings; 2],
) -> Became {
    for (relay, brings) in [(&pair.source, source), (&pair.destination, destination)] {
        for file in brings.stored {
            relay.add_stored(file).unwrap();
        }
        if let Some(file) = brings.baseline {
            relay.add_baseline(file).unwrap();
        }
    }
    let network = Network::to(pair.port());
    let order = order(network.port, pair.security.clone());
    let opened = open_lanes(&order);
    assert_eq!(opened.failures, vec![]);
    pair.source.keep_lanes(order, opened).unwrap();
    let channels = sent.iter().map(|bytes| {
        let near = UnixStream::connect(&pair.near).unwrap();
        (bytes, near, pair.far.accept().unwrap().0)
    });
    let channels: Vec<_> = channels.collect();
    until(|| of_stored(&pair.source).told >= told);
    thread::scope(|scope| {
        for (bytes, near, far) in &channels {
            scope.spawn(|| write(near, bytes));
            let (dice, network) = (Rng::new(dice.next_u64()), &network);
            scope.spawn(move || read(far, bytes, network, dice));
        }
    });
    assert_eq!(ended(&pair.source_events).0, End::Finished);
    assert_eq!(ended(&pair.destination_events).0, End::Finished);
    adds_up(pair, sent);
    let report = pair.source.report();
    let again = report.lanes.iter().filter(|lane| lane.stats.lane >= 4);
    let again: u64 = again.map(|lane| lane.stats.sent_bytes).sum();
    assert!(again > 0, "{:?}", report.lanes);
    let reduced = report.reduced.unwrap();
    assert_eq!(reduced.opaque, []);
    Became {
        counts: reduced.counts,
        source: report.stored.unwrap(),
        destination: pair.destination.report().stored.unwrap(),
    }
}

fn write(mut near: &UnixStream, bytes: &[u8]) {
    near.set_write_timeout(Some(PATIENCE)).unwrap();
    near.write_all(bytes).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
}

/// Reads a channel to its end, and cuts one lane or all of them now and then; once all of them for sure, and in the middle of it.
fn read(mut far: &UnixStream, bytes: &[u8], network: &Network, mut dice: Rng) {
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut seen = 0;
    let mut cut = bytes.len() / 4;
    while seen < bytes.len() {
        let most = (bytes.len() - seen).min(dice.between(1, READ_BYTES) as usize);
        let mut arrived = vec![0; most];
        far.read_exact(&mut arrived).unwrap();
        assert!(arrived == bytes[seen..seen + most], "bytes differ");
        seen += most;
        if seen > cut || dice.chance(3) {
            cut = usize::MAX;
            network.cut_all();
        } else if dice.chance(15) {
            network.cut_one(dice.next_u64() as usize);
        }
    }
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    far.shutdown(Shutdown::Write).unwrap();
}

/// A guest leaves a host that keeps a checkpoint of it for one that shares its pages and records how it arrived; then it comes back,
/// and another guest follows.
fn to_and_fro(policy: Policy, protected: Protected, seed: u64) -> [Became; 3] {
    let settings = Settings {
        outage_limit: PATIENCE,
        pass_through: protected == Protected::Plain,
        ..telling(by(policy))
    };
    let mut dice = Rng::new(seed);
    let (left, arrived) = (checkpoint(), baseline());
    let shape = shape_within(16 << 20, PAGE as u32, false).unwrap();
    let shared = Segment::in_memory(shape).unwrap();
    let sent = |numbers: [&[u8]; 2]| {
        let [zero, one] = numbers;
        [main_channel(&[]), rounds_of(0, zero), rounds_of(1, one)]
    };

    let pair = pair_of(protected, settings);
    let hosts = [
        Brings {
            stored: vec![sealed(&left, true)],
            baseline: None,
        },
        Brings {
            stored: vec![stored(&shared, true)],
            baseline: Some(given(&arrived)),
        },
    ];
    let rounds = sent([&[0, 1, 2]; 2]);
    let leaves = carries((&pair, 0), &rounds, &mut dice, hosts);
    // The thread that stores them is the last one to be given a processor.
    let mut last = (0, 0);
    until(|| {
        let added = of_stored(&pair.source).added;
        let same = if last.0 == added { last.1 + 1 } else { 0 };
        last = (added, same);
        added >= 250 && same >= 20
    });
    let taken = |pages: StoredPages| pages.recorded + pages.unrecorded;
    until(|| taken(of_stored(&pair.destination)) == 1200);
    drop(pair);

    let pair = pair_of(protected, settings);
    let hosts = [
        Brings {
            stored: vec![],
            baseline: Some(given(&arrived)),
        },
        Brings {
            stored: vec![sealed(&left, false)],
            baseline: None,
        },
    ];
    let there = left.count().unwrap().into();
    let rounds = sent([&[2, 3], &[5, 6]]);
    let returns = carries((&pair, there), &rounds, &mut dice, hosts);
    drop(pair);

    let pair = pair_of(protected, settings);
    let there = shared.count().unwrap().into();
    let hosts = [
        Brings::default(),
        Brings {
            stored: vec![stored(&shared, true)],
            baseline: None,
        },
    ];
    let rounds = sent([&[0, 1, 2]; 2]);
    let follows = carries((&pair, there), &rounds, &mut dice, hosts);
    [leaves, returns, follows]
}

/// With each seed.
fn each(policy: Policy, protected: Protected, check: impl Fn([Became; 3])) {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        check(to_and_fro(policy, protected, seed));
    }
}

/// Of what is described in any case, pages were referred to by all means.
fn is_reduced([leaves, returns, follows]: [Became; 3]) {
    let counts = leaves.counts;
    assert_eq!(counts.passed, 0, "{counts:?}");
    assert!(counts.same + counts.changed > 600, "{counts:?}");
    let counts = returns.counts;
    assert!(
        counts.stored > 50 && counts.stored_changed > 50,
        "{counts:?}"
    );
    assert!(returns.source.compared >= counts.stored_changed);
    assert!(returns.destination.read_sealed >= counts.stored);
    let counts = follows.counts;
    assert!(counts.stored > 100, "{counts:?}");
    assert!(follows.destination.read >= counts.stored);
}

const fn always(codec: Codec) -> Policy {
    Policy::Always(Way::with(codec))
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_are_described() {
    each(always(Codec::None), Protected::Plain, is_reduced);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_are_described_and_encrypted() {
    each(always(Codec::None), Protected::ByTls, is_reduced);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_go_through_lz4() {
    each(always(Codec::Lz4), Protected::Plain, is_reduced);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_go_through_lz4_and_are_encrypted() {
    each(always(Codec::Lz4), Protected::ByTls, is_reduced);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_go_through_zstd() {
    each(zstd(), Protected::Plain, is_reduced);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_pages_go_through_zstd_and_are_encrypted() {
    each(zstd(), Protected::ByTls, is_reduced);
}

fn zstd() -> Policy {
    always(Codec::Zstd(Level::new(1).unwrap()))
}

#[test]
fn lanes_may_be_killed_all_the_time_while_it_is_decided_what_is_fastest() {
    each(Policy::Fastest, Protected::Plain, drop);
}

#[test]
fn lanes_may_be_killed_all_the_time_while_what_is_fastest_is_decided_and_encrypted() {
    each(Policy::Fastest, Protected::ByTls, drop);
}
