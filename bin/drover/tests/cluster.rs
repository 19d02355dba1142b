//! `drover cluster …` and `drover --agent …` with real agents on the loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod hosts;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hosts::{Host, remote};
use serde_json::Value;

#[tokio::test]
async fn two_hosts_are_joined_by_three_commands() {
    let (a, b) = (Host::start("a").await, Host::start("b").await);
    let alone = a.drover(&["cluster", "status"]);
    assert_eq!(alone.code, Some(1));
    assert!(
        alone.stderr.contains("drover cluster init"),
        "{}",
        alone.stderr
    );

    let made = a.done(&["cluster", "init"]);
    assert!(
        made.starts_with("a is the authority of a new cluster"),
        "{made}"
    );
    let token = a.done(&["cluster", "token", "--ttl", "5m"]);
    assert!(token.starts_with("drover1-"), "{token}");
    assert_eq!(token.lines().count(), 1, "for a script to take");
    let joined = b.done(&["cluster", "join", token.trim()]);
    assert!(
        joined.starts_with("b joined the cluster of a, 2 hosts"),
        "{joined}"
    );

    let status = a.done(&["cluster", "status"]);
    let b_line = status.lines().find(|line| line.starts_with("b  "));
    let b_line = b_line.unwrap_or_else(|| panic!("{status}"));
    assert!(b_line.contains("member"), "{status}");
    assert!(b_line.contains("(29 d left)"), "{status}");
    assert!(b_line.ends_with(&b.address.to_string()), "{status}");
    let document: Value = serde_json::from_str(&b.done(&["cluster", "status", "--json"])).unwrap();
    assert_eq!(document["exit_code"], 0);
    assert_eq!(document["cluster"]["members"][1]["host"], "b");
    let peers = b.done(&["status"]);
    assert!(peers.contains("a     reachable"), "{peers}");

    let again = b.drover(&["cluster", "join", token.trim()]);
    assert_eq!(again.code, Some(4));
    assert!(
        again.stderr.contains("was used by host b"),
        "{}",
        again.stderr
    );
    let by_b = b.drover(&["cluster", "token"]);
    assert_eq!(by_b.code, Some(4));
    assert!(
        by_b.stderr.contains("next: run the command on a"),
        "{}",
        by_b.stderr
    );
    assert!(
        b.done(&["cluster", "rotate"])
            .starts_with("b has a new certificate")
    );

    let removed = a.done(&["cluster", "remove", "b"]);
    assert!(removed.starts_with("host b was removed"), "{removed}");
    let status = b.drover(&["status"]).stdout;
    assert!(
        status.contains("this side was removed from the cluster"),
        "{status}"
    );
}

#[tokio::test]
async fn an_operator_gives_orders_from_another_machine() {
    let (a, b) = (Host::start("a").await, Host::start("b").await);
    a.done(&["cluster", "init"]);
    a.join(&b);
    let file = a.place.path("eve.pem");
    let name = file.to_str().unwrap();
    a.done(&["cluster", "operator", "eve", "-o", name]);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = a.drover(&["cluster", "operator", "eve", "-o", name]);
    assert_eq!(again.code, Some(1), "a file that is there is not replaced");
    assert!(
        again.stderr.contains("choose another file"),
        "{}",
        again.stderr
    );

    for (url, host) in [
        ("https://a".to_owned(), "a"),
        ("https://b".to_owned(), "b"),
        (format!("https://b:{}", b.address.port()), "b"),
    ] {
        let ran = remote(&url, &file, &["host"]);
        assert_eq!(ran.code, Some(0), "{url}: {}", ran.stderr);
        assert!(
            ran.stdout.contains(&format!("host            {host}\n")),
            "{}",
            ran.stdout
        );
    }
    let list = remote("https://b", &file, &["vm", "list"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    let token = remote("https://a", &file, &["cluster", "token"]);
    assert!(token.stdout.starts_with("drover1-"), "{}", token.stderr);

    // Not the host that is wanted, no host, no file.
    let wrong = remote(&format!("https://a:{}", b.address.port()), &file, &["host"]);
    assert_eq!(wrong.code, Some(7));
    assert!(
        wrong.stderr.contains("host b answers, host a was wanted"),
        "{}",
        wrong.stderr
    );
    assert_eq!(remote("http://a", &file, &["host"]).code, Some(1));
    let none = remote("https://a", Path::new("/nowhere.pem"), &["host"]);
    assert!(none.stderr.contains("/nowhere.pem"), "{}", none.stderr);

    let removed = a.done(&["cluster", "remove", "eve", "--operator"]);
    assert!(removed.starts_with("operator eve was removed"), "{removed}");
    for url in ["https://a", "https://b"] {
        let refused = remote(url, &file, &["host"]);
        assert_eq!(refused.code, Some(7), "{}", refused.stdout);
        assert!(
            refused.stderr.contains("this side was removed"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("a new identity file"));
    }
}
