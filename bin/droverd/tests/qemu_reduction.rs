//! A guest whose bytes are reduced on their way, between real QEMUs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{
    CheckpointKind, EventKind, MigrationPhase, MigrationView, ReductionView, VmDefinition,
};
use drover_types::{AtDeadline, Convergence, ReductionMode, Throttle};
use hosts::reduced::{checkpoints_when, moved, moved_by, that_keep, with_checkpoints};
use hosts::{A, B, Hosts, SLOW, SLOWER, set_word};

/// Moves the guest over QEMU's main channel alone, as postcopy begins after so many seconds.
async fn moved_over_one_channel(
    hosts: &mut Hosts,
    from: usize,
    how: &str,
    seconds: i64,
) -> [MigrationView; 2] {
    let convergence = Convergence {
        throttle: Some(Throttle::Off),
        deadline_s: Some(seconds.try_into().unwrap()),
        at_deadline: Some(AtDeadline::Postcopy),
        ..Convergence::default()
    };
    let views = moved_by(hosts, from, how, convergence).await;
    assert_eq!(views[0].channels, Some(0), "{views:#?}");
    let reduction = views[0].reduction.clone().unwrap();
    assert!(reduction.opaque.is_empty(), "{reduction:#?}");
    // Nearly all that QEMU sent was found to be pages.
    let bytes = found(&reduction) * 4096;
    assert!(bytes * 20 > reduction.raw_bytes.0 * 19, "{reduction:#?}");
    views
}

/// How many pages were found.
fn found(reduction: &ReductionView) -> u64 {
    let pages = reduction.pages;
    pages.filled + pages.same + pages.stored + pages.changed + pages.ordinary + pages.dense
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_arrives_whole_by_every_way_to_reduce_and_the_source_tells_what_became_of_its_pages()
 {
    let Some(mut hosts) = Hosts::with_guest("reduction", SLOW).await else {
        return;
    };
    for (number, how) in ["zstd:1", "lz4", "pages", "zstd:-5"]
        .into_iter()
        .enumerate()
    {
        let from = [A, B][number % 2];
        let [left, arrived] = moved(&mut hosts, from, how).await;
        let reduction = left.reduction.clone().unwrap();
        assert_eq!(reduction.mode, how.parse::<ReductionMode>().unwrap());
        assert!(arrived.reduction.is_none(), "{arrived:#?}");
        assert!(reduction.opaque.is_empty(), "{reduction:#?}");
        let pages = reduction.pages;
        // The content, of which 30 % is noise and 10 % nothing, and what the guest wrote meanwhile.
        let shared = left.shared_pages.clone().unwrap();
        if number < 2 {
            assert!(
                pages.dense > 3000 && pages.ordinary > 5000,
                "{reduction:#?}"
            );
            // But for what it had in several places.
            assert!(pages.stored < 1000, "{reduction:#?}");
            let added = arrived.shared_pages.clone().unwrap().added;
            assert!(added > 6000, "{arrived:#?}");
        } else {
            // The host has what the guest brought when it came the first time.
            assert!(pages.stored > 6000, "{reduction:#?}");
            assert!(shared.told >= pages.stored, "{shared:#?}");
            let found = arrived.shared_pages.clone().unwrap();
            assert_eq!(
                (found.found, found.found_in_checkpoint),
                (pages.stored, 0),
                "{arrived:#?}"
            );
        }
        assert!(pages.same + pages.changed > 0, "{reduction:#?}");
        // What of its memory nothing was ever written to.
        assert!(pages.zero > 10_000, "{reduction:#?}");
        assert_eq!(reduction.dense.bytes, reduction.dense.packed);
        let crossed = left.traffic.sent_bytes.0;
        assert!(reduction.wire_bytes.0 <= crossed, "{left:#?}");
        assert!(crossed < reduction.wire_bytes.0 + (4 << 20), "{left:#?}");
        if how != "pages" {
            assert!(crossed * 5 < reduction.raw_bytes.0 * 4, "{reduction:#?}");
        }
        let way = left.data_path.unwrap();
        assert_eq!(way.why.as_deref(), Some("lanes are encrypted"));
    }
    let [left, _] = moved(&mut hosts, A, "off").await;
    assert_eq!((left.reduction, left.shared_pages), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_host_shares_no_pages_a_guest_brings_all_of_them_again() {
    let Some(mut hosts) = Hosts::new("reduceunshared", SLOW).await else {
        return;
    };
    hosts.configure(B, |config| {
        set_word(config, "migration", "shared_pages_memory", "0");
    });
    for host in [A, B] {
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    for (from, shares) in [(A, false), (B, true), (A, false)] {
        let [left, arrived] = moved(&mut hosts, from, "pages").await;
        assert_eq!(left.shared_pages.is_some(), shares, "{left:#?}");
        assert_eq!(arrived.shared_pages.is_some(), shares, "{arrived:#?}");
        // But for what it had in several places.
        assert!(left.reduction.unwrap().pages.stored < 1000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_comes_back_finds_its_pages_also_at_an_agent_that_was_started_anew() {
    let Some(mut hosts) = with_checkpoints("checkpoint", SLOW).await else {
        return;
    };
    let [left, arrived] = moved(&mut hosts, A, "zstd:1").await;
    assert_eq!(arrived.shared_pages, None);
    let stored = left.shared_pages.clone().unwrap();
    assert!(stored.added > 6000 && stored.trouble.is_none(), "{left:#?}");
    let kept = checkpoints_when(&hosts, A, |kept| kept.checkpoints.len() == 1).await;
    assert!(kept.taken.0 > stored.added * 4096, "{kept:?}");

    assert_eq!(hosts.terminate_agent(A).await, Some(0));
    hosts.start_agent(A).await;
    let [back, returned] = moved(&mut hosts, B, "zstd:1").await;
    let pages = back.reduction.clone().unwrap().pages;
    assert!(pages.stored > 6000, "{back:#?}");
    let found = returned.shared_pages.clone().unwrap();
    assert_eq!(
        (found.found, found.found_in_checkpoint),
        (0, pages.stored),
        "{returned:#?}"
    );
    assert!(
        back.traffic.sent_bytes.0 * 2 < left.traffic.sent_bytes.0,
        "{back:#?}"
    );
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_goes_when_its_guest_is_back_also_where_that_came_without_it() {
    let Some(mut hosts) = with_checkpoints("unused", SLOW).await else {
        return;
    };
    moved(&mut hosts, A, "zstd:1").await;
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.len() == 1).await;
    let [back, returned] = moved(&mut hosts, B, "off").await;
    assert_eq!(back.reduction, None);
    assert_eq!(returned.shared_pages, None, "{returned:#?}");
    checkpoints_when(&hosts, A, |kept| kept.taken.0 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_goes_back_to_a_host_sends_what_changed_of_its_pages() {
    let Some(mut hosts) = that_keep(&[A, B], "baseline", SLOW).await else {
        return;
    };
    let [_, arrived] = moved(&mut hosts, A, "zstd:1").await;
    let stored = arrived.shared_pages.clone().unwrap();
    assert!(
        stored.recorded > 6000 && stored.trouble.is_none(),
        "{arrived:#?}"
    );
    let kept = checkpoints_when(&hosts, B, |kept| kept.checkpoints.len() == 1).await;
    assert_eq!(kept.checkpoints[0].kind, CheckpointKind::Baseline);
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.len() == 1).await;

    // Who has it is another agent by then.
    assert_eq!(hosts.terminate_agent(B).await, Some(0));
    hosts.start_agent(B).await;
    let [back, _] = moved(&mut hosts, B, "zstd:1").await;
    let reduction = back.reduction.clone().unwrap();
    let compared = back.shared_pages.clone().unwrap().compared;
    let changed = reduction.pages.stored_changed;
    assert!(changed > 100 && compared >= changed, "{back:#?}");
    assert!(reduction.change_bytes.0 < reduction.pages.changed * 2048 + changed * 2048);
    // It left a checkpoint there, as the other host has a baseline now.
    let kept = checkpoints_when(&hosts, B, |kept| kept.checkpoints.len() == 1).await;
    assert_eq!(kept.checkpoints[0].kind, CheckpointKind::Checkpoint);
    let kept = checkpoints_when(&hosts, A, |kept| kept.checkpoints.len() == 1).await;
    assert_eq!(kept.checkpoints[0].kind, CheckpointKind::Baseline);
}

/// Longer than any guest takes here.
const NEVER: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_moves_over_one_channel_finds_its_pages_when_it_comes_back() {
    let Some(mut hosts) = with_checkpoints("onechannel", SLOW).await else {
        return;
    };
    let [left, _] = moved_over_one_channel(&mut hosts, A, "zstd:1", NEVER).await;
    let stored = left.shared_pages.clone().unwrap();
    assert!(stored.added > 6000 && stored.trouble.is_none(), "{left:#?}");
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.len() == 1).await;

    let [back, _] = moved_over_one_channel(&mut hosts, B, "pages", NEVER).await;
    let pages = back.reduction.clone().unwrap().pages;
    assert!(pages.stored > 6000, "{back:#?}");
    assert!(
        back.traffic.sent_bytes.0 * 2 < left.traffic.sent_bytes.0,
        "{back:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_follow_by_postcopy_are_found_and_the_guest_is_whole() {
    let Some(mut hosts) = Hosts::with_guest("reducepost", SLOWER).await else {
        return;
    };
    let [left, arrived] = moved_over_one_channel(&mut hosts, A, "pages", 1).await;
    // About a half of it followed, and was found all the same.
    assert!(left.postcopy.unwrap().bytes.0 > 20 << 20, "{left:#?}");
    let added = arrived.shared_pages.clone().unwrap().added;
    assert!(added > 6000, "{arrived:#?}");
    moved(&mut hosts, B, "zstd:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_which_nothing_is_to_be_kept_leaves_nothing_and_one_that_stays_neither() {
    let Some(mut hosts) = Hosts::new("checkpointless", SLOW).await else {
        return;
    };
    for host in [A, B] {
        hosts.configure(host, |config| {
            set_word(config, "checkpoints", "size", "1 GiB");
            set_word(config, "migration", "reduction", "zstd:1");
        });
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    let id = hosts.migrate_midway(A).await;
    checkpoints_when(&hosts, A, |kept| kept.taken.0 > 64 << 20).await;
    hosts.client(A).cancel(id).await.unwrap();
    assert_eq!(hosts.ended(A, id).await.phase, MigrationPhase::Cancelled);
    checkpoints_when(&hosts, A, |kept| kept.taken.0 == 0).await;

    let [left, _] = moved(&mut hosts, A, "off").await;
    let events = hosts.client(A).events(left.id).await.unwrap();
    let told = events.iter().any(|event| {
        matches!(&event.kind, EventKind::Fallback { what }
            if what.contains("no checkpoint of it is kept on a: no bytes are reduced"))
    });
    assert!(told, "{events:#?}");
    assert_eq!(hosts.client(A).checkpoints().await.unwrap().taken.0, 0);

    let definition = hosts.definition().await;
    hosts.define(
        B,
        &VmDefinition {
            checkpoint: false,
            ..definition
        },
    );
    let [_, arrived] = moved(&mut hosts, B, "zstd:1").await;
    // Neither a checkpoint where it left nor a baseline where it arrived, which keeps both of other guests.
    for host in [A, B] {
        assert_eq!(hosts.client(host).checkpoints().await.unwrap().taken.0, 0);
    }
    let stored = arrived.shared_pages.unwrap();
    assert_eq!((stored.recorded, stored.unrecorded), (0, 0), "{stored:?}");
    // Nor do other guests find any of it.
    assert_eq!(stored.added, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fastest_is_decided_while_a_guest_moves() {
    let Some(mut hosts) = Hosts::with_guest("reduceauto", SLOWER).await else {
        return;
    };
    let [left, _] = moved(&mut hosts, A, "auto").await;
    let reduction = left.reduction.clone().unwrap();
    let decided = reduction.decided.clone().unwrap();
    // The lines are slow, whatever else wants the processors here.
    assert!(decided.changes > 0, "{reduction:#?}");
    assert!(
        reduction.wire_bytes.0 * 10 < reduction.raw_bytes.0 * 9,
        "{reduction:#?}"
    );
    assert_eq!(
        decided
            .verdicts
            .iter()
            .filter(|verdict| verdict.used)
            .count(),
        1
    );
    assert!(decided.beside().count() > 4, "{decided:#?}");
    assert!(
        reduction.times.lines_ms > 0 && reduction.times.trying_ms > 0,
        "{reduction:#?}"
    );
    let told = left.reduction.unwrap().to_string();
    assert!(told.starts_with("auto ("), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_not_encrypted_pass_through_memory_and_the_end_with_less_memory_counts() {
    let Some(mut hosts) = Hosts::new("reduceplain", SLOW).await else {
        return;
    };
    for host in [A, B] {
        hosts.configure(host, |config| {
            set_word(config, "migration", "encryption", "off");
            let memory = if host == A { "64 MiB" } else { "32 MiB" };
            set_word(config, "migration", "reduction_memory", memory);
            set_word(config, "migration", "reduction", "zstd:1");
        });
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    let left = hosts.move_from(A).await;
    assert_eq!(left.shared_pages, None);
    let reduction = left.reduction.unwrap();
    assert_eq!(reduction.mode, ReductionMode::Zstd(1));
    let kept = reduction.kept_bytes;
    assert!(reduction.kept_most.0 < 32 << 20, "{reduction:#?}");
    assert!(kept.0 > 0 && kept <= reduction.kept_most, "{reduction:#?}");
    let way = left.data_path.unwrap();
    assert_eq!(way.why.as_deref(), Some("but for what is reduced"));
    hosts.guest_runs_only_on(B).await;
}
