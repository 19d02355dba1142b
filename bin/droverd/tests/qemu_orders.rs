//! Orders with an id: given again, since the answer was lost or whoever gave them was started again, they
//! do no harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{CordonRequest, ErrorCode, MigrateRequest, MigrationPhase, MigrationView};
use drover_types::MigrationId;
use hosts::{A, B, FAST, Hosts, SLOWER, name, refused};

fn new_id() -> MigrationId {
    MigrationId(uuid::Uuid::now_v7())
}

/// The same order once more; it is not refused.
async fn again(hosts: &Hosts, request: &MigrateRequest) -> MigrationView {
    let client = hosts.client(A);
    let view = client.migrate(&name(), request).await.unwrap();
    assert_eq!(Some(view.id), request.id);
    let all = client.migrations().await.unwrap();
    assert_eq!(all.len(), 1, "{all:#?}");
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_moves_its_guest_once_however_often_it_is_given() {
    // Time for an agent to come back midway.
    let Some(mut hosts) = Hosts::with_outage_limit("order", SLOWER, 30).await else {
        return;
    };
    let id = new_id();
    let request = hosts.request(A, Some(id));
    hosts.listen_on(B);
    let (one, other) = tokio::join!(again(&hosts, &request), again(&hosts, &request));
    assert_eq!((one.id, other.id), (id, id));
    hosts.midway(A, id).await;
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    assert!(!again(&hosts, &request).await.phase.has_ended());
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    hosts.guest_runs_only_on(B).await;

    assert_eq!(again(&hosts, &request).await, view);
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    assert_eq!(again(&hosts, &request).await, view);
    hosts.guest_runs_only_on(B).await;

    // It stands for that guest and that destination, on the host that the guest has left.
    let to_c = MigrateRequest {
        to: "c".parse().unwrap(),
        ..request.clone()
    };
    let back = hosts.request(B, Some(id));
    let other = "other".parse().unwrap();
    for (host, vm, order) in [
        (A, &other, &request),
        (A, &name(), &to_c),
        (B, &name(), &back),
    ] {
        let (code, message) = refused(hosts.client(host).migrate(vm, order).await);
        assert_eq!(code, ErrorCode::BadRequest, "{message}");
        assert!(message.contains("guest guest to b"), "{message}");
    }
    assert_eq!(again(&hosts, &request).await, view);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_refused_is_refused_alike_when_it_is_given_again() {
    let Some(mut hosts) = Hosts::with_guest("reorder", FAST).await else {
        return;
    };
    let request = hosts.request(A, Some(new_id()));
    let cordoned = hosts.client(B).cordon(&CordonRequest::default()).await;
    cordoned.unwrap();
    let first = refused(hosts.client(A).migrate(&name(), &request).await);
    assert_eq!(first.0, ErrorCode::HostCordoned, "{}", first.1);
    hosts.client(B).uncordon().await.unwrap();
    assert_eq!(
        refused(hosts.client(A).migrate(&name(), &request).await),
        first
    );

    // One of which there is no migration.
    let late = "late".parse().unwrap();
    let order = hosts.request(A, Some(new_id()));
    let unknown = refused(hosts.client(A).migrate(&late, &order).await);
    assert_eq!(unknown.0, ErrorCode::NoSuchVm, "{}", unknown.1);
    let definition = hosts.definition_of(&late).await;
    hosts.define(A, &definition);
    assert_eq!(
        refused(hosts.client(A).migrate(&late, &order).await),
        unknown
    );
    let other = hosts.request(A, Some(new_id()));
    let (code, message) = refused(hosts.client(A).migrate(&late, &other).await);
    assert_eq!(code, ErrorCode::VmNotRunning, "{message}");

    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    assert_eq!(
        refused(hosts.client(A).migrate(&name(), &request).await),
        first
    );
    let none = hosts.request(A, Some(MigrationId(uuid::Uuid::nil())));
    let (code, message) = refused(hosts.client(A).migrate(&name(), &none).await);
    assert_eq!(code, ErrorCode::BadRequest, "{message}");
    hosts.guest_runs_only_on(A).await;
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}
