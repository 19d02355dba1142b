//! What protects a guest's memory on its way, by what both hosts are configured for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{DataPathKind, EventKind, LaneEncryption, MigrationView};
use hosts::{A, B, FAST, Hosts, set_flag, set_word};

/// What the history of a host tells of what protected the lanes.
async fn protection(hosts: &Hosts, host: usize, view: &MigrationView) -> String {
    let events = hosts.client(host).events(view.id).await.unwrap();
    let told = |kind: &EventKind| matches!(kind, EventKind::LanesProtected { .. });
    let mut told = events.into_iter().filter(|event| told(&event.kind));
    let (first, more) = (told.next(), told.next());
    assert_eq!(more, None);
    first.unwrap_or_else(|| panic!("{view:#?}")).text
}

fn way(view: &MigrationView) -> (DataPathKind, Option<&str>, bool) {
    let data_path = view.data_path.as_ref();
    let data_path = data_path.unwrap_or_else(|| panic!("{view:#?}"));
    (data_path.kind, data_path.why.as_deref(), data_path.fallback)
}

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
        for (host, view) in [(from, &left), (to, &arrived)] {
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
            let (expected, said) = if off {
                let said = "not encrypted: protected by proof of the migration's token";
                ((DataPathKind::Splice, None, false), said)
            } else {
                let why = Some("lanes are encrypted");
                ((DataPathKind::Copy, why, false), "protected by tls13-")
            };
            assert_eq!(way(view), expected);
            let told = protection(&hosts, host, view).await;
            assert!(told.contains(said), "{told}");
        }
        hosts.guest_runs_only_on(to).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_has_a_checksum_encrypted_or_not_if_one_host_says_verify() {
    let Some(mut hosts) = Hosts::new("verify", FAST).await else {
        return;
    };
    for (number, encryption) in ["on", "off"].into_iter().enumerate() {
        for host in [A, B] {
            if number > 0 {
                hosts.kill_agent(host).await;
            }
            hosts.configure(host, |config| {
                set_word(config, "migration", "encryption", encryption);
                if host == B {
                    set_flag(config, "migration", "verify", true);
                }
            });
            hosts.start_agent(host).await;
        }
        if number == 0 {
            hosts.boot().await;
        }
        // As the destination, and as the source.
        let (from, to) = [(A, B), (B, A)][number];
        let left = hosts.move_from(from).await;
        let arrived = hosts.ended(to, left.id).await;
        for (host, view) in [(from, &left), (to, &arrived)] {
            assert!(view.verify, "{view:#?}");
            let because = (DataPathKind::Copy, Some("verify is on"), false);
            assert_eq!(way(view), because);
            let off = view.encryption == Some(LaneEncryption::Off);
            assert_eq!(off, encryption == "off", "{view:#?}");
            let told = protection(&hosts, host, view).await;
            assert!(told.ends_with("by a CRC-32C of each chunk"), "{told}");
        }
        hosts.guest_runs_only_on(to).await;
    }
}
