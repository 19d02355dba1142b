//! What a run does about what others do to the host meanwhile, and about a host that does not do as it is told.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use drover_change::{Journal, Left, Order, Outcome};
use world::{BOOT, Fate, OTHER_BOOT, World, order, step};

fn two() -> (World, Order) {
    let world = World::of(&[("a", "1"), ("b", "1")]);
    let order = order(vec![vec![step("a", "1", "2"), step("b", "1", "2")]]);
    Journal::make(&world.folder(), order.clone()).unwrap();
    (world, order)
}

fn values(world: &World, order: &Order) -> Vec<String> {
    world.tree(&order.plan).into_values().collect()
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Refused { why } | Outcome::RolledBack { why } | Outcome::InDoubt { why } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_as_the_plan_says_is_left_as_it_is() {
    let (world, order) = two();
    world.set("b", "7");
    let outcome = world.process(Fate::default(), BOOT, true).await.unwrap();
    assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    assert_eq!(why(&outcome), "/b is \"7\", and not \"1\"");
    assert_eq!(values(&world, &order), ["1", "7"]);
}

#[tokio::test(start_paused = true)]
async fn paths_that_stop_working_have_all_taken_back_and_are_named() {
    let (world, order) = two();
    let fate = Fate {
        cut_off_by: Some(("a".into(), "2".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT, true).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    assert!(
        why(&outcome).contains("nic0 10.0.0.1 to b 10.0.0.2:1"),
        "{outcome:?}"
    );
    assert_eq!(values(&world, &order), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn paths_that_did_not_work_before_prove_nothing() {
    let (world, order) = two();
    let fate = Fate {
        cut_off_by: Some(("a".into(), "1".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT, true).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 0 });
    assert_eq!(values(&world, &order), ["2", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_is_not_taken_or_becomes_another_has_all_taken_back() {
    for (fate, says) in [
        (
            Fate {
                refuses: Some("b".into()),
                ..Fate::default()
            },
            "/b was not set to \"2\": it is not taken",
        ),
        (
            Fate {
                becomes: Some(("b".into(), "5".into())),
                ..Fate::default()
            },
            "/b was set to \"2\" and became \"5\"",
        ),
    ] {
        let (world, order) = two();
        let outcome = world.process(fate, BOOT, true).await.unwrap();
        assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
        assert_eq!(why(&outcome), says);
        assert_eq!(values(&world, &order), ["1", "1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_set_meanwhile_is_left_alone_and_reported() {
    // Two looks, one at the paths, then look, set and look for each step: this is the look at the paths afterwards.
    let after_both = 3 + 2 * 4;
    let (world, order) = two();
    let fate = Fate {
        meddles: Some((after_both, "a".into(), "9".into())),
        cut_off_by: Some(("a".into(), "9".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT, true).await.unwrap();
    assert!(matches!(outcome, Outcome::InDoubt { .. }), "{outcome:?}");
    assert_eq!(values(&world, &order), ["9", "1"]);
    let standing = Journal::open(&world.folder()).unwrap().standing().clone();
    let found = "\"9\"".to_owned();
    assert_eq!(standing.left(), [Left { step: 0, found }]);
    // Once it is as one of the two again it can be undone.
    let refused = world.undo(Fate::default()).await.unwrap().unwrap_err();
    assert_eq!(refused, "/a is \"9\", and not \"2\"");
    world.set("a", "2");
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
    assert_eq!(values(&world, &order), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_touches_nothing_if_one_setting_was_changed_since() {
    let (world, order) = two();
    world.process(Fate::default(), BOOT, true).await.unwrap();
    world.set("a", "3");
    let refused = world.undo(Fate::default()).await.unwrap().unwrap_err();
    assert_eq!(refused, "/a is \"3\", and not \"2\"");
    assert_eq!(values(&world, &order), ["3", "2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_as_before_after_a_restart_is_reported_and_left_alone() {
    let (world, order) = two();
    let fate = Fate {
        dies_at: Some(11),
        ..Fate::default()
    };
    assert_eq!(world.process(fate, BOOT, true).await, None);
    world.set("a", "2");
    world.set("b", "1");
    let outcome = world.process(Fate::default(), OTHER_BOOT, false).await;
    assert_eq!(outcome, Some(Outcome::GoneWithRestart));
    assert_eq!(values(&world, &order), ["2", "1"]);
    let standing = Journal::open(&world.folder()).unwrap().standing().clone();
    assert_eq!(standing.left().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_goes_at_any_call_has_all_taken_back_or_nothing_begun() {
    for call in 0..12 {
        let (world, order) = two();
        let fate = Fate {
            disk_gone_at: Some(call),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT, true).await.unwrap();
        let all = if matches!(outcome, Outcome::Applied { .. }) {
            "2"
        } else {
            "1"
        };
        assert_eq!(values(&world, &order), [all, all], "{call}: {outcome:?}");
    }
}
