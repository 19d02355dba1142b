//! Guests that write to their memory faster than it is carried: slowed down, given up at a deadline, or stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::Duration;

use drover_api::{EventKind, MigrateRequest, MigrationPhase, MigrationView, VmDefinition};
use drover_types::{AtDeadline, Convergence, MigrationId, Throttle};
use hosts::{A, B, BOTH_NEEDED, Hosts, name};

/// Time for an agent to be started again.
const OUTAGE_LIMIT_S: i64 = 30;

/// Agents without a word on convergence, and a guest that rewrites 16 MiB four times a second: two lines of
/// 100 Mbit/s carry them once in 0.7 s.
async fn busy(test: &str) -> Option<Hosts> {
    let mut hosts = Hosts::new(test, BOTH_NEEDED).await?;
    for host in [A, B] {
        hosts.configure(host, |config| {
            let migration = config["migration"].as_table_mut().unwrap();
            migration.remove("convergence");
            migration.insert("outage_limit_s".into(), OUTAGE_LIMIT_S.into());
        });
        hosts.start_agent(host).await;
    }
    let mut definition = hosts.definition().await;
    for words in definition.args.iter_mut() {
        *words = words
            .replace("drover.working_set=4194304", "drover.working_set=16777216")
            .replace("drover.rate=8388608", "drover.rate=67108864");
    }
    let words = definition.args.iter().any(|arg| arg.contains("=67108864 "));
    assert!(words, "{definition:?}");
    hosts.boot_from(definition).await;
    Some(hosts)
}

/// Moves the guest from a host, brought to its end so; the view at the end, and what happened.
async fn moved(
    hosts: &mut Hosts,
    from: usize,
    convergence: Convergence,
) -> (MigrationView, Vec<EventKind>) {
    let id = begin(hosts, from, convergence).await;
    ended(hosts, from, id).await
}

async fn begin(hosts: &mut Hosts, from: usize, convergence: Convergence) -> MigrationId {
    hosts.listen_on(1 - from);
    let request = MigrateRequest {
        convergence,
        ..hosts.request(from, None)
    };
    let asked = hosts.client(from).migrate(&name(), &request).await;
    asked.unwrap().id
}

async fn ended(hosts: &Hosts, from: usize, id: MigrationId) -> (MigrationView, Vec<EventKind>) {
    let view = hosts.ended(from, id).await;
    let events = hosts.client(from).events(id).await.unwrap();
    (view, events.into_iter().map(|event| event.kind).collect())
}

fn by(seconds: i64, then: AtDeadline) -> Convergence {
    Convergence {
        throttle: Some(Throttle::Off),
        deadline_s: Some(seconds.try_into().unwrap()),
        at_deadline: Some(then),
        ..Convergence::default()
    }
}

fn throttled(events: &[EventKind]) -> Vec<u8> {
    let percent = |event: &EventKind| match event {
        EventKind::Throttled { percent } => Some(*percent),
        _ => None,
    };
    events.iter().filter_map(percent).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_writes_too_fast_stays_at_the_deadline_or_is_slowed_down_until_it_has_moved() {
    let Some(mut hosts) = busy("slowed").await else {
        return;
    };
    // The deadline is the migration's, whichever agent looks after it by then.
    let id = begin(&mut hosts, A, by(6, AtDeadline::GiveUp)).await;
    hosts.midway(A, id).await;
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let (view, events) = ended(&hosts, A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    let cause = view.cause.as_deref().unwrap();
    assert!(cause.contains("by the deadline"), "{cause}");
    let told = |event: &EventKind| matches!(event, EventKind::DeadlinePassed { then: AtDeadline::GiveUp, remaining, .. } if remaining.0 > 0);
    assert_eq!(
        events.iter().filter(|event| told(event)).count(),
        1,
        "{events:#?}"
    );
    assert_eq!(throttled(&events), [0_u8; 0]);
    hosts.guest_runs_only_on(A).await;

    // No emulated guest has what QEMU's limit by writes needs.
    let wished = Convergence {
        throttle: Some(Throttle::DirtyLimit),
        ..Convergence::default()
    };
    let (view, events) = moved(&mut hosts, A, wished).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    let steps = throttled(&events);
    assert!(!steps.is_empty() && steps.is_sorted(), "{events:#?}");
    let notes = view.notes.join("\n");
    assert!(notes.contains("dirty-limit: done without"), "{notes}");
    assert!(notes.contains("slowed down"), "{notes}");
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_whose_definition_says_so_stands_still_at_the_deadline_until_the_rest_is_carried() {
    let Some(mut hosts) = busy("stopped").await else {
        return;
    };
    // A change of the file counts although the guest runs.
    let definition = hosts.definition().await;
    let wished = VmDefinition {
        convergence: by(4, AtDeadline::StopAndCopy),
        ..definition
    };
    hosts.define(A, &wished);
    let (view, events) = moved(&mut hosts, A, Convergence::default()).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert!(throttled(&events).is_empty(), "{events:#?}");
    let told = |event: &&EventKind| {
        matches!(
            event,
            EventKind::DeadlinePassed {
                then: AtDeadline::StopAndCopy,
                ..
            }
        )
    };
    assert_eq!(events.iter().filter(told).count(), 1, "{events:#?}");
    let total = Duration::from_millis(view.total_ms.unwrap());
    assert!(total >= Duration::from_secs(4), "{view:#?}");
    hosts.guest_runs_only_on(B).await;
    let file = hosts.host(B).definitions().join("guest.toml");
    let travelled = std::fs::read_to_string(file).unwrap();
    assert!(travelled.contains("stop-and-copy"), "{travelled}");
}
