//! The folder of a plan: who may write there, and what is not written.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod world;

use drover_change::{Account, Journal, JournalError, Order, Outcome, Record};
use world::{BOOT, Fate, World, order, step};

const A: &str = "proc/irq/1/smp_affinity_list";
const B: &str = "proc/irq/2/smp_affinity_list";
const FILES: [(&str, &str); 2] = [(A, "1"), (B, "1")];

fn two() -> (World, Order) {
    let world = World::of(&FILES);
    let order = order(vec![vec![step(A, "1", "2"), step(B, "1", "2")]]);
    world.make(&order);
    (world, order)
}

#[tokio::test(start_paused = true)]
async fn while_one_process_can_write_no_other_one_has_a_plan_of_the_host_and_all_can_look() {
    let (world, order) = two();
    let mut journal = world.taken();
    let beside = world.folder().with_file_name("another");
    for refused in [
        Journal::open(&world.folder()),
        Journal::make(&beside, &order),
    ] {
        assert!(
            matches!(refused, Err(JournalError::Busy { .. })),
            "{refused:?}"
        );
    }
    assert!(!beside.exists());
    assert!(!world.account().standing.has_ended());
    let outcome = world.run(&mut journal, Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Applied { proven: 1 }));
    assert_eq!(world.account(), *journal.account());
    drop(journal);
    Journal::open(&world.folder()).unwrap();
}

#[test]
fn a_record_that_does_not_follow_is_neither_written_nor_counted() {
    let (world, _) = two();
    let mut journal = world.taken();
    let error = journal.append(Record::Done { step: 0 }).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(journal.account().records, []);
    assert!(!world.journal_file().exists());
}

#[test]
fn a_folder_whose_process_died_before_the_order_was_there_is_told_apart() {
    let world = World::of(&FILES);
    let read = Account::read(&world.folder());
    assert!(matches!(read, Err(JournalError::File { .. })), "{read:?}");
    std::fs::create_dir(world.folder()).unwrap();
    let read = Journal::open(&world.folder());
    assert!(
        matches!(read, Err(JournalError::NotBegun { .. })),
        "{read:?}"
    );
    Journal::clear_up(&world.folder()).unwrap();
    assert!(!world.folder().exists());
    let (world, _) = two();
    let refused = Journal::clear_up(&world.folder());
    assert!(
        matches!(refused, Err(JournalError::Busy { .. })),
        "{refused:?}"
    );
    world.forget();
    Journal::clear_up(&world.folder()).unwrap();
    assert!(world.folder().exists(), "it has an order");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_forgotten_once_it_is_at_its_end_and_what_it_set_stays() {
    let (begun, _) = two();
    let refused = begun.taken().forget().unwrap_err();
    assert!(matches!(refused, JournalError::File { .. }), "{refused}");
    assert!(begun.folder().exists());

    let (world, order) = two();
    let outcome = world.process(Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Applied { proven: 1 }));
    Journal::open(&world.folder()).unwrap().forget().unwrap();
    assert!(!world.folder().exists());
    let values: Vec<String> = world.tree(&order.plan).into_values().collect();
    assert_eq!(values, ["2", "2"]);
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let world = World::of(&FILES);
    let order = order(vec![vec![step(A, "1", "2"), step(B, "1", "2")]]);
    let mut empty = order.clone();
    empty.plan.changes.clear();
    let refused = Journal::make(&world.folder(), &empty);
    assert!(matches!(refused, Err(JournalError::Plan(_))), "{refused:?}");
    let mut long = order.clone();
    long.paths = vec![order.paths[0].clone(); 4097];
    let refused = Journal::make(&world.folder(), &long);
    assert!(
        matches!(refused, Err(JournalError::Long { .. })),
        "{refused:?}"
    );
    assert!(!world.folder().exists());
}

#[test]
fn a_journal_that_is_half_full_begins_nothing_and_takes_back_what_was_begun() {
    let (world, order) = two();
    let mut journal = world.taken();
    let at = order.plan.made_at;
    let paths = vec![order.paths[0].clone(); 100_000];
    let boot = BOOT.to_owned();
    let carriers = Vec::new();
    let began = Record::Began {
        at,
        boot,
        paths,
        opened: Vec::new(),
        unopened: Vec::new(),
        carriers,
        sizes: Vec::new(),
        untold: Vec::new(),
    };
    journal.append(began).unwrap();
    let error = journal.append(Record::AboutTo { step: 0 }).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    let why = "it is full".to_owned();
    journal.append(Record::RollBack { why }).unwrap();
    assert_eq!(world.account(), *journal.account());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_passed_on_keeps_all_others_out_until_its_last_holder_is_gone() {
    let (world, _) = two();
    let folder = world.folder();
    let lock = world.taken().into_lock();
    let kept = lock.try_clone().unwrap();
    let mut journal = Journal::passed_on(&folder, lock, true).unwrap();
    drop(kept);
    let refused = Journal::open(&folder);
    assert!(
        matches!(refused, Err(JournalError::Busy { .. })),
        "{refused:?}"
    );
    let outcome = world.run(&mut journal, Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Applied { proven: 1 }));
    drop(journal);
    Journal::open(&folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_passed_on_is_gone_back_with_unless_it_is_said_to_be_new() {
    let (world, order) = two();
    let before = world.tree(&order.plan);
    let lock = world.taken().into_lock();
    let mut journal = Journal::passed_on(&world.folder(), lock, false).unwrap();
    let outcome = world.run(&mut journal, Fate::default(), BOOT).await;
    assert!(
        matches!(outcome, Some(Outcome::RolledBack { .. })),
        "{outcome:?}"
    );
    assert_eq!(world.tree(&order.plan), before);
}

#[test]
fn another_file_than_the_lock_and_one_that_is_not_held_are_told() {
    let (world, _) = two();
    let folder = world.folder();
    let other = std::fs::File::open(folder.join("order.json")).unwrap();
    let refused = Journal::passed_on(&folder, other.into(), true);
    assert!(
        matches!(refused, Err(JournalError::NotTheLock { .. })),
        "{refused:?}"
    );
    // The world holds it still.
    let lock = folder.with_file_name("lock");
    let refused = Journal::passed_on(&folder, std::fs::File::open(lock).unwrap().into(), true);
    assert!(
        matches!(refused, Err(JournalError::Busy { .. })),
        "{refused:?}"
    );
}
