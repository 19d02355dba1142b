//! Certificates that are not good, at either end, and routes that are not for everybody.

use std::time::{Duration, SystemTime};

use drover_api::{
    Client, ClientError, CoordinatorRequest, CordonRequest, ErrorCode, MigrateRequest, Refusal,
};
use drover_trust::{Identity, Trust, Validity, limits};
use drover_types::MigrationId;

use super::place::{Host, place, untrusted};
use super::provision::{Office, client, from_now, host};
use super::support::free_address;

const DAY: Duration = Duration::from_secs(86_400);

/// A host A, and a host B whose certificate is of that validity and that office; what A says of B.
async fn seen_from_a(validity: Validity, foreign: bool) -> (Refusal, Refusal) {
    let (at_a, at_b) = (free_address(), free_address());
    let (place_a, place_b) = (place("a", at_a, ""), place("b", at_b, ""));
    let mut office = Office::new();
    office.admit("a", vec![at_a]);
    office.admit("b", vec![at_b]);
    if foreign {
        let mut other = Office::new();
        other.admit("a", vec![at_a]);
        other.admit("b", vec![at_b]);
        other.settle(&place_b.path("state"), "b");
    } else {
        office.settle_with(&place_b.path("state"), "b", validity);
    }
    office.settle(&place_a.path("state"), "a");
    let a = Host::start_in("a", at_a, place_a).await;
    let b = Host::start_in("b", at_b, place_b).await;
    let problem = |host: &Host| {
        let client = host.client().clone();
        async move {
            let status = client.status().await.unwrap();
            assert!(!status.peers[0].reachable, "{status:#?}");
            status.peers[0].problem.clone().unwrap()
        }
    };
    let seen = (problem(&a).await, problem(&b).await);
    for refusal in [&seen.0, &seen.1] {
        assert_eq!(refusal.code, ErrorCode::PeerUntrusted, "{refusal:?}");
        assert!(refusal.next.is_some());
    }
    seen
}

#[tokio::test]
async fn a_certificate_that_expired_is_told_on_both_hosts() {
    let ended = Validity {
        not_before: SystemTime::now() - 40 * DAY,
        not_after: SystemTime::now() - 10 * DAY,
    };
    let (at_a, at_b) = seen_from_a(ended, false).await;
    assert!(
        at_a.message.contains("its certificate expired at 20"),
        "{at_a}"
    );
    assert!(at_a.message.contains("this host's clock says 20"), "{at_a}");
    assert!(
        at_b.message.contains("this side's certificate has expired"),
        "{at_b}"
    );
}

#[tokio::test]
async fn a_certificate_from_the_future_is_a_wrong_clock_and_told_so() {
    let future = Validity::from(SystemTime::now() + 2 * DAY, 30 * DAY);
    let (at_a, _) = seen_from_a(future, false).await;
    assert!(at_a.message.contains("is valid from 20"), "{at_a}");
    assert!(at_a.message.contains("this host's clock says 20"), "{at_a}");
    assert!(at_a.next.unwrap().contains("date -u"));
}

#[tokio::test]
async fn a_host_of_another_cluster_is_told_on_both_hosts() {
    let (at_a, at_b) = seen_from_a(from_now(), true).await;
    for seen in [at_a, at_b] {
        assert!(
            seen.message.contains("not of this cluster's authority"),
            "{seen}"
        );
        assert!(seen.next.unwrap().contains("fingerprints"));
    }
}

#[tokio::test]
async fn a_host_at_the_address_of_another_is_told_by_both_names() {
    let (at_a, at_c) = (free_address(), free_address());
    let wrong = format!("[[peers]]\nhost = \"b\"\napi = \"{at_c}\"");
    let (place_a, place_c) = (place("a", at_a, &wrong), place("c", at_c, ""));
    let mut office = Office::new();
    for (name, address) in [("a", at_a), ("b", free_address()), ("c", at_c)] {
        office.admit(name, vec![address]);
    }
    office.settle(&place_c.path("state"), "c");
    office.settle(&place_a.path("state"), "a");
    let a = Host::start_in("a", at_a, place_a).await;
    let _c = Host::start_in("c", at_c, place_c).await;
    let status = a.client().status().await.unwrap();
    let problem = status.peers[0].problem.clone().unwrap();
    assert_eq!(problem.code, ErrorCode::PeerUntrusted);
    assert!(
        problem
            .message
            .contains("host c answers, host b was wanted"),
        "{problem}"
    );
    assert!(problem.next.unwrap().contains("[[peers]]"));
    assert!(status.peers[1].reachable, "{status:#?}");
}

#[tokio::test]
async fn bad_certificates_of_clients_are_refused_and_the_client_is_told_why() {
    let a = Host::founder().await;
    let mut office = Office::of(&a.state());
    let ended = Validity {
        not_before: SystemTime::now() - 2 * DAY,
        not_after: SystemTime::now() - DAY,
    };
    let future = Validity::from(SystemTime::now() + 2 * DAY, DAY);
    for validity in [ended, future] {
        let told = untrusted(
            a.asked_by(&office.client_of(&host("b"), validity))
                .host()
                .await,
        );
        assert!(told.contains("expired or is not valid yet"), "{told}");
    }
    let (key, certificate) = Office::new().issue(&host("b"), from_now());
    let foreign = client(&key, &certificate, office.authority.certificate_pem());
    let told = untrusted(a.asked_by(&foreign).host().await);
    assert!(told.contains("belongs to another cluster"), "{told}");
    // The same hand with a good certificate.
    let good = office.client_of(&host("b"), from_now());
    a.asked_by(&good).host().await.unwrap();
}

fn operator(office: &mut Office) -> Trust {
    let who = Identity::Operator("eve".parse().unwrap());
    office.client_of(
        &who,
        Validity::from(SystemTime::now(), limits::OPERATOR_LIFETIME),
    )
}

#[tokio::test]
async fn an_operator_may_use_every_route_and_a_host_only_those_of_peers() {
    let a = Host::founder().await;
    let mut office = Office::of(&a.state());
    let eve = a.asked_by(&operator(&mut office));
    assert_eq!(eve.host().await.unwrap().host.as_str(), "a");
    assert_eq!(eve.vms().await.unwrap(), []);
    assert_eq!(eve.status().await.unwrap().host.host.as_str(), "a");
    eve.cluster_token(&Default::default()).await.unwrap();

    let b = a.asked_by(&office.client_of(&host("b"), from_now()));
    b.host().await.unwrap();
    let web = "web".parse().unwrap();
    let own = drover_trust::KeyAndRequest::generate().unwrap();
    let request = drover_api::OperatorRequest {
        request: own.request,
    };
    for refused in [
        b.vms().await.map(drop),
        b.status().await.map(drop),
        b.start_vm(&web).await.map(drop),
        b.cluster().await.map(drop),
        b.cluster_token(&Default::default()).await.map(drop),
        b.cluster_paths(&Default::default()).await.map(drop),
        b.kept(jiff::Timestamp::now()).await.map(drop),
        b.cluster_operator(&"eve".parse().unwrap(), &request)
            .await
            .map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(refused.is_refused_with(ErrorCode::LocalOnly), "{refused}");
    }
}

/// What becomes of each order that there is, of a guest and a migration that nobody has.
async fn every_order(by: &Client) -> [Result<(), ClientError>; 5] {
    let id = MigrationId(uuid::Uuid::now_v7());
    let request = MigrateRequest {
        to: "a".parse().unwrap(),
        convergence: Default::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    };
    [
        by.migrate(&"web".parse().unwrap(), &request)
            .await
            .map(drop),
        by.migration(id).await.map(drop),
        by.cancel(id).await.map(drop),
        by.cordon(&CordonRequest::default()).await.map(drop),
        by.uncordon().await.map(drop),
    ]
}

#[tokio::test]
async fn of_other_hosts_only_the_one_with_the_authoritys_key_may_give_orders() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let mut office = Office::of(&a.state());
    let mut of = |name| office.client_of(&host(name), from_now());
    for (asked, by) in [(&b, of("c")), (&b, of("b")), (&a, of("b"))] {
        for refused in every_order(&asked.asked_by(&by)).await {
            let refused = refused.unwrap_err();
            assert!(refused.is_refused_with(ErrorCode::NotAPeer), "{refused}");
            assert!(refused.to_string().contains("only a, which"), "{refused}");
        }
    }
    let coordinator = b.asked_by(&of("a"));
    let codes = every_order(&coordinator).await.map(|done| {
        let refused = done.err()?;
        Some(
            refused
                .refusal()
                .unwrap_or_else(|| panic!("{refused}"))
                .code,
        )
    });
    let unknown = Some(ErrorCode::NoSuchMigration);
    let expected = [Some(ErrorCode::NoSuchVm), unknown, unknown, None, None];
    assert_eq!(codes, expected);
    coordinator.cordon(&CordonRequest::default()).await.unwrap();
    assert!(b.client().host().await.unwrap().cordon.is_some());
    // More than orders it may give with an operator's certificate only.
    let refused = coordinator.vms().await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::LocalOnly), "{refused}");
}

async fn coordinates(authority: &Host, name: &str, coordinates: bool) -> Result<(), ClientError> {
    let (host, request) = (name.parse().unwrap(), CoordinatorRequest { coordinates });
    let named = authority.client().cluster_coordinator(&host, &request);
    named.await.map(drop)
}

/// One that may have others coordinate. Nobody is at that address: no run is begun here.
async fn founder_with_etcd() -> Host {
    let address = free_address();
    let etcd = "[store]\netcd = [\"http://127.0.0.1:1\"]\n";
    let host = Host::start_in("a", address, place("a", address, etcd)).await;
    host.client().cluster_init().await.unwrap();
    host
}

#[tokio::test]
async fn a_host_that_keeps_runs_in_a_file_lets_no_other_one_coordinate() {
    let a = Host::founder().await;
    let _b = a.with("b").await;
    let refused = coordinates(&a, "b", true).await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::StoreUnavailable));
    let next = refused.refusal().unwrap().next.clone().unwrap();
    assert!(next.contains("store.etcd"), "{next}");
    assert_eq!(a.client().cluster().await.unwrap().coordinators, []);
}

#[tokio::test]
async fn hosts_that_the_authority_named_may_give_orders_until_it_takes_that_back() {
    let a = founder_with_etcd().await;
    let b = a.with("b").await;
    let _c = a.with("c").await;
    let mut office = Office::of(&a.state());
    let mut of = |name| office.client_of(&host(name), from_now());
    let (by_a, by_b, by_c) = (of("a"), of("b"), of("c"));
    let by_nobody = coordinates(&b, "b", true).await.unwrap_err();
    assert!(by_nobody.is_refused_with(ErrorCode::NotTheAuthority));
    let unknown = coordinates(&a, "x", true).await.unwrap_err();
    assert!(unknown.is_refused_with(ErrorCode::NoSuchMember));
    let itself = coordinates(&a, "a", true).await.unwrap_err();
    assert!(itself.is_refused_with(ErrorCode::SameHost));

    coordinates(&a, "c", true).await.unwrap();
    let view = b.client().cluster().await.unwrap();
    assert_eq!(view.coordinators, ["c".parse().unwrap()]);
    b.asked_by(&by_c).leading(7).uncordon().await.unwrap();
    let refused = b.asked_by(&by_b).leading(7).uncordon().await.unwrap_err();
    assert!(refused.to_string().contains("a, c"), "{refused}");
    // Where several may coordinate, also the authority's host says under which leadership.
    let refused = b.asked_by(&by_a).uncordon().await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::NotAPeer), "{refused}");

    let b = b.restarted().await;
    b.asked_by(&by_c).leading(7).uncordon().await.unwrap();
    coordinates(&a, "c", false).await.unwrap();
    let refused = b.asked_by(&by_c).leading(8).uncordon().await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::NotAPeer), "{refused}");
    b.asked_by(&by_a).uncordon().await.unwrap();
}

#[tokio::test]
async fn an_order_of_a_leadership_that_another_one_followed_does_nothing() {
    let a = founder_with_etcd().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    coordinates(&a, "c", true).await.unwrap();
    let mut office = Office::of(&a.state());
    let mut of = |name| office.client_of(&host(name), from_now());
    let (by_a, by_c) = (of("a"), of("c"));
    let before = b.asked_by(&by_a).leading(7);
    before.cordon(&CordonRequest::default()).await.unwrap();
    let after = b.asked_by(&by_c).leading(9);
    after.cordon(&CordonRequest::default()).await.unwrap();
    for late in every_order(&before).await {
        let late = late.unwrap_err();
        assert!(late.is_refused_with(ErrorCode::Superseded), "{late}");
    }
    let b = b.restarted().await;
    let late = b.asked_by(&by_a).leading(7).uncordon().await.unwrap_err();
    assert!(late.is_refused_with(ErrorCode::Superseded), "{late}");
    assert!(b.client().host().await.unwrap().cordon.is_some());
    // The same holds for the coordinator's own agent, which it asks by its socket; not for a person there.
    c.asked_by(&by_a).leading(9).uncordon().await.unwrap();
    let late = c.client().clone().leading(7).uncordon().await.unwrap_err();
    assert!(late.is_refused_with(ErrorCode::Superseded), "{late}");
    b.client().uncordon().await.unwrap();
}

#[tokio::test]
async fn what_only_the_authority_may_tell_is_not_taken_from_others() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let mut office = Office::of(&a.state());
    let c = office.client_of(&host("c"), from_now());
    let stored = drover_trust::Store::below(&b.state())
        .load()
        .unwrap()
        .unwrap();
    let mut news = stored.membership;
    news.revision += 1;
    let refused = b.asked_by(&c).trust_news(&news).await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::NotAPeer), "{refused}");
    let a_itself = office.client_of(&host("a"), from_now());
    news.removals = "nonsense".to_owned();
    let refused = b.asked_by(&a_itself).trust_news(&news).await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::BadRequest), "{refused}");
    // A host that the authority does not know gets no new certificate, good as its old one is.
    let own = drover_trust::KeyAndRequest::generate().unwrap();
    let request = drover_api::RenewalRequest {
        request: own.request,
    };
    let refused = a.asked_by(&c).trust_renewal(&request).await.unwrap_err();
    assert!(
        refused.is_refused_with(ErrorCode::NoSuchMember),
        "{refused}"
    );
}
