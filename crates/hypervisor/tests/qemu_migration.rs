//! Migrations between real QEMUs over a UNIX socket.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::pair::{CONTENT, Pair, multifd};
use common::{PATIENCE, Place, Qemu, event, guest, state, status};
use drover_hypervisor::{
    Compression, ExitStatus, Machine, MachineError, MachineEvent, MigrationSettings,
    MigrationStatus, Movable, RunState, Start, ZeroPages,
};
use drover_types::{ByteRate, Bytes};

on_each_qemu! {
    a_guest_moves_over_multifd_with_its_memory_and_runs_there
    a_guest_moves_over_the_main_channel_alone
    a_guest_moves_with_compressed_channels
    a_paused_guest_arrives_paused
    settings_that_contradict_each_other_are_refused
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
