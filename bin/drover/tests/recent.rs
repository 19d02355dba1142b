//! `drover recent` and `--cluster`, with real agents on the loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod hosts;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hosts::{Host, Person, Ran};
use serde_json::Value;

fn states(clusters: &[(String, String)]) -> Vec<(&str, &str)> {
    let borrowed = clusters.iter();
    borrowed
        .map(|(name, state)| (name.as_str(), state.as_str()))
        .collect()
}

/// It was refused, nothing was asked, and both fingerprints are told.
fn is_refused_as_another_cluster(ran: &Ran, old: &str, new: &str) {
    assert_eq!(ran.code, Some(4), "{}", ran.stdout);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains(old), "{}", ran.stderr);
    assert!(ran.stderr.contains(new), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("nothing was asked of it"),
        "{}",
        ran.stderr
    );
}

fn fingerprint(host: &Host) -> String {
    let document: Value = host.drover(&["cluster", "status", "--json"]).document();
    document["cluster"]["fingerprint"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_cluster_is_noted_when_it_is_used_and_can_be_used_by_its_name() {
    let (a, b) = (Host::start("a").await, Host::start("b").await);
    let eve = Person::new();
    assert!(eve.drover(&["recent"]).done().starts_with("none yet"));
    eve.on(&a, &["status"]).done();
    assert_eq!(eve.clusters(), [], "an agent without a cluster is none");

    eve.on(&a, &["cluster", "init"]).done();
    a.join(&b);
    assert_eq!(states(&eve.clusters()), [("a", "reachable")]);
    let host = eve.drover(&["--cluster", "a", "host"]).done();
    assert!(host.starts_with("host            a\n"), "{host}");

    // Reached by another host, and by another way: the same cluster, which leads there from now on.
    let identity = a.place.path("eve.pem");
    let identity = identity.to_str().unwrap();
    a.done(&["cluster", "operator", "eve", "-o", identity]);
    let by_b = ["--agent", "https://b", "--identity", identity];
    eve.drover(&[&by_b[..], &["vm", "list"]].concat()).done();
    assert_eq!(states(&eve.clusters()), [("a", "reachable")]);
    let shown = eve.drover(&["recent"]).done();
    assert!(shown.contains("https://b"), "{shown}");
    eve.drover(&["recent", "name", "a", "lab"]).done();
    let host = eve.drover(&["host", "--cluster", "lab"]).done();
    assert!(host.starts_with("host            b\n"), "{host}");

    let unknown = eve.drover(&["--cluster", "a", "host"]);
    assert_eq!(unknown.code, Some(4));
    assert!(unknown.stderr.contains("`drover recent` lists them"));
    let mode = fs::metadata(eve.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(eve.file()).unwrap();
    assert!(!text.contains("PRIVATE"), "{text}");
    assert!(!text.contains("BEGIN"), "{text}");
}

#[tokio::test]
async fn a_cluster_that_was_made_anew_is_another_one_and_the_old_name_leads_nowhere() {
    let mut a = Host::start("a").await;
    let (eve, bob) = (Person::new(), Person::new());
    eve.on(&a, &["cluster", "init"]).done();
    let old = fingerprint(&a);
    let identity = a.place.path("bob.pem");
    let identity = identity.to_str().unwrap();
    a.done(&["cluster", "operator", "bob", "-o", identity]);
    let url = format!("https://127.0.0.1:{}", a.address.port());
    bob.drover(&["--agent", &url, "--identity", identity, "host"])
        .done();

    a.set_up_anew().await;
    assert_eq!(
        states(&eve.clusters()),
        [("a", "replaced")],
        "in no cluster"
    );
    let ran = eve.drover(&["--cluster", "a", "cordon"]);
    is_refused_as_another_cluster(&ran, &old, "an agent without a cluster");

    a.done(&["cluster", "init"]);
    let new = fingerprint(&a);
    assert_ne!(old, new);
    for person in [&eve, &bob] {
        let ran = person.drover(&["--cluster", "a", "cordon"]);
        is_refused_as_another_cluster(&ran, &old, &new);
        assert_eq!(states(&person.clusters()), [("a", "replaced")]);
    }
    assert!(a.done(&["host"]).contains("guests          are taken"));

    eve.on(&a, &["status"]).done();
    let both = [("a-2", "reachable"), ("a", "replaced")];
    assert_eq!(states(&eve.clusters()), both);
    let shown = eve.drover(&["recent"]).done();
    assert!(shown.contains("REPLACED"), "{shown}");
    assert!(shown.contains(&new), "{shown}");
    let taken = eve.drover(&["recent", "name", "a-2", "a"]);
    assert_eq!(taken.code, Some(4), "{}", taken.stderr);
    let pruned = eve.drover(&["recent", "prune", "--yes"]).done();
    assert!(pruned.ends_with("forgotten: a\n"), "{pruned}");
    eve.drover(&["recent", "name", "a-2", "a"]).done();
    assert_eq!(states(&eve.clusters()), [("a", "reachable")]);
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_forgotten_only_after_a_yes() {
    let (mut a, b) = (Host::start("a").await, Host::start("b").await);
    let eve = Person::new();
    for host in [&a, &b] {
        eve.on(host, &["cluster", "init"]).done();
    }
    a.stop();
    let ran = eve.drover(&["--cluster", "a", "status"]);
    assert_eq!(ran.code, Some(7), "{}", ran.stderr);
    let found = [("b", "reachable"), ("a", "unreachable")];
    assert_eq!(states(&eve.clusters()), found);
    let shown = eve.drover(&["recent"]).done();
    assert!(shown.contains("UNREACHABLE for "), "{shown}");

    let before = fs::read_to_string(eve.file()).unwrap();
    let ran = eve.drover(&["recent", "prune"]);
    assert_eq!(ran.code, Some(4), "nobody can be asked: {}", ran.stderr);
    assert!(ran.stdout.contains("UNREACHABLE"), "{}", ran.stdout);
    assert!(ran.stderr.contains("--yes"), "{}", ran.stderr);
    let document = eve.drover(&["recent", "prune", "--json"]).document();
    assert_eq!(document["error"]["code"], "not-confirmed");
    assert_eq!(fs::read_to_string(eve.file()).unwrap(), before);

    a.start_again().await;
    assert_eq!(eve.clusters()[1].1, "reachable");
    let ran = eve.drover(&["recent", "prune", "--yes"]).done();
    assert!(ran.starts_with("nothing to forget"), "{ran}");
    a.stop();
    let document = eve
        .drover(&["recent", "prune", "--yes", "--json"])
        .document();
    assert_eq!(document["forgotten"], serde_json::json!(["a"]));
    let named = eve.drover(&["recent", "prune", "b", "-y"]).done();
    assert!(named.ends_with("forgotten: b\n"), "{named}");
    assert_eq!(eve.clusters(), []);
}

#[tokio::test]
async fn an_operator_who_was_removed_is_refused_and_the_cluster_is_not_taken_for_gone() {
    let a = Host::start("a").await;
    let bob = Person::new();
    a.done(&["cluster", "init"]);
    let identity = a.place.path("bob.pem");
    let identity = identity.to_str().unwrap();
    a.done(&["cluster", "operator", "bob", "-o", identity]);
    let remote = ["--agent", "https://a", "--identity", identity, "host"];
    bob.drover(&remote).done();
    a.done(&["cluster", "remove", "bob", "--operator"]);
    assert_eq!(states(&bob.clusters()), [("a", "refused")]);
    let ran = bob.drover(&["recent", "prune", "--yes"]).done();
    assert!(ran.starts_with("nothing to forget"), "{ran}");
    fs::remove_file(identity).unwrap();
    assert_eq!(states(&bob.clusters()), [("a", "refused")]);
    let shown = bob.drover(&["recent"]).done();
    assert!(shown.contains("cannot read the identity file"), "{shown}");
}

#[tokio::test]
async fn a_damaged_file_is_told_and_put_aside_and_keeps_nobody_from_his_work() {
    let a = Host::start("a").await;
    let eve = Person::new();
    eve.on(&a, &["cluster", "init"]).done();
    fs::write(eve.file(), "{").unwrap();
    let ran = eve.on(&a, &["status"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.starts_with("note: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("is damaged"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(eve.file()).unwrap(), "{");
    eve.on(&a, &["status", "--json"]).document();

    let ran = eve.drover(&["recent"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("recent.json.damaged-1"),
        "{}",
        ran.stderr
    );
    assert_eq!(eve.clusters(), []);
    eve.on(&a, &["status"]).done();
    assert_eq!(states(&eve.clusters()), [("a", "reachable")]);

    fs::write(eve.file(), "{\"format\": 7}").unwrap();
    let ran = eve.drover(&["recent"]);
    assert!(ran.stderr.contains("format 7"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(eve.file()).unwrap(), "{\"format\": 7}");
}
