//! Both ends of a handshake in memory: who is believed, and what is said of who is not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use drover_trust::{
    Authority, Clients, Credentials, Facts, Fingerprint, Identity, KeyAndRequest, Ledger, Member,
    Membership, Problem, Validity, joining_client, limits, peer, server_name,
};
use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

const DAY: Duration = Duration::from_secs(86_400);

/// A clock that stands still.
#[derive(Debug)]
struct Stopped(SystemTime);

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(
            self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
        ))
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn clock(at: SystemTime) -> Arc<dyn TimeProvider> {
    Arc::new(Stopped(at))
}

fn host(name: &str) -> Identity {
    Identity::Host(name.parse().unwrap())
}

struct Cluster {
    authority: Authority,
    ledger: Ledger,
}

impl Cluster {
    fn new() -> Self {
        let validity = Validity::from(now(), limits::AUTHORITY_LIFETIME);
        let mut ledger = Ledger::default();
        ledger.add_member(Member {
            host: "a".parse().unwrap(),
            addresses: Vec::new(),
        });
        Self {
            authority: Authority::create(validity).unwrap(),
            ledger,
        }
    }

    fn membership(&self) -> Membership {
        let revision = self.ledger.revision();
        let removals = self
            .authority
            .sign_removals(revision, self.ledger.removed(), now());
        Membership {
            revision,
            authority: "a".parse().unwrap(),
            members: self.ledger.members().to_vec(),
            coordinators: Vec::new(),
            removals: removals.unwrap(),
        }
    }

    fn issue(&mut self, who: &Identity, validity: Validity) -> Credentials {
        let own = KeyAndRequest::generate().unwrap();
        let (certificate, facts) = self.authority.issue(&own.request, who, validity).unwrap();
        self.ledger
            .issued(&facts, Timestamp::try_from(now()).unwrap());
        let authority = self.authority.certificate_pem();
        Credentials::new(&own.key, &certificate, authority, Some(&self.membership())).unwrap()
    }

    fn member(&mut self, name: &str) -> Credentials {
        self.issue(&host(name), Validity::from(now(), limits::HOST_LIFETIME))
    }
}

fn server(credentials: &Credentials) -> ServerConfig {
    credentials
        .server(Clients::Certified, clock(now()))
        .unwrap()
}

fn client(credentials: &Credentials) -> ClientConfig {
    credentials.client(clock(now())).unwrap()
}

/// What each end says at last: the server who the client is, the client nothing.
struct Met {
    server: Result<Option<Facts>, Problem>,
    client: Result<(), Problem>,
}

fn meet(server: ServerConfig, client: ClientConfig, wanted: &str) -> Met {
    let name = server_name(&wanted.parse().unwrap()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let (mut server_said, mut client_said) = (Ok(()), Ok(()));
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && server_said.is_ok() {
            server.read_tls(&mut rest).unwrap();
            server_said = server.process_new_packets().map(drop);
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && client_said.is_ok() {
            client.read_tls(&mut rest).unwrap();
            client_said = client.process_new_packets().map(drop);
        }
    }
    assert!(server_said.is_err() || client_said.is_err() || !server.is_handshaking());
    Met {
        server: server_said
            .map(|()| peer(server.peer_certificates()).unwrap())
            .map_err(|error| Problem::of(&error)),
        client: client_said.map_err(|error| Problem::of(&error)),
    }
}

#[test]
fn members_know_each_other_by_role_and_name() {
    let mut cluster = Cluster::new();
    let (a, b) = (cluster.member("a"), cluster.member("b"));
    let met = meet(server(&b), client(&a), "b");
    assert_eq!(met.client, Ok(()));
    assert_eq!(met.server.unwrap().unwrap().identity, host("a"));
}

#[test]
fn a_member_that_is_not_the_one_wanted_is_refused_with_both_names() {
    let mut cluster = Cluster::new();
    let (a, c) = (cluster.member("a"), cluster.member("c"));
    let problem = meet(server(&c), client(&a), "b").client.unwrap_err();
    assert_eq!(problem.to_string(), "host c answers, host b was wanted");
}

#[test]
fn a_certificate_that_expired_is_refused_with_both_times() {
    let mut cluster = Cluster::new();
    let a = cluster.member("a");
    let ended = Validity {
        not_before: now() - 2 * DAY,
        not_after: now() - DAY,
    };
    let b = cluster.issue(&host("b"), ended);
    let problem = meet(server(&b), client(&a), "b").client.unwrap_err();
    let text = problem.to_string();
    assert!(text.contains("expired at 2027-01-14T08:00:00Z"), "{text}");
    assert!(text.contains("clock says 2027-01-15T08:00:00Z"), "{text}");
    let met = meet(server(&a), client(&b), "a");
    assert!(matches!(met.server, Err(Problem::Expired { .. })));
    let told = met.client.unwrap_err();
    assert!(
        told.to_string()
            .contains("this side's certificate has expired")
    );
}

#[test]
fn a_clock_that_is_behind_by_less_than_an_hour_does_no_harm_and_by_more_is_told() {
    let mut cluster = Cluster::new();
    let (a, b) = (cluster.member("a"), cluster.member("b"));
    for (behind, good) in [(59 * 60, true), (2 * 3600, false)] {
        let late = clock(now() - Duration::from_secs(behind));
        let met = meet(server(&b), a.client(late).unwrap(), "b");
        assert_eq!(met.client.is_ok(), good, "{behind} s: {:?}", met.client);
        if let Err(problem) = met.client {
            let text = problem.to_string();
            assert!(text.contains("valid from 2027-01-15T07:00:00Z"), "{text}");
            assert!(text.contains("clock says 2027-01-15T06:00:00Z"), "{text}");
            assert!(problem.next().contains("date -u"));
        }
    }
}

#[test]
fn a_host_of_another_cluster_is_refused_by_both_ends() {
    let (mut ours, mut theirs) = (Cluster::new(), Cluster::new());
    let (a, b) = (ours.member("a"), theirs.member("b"));
    let problem = meet(server(&b), client(&a), "b").client.unwrap_err();
    assert_eq!(problem, Problem::Foreign);
    // One that believes us, and is not to be believed.
    let own = KeyAndRequest::generate().unwrap();
    let validity = Validity::from(now(), DAY);
    let (certificate, _) = theirs
        .authority
        .issue(&own.request, &host("b"), validity)
        .unwrap();
    let pem = ours.authority.certificate_pem();
    let liar = Credentials::new(&own.key, &certificate, pem, None).unwrap();
    let met = meet(server(&a), client(&liar), "a");
    assert_eq!(met.server, Err(Problem::Foreign));
    assert!(
        met.client
            .unwrap_err()
            .to_string()
            .contains("another cluster")
    );
}

#[test]
fn a_host_that_was_removed_is_refused_in_both_directions() {
    let mut cluster = Cluster::new();
    let b = cluster.member("b");
    cluster
        .ledger
        .remove(&host("b"), Timestamp::try_from(now()).unwrap());
    let a = cluster.member("a");
    assert_eq!(
        meet(server(&b), client(&a), "b").client,
        Err(Problem::Removed)
    );
    let met = meet(server(&a), client(&b), "a");
    assert_eq!(met.server, Err(Problem::Removed));
    let told = met.client.unwrap_err();
    assert_eq!(told.to_string(), "this side was removed from the cluster");
    // Joined again, it is as good as any other.
    let b = cluster.member("b");
    assert_eq!(meet(server(&a), client(&b), "a").client, Ok(()));
}

#[test]
fn an_operator_is_known_as_one_and_cannot_pass_for_a_host() {
    let mut cluster = Cluster::new();
    let a = cluster.member("a");
    let who = Identity::Operator("eve".parse().unwrap());
    let eve = cluster.issue(&who, Validity::from(now(), limits::OPERATOR_LIFETIME));
    let met = meet(server(&a), client(&eve), "a");
    assert_eq!(met.server.unwrap().unwrap().identity, who);
    let posing = meet(server(&eve), client(&a), "a").client.unwrap_err();
    assert!(
        matches!(posing, Problem::WrongRole | Problem::WrongName { .. }),
        "{posing}"
    );
}

#[test]
fn who_has_no_certificate_gets_no_further_unless_he_may_join() {
    let mut cluster = Cluster::new();
    let a = cluster.member("a");
    let nobody = || joining_client(cluster.authority.fingerprint(), clock(now())).unwrap();
    let met = meet(server(&a), nobody(), "a");
    assert_eq!(met.server, Err(Problem::NoCertificate));
    let told = met.client.unwrap_err();
    assert!(told.to_string().contains("was shown none"), "{told}");

    let open = a.server(Clients::OrJoining, clock(now())).unwrap();
    let met = meet(open, nobody(), "a");
    assert_eq!((met.server, met.client), (Ok(None), Ok(())));
}

#[test]
fn who_joins_believes_only_the_authority_that_his_token_names() {
    let (mut ours, mut theirs) = (Cluster::new(), Cluster::new());
    let joining = joining_client(ours.authority.fingerprint(), clock(now())).unwrap();
    let open = |credentials: &Credentials| {
        credentials
            .server(Clients::OrJoining, clock(now()))
            .unwrap()
    };
    let other = meet(open(&theirs.member("a")), joining.clone(), "a");
    let problem = other.client.unwrap_err();
    let text = problem.to_string();
    for fingerprint in [ours.authority.fingerprint(), theirs.authority.fingerprint()] {
        assert!(text.contains(&fingerprint.to_string()), "{text}");
    }
    // One that shows our authority's certificate without being signed by it.
    let own = KeyAndRequest::generate().unwrap();
    let validity = Validity::from(now(), DAY);
    let (certificate, _) = theirs
        .authority
        .issue(&own.request, &host("a"), validity)
        .unwrap();
    let pem = ours.authority.certificate_pem();
    let liar = Credentials::new(&own.key, &certificate, pem, None).unwrap();
    let problem = meet(open(&liar), joining.clone(), "a").client.unwrap_err();
    assert_eq!(problem, Problem::Foreign);
    let met = meet(open(&ours.member("b")), joining, "a");
    assert_eq!(met.client, Ok(()), "any host of the cluster will do");
}

#[test]
fn a_request_gets_only_what_the_authority_decides() {
    let cluster = Cluster::new();
    let validity = Validity::from(now(), DAY);
    for bad in [
        "",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----",
    ] {
        let refused = cluster.authority.issue(bad, &host("b"), validity);
        assert!(refused.unwrap_err().to_string().contains("request"));
    }
    let own = KeyAndRequest::generate().unwrap();
    let long = own.request.clone() + &" ".repeat(limits::CERTIFICATE_TEXT);
    assert!(
        cluster
            .authority
            .issue(&long, &host("b"), validity)
            .is_err()
    );
    let (_, facts) = cluster
        .authority
        .issue(&own.request, &host("b"), validity)
        .unwrap();
    assert_eq!(facts.identity, host("b"));
    assert_eq!(facts.not_before, now() - limits::BACKDATED);
    assert!(facts.renew_at() > now() + DAY / 2 && facts.renew_at() < now() + DAY);
}

#[test]
fn a_fingerprint_is_the_same_after_a_restart() {
    let cluster = Cluster::new();
    let kept = Authority::from_pem(
        &cluster.authority.key_pem(),
        cluster.authority.certificate_pem(),
    );
    let text = kept.unwrap().fingerprint().to_string();
    assert_eq!(text, cluster.authority.fingerprint().to_string());
    assert_eq!(
        Fingerprint::try_from(text).unwrap(),
        cluster.authority.fingerprint()
    );
}
