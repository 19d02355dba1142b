//! Certificates that are replaced while connections are open.

use std::time::{Duration, Instant, SystemTime};

use drover_api::ErrorCode;
use drover_trust::Validity;

use super::place::{Host, Open, PATIENCE, place, refusal};
use super::provision::{Office, from_now, host};
use super::support::free_address;

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn a_certificate_is_replaced_without_closing_what_is_open() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let mut office = Office::of(&a.state());
    let c = office.client_of(&host("c"), from_now());
    for host in [&a, &b] {
        let mut open = Open::to(host, &c).await;
        let before = host.client().cluster().await.unwrap().certificate.serial;
        assert_eq!(open.shown().serial.to_string(), before);
        assert_eq!(open.get("/v1/host").await, Some(200));
        let after = host.client().cluster_rotate().await.unwrap();
        let after = after.certificate.serial;
        assert_ne!(after, before);
        assert_eq!(open.get("/v1/host").await, Some(200), "it stays open");
        let new = Open::to(host, &c).await;
        assert_eq!(new.shown().serial.to_string(), after);
    }
    // Both still know each other, and so do their next agents.
    for host in [a, b] {
        let host = host.restarted().await;
        let view = host.client().cluster().await.unwrap();
        assert_eq!(view.members.len(), 2);
    }
}

/// A member whose certificate is so old.
async fn aged(validity: Validity) -> (Host, Host) {
    let (at_a, at_b) = (free_address(), free_address());
    let (place_a, place_b) = (place("a", at_a, ""), place("b", at_b, ""));
    let mut office = Office::new();
    office.admit("a", vec![at_a]);
    office.admit("b", vec![at_b]);
    office.settle_with(&place_b.path("state"), "b", validity);
    office.settle_with(&place_a.path("state"), "a", validity);
    let a = Host::start_in("a", at_a, place_a).await;
    let b = Host::start_in("b", at_b, place_b).await;
    (a, b)
}

#[tokio::test]
async fn certificates_are_renewed_by_themselves_at_two_thirds_of_their_life() {
    let old = Validity {
        not_before: SystemTime::now() - 21 * DAY,
        not_after: SystemTime::now() + 9 * DAY,
    };
    let (a, b) = aged(old).await;
    let deadline = Instant::now() + PATIENCE;
    for host in [&a, &b] {
        loop {
            let view = host.client().cluster().await.unwrap();
            let left = view
                .certificate
                .not_after
                .duration_since(jiff::Timestamp::now());
            if left.as_hours() > 28 * 24 {
                break;
            }
            assert!(Instant::now() < deadline, "{view:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn without_its_authority_a_member_works_on_and_says_what_it_waits_for() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    assert_eq!(a.agent.terminate(), Some(0));
    let status = b.client().status().await.unwrap();
    let reachable: Vec<_> = status.peers.iter().map(|p| p.reachable).collect();
    assert_eq!(reachable, [false, true], "{status:#?}");
    let refused = refusal(&b.client().cluster_rotate().await.unwrap_err());
    assert_eq!(refused.code, ErrorCode::PeerUnreachable);
    let c = c.restarted().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = c.client().cluster().await.unwrap();
        if let Some(problem) = view.problem {
            assert!(problem.message.contains("host a"), "{problem}");
            break;
        }
        assert!(Instant::now() < deadline, "{view:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    b.client().status().await.unwrap();
}
