//! Migrations between real QEMUs that are cancelled, stall, or lose a side.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::pair::{CONTENT, Pair, SLOW, multifd};
use common::{PATIENCE, Place, Qemu, Running, event, guest, kill, state, status};
use drover_hypervisor::{
    ExitStatus, Machine, MachineError, MachineEvent, MachineEvents, MigrationAddress,
    MigrationSettings, MigrationStatus, Movable, QmpError, RunState, Start,
};
use drover_types::Bytes;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

on_each_qemu! {
    a_cancelled_migration_leaves_the_guest_running_and_can_be_repeated
    a_migration_that_stalls_is_cut_out_of_band
    a_cancel_held_up_by_a_stalled_channel_is_finished_by_a_yank
    a_source_hanging_in_its_last_round_is_freed_out_of_band
    a_dying_destination_fails_the_migration_and_the_guest_goes_on
    a_dying_source_ends_the_destination
    a_migration_to_nobody_fails_with_its_reason
}

/// What a cancel ends with: now and then it is `failed`.
async fn ended_without_completing(events: &mut MachineEvents) {
    let over = |event: &MachineEvent| matches!(event, MachineEvent::MigrationStatus { status, .. } if status.is_final());
    let MachineEvent::MigrationStatus { status, .. } = event(events, over).await else {
        unreachable!()
    };
    let ends = [MigrationStatus::Cancelled, MigrationStatus::Failed];
    assert!(ends.contains(&status), "{status}");
}

/// Reads and drops all that comes on any number of connections until their other ends close, as a
/// relay must after a cancel: see [`Movable::cancel`].
fn sink(socket: &Path) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                // How a connection ends is its sender's business.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    })
}

async fn a_cancelled_migration_leaves_the_guest_running_and_can_be_repeated(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let socket = pair.place.file("sink.sock");
    let sink = sink(&socket);
    let slow = MigrationSettings {
        max_bandwidth: SLOW,
        ..multifd()
    };
    pair.source.set_migration(&slow).await.unwrap();
    let mut events = pair.source.events();
    pair.source
        .migrate(&MigrationAddress::Unix(socket))
        .await
        .unwrap();
    status(&mut events, MigrationStatus::Active).await;
    let progress = pair.source.migration().await.unwrap();
    assert_eq!(progress.status, MigrationStatus::Active);
    assert!(progress.remaining > Bytes(0) && progress.downtime.is_none());

    pair.source.cancel().await.unwrap();
    ended_without_completing(&mut events).await;
    state(&pair.source, &[RunState::Running]).await;
    sink.abort();

    // Nothing of the first attempt stays: neither its limit nor its channels.
    let progress = pair.migrate(&MigrationSettings::default()).await;
    assert_eq!(progress.multifd, Bytes(0));
    pair.assert_memory_is_equal().await;
}

/// Accepts connections and reads nothing from them, as a relay does whose network is gone.
struct Deaf(Vec<UnixStream>);

impl Deaf {
    async fn accept(listener: &UnixListener, connections: usize) -> Self {
        let mut held = Vec::new();
        for _ in 0..connections {
            let accepted = tokio::time::timeout(PATIENCE, listener.accept()).await;
            held.push(accepted.unwrap().unwrap().0);
        }
        Self(held)
    }
}

async fn a_migration_that_stalls_is_cut_out_of_band(qemu: Qemu) {
    let place = Place::new();
    place.content(CONTENT);
    let source = place
        .start(&place.filled(&qemu), "source", Start::Run)
        .await;
    let listener = UnixListener::bind(place.file("migration.sock")).unwrap();
    source.set_migration(&multifd()).await.unwrap();
    let mut events = source.events();
    source.migrate(&place.socket()).await.unwrap();
    let deaf = Deaf::accept(&listener, 4).await;
    status(&mut events, MigrationStatus::Active).await;

    source.yank_migration().await.unwrap();
    status(&mut events, MigrationStatus::Failed).await;
    let progress = source.migration().await.unwrap();
    assert_eq!(progress.status, MigrationStatus::Failed);
    state(&source, &[RunState::Running]).await;
    assert_eq!(deaf.0.len(), 4);
}

/// Waits until nothing more is sent, though the migration goes on.
async fn stalled(source: &Running) {
    let stalling = async {
        let (mut sent, mut unchanged) = (Bytes(0), 0);
        while unchanged < 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let progress = source.migration().await.unwrap();
            assert_eq!(progress.status, MigrationStatus::Active);
            let same = progress.transferred == sent && sent > Bytes(0);
            unchanged = if same { unchanged + 1 } else { 0 };
            sent = progress.transferred;
        }
    };
    tokio::time::timeout(PATIENCE, stalling).await.unwrap();
}

async fn a_cancel_held_up_by_a_stalled_channel_is_finished_by_a_yank(qemu: Qemu) {
    let place = Place::new();
    place.content(CONTENT);
    let source = place
        .start(&place.filled(&qemu), "source", Start::Run)
        .await;
    let listener = UnixListener::bind(place.file("migration.sock")).unwrap();
    source.set_migration(&multifd()).await.unwrap();
    let mut events = source.events();
    source.migrate(&place.socket()).await.unwrap();
    let _deaf = Deaf::accept(&listener, 4).await;
    status(&mut events, MigrationStatus::Active).await;
    stalled(&source).await;
    source.cancel().await.unwrap();
    // QEMU waits for its multifd threads, which wait for their sockets.
    let progress = source.migration().await.unwrap();
    assert_eq!(progress.status.as_str(), "cancelling");
    source.yank_migration().await.unwrap();
    ended_without_completing(&mut events).await;
    state(&source, &[RunState::Running]).await;
}

async fn a_source_hanging_in_its_last_round_is_freed_out_of_band(qemu: Qemu) {
    let place = Place::new();
    place.content(CONTENT);
    let source = place
        .start(&place.filled(&qemu), "source", Start::Run)
        .await;
    let listener = UnixListener::bind(place.file("migration.sock")).unwrap();
    // The last round may take as long as it likes, so it comes with nearly everything left.
    let settings = MigrationSettings {
        downtime_limit: Duration::from_secs(2000),
        max_bandwidth: SLOW,
        ..MigrationSettings::default()
    };
    source.set_migration(&settings).await.unwrap();
    let mut events = source.events();
    source.migrate(&place.socket()).await.unwrap();
    let mut deaf = Deaf::accept(&listener, 1).await;
    // It stops the guest for the last round once it knows how fast it gets rid of something.
    let stop = |event: &MachineEvent| matches!(event, MachineEvent::Stopped { .. });
    let mut buffer = vec![0; 4096];
    let reading = async {
        loop {
            deaf.0[0].read_exact(&mut buffer).await.unwrap();
        }
    };
    tokio::select! {
        _ = event(&mut events, stop) => {}
        () = reading => {}
    }
    // Then nobody reads any more, and QEMU's main loop comes to wait for the socket.
    let hangs = async {
        let short = Duration::from_millis(500);
        let ask = || {
            source
                .qmp()
                .execute_within("query-status", Value::Null, short)
        };
        while !matches!(ask().await, Err(QmpError::TimedOut { .. })) {}
    };
    tokio::time::timeout(PATIENCE, hangs).await.unwrap();
    source.yank_migration().await.unwrap();
    status(&mut events, MigrationStatus::Failed).await;
    state(&source, &[RunState::Running]).await;
}

async fn a_dying_destination_fails_the_migration_and_the_guest_goes_on(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    pair.prepare(&MigrationSettings {
        max_bandwidth: SLOW,
        ..multifd()
    })
    .await;
    let (mut source, _) = pair.begin().await;
    status(&mut source, MigrationStatus::Active).await;
    kill(pair.destination.process());
    status(&mut source, MigrationStatus::Failed).await;
    let exit = tokio::time::timeout(PATIENCE, pair.destination.exited())
        .await
        .unwrap();
    assert_eq!(exit.status, ExitStatus::Signal(9));
    state(&pair.source, &[RunState::Running]).await;
    assert!(pair.source.migration().await.unwrap().status.is_final());
}

async fn a_dying_source_ends_the_destination(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    pair.prepare(&MigrationSettings {
        max_bandwidth: SLOW,
        ..multifd()
    })
    .await;
    let (mut source, _) = pair.begin().await;
    status(&mut source, MigrationStatus::Active).await;
    kill(pair.source.process());
    let exit = tokio::time::timeout(PATIENCE, pair.destination.exited())
        .await
        .unwrap();
    assert_eq!(exit.status, ExitStatus::Code(1));
    assert!(!exit.stderr.is_empty(), "it says why");
    let lost = pair.source.migration().await.unwrap_err();
    assert!(matches!(lost, MachineError::Lost { .. }), "{lost:?}");
}

async fn a_migration_to_nobody_fails_with_its_reason(qemu: Qemu) {
    let place = Place::new();
    let source = place.start(&guest(&qemu), "source", Start::Run).await;
    source.set_migration(&multifd()).await.unwrap();
    let mut events = source.events();
    // Some versions refuse at once, others fail later.
    if source.migrate(&place.socket()).await.is_ok() {
        status(&mut events, MigrationStatus::Failed).await;
    }
    let progress = source.migration().await.unwrap();
    assert_eq!(progress.status, MigrationStatus::Failed);
    let reason = progress.error.unwrap();
    assert!(reason.contains("migration.sock"), "{reason}");
    assert_eq!(source.state().await, Ok(RunState::Running));
    assert_eq!(
        source.yank_migration().await,
        Ok(()),
        "there is nothing to cut"
    );
    let long = MigrationAddress::Unix(format!("/{}", "x".repeat(200)).into());
    let refused = source.migrate(&long).await.unwrap_err().to_string();
    assert!(
        refused.contains("201 bytes") && refused.contains("107"),
        "{refused}"
    );
}
