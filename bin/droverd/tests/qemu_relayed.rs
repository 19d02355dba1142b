//! Guests of real QEMUs between two relays, without agents: ordered to do what agents do not order, too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

#[path = "../../../crates/hypervisor/tests/common/mod.rs"]
mod common;
#[path = "../../../crates/relay/tests/pair/mod.rs"]
mod pair;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::pair::{CONTENT, Pair as Qemus, SLOW, multifd};
use common::{Qemu, state, status};
use drover_hypervisor::{
    Compression, MachineEvents, MigrationAddress, MigrationSettings, MigrationStatus, Movable,
    RunState,
};
use drover_relay::{
    Codec, Expected, LaneListener, Level, Policy, Reduced, Reduction, Relay, Settings, Sizes, Way,
    open_lanes,
};
use pair::{Protected, SETTINGS, TOKEN, id, order, securities};

on_each_qemu! {
    what_qemu_compresses_by_itself_is_carried_as_it_is_and_told_of
    what_it_does_not_compress_is_reduced
    pages_that_follow_by_postcopy_are_reduced
}

const PAGE: usize = 4096;

/// Two relays, between two QEMUs.
struct Relays {
    source: Relay,
    destination: Arc<Relay>,
    near: MigrationAddress,
    _listener: LaneListener,
    _expected: Expected,
}

impl Relays {
    fn between(qemus: &Qemus) -> Self {
        let settings = Settings {
            sizes: Sizes {
                chunk_bytes: 64 << 10,
                window: 6,
            },
            reduction: Some(Reduction {
                page_bytes: PAGE as u32,
                kept_pages: 8 << 10,
                stored_pages: 0,
                window_log: 20,
                policy: Policy::Always(Way::with(Codec::Zstd(Level::USUAL))),
            }),
            ..SETTINGS
        };
        let near = qemus.place.file("near");
        let MigrationAddress::Unix(far) = qemus.place.socket() else {
            panic!("it is a socket");
        };
        let source = Relay::source(settings, &near, |_| {}).unwrap();
        let destination = Arc::new(Relay::destination(settings, &far, |_| {}).unwrap());
        let (security, theirs) = securities(Protected::ByTls);
        let listener = LaneListener::hold(0).unwrap();
        let expected = listener.expect(id(), TOKEN, theirs, &destination);
        assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
        let opened = open_lanes(&order(listener.port(), security));
        assert_eq!(opened.failures, vec![]);
        for (plan, lane) in opened.lanes {
            source.add_lane(plan.lane, plan.path, lane).unwrap();
        }
        Self {
            source,
            destination,
            near: MigrationAddress::Unix(near),
            _listener: listener,
            _expected: expected,
        }
    }

    /// What became of the bytes, which the destination's QEMU has.
    fn reduced(&self) -> Reduced {
        let reduced = self.source.report().reduced.unwrap();
        let expanded = self.destination.report().expanded.unwrap();
        assert!(expanded.raw >= reduced.counts.raw, "{expanded:?}");
        reduced
    }
}

/// Begins to migrate through two relays.
async fn begun(qemus: &Qemus, settings: &MigrationSettings) -> (Relays, [MachineEvents; 2]) {
    qemus.prepare(settings).await;
    let relays = Relays::between(qemus);
    let events = [qemus.source.events(), qemus.destination.events()];
    qemus.source.migrate(&relays.near).await.unwrap();
    (relays, events)
}

/// Waits until both QEMUs say that all has arrived, and looks whether it did.
async fn arrived(qemus: &Qemus, events: &mut [MachineEvents; 2]) {
    for events in events {
        status(events, MigrationStatus::Completed).await;
    }
    qemus.assert_memory_is_equal().await;
}

/// All of the content, which is noise, was found to be pages that cross as they are.
fn all_was_found(reduced: &Reduced) {
    assert_eq!(reduced.opaque, []);
    let counts = reduced.counts;
    // A page of noise looks like another one once in a thousand.
    assert!(counts.dense > counts.ordinary, "{counts:?}");
    let pages = counts.dense + counts.ordinary;
    assert!(pages as usize >= CONTENT / PAGE, "{counts:?}");
    // The rest of its memory, nearly.
    assert!(reduced.zero > 1000, "{reduced:?}");
}

async fn what_qemu_compresses_by_itself_is_carried_as_it_is_and_told_of(qemu: Qemu) {
    let qemus = Qemus::new(&qemu, &qemu, None).await;
    let settings = MigrationSettings {
        compression: Some(Compression::Zstd { level: 1 }),
        ..multifd()
    };
    let (relays, mut events) = begun(&qemus, &settings).await;
    arrived(&qemus, &mut events).await;
    let reduced = relays.reduced();
    let opaque = &reduced.opaque;
    assert_eq!(opaque.len(), usize::from(settings.channels), "{opaque:?}");
    for (channel, why) in opaque {
        assert!(*channel > 0, "{opaque:?}");
        assert!(
            why.ends_with("QEMU compresses it itself, with zstd"),
            "{why}"
        );
    }
    assert_eq!(reduced.counts.dense, 0, "{:?}", reduced.counts);
}

async fn what_it_does_not_compress_is_reduced(qemu: Qemu) {
    let qemus = Qemus::new(&qemu, &qemu, None).await;
    let (relays, mut events) = begun(&qemus, &multifd()).await;
    arrived(&qemus, &mut events).await;
    all_was_found(&relays.reduced());
}

async fn pages_that_follow_by_postcopy_are_reduced(qemu: Qemu) {
    let qemus = Qemus::new(&qemu, &qemu, None).await;
    let settings = MigrationSettings {
        max_bandwidth: SLOW,
        postcopy: true,
        ..MigrationSettings::default()
    };
    let (relays, mut events) = begun(&qemus, &settings).await;
    status(&mut events[0], MigrationStatus::Active).await;
    qemus.source.start_postcopy().await.unwrap();
    state(&qemus.destination, &[RunState::Paused]).await;
    qemus.destination.resume().await.unwrap();
    arrived(&qemus, &mut events).await;
    all_was_found(&relays.reduced());
}
