//! A host that is removed while a guest is on its way to it or from it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{ErrorCode, JoinRequest, MigrationPhase, TokenRequest};
use hosts::peer::on;
use hosts::{A, B, Hosts, PATIENCE, refused, until};

/// Rates at which the guest takes some ten seconds: what is removed midway is, also on a machine that
/// is slow to say so.
const VERY_SLOW: &str = "40mbit,40mbit";

/// The port for lanes, as the kernel writes it in `/proc/net/tcp`.
const LANES: &str = ":1D2F";
const ESTABLISHED: &str = "01";

/// Connections of lanes that are open on a host.
async fn open_lanes(hosts: &Hosts, host: usize) -> usize {
    let host = hosts.host(host);
    let table = on(&host, || {
        std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap()
    });
    let table = table.await;
    let is_lane = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let ends = [words.next(), words.next()];
        ends.iter().flatten().any(|end| end.ends_with(LANES)) && words.next() == Some(ESTABLISHED)
    };
    table.lines().filter(is_lane).count()
}

async fn no_lanes(hosts: &Hosts, host: usize) {
    until(PATIENCE, async || match open_lanes(hosts, host).await {
        0 => Ok(()),
        open => Err(format!("{open} lanes are open")),
    })
    .await;
}

async fn remove_b(hosts: &Hosts) {
    let b = "b".parse().unwrap();
    hosts.client(A).cluster_remove(&b).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_removed_midway_gets_no_more_and_the_guest_stays() {
    let Some(mut hosts) = Hosts::with_guest("removedto", VERY_SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    assert!(open_lanes(&hosts, A).await > 0);
    remove_b(&hosts).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    let cause = view.cause.unwrap();
    assert!(cause.contains("host b was removed"), "{cause}");
    no_lanes(&hosts, A).await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    hosts.guest_runs_only_on(A).await;

    let (code, message) = refused(hosts.migrate(A).await);
    assert_eq!(code, ErrorCode::NoSuchHost, "{message}");
    assert!(message.contains("drover cluster join"), "{message}");
    // Joined again, it is as good as any other.
    let token = hosts
        .client(A)
        .cluster_token(&TokenRequest::default())
        .await;
    let token = token.unwrap().token;
    hosts
        .client(B)
        .cluster_join(&JoinRequest { token })
        .await
        .unwrap();
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_removed_midway_keeps_its_guest() {
    let Some(mut hosts) = Hosts::with_guest("removedof", VERY_SLOW).await else {
        return;
    };
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
    let id = hosts.migrate_midway(B).await;
    remove_b(&hosts).await;
    let here = hosts.ended(A, id).await;
    assert_eq!(here.phase, MigrationPhase::Abandoned, "{here:#?}");
    no_lanes(&hosts, A).await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Failed, "{there:#?}");
    hosts.guest_runs_only_on(B).await;
}
