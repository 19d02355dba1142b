//! Whatever dies, and whenever: all of a plan is there, or nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use std::fs;

use drover_change::{Order, Outcome};
use proptest::prelude::*;
use world::{BOOT, Fate, OTHER_BOOT, Tree, World, order, step};

const A: &str = "proc/irq/1/smp_affinity_list";
const B: &str = "proc/irq/2/smp_affinity_list";
const C: &str = "proc/irq/3/smp_affinity_list";
const FILES: [(&str, &str); 3] = [(A, "1"), (B, "1"), (C, "1")];

fn three() -> Order {
    order(vec![
        vec![step(A, "1", "2"), step(B, "1", "2")],
        vec![step(C, "1", "2")],
    ])
}

fn tree(value: &str) -> Tree {
    FILES
        .iter()
        .map(|(path, _)| ((*path).to_owned(), value.to_owned()))
        .collect()
}

/// A host with a plan that nobody has begun with.
fn world(order: &Order) -> World {
    let world = World::of(&FILES);
    world.make(order);
    world
}

fn dies(call: usize) -> Fate {
    Fate {
        dies_at: Some(call),
        ..Fate::default()
    }
}

fn cut_off() -> Fate {
    Fate {
        cut_off_by: Some((C.into(), "2".into())),
        ..Fate::default()
    }
}

/// What is there is what the outcome says, and the journal says the same.
fn check(world: &World, order: &Order, outcome: &Outcome) {
    let expected = match outcome {
        Outcome::Applied { proven: 1 } => tree("2"),
        Outcome::RolledBack { .. } | Outcome::Undone => tree("1"),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.tree(&order.plan), expected, "{outcome:?}");
    assert!(world.account().standing.has_ended());
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_carried_out_and_undone() {
    let order = three();
    let world = world(&order);
    let outcome = world.process(Fate::default(), BOOT).await.unwrap();
    assert_eq!(outcome, Outcome::Applied { proven: 1 });
    check(&world, &order, &outcome);
    // One that looks again finds nothing to do.
    assert_eq!(world.process(Fate::default(), BOOT).await, Some(outcome));
    let undone = world.undo(Fate::default()).await.unwrap();
    assert_eq!(undone, Ok(Outcome::Undone));
    check(&world, &order, &Outcome::Undone);
    assert!(world.undo(Fate::default()).await.unwrap().is_err(), "twice");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_at_any_call_and_again_at_any_call_leaves_all_or_nothing() {
    let order = three();
    for fate in [Fate::default, cut_off] {
        let mut deaths = 0;
        for first in 0.. {
            let mut again = 0;
            let survived = loop {
                let world = world(&order);
                let dying = Fate {
                    dies_at: Some(first),
                    ..fate()
                };
                if let Some(outcome) = world.process(dying, BOOT).await {
                    check(&world, &order, &outcome);
                    break true;
                }
                deaths += 1;
                let second = world.process(dies(again), BOOT).await;
                again += 1;
                if let Some(outcome) = second {
                    assert!(!matches!(outcome, Outcome::Applied { .. }), "never forward");
                    check(&world, &order, &outcome);
                    break false;
                }
                let outcome = world.process(Fate::default(), BOOT).await.unwrap();
                check(&world, &order, &outcome);
            };
            if survived {
                break;
            }
        }
        assert!(deaths > 50, "{deaths}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_became_another_is_taken_back_unless_one_dies_before_it_was_read_back() {
    let order = three();
    let mut in_doubt = 0;
    for call in 0.. {
        let world = world(&order);
        let fate = Fate {
            dies_at: Some(call),
            becomes: Some((B.into(), "5".into())),
            ..Fate::default()
        };
        let survived = world.process(fate, BOOT).await;
        let outcome = match &survived {
            Some(outcome) => outcome.clone(),
            None => world.process(Fate::default(), BOOT).await.unwrap(),
        };
        if matches!(outcome, Outcome::InDoubt { .. }) {
            in_doubt += 1;
            let mut expected = tree("1");
            expected.insert(B.into(), "5".into());
            assert_eq!(world.tree(&order.plan), expected, "{call}");
        } else {
            check(&world, &order, &outcome);
        }
        if survived.is_some() {
            break;
        }
    }
    // After it was set, and before what it became was read.
    assert_eq!(in_doubt, 2);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_dies_at_any_call_is_brought_to_its_end() {
    let order = three();
    for first in 0.. {
        let world = world(&order);
        world.process(Fate::default(), BOOT).await.unwrap();
        let undone = world.undo(dies(first)).await;
        let outcome = world.process(Fate::default(), BOOT).await.unwrap();
        check(&world, &order, &outcome);
        if undone.is_some() {
            assert_eq!(outcome, Outcome::Undone);
            break;
        }
        // It had not begun, or all of it was done.
        let begun = matches!(outcome, Outcome::Undone);
        assert!(begun || outcome == Outcome::Applied { proven: 1 });
    }
}

/// What a loss of power, or of the process, at any byte of the journal leaves.
async fn at_every_byte(fate: fn() -> Fate, mut found: impl AsyncFnMut(&World, &Order, &Tree)) {
    let order = three();
    let whole = world(&order);
    whole.process(fate(), BOOT).await.unwrap();
    let journal = fs::read(whole.journal_file()).unwrap();
    let mut seen = whole.seen.borrow().clone();
    seen.push((journal.len() as u64, whole.all()));
    for (at, (from, there)) in seen.iter().enumerate() {
        let to = seen.get(at + 1).map_or(*from, |(next, _)| *next);
        for cut in *from..=to {
            let world = world(&order);
            world.forget();
            world.restore(there);
            let cut = usize::try_from(cut).unwrap();
            fs::write(world.journal_file(), &journal[..cut]).unwrap();
            found(&world, &order, there).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_cut_at_any_byte_leads_back_to_all_or_nothing() {
    for fate in [Fate::default, cut_off] {
        at_every_byte(fate, async |world, order, _| {
            let outcome = world.process(Fate::default(), BOOT).await.unwrap();
            check(world, order, &outcome);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_of_power_at_any_byte_what_was_set_is_gone_and_said_to_be() {
    at_every_byte(Fate::default, async |world, order, _| {
        world.restore(&tree("1"));
        let outcome = world.process(Fate::default(), OTHER_BOOT).await.unwrap();
        let said = matches!(
            outcome,
            Outcome::GoneWithRestart | Outcome::RolledBack { .. } | Outcome::Applied { .. }
        );
        assert!(said, "{outcome:?}");
        assert_eq!(world.tree(&order.plan), tree("1"));
        assert_eq!(world.account().standing.left(), []);
    })
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_the_plan_and_whenever_it_dies_all_or_nothing(
        values in proptest::collection::vec((1..4_u8, 1..4_u8), 1..8),
        cuts in proptest::option::of(0..8_usize),
        deaths in proptest::collection::vec(0..60_usize, 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(random(&values, cuts, &deaths));
    }
}

async fn random(values: &[(u8, u8)], cuts: Option<usize>, deaths: &[usize]) {
    let named: Vec<[String; 3]> = (0..)
        .zip(values)
        .map(|(at, (from, to)): (u32, _)| {
            [
                format!("proc/irq/{at}/smp_affinity_list"),
                from.to_string(),
                to.to_string(),
            ]
        })
        .collect();
    let files: Vec<(&str, &str)> = named
        .iter()
        .map(|[path, from, _]| (path.as_str(), from.as_str()))
        .collect();
    let world = World::of(&files);
    let order = order(
        named
            .iter()
            .map(|[path, from, to]| vec![step(path, from, to)])
            .collect(),
    );
    let before = world.tree(&order.plan);
    let after: Tree = named
        .iter()
        .map(|[path, _, to]| (path.clone(), to.clone()))
        .collect();
    world.make(&order);
    let cut_off_by = cuts
        .and_then(|at| named.get(at))
        .map(|[path, _, to]| (path.clone(), to.clone()));
    let mut outcome = None;
    for call in deaths.iter().copied().map(Some).chain([None]) {
        let fate = Fate {
            dies_at: call,
            cut_off_by: cut_off_by.clone(),
            ..Fate::default()
        };
        outcome = world.process(fate, BOOT).await;
    }
    let expected = match outcome.unwrap() {
        Outcome::Applied { .. } => after,
        Outcome::RolledBack { .. } => before,
        other => panic!("{other:?}"),
    };
    assert_eq!(world.tree(&order.plan), expected);
}
