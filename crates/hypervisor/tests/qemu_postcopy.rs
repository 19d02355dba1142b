//! Migrations between real QEMUs that go on by postcopy.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::between::Between;
use common::pair::{Pair, SLOW, multifd};
use common::{PATIENCE, Place, Qemu, Running, guest, state, status};
use drover_hypervisor::{
    Machine, MachineError, MachineEvents, MigrationAddress, MigrationSettings, MigrationStatus,
    Movable, RunState, Start,
};
use drover_types::Bytes;
use serde_json::json;
use tokio::time::{sleep, timeout};

/// Between two looks.
const SOON: Duration = Duration::from_millis(50);

on_each_qemu! {
    a_guest_goes_on_at_the_destination_and_its_pages_follow
    a_postcopy_whose_connection_broke_goes_on_over_another
    a_connection_that_breaks_at_the_very_end_of_postcopy_does_not_make_the_source_run_its_guest
    a_guest_that_was_stopped_before_its_migration_failed_can_run_on
    postcopy_is_allowed_beside_multifd_where_qemu_takes_both_and_else_left_out_with_its_reason
    what_needs_another_state_is_refused
}

fn slow() -> MigrationSettings {
    MigrationSettings {
        max_bandwidth: SLOW,
        postcopy: true,
        ..MigrationSettings::default()
    }
}

/// How fast pages follow, in bytes per second; 0 is without a limit.
async fn pages_follow_at(source: &Running, rate: u64) {
    let parameters = json!({"max-postcopy-bandwidth": rate});
    let set = source.qmp().execute("migrate-set-parameters", parameters);
    set.await.unwrap();
}

/// A pair in whose middle of a migration the guest goes on at the destination.
async fn switched(qemu: &Qemu, rate: u64) -> (Pair, MachineEvents, MachineEvents) {
    let pair = Pair::new(qemu, qemu, None).await;
    for side in [&pair.source, &pair.destination] {
        let applied = side.set_migration(&slow()).await.unwrap();
        assert!(applied.postcopy && applied.left_out.is_empty());
    }
    let socket = pair.place.socket();
    pair.destination.listen_incoming(&socket).await.unwrap();
    pages_follow_at(&pair.source, rate).await;
    let (mut source, mut destination) = pair.begin().await;
    status(&mut source, MigrationStatus::Active).await;
    pair.source.start_postcopy().await.unwrap();
    status(&mut source, MigrationStatus::PostcopyActive).await;
    status(&mut destination, MigrationStatus::PostcopyActive).await;
    (pair, source, destination)
}

async fn a_guest_goes_on_at_the_destination_and_its_pages_follow(qemu: Qemu) {
    let (pair, mut source, mut destination) = switched(&qemu, 16 << 20).await;
    state(&pair.destination, &[RunState::Paused]).await;
    pair.destination.resume().await.unwrap();
    assert_eq!(pair.destination.state().await, Ok(RunState::Running));
    state(&pair.source, &[RunState::FinishMigrate]).await;
    let refused = pair.source.resume().await.unwrap_err();
    assert!(
        matches!(refused, MachineError::Refused { .. }),
        "{refused:?}"
    );

    // It waits for each page that has not followed yet.
    pair.assert_memory_is_equal().await;
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;
    let progress = pair.source.migration().await.unwrap();
    assert!(progress.postcopy_bytes > Bytes(1 << 20), "{progress:?}");
    assert!(progress.postcopy_requests > 0, "{progress:?}");
    state(&pair.source, &[RunState::PostMigrate]).await;
    assert_eq!(pair.destination.state().await, Ok(RunState::Running));
}

async fn a_postcopy_whose_connection_broke_goes_on_over_another(qemu: Qemu) {
    let (pair, mut source, mut destination) = switched(&qemu, 1 << 20).await;
    state(&pair.destination, &[RunState::Paused]).await;
    pair.destination.resume().await.unwrap();

    let nobody = MigrationAddress::Unix(pair.place.file("nobody.sock"));
    let again = MigrationAddress::Unix(pair.place.file("again.sock"));
    pair.source.yank_migration().await.unwrap();
    status(&mut source, MigrationStatus::PostcopyPaused).await;
    status(&mut destination, MigrationStatus::PostcopyPaused).await;
    assert_eq!(pair.source.state().await, Ok(RunState::FinishMigrate));

    // It may listen elsewhere as often as is needed.
    pair.destination.recover_incoming(&nobody).await.unwrap();
    pair.destination.recover_incoming(&again).await.unwrap();
    pages_follow_at(&pair.source, 0).await;
    pair.source.migrate_again(&again).await.unwrap();
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;
    assert_eq!(pair.destination.state().await, Ok(RunState::Running));
    pair.assert_memory_is_equal().await;
}

/// Everything was sent, and what came last was lost: the source waits for the destination's word for it.
async fn all_is_sent(source: &Running) {
    let all_sent = async {
        while source.migration().await.unwrap().remaining > Bytes(0) {
            sleep(SOON).await;
        }
    };
    timeout(PATIENCE, all_sent).await.unwrap();
    sleep(SOON).await;
}

async fn a_connection_that_breaks_at_the_very_end_of_postcopy_does_not_make_the_source_run_its_guest(
    qemu: Qemu,
) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    for side in [&pair.source, &pair.destination] {
        assert!(side.set_migration(&slow()).await.unwrap().postcopy);
    }
    let socket = pair.place.socket();
    pair.destination.listen_incoming(&socket).await.unwrap();
    let (sending, receiving) = (
        pair.place.file("between.sock"),
        pair.place.file("migration.sock"),
    );
    assert_eq!(socket, MigrationAddress::Unix(receiving.clone()));
    let between = Between::new(&sending, &receiving);
    pages_follow_at(&pair.source, 1 << 20).await;
    let (mut source, mut destination) = (pair.source.events(), pair.destination.events());
    pair.source
        .migrate(&MigrationAddress::Unix(sending))
        .await
        .unwrap();
    status(&mut source, MigrationStatus::Active).await;
    pair.source.start_postcopy().await.unwrap();
    status(&mut destination, MigrationStatus::PostcopyActive).await;
    state(&pair.destination, &[RunState::Paused]).await;

    between.lose();
    pages_follow_at(&pair.source, 0).await;
    all_is_sent(&pair.source).await;
    between.cut();
    for _ in 0..20 {
        assert_ne!(pair.source.state().await, Ok(RunState::Running));
        sleep(SOON).await;
    }
    let ended = pair.source.migration().await.unwrap().status;
    let expected = match ended {
        MigrationStatus::Failed => RunState::Paused,
        // QEMU 7.2 waits for ever.
        MigrationStatus::PostcopyActive => RunState::FinishMigrate,
        other => panic!("{other:?}"),
    };
    assert_eq!(pair.source.state().await, Ok(expected));
}

async fn a_guest_that_was_stopped_before_its_migration_failed_can_run_on(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let settings = MigrationSettings::default();
    pair.prepare(&settings).await;
    let (sending, receiving) = (
        pair.place.file("between.sock"),
        pair.place.file("migration.sock"),
    );
    let between = Between::new(&sending, &receiving);
    between.lose();
    pair.source.pause().await.unwrap();
    let mut source = pair.source.events();
    pair.source
        .migrate(&MigrationAddress::Unix(sending))
        .await
        .unwrap();
    status(&mut source, MigrationStatus::Active).await;
    all_is_sent(&pair.source).await;
    between.cut();
    status(&mut source, MigrationStatus::Failed).await;
    // QEMU before 8.2 says of it what it says of a guest that has left.
    state(&pair.source, &[RunState::Paused, RunState::PostMigrate]).await;
    pair.source.run_on().await.unwrap();
    assert_eq!(pair.source.state().await, Ok(RunState::Running));
}

async fn postcopy_is_allowed_beside_multifd_where_qemu_takes_both_and_else_left_out_with_its_reason(
    qemu: Qemu,
) {
    let place = Place::new();
    let source = place.start(&guest(&qemu), "source", Start::Run).await;
    let settings = MigrationSettings {
        postcopy: true,
        ..multifd()
    };
    let both = source.version().takes_postcopy_with_multifd();
    let applied = source.set_migration(&settings).await.unwrap();
    assert_eq!(applied.postcopy, both, "{applied:?}");
    let reasons: Vec<_> = applied.left_out.iter().map(String::as_str).collect();
    match reasons[..] {
        [] => assert!(both),
        [reason] => assert!(
            reason.starts_with("postcopy-ram (") && reason.contains("multifd"),
            "{reason}"
        ),
        _ => panic!("{reasons:?}"),
    }

    // Nothing of an earlier one stays, which would be refused together.
    assert!(source.set_migration(&slow()).await.unwrap().postcopy);
    let applied = source.set_migration(&multifd()).await.unwrap();
    assert!(!applied.postcopy && applied.left_out.is_empty());
}

async fn what_needs_another_state_is_refused(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "source", Start::Run).await;
    machine.set_migration(&slow()).await.unwrap();
    let socket = place.socket();
    for refused in [
        machine.start_postcopy().await,
        machine.migrate_again(&socket).await,
        machine.recover_incoming(&socket).await,
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, MachineError::Refused { .. }),
            "{refused:?}"
        );
    }
    assert_eq!(machine.state().await, Ok(RunState::Running));
}
