//! What protects a guest's memory on its way, by what both hosts are configured for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::LaneEncryption;
use hosts::{A, B, FAST, Hosts, set_word};

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_encrypted_unless_both_hosts_say_off_and_both_tell_what_was_used() {
    let Some(mut hosts) = Hosts::new("encryption", FAST).await else {
        return;
    };
    // By default; when one host says off; when both do.
    let cases = [
        (None, None),
        (Some("off"), None),
        (Some("off"), Some("off")),
    ];
    for (number, (at_a, at_b)) in cases.into_iter().enumerate() {
        for (host, word) in [(A, at_a), (B, at_b)] {
            if number > 0 {
                hosts.kill_agent(host).await;
            }
            hosts.configure(host, |config| {
                if let Some(word) = word {
                    set_word(config, "migration", "encryption", word);
                }
            });
            hosts.start_agent(host).await;
        }
        if number == 0 {
            hosts.boot().await;
        }
        let (from, to) = [(A, B), (B, A)][number % 2];
        let left = hosts.move_from(from).await;
        let arrived = hosts.ended(to, left.id).await;
        for view in [&left, &arrived] {
            let off = view.encryption == Some(LaneEncryption::Off);
            assert!(view.encryption.is_some(), "{view:#?}");
            assert_eq!(off, (at_a, at_b) == (Some("off"), Some("off")), "{view:#?}");
            let told = |words: &str| view.notes.iter().any(|note| note.contains(words));
            assert_eq!(told("not encrypted"), off, "{view:#?}");
            let forced = at_a.is_some() != at_b.is_some();
            assert_eq!(
                told("`migration.encryption` is on on b"),
                forced,
                "{view:#?}"
            );
        }
        hosts.guest_runs_only_on(to).await;
    }
}
