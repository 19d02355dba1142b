//! Limits that are set while a guest moves, at either end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod hosts;

use std::time::{Duration, Instant};

use drover_api::{LimitRequest, LimitScope, MigrationPhase};
use drover_types::MigrationId;
use hosts::{A, B, FAST, Hosts};

/// Until a limit that is set at the other end holds: it is divided, told, and what is on its way
/// arrives.
const SETTLE: Duration = Duration::from_millis(1000);
const LOOK: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

async fn limit(hosts: &Hosts, host: usize, scope: LimitScope, limit: Option<&str>) {
    let request = LimitRequest {
        scope,
        limit: limit.map(|limit| limit.parse().unwrap()),
    };
    hosts.client(host).limit(&request).await.unwrap();
}

/// The most that was sent in any second of three, and the mean, in bytes per second. What is looked
/// at is the relay's own count, five times a second.
async fn sent(hosts: &Hosts, id: MigrationId) -> (f64, f64) {
    let mut looks: Vec<(Instant, u64)> = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < SECOND * 3 {
        let view = hosts.client(A).migration(id).await.unwrap();
        assert!(!view.phase.has_ended(), "{view:#?}");
        let sent = view.traffic.sent_bytes.0 + view.traffic.resent_bytes.0;
        if looks.last().is_none_or(|(_, last)| *last != sent) {
            looks.push((Instant::now(), sent));
        }
        tokio::time::sleep(LOOK).await; // a rate is measured over time
    }
    let rate = |from: &(Instant, u64), to: &(Instant, u64)| {
        (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64()
    };
    let most = looks.iter().enumerate().filter_map(|(at, from)| {
        let to = looks[at..].iter().find(|to| to.0 - from.0 >= SECOND)?;
        Some(rate(from, to))
    });
    let mean = rate(looks.first().unwrap(), looks.last().unwrap());
    (most.fold(0.0, f64::max), mean)
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_at_either_end_hold_and_follow_changes_while_a_guest_moves() {
    let Some(mut hosts) = Hosts::with_guest("limits", FAST).await else {
        return;
    };
    // Slow enough for the guest's own writes to keep it moving until the limits are lifted.
    limit(&hosts, A, LimitScope::Host, Some("64mbit")).await;
    let id = hosts.migrate_midway(A).await;
    tokio::time::sleep(SETTLE).await; // what is tested is that time
    let (most, mean) = sent(&hosts, id).await;
    // The look comes up to 200 ms late, in which some 5 % of a second's bytes may hide.
    assert!(
        (6.0e6..=8.4e6).contains(&mean) && most < 9.6e6,
        "{most} {mean}"
    );

    // The destination takes less, over one of its NICs none the less than the other.
    limit(&hosts, B, LimitScope::Host, Some("32mbit")).await;
    tokio::time::sleep(SETTLE).await;
    let (most, mean) = sent(&hosts, id).await;
    assert!(
        (2.5e6..=4.2e6).contains(&mean) && most < 5.4e6,
        "{most} {mean}"
    );
    let view = hosts.client(A).migration(id).await.unwrap();
    let limits: u64 = view.paths.iter().map(|path| path.limit.unwrap().0).sum();
    assert!(limits <= 4_000_000, "{view:#?}");
    let listed = hosts.client(B).limits().await.unwrap().limits;
    assert!(listed[0].inward.0 > 1_000_000, "{listed:#?}");

    limit(&hosts, A, LimitScope::Host, None).await;
    limit(&hosts, B, LimitScope::Host, None).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    hosts.guest_runs_only_on(B).await;
}
