//! Packets as large as before have to cross after a change, and larger ones where it has an interface take them; whatever dies.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use std::time::Duration;

use drover_change::limits::PROVE;
use drover_change::{Order, Outcome, Sizes};
use drover_tune::{Disruption, NicSetting, Step};
use world::{BOOT, Fate, OTHER_BOOT, World, order, sized, step};

const IRQ: &str = "proc/irq/1/smp_affinity_list";

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Refused { why } | Outcome::RolledBack { why } | Outcome::InDoubt { why } => why,
        other => panic!("{other:?}"),
    }
}

fn narrowed(file: &str, value: &str) -> Fate {
    Fate {
        narrowed_by: Some((file.into(), value.into())),
        ..Fate::default()
    }
}

fn both(bytes: u32) -> Sizes {
    let (there, back) = (bytes, bytes);
    Sizes { there, back }
}

/// One setting, of which nobody would think that it has to do with packets' sizes.
fn setting() -> (World, Order) {
    let world = World::of(&[(IRQ, "1")]);
    let order = order(vec![vec![step(IRQ, "1", "2")]]);
    world.make(&order);
    (world, order)
}

/// `nic0` is to take packets of that size.
fn packets(from: &str, to: &str) -> (World, Order) {
    let world = World::of(&[("nic0", from)]);
    let order = larger(&world, from, to);
    (world, order)
}

/// The same of a host that is there.
fn larger(world: &World, from: &str, to: &str) -> Order {
    let mut order = order(vec![vec![Step::Nic {
        nic: "nic0".into(),
        what: NicSetting::Mtu,
        from: from.into(),
        to: to.into(),
    }]]);
    order.plan.changes[0].disruption = Disruption::BouncesLink;
    order.paths[0].nic = world.leaves_by().0.to_owned();
    world.make(&order);
    order
}

fn value(world: &World, order: &Order) -> String {
    world.tree(&order.plan).into_values().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_path_that_carries_smaller_packets_than_before_has_all_taken_back_with_its_numbers() {
    let (world, order) = setting();
    let outcome = world.process(narrowed(IRQ, "2"), BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    let says = "what has to work did not for 20 s: nic0 10.0.0.1 to b nic0 10.0.0.2: packets of 9000 bytes there and 9000 back have to \
                cross it, and 1500 and 1500 are the largest that do";
    assert_eq!(why(&outcome), says);
    assert_eq!(value(&world, &order), "1");
    // Each has more patience than the one before.
    let attempts = world.attempts.borrow().clone();
    assert!(attempts.len() > 10, "{attempts:?}");
    assert!(
        attempts.iter().copied().eq(0..attempts.len() as u32),
        "{attempts:?}"
    );
    // What did not cross before need not cross after.
    let (world, order) = setting();
    let outcome = world.process(narrowed(IRQ, "1"), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2");
}

#[tokio::test(start_paused = true)]
async fn a_path_of_which_nothing_is_known_any_more_has_all_taken_back_and_one_of_which_nothing_was_is_named()
 {
    let unmeasured = |value: &str| Fate {
        unmeasured: Some((IRQ.into(), value.into())),
        ..Fate::default()
    };
    let (world, order) = setting();
    let outcome = world.process(unmeasured("2"), BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    assert!(why(&outcome).ends_with("nothing came back"), "{outcome:?}");
    assert_eq!(value(&world, &order), "1");
    let (world, order) = setting();
    let outcome = world.process(unmeasured("1"), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2");
    let standing = world.account().standing;
    assert_eq!(standing.sizes, []);
    assert_eq!(standing.untold, ["b: nothing came back"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_try_that_was_begun_in_time_comes_to_its_end_and_has_its_numbers_told() {
    for asking in [300, 1300, 5300, 7900].map(Duration::from_millis) {
        let (world, order) = setting();
        let fate = Fate {
            asking,
            ..narrowed(IRQ, "2")
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let why = why(&outcome);
        assert!(
            why.ends_with("1500 and 1500 are the largest that do"),
            "{why}"
        );
        assert_eq!(value(&world, &order), "1");
        // What carries again before its time is over keeps what was set.
        let (world, order) = setting();
        let fate = Fate {
            asking,
            narrow_for: Some(PROVE - Duration::from_secs(1)),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert_eq!(outcome, Outcome::Applied { proven: 1 }, "{asking:?}");
        assert_eq!(value(&world, &order), "2");
    }
}

#[tokio::test(start_paused = true)]
async fn larger_packets_stay_where_they_cross_and_are_taken_back_where_the_network_has_less() {
    let (world, order) = packets("1500", "9000");
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "9000");
    let standing = world.account().standing;
    assert_eq!(standing.sizes, [sized(both(1500))]);
    assert_eq!(standing.untold, ["c: it is asleep"]);

    let (world, order) = packets("1500", "9000");
    let outcome = world.process(narrowed("nic0", "9000"), BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
    let words = "packets of 9000 bytes there and 9000 back";
    assert!(why(&outcome).contains(words), "{outcome:?}");
    assert_eq!(value(&world, &order), "1500");
}

#[tokio::test(start_paused = true)]
async fn larger_packets_of_a_bridge_that_follows_or_was_set_have_to_cross_and_go_back_with_those_below()
 {
    for (bridge, fits, sizes) in [("follows", "1500", 9000), ("9000", "9000", 9000)] {
        let world = World::of(&[("nic0", "1500"), ("br0", bridge)]);
        let order = larger(&world, "1500", "9000");
        let narrow = narrowed("nic0", "9000");
        let outcome = world.process(narrow, BOOT).await.unwrap();
        assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
        let words = format!("packets of {sizes} bytes there and {sizes} back have to cross it");
        let path = "br0 10.0.0.1 to b nic0 10.0.0.2";
        let why = why(&outcome);
        assert!(why.contains(path) && why.contains(&words), "{why}");
        assert_eq!(value(&world, &order), "1500");
        let before = &world.account().standing.sizes[0];
        assert_eq!(
            (&*before.nic, before.mtu.to_string()),
            ("br0", fits.to_owned())
        );

        let world = World::of(&[("nic0", "1500"), ("br0", bridge)]);
        let order = larger(&world, "1500", "9000");
        let outcome = world.process(Fate::default(), BOOT).await.unwrap();
        assert_eq!(outcome, Outcome::Applied { proven: 1 });
        let undone = world.undo(Fate::default()).await;
        assert_eq!(undone, Some(Ok(Outcome::Undone)));
        assert_eq!(value(&world, &order), "1500");
    }
}

#[tokio::test(start_paused = true)]
async fn smaller_packets_of_an_interface_need_no_larger_ones_to_cross() {
    let (world, order) = packets("9000", "2000");
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    assert_eq!(value(&world, &order), "2000");
}

#[tokio::test(start_paused = true)]
async fn larger_packets_that_nothing_would_prove_are_not_begun_with() {
    let (world, order) = packets("1500", "9000");
    let fate = Fate {
        unmeasured: Some(("nic0".into(), "1500".into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    let why = why(&outcome);
    assert!(why.starts_with("nothing would prove that"), "{why}");
    assert!(why.ends_with("; b: nothing came back"), "{why}");
    assert_eq!(value(&world, &order), "1500");
}

#[tokio::test(start_paused = true)]
async fn larger_packets_are_not_begun_with_while_a_host_is_there_that_does_not_tell() {
    for (c_is_there, state) in [(false, "9000"), (true, "1500")] {
        let (world, mut order) = packets("1500", "9000");
        world.forget();
        if c_is_there {
            let mut path = order.paths[0].clone();
            path.host = "c".parse().unwrap();
            order.paths.push(path);
        }
        std::fs::remove_dir_all(world.folder()).unwrap();
        world.make(&order);
        let outcome = world.process(Fate::default(), BOOT).await.unwrap();
        assert_eq!(value(&world, &order), state, "{outcome:?}");
        if c_is_there {
            assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
            let why = why(&outcome);
            assert!(
                why.contains("to c, which is there (c: it is asleep)"),
                "{why}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_dies_while_larger_packets_are_tried_leaves_none_that_do_not_cross() {
    let mut deaths = 0;
    for call in 0.. {
        let (world, order) = packets("1500", "9000");
        let fate = Fate {
            dies_at: Some(call),
            ..narrowed("nic0", "9000")
        };
        let survived = world.process(fate, BOOT).await.is_some();
        if !survived {
            deaths += 1;
            let again = narrowed("nic0", "9000");
            let outcome = world.process(again, BOOT).await.unwrap();
            assert!(
                matches!(outcome, Outcome::RolledBack { .. }),
                "{call}: {outcome:?}"
            );
        }
        assert_eq!(value(&world, &order), "1500", "{call}");
        if survived {
            break;
        }
    }
    // Once before and once after each try of 20 s, at the least.
    assert!(deaths > 80, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_of_before_sizes_were_written_down_is_read_and_undone() {
    let (world, order) = setting();
    world.process(Fate::default(), BOOT).await.unwrap();
    let journal = std::fs::read_to_string(world.journal_file()).unwrap();
    let (first, rest) = journal.split_once('\n').unwrap();
    let mut began: serde_json::Value = serde_json::from_str(first).unwrap();
    let fields = began.as_object_mut().unwrap();
    for field in ["sizes", "untold"] {
        assert!(fields.remove(field).is_some(), "{first}");
    }
    std::fs::write(world.journal_file(), format!("{began}\n{rest}")).unwrap();
    assert_eq!(world.account().standing.sizes, []);
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
    assert_eq!(value(&world, &order), "1");
    let outcome = world.process(Fate::default(), OTHER_BOOT).await;
    assert_eq!(outcome, Some(Outcome::Undone));
}
