//! Other hosts have to open connections to this one after a change as they did before.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use std::time::Duration;

use drover_change::limits::{OPENED, SIZES};
use drover_change::{Order, Outcome};
use world::{BOOT, Fate, World, order, step};

const IRQ: &str = "proc/irq/1/smp_affinity_list";
const SHUT: &str = "a connection that b opens from 10.0.0.2 to 10.0.0.1 of nic0";

/// One setting, of which nobody would think that it has to do with who may connect.
fn setting() -> (World, Order) {
    let world = World::of(&[(IRQ, "1")]);
    let order = order(vec![vec![step(IRQ, "1", "2")]]);
    world.make(&order);
    (world, order)
}

/// While the setting has that value, no other host opens a connection to this one.
fn shut_by(value: &str) -> Fate {
    Fate {
        shut_by: Some((IRQ.into(), value.into())),
        ..Fate::default()
    }
}

fn value(world: &World, order: &Order) -> String {
    world.tree(&order.plan).into_values().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_to_which_others_open_no_connection_any_more_has_all_taken_back_though_it_reaches_them()
 {
    for unanswered in [false, true] {
        let (world, order) = setting();
        let fate = Fate {
            unanswered,
            ..shut_by("2")
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let Outcome::RolledBack { why } = outcome else {
            panic!("{outcome:?}");
        };
        let more = if unanswered {
            ": nothing was told of it"
        } else {
            ""
        };
        assert_eq!(
            why,
            format!("what has to work did not for 20 s: {SHUT}{more}")
        );
        assert_eq!(value(&world, &order), "1");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_shut_before_need_not_be_opened_and_is_said() {
    let (world, order) = setting();
    let outcome = world.process(shut_by("1"), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2");
    let standing = world.account().standing;
    assert_eq!(standing.opened, []);
    assert_eq!(
        standing.unopened,
        [format!("{SHUT}: none was opened before, either")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_path_of_which_one_connection_did_not_arrive_is_proved_all_the_same() {
    for (unarrived, opened) in [(1, 1), (2, 0)] {
        let (world, order) = setting();
        let fate = Fate {
            unarrived,
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert_eq!(outcome, Outcome::Applied { proven: 1 });
        assert_eq!(value(&world, &order), "2");
        let standing = world.account().standing;
        assert_eq!(standing.opened.len(), opened);
        assert_eq!(standing.unopened.len(), 1 - opened);
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_agent_of_before_that_opens_none_it_is_said_and_all_else_is_proved() {
    let (world, order) = setting();
    let fate = Fate {
        tells_none: true,
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2");
    let standing = world.account().standing;
    assert_eq!((standing.opened.len(), standing.sizes.len()), (0, 1));
    assert_eq!(standing.unopened, ["host b is older"]);
}

#[tokio::test(start_paused = true)]
async fn asking_who_opens_connections_takes_no_longer_than_its_time_and_what_is_left_is_for_packets()
 {
    let (world, order) = setting();
    let fate = Fate {
        opening: OPENED + Duration::from_secs(1),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2");
    let standing = world.account().standing;
    assert_eq!(standing.opened, []);
    assert_eq!(standing.unopened, ["it took too long"]);

    // Each in its time before the first step, and not both in that of one try after the last one.
    for (asking, is_applied) in [(2, true), (10, false)] {
        let (world, order) = setting();
        let fate = Fate {
            opening: SIZES - Duration::from_secs(5),
            asking: Duration::from_secs(asking),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let applied = Outcome::Applied { proven: 1 };
        assert_eq!(outcome == applied, is_applied, "{outcome:?}");
        assert_eq!(value(&world, &order), if is_applied { "2" } else { "1" });
        let standing = world.account().standing;
        assert_eq!((standing.opened.len(), standing.sizes.len()), (1, 1));
    }
}
