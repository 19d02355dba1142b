//! Hosts and operators that are removed.

use drover_api::{ClientError, ErrorCode};
use drover_trust::{Identity, Store, Trust};

use super::place::{Host, Open, refusal, untrusted};
use super::provision::{Office, client, from_now};

/// What a host connects with.
fn own(host: &Host) -> Trust {
    let stored = Store::below(&host.state()).load().unwrap().unwrap();
    client(&stored.key, &stored.certificate, &stored.authority)
}

#[tokio::test]
async fn a_host_that_is_removed_is_refused_at_once_and_its_connections_are_closed() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    let its = own(&b);
    let (mut to_a, mut to_c) = (Open::to(&a, &its).await, Open::to(&c, &its).await);
    assert_eq!(to_a.get("/v1/host").await, Some(200));
    assert_eq!(to_c.get("/v1/host").await, Some(200));

    let view = a
        .client()
        .cluster_remove(&"b".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(view.removed[0].who, "host b");
    let heard = view.members.iter().find(|m| m.host.as_str() == "c");
    assert_eq!(
        heard.unwrap().up_to_date,
        Some(true),
        "told before the answer"
    );
    for host in [&a, &c] {
        let told = untrusted(host.asked_by(&its).host().await);
        assert!(told.contains("this side was removed"), "{told}");
        let status = host.client().status().await.unwrap();
        assert!(status.peers.iter().all(|p| p.host.as_str() != "b"));
    }
    to_a.closed().await;
    to_c.closed().await;
    // Restarted agents have not forgotten.
    let c = c.restarted().await;
    let told = untrusted(c.asked_by(&its).host().await);
    assert!(told.contains("this side was removed"), "{told}");
    let again = a.client().cluster_remove(&"b".parse().unwrap()).await;
    assert_eq!(refusal(&again.unwrap_err()).code, ErrorCode::NoSuchMember);
}

#[tokio::test]
async fn a_member_that_was_away_hears_of_a_removal_when_it_is_back() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    let its = own(&b);
    let Host {
        place,
        agent,
        address,
        ..
    } = c;
    assert_eq!(agent.terminate(), Some(0));
    let view = a
        .client()
        .cluster_remove(&"b".parse().unwrap())
        .await
        .unwrap();
    let late = view.members.iter().find(|m| m.host.as_str() == "c");
    assert_eq!(
        late.unwrap().up_to_date,
        Some(false),
        "it could not be told"
    );
    let c = Host::start_in("c", address, place).await;
    let deadline = std::time::Instant::now() + super::place::PATIENCE;
    while c.asked_by(&its).host().await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "it never asks");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_operator_that_is_removed_is_refused_at_once() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let own = drover_trust::KeyAndRequest::generate().unwrap();
    let name = "eve".parse().unwrap();
    let request = drover_api::OperatorRequest {
        request: own.request,
    };
    let signed = a.client().cluster_operator(&name, &request).await.unwrap();
    let eve = client(&own.key, &signed.certificate, &signed.authority);
    let mut open = Open::to(&b, &eve).await;
    assert_eq!(open.get("/v1/status").await, Some(200));
    let view = a.client().cluster().await.unwrap();
    assert_eq!(view.operators[0].name, name);
    let view = a.client().cluster_remove_operator(&name).await.unwrap();
    assert_eq!(view.operators, []);
    open.closed().await;
    for host in [&a, &b] {
        let told = untrusted(host.asked_by(&eve).vms().await);
        assert!(told.contains("this side was removed"), "{told}");
    }
    let unknown = a
        .client()
        .cluster_remove_operator(&"bob".parse().unwrap())
        .await;
    assert_eq!(refusal(&unknown.unwrap_err()).code, ErrorCode::NoSuchMember);
}

#[tokio::test]
async fn the_authority_itself_cannot_be_removed_and_no_member_removes() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let own = a.client().cluster_remove(&"a".parse().unwrap()).await;
    assert_eq!(refusal(&own.unwrap_err()).code, ErrorCode::SameHost);
    let by_b = b.client().cluster_remove(&"a".parse().unwrap()).await;
    assert_eq!(refusal(&by_b.unwrap_err()).code, ErrorCode::NotTheAuthority);
    let mut office = Office::of(&a.state());
    let who = Identity::Host("b".parse().unwrap());
    let good = office.client_of(&who, from_now());
    a.asked_by(&good).host().await.unwrap();
}

#[tokio::test]
async fn a_host_that_leaves_is_believed_by_nobody_and_can_join_another_cluster() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    let its = own(&b);
    let left = b.client().cluster_leave().await.unwrap();
    assert_eq!(left.authority.as_str(), "a");
    let none = refusal(&b.client().cluster().await.unwrap_err());
    assert_eq!(none.code, ErrorCode::NoCluster);
    assert!(!b.state().join("trust/host.pem").exists());
    let members = a.client().cluster().await.unwrap().members;
    assert!(members.iter().all(|member| member.host.as_str() != "b"));
    let told = untrusted(a.asked_by(&its).host().await);
    assert!(told.contains("this side was removed"), "{told}");
    // The others are being told.
    let deadline = std::time::Instant::now() + super::place::PATIENCE;
    while !matches!(
        c.asked_by(&its).host().await,
        Err(ClientError::Untrusted { .. })
    ) {
        assert!(std::time::Instant::now() < deadline, "it never hears");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let other = Host::founder().await;
    b.join(&other.token().await).await.unwrap();
    let status = b.client().status().await.unwrap();
    assert!(status.peers[0].reachable, "{status:#?}");
    let b = b.restarted().await;
    assert_eq!(b.client().cluster().await.unwrap().members.len(), 2);
}

#[tokio::test]
async fn a_host_that_was_removed_already_leaves_all_the_same_and_the_authority_never() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    a.client()
        .cluster_remove(&"b".parse().unwrap())
        .await
        .unwrap();
    b.client().cluster_leave().await.unwrap();
    let none = refusal(&b.client().cluster_leave().await.unwrap_err());
    assert_eq!(none.code, ErrorCode::NoCluster);
    let own = refusal(&a.client().cluster_leave().await.unwrap_err());
    assert_eq!(own.code, ErrorCode::SameHost);
}

#[tokio::test]
async fn a_host_with_a_guest_or_without_its_authority_does_not_leave() {
    if !super::support::has_qemu() {
        return;
    }
    let a = Host::founder().await;
    let b = a.with("b").await;
    b.place.define("web");
    b.agent.start_vm("web").await;
    let full = refusal(&b.client().cluster_leave().await.unwrap_err());
    assert_eq!(full.code, ErrorCode::VmRunning);
    assert!(full.message.contains("web"), "{full}");
    stop(&b, "web").await;
    a.agent.kill();
    let alone = refusal(&b.client().cluster_leave().await.unwrap_err());
    assert_eq!(alone.code, ErrorCode::PeerUnreachable);
    assert!(alone.next.unwrap().contains("drover cluster remove b"));
    b.client().cluster().await.unwrap();
}

async fn stop(host: &Host, vm: &str) {
    let stop = drover_api::StopRequest {
        force: true,
        ..Default::default()
    };
    let vm = vm.parse().unwrap();
    host.client().stop_vm(&vm, &stop).await.unwrap();
}

#[tokio::test]
async fn a_host_joins_another_cluster_only_without_guests() {
    if !super::support::has_qemu() {
        return;
    }
    let (a, other) = (Host::founder().await, Host::start("c").await);
    other.client().cluster_init().await.unwrap();
    let b = a.with("b").await;
    b.place.define("web");
    b.agent.start_vm("web").await;
    let full = b.join(&other.token().await).await.unwrap_err();
    assert_eq!(full.code, ErrorCode::VmRunning);
    let same = b.client().cluster().await.unwrap();
    assert_eq!(same.authority.as_str(), "a");
    stop(&b, "web").await;
    b.join(&other.token().await).await.unwrap();
    let new = b.client().cluster().await.unwrap();
    assert_eq!(new.authority.as_str(), "c");
}
