//! What a run does about what others do to the host meanwhile, and about a host that does not do as it is told.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use std::time::Duration;

use drover_change::{Left, Order, Outcome};
use drover_tune::{Disruption, NicSetting, Step};
use world::{BOOT, Fate, OTHER_BOOT, World, order, step};

const A: &str = "proc/irq/1/smp_affinity_list";
const B: &str = "proc/irq/2/smp_affinity_list";
const FILES: [(&str, &str); 2] = [(A, "1"), (B, "1")];

fn two() -> (World, Order) {
    let world = World::of(&FILES);
    let order = order(vec![vec![step(A, "1", "2"), step(B, "1", "2")]]);
    world.make(&order);
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
    world.set(B, "7");
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    assert_eq!(
        why(&outcome),
        "/proc/irq/2/smp_affinity_list is \"7\", and not \"1\""
    );
    assert_eq!(values(&world, &order), ["1", "7"]);
}

#[tokio::test(start_paused = true)]
async fn paths_that_stop_working_have_all_taken_back_and_are_named() {
    for unanswered in [false, true] {
        let (world, order) = two();
        let fate = Fate {
            cut_off_by: Some((A.into(), "2".into())),
            unanswered,
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
        assert!(
            why(&outcome).contains("nic0 10.0.0.1 to b 10.0.0.2:1"),
            "{outcome:?}"
        );
        assert_eq!(values(&world, &order), ["1", "1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn paths_that_did_not_work_before_prove_nothing() {
    let (world, order) = two();
    let fate = Fate {
        cut_off_by: Some((A.into(), "1".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 0 });
    assert_eq!(values(&world, &order), ["2", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_is_not_taken_or_becomes_another_has_all_taken_back() {
    for (fate, says) in [
        (
            Fate {
                refuses: Some(B.into()),
                ..Fate::default()
            },
            "/proc/irq/2/smp_affinity_list was not set to \"2\": it is not taken",
        ),
        (
            Fate {
                becomes: Some((B.into(), "5".into())),
                ..Fate::default()
            },
            "/proc/irq/2/smp_affinity_list was set to \"2\" and became \"5\"",
        ),
        (
            Fate {
                refuses: Some(B.into()),
                becomes: Some((B.into(), "5".into())),
                ..Fate::default()
            },
            "/proc/irq/2/smp_affinity_list was not set to \"2\": it is not taken",
        ),
    ] {
        let (world, order) = two();
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
        assert_eq!(why(&outcome), says);
        assert_eq!(values(&world, &order), ["1", "1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_the_kernels_own_to_set_is_passed_by_and_said_and_costs_no_other() {
    let (world, order) = two();
    let fate = || Fate {
        passes_by: Some(A.into()),
        ..Fate::default()
    };
    let outcome = world.process(fate(), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(values(&world, &order), ["1", "2"]);
    let standing = world.account().standing;
    let why = Some("the kernel spreads it by itself");
    assert_eq!((standing.passed_by(0), standing.passed_by(1)), (why, None));
    assert_eq!(world.undo(fate()).await, Some(Ok(Outcome::Undone)));
    assert_eq!(values(&world, &order), ["1", "1"]);
    // Whoever dies at any call leaves all of the others, or nothing.
    for call in 0..20 {
        let (world, order) = two();
        let dies = Fate {
            dies_at: Some(call),
            ..fate()
        };
        if world.process(dies, BOOT).await.is_none() {
            world.process(fate(), BOOT).await.unwrap();
            let there = values(&world, &order);
            assert!(
                there == ["1", "1"] || there == ["1", "2"],
                "{call}: {there:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_set_meanwhile_is_left_alone_and_reported() {
    // Two looks, one at the paths and one at what crosses them, then look, set and look for each step: this is the look at the paths
    // afterwards.
    let after_both = 4 + 2 * 4;
    let (world, order) = two();
    let fate = Fate {
        meddles: Some((after_both, A.into(), "9".into())),
        cut_off_by: Some((A.into(), "9".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::InDoubt { .. }), "{outcome:?}");
    assert_eq!(values(&world, &order), ["9", "1"]);
    let standing = world.account().standing;
    let found = "\"9\"".to_owned();
    assert_eq!(standing.left(), [Left { step: 0, found }]);
    // Once it is as one of the two again it can be undone.
    let refused = world.undo(Fate::default()).await.unwrap().unwrap_err();
    assert_eq!(
        refused,
        "/proc/irq/1/smp_affinity_list is \"9\", and not \"2\""
    );
    world.set(A, "2");
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
    assert_eq!(values(&world, &order), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_touches_nothing_if_one_setting_was_changed_since() {
    let (world, order) = two();
    world.process(Fate::default(), BOOT).await.unwrap();
    world.set(A, "3");
    let refused = world.undo(Fate::default()).await.unwrap().unwrap_err();
    assert_eq!(
        refused,
        "/proc/irq/1/smp_affinity_list is \"3\", and not \"2\""
    );
    assert_eq!(values(&world, &order), ["3", "2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_as_before_after_a_restart_is_reported_and_left_alone() {
    let (world, order) = two();
    let fate = Fate {
        dies_at: Some(12),
        ..Fate::default()
    };
    assert_eq!(world.process(fate, BOOT).await, None);
    world.set(A, "2");
    world.set(B, "1");
    let outcome = world.process(Fate::default(), OTHER_BOOT).await;
    // What is not as before was not gone with it.
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, Outcome::InDoubt { .. }), "{outcome:?}");
    assert_eq!(why(&outcome), "the host was restarted");
    assert_eq!(values(&world, &order), ["2", "1"]);
    let standing = world.account().standing;
    assert_eq!(standing.left().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_goes_at_any_call_has_all_taken_back_or_nothing_begun() {
    for call in 0..14 {
        let (world, order) = two();
        let fate = Fate {
            disk_gone_at: Some(call),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        // It would be taken back by the next one.
        assert!(!matches!(outcome, Outcome::Applied { .. }), "{call}");
        assert_eq!(values(&world, &order), ["1", "1"], "{call}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_cannot_be_written_down_is_not_begun() {
    let (world, order) = two();
    world.process(Fate::default(), BOOT).await.unwrap();
    let fate = Fate {
        disk_gone_at: Some(0),
        ..Fate::default()
    };
    let refused = world.undo(fate).await.unwrap().unwrap_err();
    assert!(refused.contains("cannot be written"), "{refused}");
    assert_eq!(values(&world, &order), ["2", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_another_host_or_of_the_boot_before_is_refused() {
    for (host, boot, says) in [
        ("b", BOOT, "it is a plan for b, and this is a"),
        (
            "a",
            OTHER_BOOT,
            "the host was restarted since the plan was made",
        ),
    ] {
        let world = World::of(&FILES);
        let mut order = order(vec![vec![step(A, "1", "2"), step(B, "1", "2")]]);
        order.plan.host = host.parse().unwrap();
        world.make(&order);
        let outcome = world.process(Fate::default(), boot).await.unwrap();
        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
        assert_eq!(why(&outcome), says);
        assert_eq!(values(&world, &order), ["1", "1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_process_left_in_the_middle_is_not_gone_on_with() {
    let (world, order) = two();
    let fate = Fate {
        dies_at: Some(8),
        ..Fate::default()
    };
    // The very process that made it, with the same journal open.
    let mut journal = world.taken();
    assert_eq!(world.run(&mut journal, fate, BOOT).await, None);
    let outcome = world
        .run(&mut journal, Fate::default(), BOOT)
        .await
        .unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    assert_eq!(values(&world, &order), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_comes_back_late_is_waited_for_and_one_that_does_not_is_in_doubt() {
    for (seconds, fits) in [(10, true), (60, false)] {
        let (world, order) = two();
        let fate = Fate {
            cut_off_by: Some((B.into(), "2".into())),
            silent: Some(Duration::from_secs(seconds)),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let rolled_back = matches!(outcome, Outcome::RolledBack { .. });
        assert_eq!(rolled_back, fits, "{outcome:?}");
        if fits {
            assert_eq!(values(&world, &order), ["1", "1"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_all_set_in_the_time_that_the_plan_says_is_taken_back() {
    let within = |order: &Order| order.plan.within().as_secs();
    for (seconds, fits) in [(15, true), (16, true), (31, false), (40, false)] {
        let (world, order) = two();
        assert_eq!(within(&order), 31);
        let fate = Fate {
            slow: Some(Duration::from_secs(seconds)),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        // A step that has begun comes to its end.
        assert_eq!(
            outcome == Outcome::Applied { proven: 1 },
            fits,
            "{outcome:?}"
        );
        if !fits {
            assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
            let expected = "not all was set within 31 s: 1 of 2 settings";
            assert_eq!(why(&outcome), expected);
            assert_eq!(values(&world, &order), ["1", "1"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_has_its_time_to_come_back_though_that_of_the_plan_is_over_meanwhile() {
    let ring = Step::Nic {
        nic: "nic7".into(),
        what: NicSetting::ReceiveRing,
        from: "1024".into(),
        to: "4096".into(),
    };
    let mut order = order(vec![vec![ring]]);
    order.plan.changes[0].disruption = Disruption::BouncesLink;
    assert_eq!(order.plan.within().as_secs(), 41);
    for (late, fits) in [(10, true), (30, false)] {
        let world = World::of(&[("nic7", "1024")]);
        world.make(&order);
        let fate = Fate {
            slow: Some(Duration::from_secs(40)),
            late: Some(Duration::from_secs(late)),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert_eq!(
            outcome == Outcome::Applied { proven: 1 },
            fits,
            "{outcome:?}"
        );
        let there = if fits { "4096" } else { "1024" };
        assert_eq!(values(&world, &order), [there]);
    }
}

/// A change of pause frames that has been made, of the interface of which `there` is told before.
async fn pause_turned_off(from: &str, to: &str, there: &str) -> World {
    let pause = Step::Nic {
        nic: "nic7".into(),
        what: NicSetting::Pause,
        from: from.into(),
        to: to.into(),
    };
    let mut order = order(vec![vec![pause]]);
    order.plan.changes[0].disruption = Disruption::BouncesLink;
    let world = World::of(&[("nic7", there)]);
    world.make(&order);
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    world
}

#[tokio::test(start_paused = true)]
async fn a_change_of_before_it_was_said_whether_ends_agree_on_pause_frames_can_be_undone() {
    let on = "autoneg on rx on tx on";
    let world = pause_turned_off("rx on tx on", "rx off tx off", on).await;
    world.set("nic7", "autoneg off rx off tx off");
    let undone = world.undo(Fate::default()).await;
    assert_eq!(undone, Some(Ok(Outcome::Undone)));
}

#[tokio::test(start_paused = true)]
async fn pause_frames_are_taken_back_once_ends_may_agree_on_them_and_not_where_that_is_refused() {
    let (on, off) = ("autoneg on rx on tx on", "autoneg on rx off tx off");
    let world = pause_turned_off(on, off, on).await;
    // What the ends have agreed on while the link comes up.
    let fate = Fate {
        becomes_back: Some(("nic7".into(), off.into())),
        ..Fate::default()
    };
    assert_eq!(world.undo(fate).await, Some(Ok(Outcome::Undone)));
    let world = pause_turned_off(on, off, on).await;
    let fate = Fate {
        refuses_back: Some("nic7".into()),
        ..Fate::default()
    };
    let outcome = world.undo(fate).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::InDoubt { .. }), "{outcome:?}");
}

#[test]
fn a_plan_has_more_time_the_more_it_sets_and_the_more_links_it_bounces_up_to_a_bound() {
    let within = |steps: Vec<Step>| order(vec![steps]).plan.within().as_secs();
    let safe = |number: u32| step(&format!("proc/irq/{number}/smp_affinity_list"), "1", "2");
    let bouncing = |number: u32| Step::Nic {
        nic: format!("nic{number}"),
        what: NicSetting::ReceiveRing,
        from: "256".into(),
        to: "4096".into(),
    };
    assert_eq!(within(vec![safe(1)]), 31);
    assert_eq!(within((0..100).map(safe).collect()), 40);
    assert_eq!(within(vec![safe(1), bouncing(1), bouncing(2)]), 51);
    assert_eq!(within((0..4096).map(safe).collect()), 300);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_of_a_long_value_is_short() {
    let (world, _) = two();
    world.set(A, &"9".repeat(100_000));
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert!(why(&outcome).len() < 10_000, "{}", why(&outcome).len());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_for_a_while_is_asked_again_and_one_that_does_so_for_good_is_in_doubt()
 {
    for (seconds, fits) in [(10, true), (60, false)] {
        let (world, order) = two();
        let fate = Fate {
            cut_off_by: Some((B.into(), "2".into())),
            busy: Some(Duration::from_secs(seconds)),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let rolled_back = matches!(outcome, Outcome::RolledBack { .. });
        assert_eq!(rolled_back, fits, "{outcome:?}");
        if fits {
            assert_eq!(values(&world, &order), ["1", "1"]);
        } else {
            let left = world.account().standing.left();
            assert_eq!(left[1].found, "\"2\", and was not set back: it is busy");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_tells_nothing_for_what_was_set_is_set_back_all_the_same() {
    let (world, order) = two();
    let fate = Fate {
        mute: Some((B.into(), "2".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    assert_eq!(values(&world, &order), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_no_path_uses_has_to_carry_again_as_well() {
    let steering = "sys/class/net/nic7/queues/rx-0/rps_cpus";
    let world = World::of(&[(steering, "1")]);
    let order = order(vec![vec![step(steering, "1", "0")]]);
    world.make(&order);
    let fate = Fate {
        drops: Some((steering.into(), "0".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    assert!(why(&outcome).contains("the carrier of nic7"), "{outcome:?}");
    assert_eq!(values(&world, &order), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_to_come_up_by_a_change_has_to_though_it_was_down() {
    let steering = "sys/class/net/nic7/queues/rx-0/rps_cpus";
    for (until, comes_up) in [("1", true), ("0", false)] {
        let world = World::of(&[(steering, "1")]);
        let mut order = order(vec![vec![step(steering, "1", "0")]]);
        order.links = vec!["nic7".into()];
        world.make(&order);
        let fate = Fate {
            drops: Some((steering.into(), until.into())),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let applied = matches!(outcome, Outcome::Applied { .. });
        assert_eq!(applied, comes_up, "{outcome:?}");
        let there = if comes_up { "0" } else { "1" };
        assert_eq!(values(&world, &order), [there]);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_tells_of_a_carrier_nothing_begins_and_nothing_is_proved() {
    let steering = "sys/class/net/nic7/queues/rx-0/rps_cpus";
    for (deaf_at, begins) in [("1", false), ("0", true)] {
        let world = World::of(&[(steering, "1")]);
        let order = order(vec![vec![step(steering, "1", "0")]]);
        world.make(&order);
        let fate = Fate {
            deaf: Some((steering.into(), deaf_at.into())),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let is_as_expected = match &outcome {
            Outcome::Refused { .. } => !begins,
            Outcome::RolledBack { .. } => begins,
            _ => false,
        };
        assert!(is_as_expected, "{outcome:?}");
        assert!(
            why(&outcome).contains("not known whether nic7 has a carrier"),
            "{outcome:?}"
        );
        assert_eq!(values(&world, &order), ["1"]);
    }
}
