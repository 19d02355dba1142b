//! Making a cluster and joining it.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use drover_api::{AdmissionRequest, Client, ErrorCode, MigrateRequest, Refusal, TokenRequest};
use drover_trust::{Fingerprint, JoinToken, KeyAndRequest, Secret};
use jiff::{SignedDuration, Timestamp};

use super::place::{Host, refusal, untrusted};
use super::provision::Office;

#[tokio::test]
async fn a_host_without_a_cluster_serves_nobody_and_says_how_to_get_one() {
    let host = Host::start("a").await;
    assert!(TcpStream::connect(host.address).is_err(), "no port is open");
    let request = MigrateRequest {
        to: "b".parse().unwrap(),
        convergence: Default::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    };
    let client = host.client();
    let web = "web".parse().unwrap();
    let migrate = refusal(&client.migrate(&web, &request).await.unwrap_err());
    let status = refusal(&client.cluster().await.unwrap_err());
    let token = client.cluster_token(&TokenRequest::default()).await;
    for refused in [migrate, status, refusal(&token.unwrap_err())] {
        assert_eq!(refused.code, ErrorCode::NoCluster);
        let next = refused.next.unwrap();
        assert!(next.contains("drover cluster init"), "{next}");
        assert!(next.contains("drover cluster join"), "{next}");
    }
}

#[tokio::test]
async fn hosts_that_joined_know_each_other_and_where_they_are() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let c = a.with("c").await;
    let views = [
        a.client().cluster().await.unwrap(),
        b.client().cluster().await.unwrap(),
        c.client().cluster().await.unwrap(),
    ];
    for view in &views {
        assert_eq!(view.authority.as_str(), "a");
        assert_eq!(view.fingerprint, views[0].fingerprint);
    }
    let addresses: Vec<_> = views[2].members.iter().map(|m| m.addresses[0]).collect();
    assert_eq!(addresses, [a.address, b.address, c.address]);
    assert!(views[0].members.iter().all(|m| m.not_after.is_some()));
    assert_eq!(views[0].open_tokens, Some(0));
    for host in [&a, &b, &c] {
        let status = host.client().status().await.unwrap();
        assert_eq!(status.peers.len(), 2);
        assert!(status.peers.iter().all(|p| p.reachable), "{status:#?}");
    }
    let key = std::fs::metadata(a.state().join("trust/authority.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    assert!(!b.state().join("trust/authority.key").exists());
    // All of it outlives the agent.
    let b = b.restarted().await;
    let status = b.client().status().await.unwrap();
    assert!(status.peers.iter().all(|p| p.reachable), "{status:#?}");
}

#[tokio::test]
async fn a_cluster_is_made_once_and_only_its_authority_makes_tokens() {
    let a = Host::founder().await;
    let again = refusal(&a.client().cluster_init().await.unwrap_err());
    assert_eq!(again.code, ErrorCode::InCluster);
    let own = a.join(&a.token().await).await.unwrap_err();
    assert_eq!(own.code, ErrorCode::InCluster);
    let b = a.with("b").await;
    let token = b.client().cluster_token(&TokenRequest::default()).await;
    let token = refusal(&token.unwrap_err());
    assert_eq!(token.code, ErrorCode::NotTheAuthority);
    assert_eq!(token.next.as_deref(), Some("run the command on a"));
    for ttl_s in [0, 8 * 86_400, u64::MAX] {
        let request = TokenRequest { ttl_s: Some(ttl_s) };
        let refused = a.client().cluster_token(&request).await.unwrap_err();
        assert!(refused.is_refused_with(ErrorCode::BadRequest), "{refused}");
    }
}

#[tokio::test]
async fn a_token_that_was_used_is_refused_with_who_and_when() {
    let a = Host::founder().await;
    let token = a.token().await;
    let b = Host::start("b").await;
    b.join(&token).await.unwrap();
    let c = Host::start("c").await;
    let refused = c.join(&token).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TokenRefused);
    assert!(
        refused.message.contains("was used by host b at 20"),
        "{refused}"
    );
    assert!(c.client().cluster().await.is_err(), "nothing was changed");
    // Neither does a name that is taken spend a token.
    let token = a.token().await;
    let other_b = Host::start("b").await;
    let refused = other_b.join(&token).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::HostExists);
    assert!(refused.next.unwrap().contains("drover cluster remove b"));
    c.join(&token).await.unwrap();
}

/// A host with an authority whose tokens the test has made.
async fn with_token(expires: Timestamp) -> (Host, JoinToken) {
    let address = super::support::free_address();
    let place = super::place::place("a", address, "");
    let mut office = Office::new();
    office.admit("a", vec![address]);
    let secret = Secret::generate().unwrap();
    office.ledger.add_token(&secret, expires, Timestamp::now());
    office.settle(&place.path("state"), "a");
    let token = JoinToken {
        authority: office.authority.fingerprint(),
        secret,
        addresses: vec![address],
    };
    (Host::start_in("a", address, place).await, token)
}

#[tokio::test]
async fn a_token_that_has_expired_is_refused_with_both_times() {
    let expired = Timestamp::now() - SignedDuration::from_mins(1);
    let (_a, token) = with_token(expired).await;
    let b = Host::start("b").await;
    let refused = b.join(&token.to_string()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TokenRefused);
    let expected = format!("expired at {expired:.0}; it is 20");
    assert!(refused.message.contains(&expected), "{refused}");
}

#[tokio::test]
async fn a_token_for_another_cluster_is_refused_before_its_secret_is_shown() {
    let a = Host::founder().await;
    let own: JoinToken = a.token().await.parse().unwrap();
    let other = JoinToken {
        authority: Fingerprint::of(b"another authority"),
        ..own.clone()
    };
    let b = Host::start("b").await;
    let refused = b.join(&other.to_string()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PeerUntrusted);
    for fingerprint in [own.authority, other.authority] {
        assert!(
            refused.message.contains(&fingerprint.to_string()),
            "{refused}"
        );
    }
    // The secret was not spent.
    b.join(&own.to_string()).await.unwrap();
}

#[tokio::test]
async fn what_is_no_token_is_refused_and_a_secret_that_nobody_made() {
    let a = Host::founder().await;
    let b = Host::start("b").await;
    for text in ["", "drover1-", "drover1-AAAA", "hello"] {
        let refused = b.join(text).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TokenRefused, "{text}");
    }
    let mut token: JoinToken = a.token().await.parse().unwrap();
    token.secret = Secret::generate().unwrap();
    let refused = b.join(&token.to_string()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TokenRefused);
    assert!(refused.message.contains("not known"), "{refused}");
    // Nobody listens there.
    token.addresses = vec![super::support::free_address()];
    let refused = b.join(&token.to_string()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PeerUnreachable);
}

fn question(token: &JoinToken, clock: Timestamp) -> AdmissionRequest {
    AdmissionRequest {
        secret: token.secret.to_text(),
        host: "b".parse().unwrap(),
        request: KeyAndRequest::generate().unwrap().request,
        addresses: vec!["127.0.0.1:1".parse().unwrap()],
        clock,
    }
}

async fn admitted(token: &JoinToken, question: &AdmissionRequest) -> Result<(), Refusal> {
    let client = Client::authority_at(token.authority, token.addresses.clone());
    let answer = client.trust_admission(question).await;
    answer.map(drop).map_err(|error| refusal(&error))
}

#[tokio::test]
async fn clocks_that_are_far_apart_are_told_with_both_times_and_spend_no_token() {
    let a = Host::founder().await;
    let token: JoinToken = a.token().await.parse().unwrap();
    for hours in [-2, 2] {
        let clock = Timestamp::now() + SignedDuration::from_hours(hours);
        let refused = admitted(&token, &question(&token, clock))
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::ClockSkew);
        let expected = format!("the clock of b says {clock:.0}, that of a 20");
        assert!(refused.message.contains(&expected), "{refused}");
        assert!(refused.message.contains("more than 1800 s"), "{refused}");
    }
    let near = Timestamp::now() - SignedDuration::from_mins(20);
    admitted(&token, &question(&token, near)).await.unwrap();
}

#[tokio::test]
async fn attempts_to_join_are_bounded() {
    let a = Host::founder().await;
    let mut token: JoinToken = a.token().await.parse().unwrap();
    token.secret = Secret::generate().unwrap();
    let mut codes = Vec::new();
    for _ in 0..11 {
        let asked = admitted(&token, &question(&token, Timestamp::now())).await;
        codes.push(asked.unwrap_err().code);
    }
    assert_eq!(codes[9], ErrorCode::TokenRefused);
    assert_eq!(codes[10], ErrorCode::TooManyRequests);
    let mut long = question(&token, Timestamp::now());
    long.request = "x".repeat(32 << 10);
    let refused = Client::authority_at(token.authority, token.addresses.clone());
    let refused = refused.trust_admission(&long).await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::TooLarge), "{refused}");
}

#[tokio::test]
async fn whoever_has_no_certificate_can_only_ask_to_join() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    let token: JoinToken = a.token().await.parse().unwrap();
    let stranger = |addresses| Client::authority_at(token.authority, addresses);
    let at_a = stranger(vec![a.address]);
    for refused in [
        at_a.host().await.map(drop),
        at_a.vms().await.map(drop),
        at_a.cluster().await.map(drop),
    ] {
        let refused = refusal(&refused.unwrap_err());
        assert_eq!(refused.code, ErrorCode::NotAPeer);
    }
    // Where nobody can join, not even that.
    let told = untrusted(stranger(vec![b.address]).host().await);
    assert!(told.contains("was shown none"), "{told}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_before_anything_is_made() {
    let a = Host::start("a").await;
    let taken = std::net::TcpListener::bind(a.address).unwrap();
    let refused = refusal(&a.client().cluster_init().await.unwrap_err());
    assert_eq!(refused.code, ErrorCode::PortUnusable);
    assert!(refused.message.contains("api.listen"), "{refused}");
    assert!(!a.state().join("trust").exists());
    drop(taken);
    a.client().cluster_init().await.unwrap();
}

#[tokio::test]
async fn a_host_that_changed_its_name_is_told_what_it_was() {
    let a = Host::founder().await;
    let Host { place, agent, .. } = a;
    assert_eq!(agent.terminate(), Some(0));
    let file = place.path("droverd.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("host = \"a\"", "host = \"z\"")).unwrap();
    let ended = place.droverd().output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("key `host`: this is host z"), "{said}");
    assert!(said.contains("that of host a"), "{said}");
}

#[tokio::test]
async fn a_host_that_was_removed_can_join_again() {
    let a = Host::founder().await;
    let b = a.with("b").await;
    a.client()
        .cluster_remove(&"b".parse().unwrap())
        .await
        .unwrap();
    b.join(&a.token().await).await.unwrap();
    let status = b.client().status().await.unwrap();
    assert!(status.peers[0].reachable, "{status:#?}");
}
