//! Migrations between real QEMUs over a UNIX socket: done, refused, cancelled, cut and died in.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{PATIENCE, Place, Qemu, Running, event, guest, kill, state, status};
use drover_hypervisor::{
    Compression, ExitStatus, Guest, Machine, MachineError, MachineEvent, MachineEvents,
    MigrationAddress, MigrationProgress, MigrationSettings, MigrationStatus, QmpError, RunState,
    Start, ZeroPages,
};
use drover_types::{ByteRate, Bytes};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};

on_each_qemu! {
    a_guest_moves_over_multifd_with_its_memory_and_runs_there
    a_guest_moves_over_the_main_channel_alone
    a_guest_moves_with_compressed_channels
    a_paused_guest_arrives_paused
    a_cancelled_migration_leaves_the_guest_running_and_can_be_repeated
    a_migration_that_stalls_is_cut_out_of_band
    a_cancel_held_up_by_a_stalled_channel_is_finished_by_a_yank
    a_source_hanging_in_its_last_round_is_freed_out_of_band
    a_dying_destination_fails_the_migration_and_the_guest_goes_on
    a_dying_source_ends_the_destination
    a_migration_to_nobody_fails_with_its_reason
    settings_that_contradict_each_other_are_refused
}

/// Random bytes in a guest's memory: enough to fill several multifd packets on each channel.
const CONTENT: usize = 24 << 20;

/// A rate at which nothing of that size arrives while a test looks at it.
const SLOW: Option<ByteRate> = Some(ByteRate(256 << 10));

fn multifd() -> MigrationSettings {
    MigrationSettings {
        channels: 3,
        ..MigrationSettings::default()
    }
}

/// Two guests of the same kind, the second waiting for the first.
struct Pair {
    place: Place,
    source: Running,
    destination: Running,
    content: Vec<u8>,
}

impl Pair {
    async fn new(from: &Qemu, to: &Qemu, machine: Option<&str>) -> Self {
        let place = Place::new();
        let content = place.content(CONTENT);
        let mut guest = place.filled(from);
        if let Some(machine) = machine {
            guest.machine = Some(format!("{machine},accel=tcg"));
        }
        let source = place.start(&guest, "source", Start::Run).await;
        let kind = source.machine_type().await.unwrap();
        let arriving = Guest {
            binary: to.0.clone(),
            ..guest.with_machine_type(&kind)
        };
        let destination = place.start(&arriving, "destination", Start::Incoming).await;
        Self {
            place,
            source,
            destination,
            content,
        }
    }

    /// Prepares both sides and lets the destination listen.
    async fn prepare(&self, settings: &MigrationSettings) {
        for side in [&self.source, &self.destination] {
            let applied = side.set_migration(settings).await.unwrap();
            assert_eq!(applied.left_out, [""; 0]);
        }
        self.destination
            .listen_incoming(&self.place.socket())
            .await
            .unwrap();
    }

    /// Begins to migrate and waits until memory is under way.
    async fn begin(&self) -> (MachineEvents, MachineEvents) {
        let events = (self.source.events(), self.destination.events());
        self.source.migrate(&self.place.socket()).await.unwrap();
        events
    }

    async fn migrate(&self, settings: &MigrationSettings) -> MigrationProgress {
        self.prepare(settings).await;
        let (mut source, mut destination) = self.begin().await;
        status(&mut source, MigrationStatus::Completed).await;
        status(&mut destination, MigrationStatus::Completed).await;
        self.source.migration().await.unwrap()
    }

    async fn assert_memory_is_equal(&self) {
        let memory = self.place.memory(&self.destination, CONTENT).await;
        assert!(memory == self.content, "the content differs");
    }
}

async fn a_guest_moves_over_multifd_with_its_memory_and_runs_there(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    pair.prepare(&multifd()).await;
    let (mut source, mut destination) = pair.begin().await;
    let stop = |event: &MachineEvent| matches!(event, MachineEvent::Stopped { .. });
    let MachineEvent::Stopped { at: stopped } = event(&mut source, stop).await else {
        unreachable!()
    };
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;

    let progress = pair.source.migration().await.unwrap();
    assert_eq!(progress.status, MigrationStatus::Completed);
    assert_eq!((progress.remaining, progress.error), (Bytes(0), None));
    assert!(progress.multifd.0 > CONTENT as u64 && progress.transferred >= progress.multifd);
    assert!(progress.normal_pages * progress.page_size.0 >= CONTENT as u64);
    assert!(progress.zero_pages > 0 && progress.rounds > 0 && progress.total.0 >= 64 << 20);
    assert!(progress.downtime.is_some() && progress.setup_time.is_some());
    assert!(progress.total_time >= progress.downtime.unwrap_or_default());

    // The destination waits for the verdict, the source never runs again.
    state(&pair.source, &[RunState::PostMigrate]).await;
    let waiting = pair.destination.state().await.unwrap();
    assert_eq!(waiting, RunState::Paused);
    let refused = pair.source.resume().await.unwrap_err();
    assert!(
        matches!(refused, MachineError::WrongState { .. }),
        "{refused:?}"
    );
    pair.assert_memory_is_equal().await;

    pair.destination.resume().await.unwrap();
    let resume = |event: &MachineEvent| matches!(event, MachineEvent::Resumed { .. });
    let MachineEvent::Resumed { at: resumed } = event(&mut destination, resume).await else {
        unreachable!()
    };
    assert!(stopped < resumed && resumed.since(stopped) < PATIENCE);
    assert_eq!(pair.destination.state().await, Ok(RunState::Running));
    assert_eq!(
        pair.source.quit().await.unwrap().status,
        ExitStatus::Code(0)
    );
}

async fn a_guest_moves_over_the_main_channel_alone(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let alone = MigrationSettings {
        return_path: false,
        ..MigrationSettings::default()
    };
    let progress = pair.migrate(&alone).await;
    assert_eq!(progress.multifd, Bytes(0));
    assert!(progress.transferred.0 > CONTENT as u64);
    pair.assert_memory_is_equal().await;
}

async fn a_guest_moves_with_compressed_channels(qemu: Qemu) {
    for compression in [
        Compression::Zlib { level: 1 },
        Compression::Zstd { level: 1 },
    ] {
        let pair = Pair::new(&qemu, &qemu, None).await;
        let settings = MigrationSettings {
            compression: Some(compression),
            ..multifd()
        };
        pair.migrate(&settings).await;
        pair.assert_memory_is_equal().await;
    }
}

async fn a_paused_guest_arrives_paused(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    pair.source.pause().await.unwrap();
    pair.migrate(&multifd()).await;
    assert_eq!(pair.destination.state().await, Ok(RunState::Paused));
    pair.destination.resume().await.unwrap();
    assert_eq!(pair.destination.state().await, Ok(RunState::Running));
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

async fn a_cancelled_migration_leaves_the_guest_running_and_can_be_repeated(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    pair.prepare(&MigrationSettings {
        max_bandwidth: SLOW,
        ..multifd()
    })
    .await;
    let (mut source, _) = pair.begin().await;
    status(&mut source, MigrationStatus::Active).await;
    let progress = pair.source.migration().await.unwrap();
    assert_eq!(progress.status, MigrationStatus::Active);
    assert!(progress.remaining > Bytes(0) && progress.downtime.is_none());

    pair.source.cancel().await.unwrap();
    ended_without_completing(&mut source).await;
    state(&pair.source, &[RunState::Running]).await;
    let ended = tokio::time::timeout(PATIENCE, pair.destination.exited())
        .await
        .unwrap();
    assert_ne!(
        ended.status,
        ExitStatus::Signal(9),
        "the destination ends by itself"
    );

    // Nothing of the first attempt stays: neither its limit nor its channels.
    let again = pair.place.filled(&qemu);
    let kind = pair.source.machine_type().await.unwrap();
    let again = again.with_machine_type(&kind);
    let destination = pair.place.start(&again, "again", Start::Incoming).await;
    let pair = Pair {
        destination,
        ..pair
    };
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

async fn settings_that_contradict_each_other_are_refused(qemu: Qemu) {
    let place = Place::new();
    let source = place.start(&guest(&qemu), "source", Start::Run).await;
    let compression = Some(Compression::Zstd { level: 1 });
    let settings = MigrationSettings {
        compression,
        ..MigrationSettings::default()
    };
    let refused = source.set_migration(&settings).await.unwrap_err();
    assert!(
        matches!(refused, MachineError::Invalid { .. }),
        "{refused:?}"
    );
    for compression in [
        Compression::Zstd { level: 21 },
        Compression::Zlib { level: 10 },
    ] {
        let settings = MigrationSettings {
            compression: Some(compression),
            ..multifd()
        };
        let refused = source.set_migration(&settings).await.unwrap_err();
        assert!(
            matches!(refused, MachineError::Invalid { .. }),
            "{refused:?}"
        );
    }
    let downtime_limit = Duration::from_secs(2001);
    let settings = MigrationSettings {
        downtime_limit,
        ..multifd()
    };
    let refused = source.set_migration(&settings).await.unwrap_err();
    assert!(
        matches!(refused, MachineError::Refused { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn guests_move_between_the_oldest_qemu_and_the_installed_one_both_ways() {
    let (Some(old), Some(new)) = (Qemu::oldest(), Qemu::installed()) else {
        return;
    };
    for (from, to) in [(&old, &new), (&new, &old)] {
        let pair = Pair::new(from, to, Some("pc-q35-7.2")).await;
        let progress = pair.migrate(&multifd()).await;
        assert!(progress.multifd.0 > CONTENT as u64);
        pair.assert_memory_is_equal().await;
        pair.destination.resume().await.unwrap();
        assert_eq!(pair.destination.state().await, Ok(RunState::Running));
    }
}

/// With what QEMU has only since 8.2 and 9.0.
fn newest() -> MigrationSettings {
    let switchover_bandwidth = Some(ByteRate(1 << 30));
    MigrationSettings {
        switchover_bandwidth,
        zero_pages: ZeroPages::Multifd,
        ..multifd()
    }
}

#[tokio::test]
async fn settings_that_the_oldest_qemu_lacks_are_left_out_and_told() {
    let Some(old) = Qemu::oldest() else { return };
    let place = Place::new();
    let source = place.start(&guest(&old), "source", Start::Run).await;
    let applied = source.set_migration(&newest()).await.unwrap();
    assert_eq!(
        applied.left_out,
        ["avail-switchover-bandwidth", "zero-page-detection"]
    );
}

#[tokio::test]
async fn zero_pages_are_found_by_the_multifd_threads_where_both_sides_can() {
    let Some(new) = Qemu::installed() else { return };
    let pair = Pair::new(&new, &new, Some("pc-q35-7.2")).await;
    let progress = pair.migrate(&newest()).await;
    assert!(progress.zero_pages > 0);
    pair.assert_memory_is_equal().await;
}
