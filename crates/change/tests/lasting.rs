//! What was set lasts by files that are written, or nothing is set and no file is another one; whatever dies, and whenever.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod world;

use std::fs;

use drover_change::{Lasts, Order, Outcome, Record};
use drover_tune::lasting::Rewrite;
use drover_tune::{Disruption, NicSetting, Step};
use world::{BOOT, Fate, OTHER_BOOT, Tree, World, order, step};

const A: &str = "proc/sys/net/ipv4/tcp_rmem";
const B: &str = "proc/sys/net/ipv4/tcp_wmem";
/// What is in both before, and after.
const OLD: &str = "1 1 1";
const NEW: &str = "2 2 2";
const OURS: &str = "etc/ours.d/90-ours.conf";
const THEIRS: &str = "etc/theirs.conf";

fn tree(files: &[(&str, &str)]) -> Tree {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

fn before() -> Tree {
    tree(&[(A, OLD), (B, OLD), (THEIRS, "a = 1\nz = 9\n")])
}

fn after() -> Tree {
    let theirs = (THEIRS, "a = 2\nz = 9\n");
    tree(&[(A, NEW), (B, NEW), (OURS, "b = 2\n"), theirs])
}

fn rewrite(path: &str, folders: &[&str]) -> Rewrite {
    Rewrite {
        by: "somebody".into(),
        path: format!("/{path}"),
        mode: 0o644,
        uid: 0,
        gid: 0,
        folders: folders.iter().map(|folder| (*folder).to_owned()).collect(),
        before: before().get(path).cloned(),
        after: after()[path].clone(),
    }
}

/// Two settings, and two files by which they last: one that is new, in a folder that is new, and one of somebody's.
fn lasting() -> Order {
    let files = vec![rewrite(OURS, &["/etc/ours.d"]), rewrite(THEIRS, &[])];
    let mut order = order(vec![vec![step(A, OLD, NEW), step(B, OLD, NEW)]]);
    order.lasting = Some(Lasts {
        files,
        ..Lasts::default()
    });
    order
}

fn host() -> World {
    host_with(&lasting())
}

fn host_with(order: &Order) -> World {
    let there = before();
    let there: Vec<(&str, &str)> = there
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    let world = World::of(&there);
    world.make(order);
    world
}

async fn applied() -> World {
    let world = host();
    let outcome = world.process(Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Applied { proven: 1 }));
    world
}

fn dies(call: usize) -> Fate {
    Fate {
        dies_at: Some(call),
        ..Fate::default()
    }
}

/// All of it is there, or nothing; whether it is.
fn check(world: &World, outcome: &Outcome) -> bool {
    let is_there = match outcome {
        Outcome::Applied { proven: 1 } => true,
        Outcome::RolledBack { .. } | Outcome::Undone | Outcome::GoneWithRestart => false,
        other => panic!("{other:?}"),
    };
    let expected = if is_there { after() } else { before() };
    assert_eq!(world.all(), expected, "{outcome:?}");
    assert!(world.is_known(), "{outcome:?}");
    assert!(world.account().standing.has_ended());
    is_there
}

/// As a host comes up that sets what its files say.
fn restart(world: &World) {
    let mut there = world.all();
    let set = |by: bool| if by { NEW } else { OLD }.to_owned();
    let by_theirs = there[THEIRS] == after()[THEIRS];
    let by_ours = there.contains_key(OURS);
    there.insert(A.to_owned(), set(by_theirs));
    there.insert(B.to_owned(), set(by_ours));
    world.restore(&there);
}

#[tokio::test(start_paused = true)]
async fn files_are_written_once_all_is_proved_and_put_back_with_it() {
    let world = applied().await;
    check(&world, &Outcome::Applied { proven: 1 });
    let records = world.account().records;
    let words: Vec<String> = records
        .iter()
        .map(|record| {
            let word = serde_json::to_value(record).unwrap();
            word["record"].as_str().unwrap().to_owned()
        })
        .collect();
    let two = ["about-to", "done"].repeat(2);
    let expected = [
        &["began"][..],
        &two[..],
        &["proved"][..],
        &two[..],
        &["ended"][..],
    ]
    .concat();
    assert_eq!(words, expected);
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
    check(&world, &Outcome::Undone);
}

#[tokio::test(start_paused = true)]
async fn where_other_hosts_do_not_reach_this_one_no_file_is_ever_another_one() {
    let world = host();
    let fate = Fate {
        cut_off_by: Some((B.into(), NEW.into())),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(!check(&world, &outcome));
    let is_as_before =
        |there: &Tree| !there.contains_key(OURS) && there[THEIRS] == before()[THEIRS];
    assert!(
        world
            .seen
            .borrow()
            .iter()
            .all(|(_, there)| is_as_before(there))
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_at_any_call_and_again_at_any_call_leaves_all_files_or_none() {
    let mut deaths = 0;
    'first: for first in 0.. {
        for again in 0.. {
            let world = host();
            if let Some(outcome) = world.process(dies(first), BOOT).await {
                assert!(check(&world, &outcome));
                break 'first;
            }
            deaths += 1;
            let second = world.process(dies(again), BOOT).await;
            let is_over = second.is_some();
            let outcome = match second {
                Some(outcome) => outcome,
                None => world.process(Fate::default(), BOOT).await.unwrap(),
            };
            assert!(!check(&world, &outcome), "never forward");
            if is_over {
                break;
            }
        }
    }
    assert!(deaths > 100, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_dies_at_any_call_is_brought_to_its_end_and_readers_know_it() {
    let mut deaths = 0;
    for call in 0.. {
        let world = applied().await;
        let survived = world.undo(dies(call)).await.is_some();
        let outcome = world.process(Fate::default(), BOOT).await.unwrap();
        let is_there = check(&world, &outcome);
        if survived {
            assert!(!is_there);
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 15, "{deaths}");
}

/// Which records those of readers are, and how many there are.
fn told(world: &World) -> (Vec<usize>, usize) {
    let records = world.account().records;
    let is_told = |record: &Record| matches!(record, Record::Reread | Record::NotReread { .. });
    let told = (0..records.len()).filter(|at| is_told(&records[*at]));
    (told.collect(), records.len())
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_answer_is_waited_for_once_when_all_is_taken_back_and_told_by_the_next_undo()
 {
    let silent = || Fate {
        unread: true,
        ..Fate::default()
    };
    let world = applied().await;
    let outcome = world.undo(silent()).await.unwrap().unwrap();
    let why = "it was to be undone; nobody answers".to_owned();
    assert_eq!(outcome, Outcome::InDoubt { why });
    assert_eq!(world.all(), before());
    assert!(!world.is_known());
    let standing = world.account().standing;
    assert_eq!((standing.left(), standing.touched().count()), (vec![], 0));
    // Once, behind all that was taken back, and before the end.
    let (told_at, records) = told(&world);
    assert_eq!(told_at, [records - 2]);
    // It stays there until somebody wants it again.
    let again = world.process(Fate::default(), BOOT).await;
    assert_eq!(again, Some(outcome));
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
    assert!(!check(&world, &Outcome::Undone));

    // On the way forward all is taken back for it.
    let world = host();
    let outcome = world.process(silent(), BOOT).await;
    let why = "/etc/ours.d/90-ours.conf was written, but nobody answers; nobody answers";
    let why = why.to_owned();
    assert_eq!(outcome, Some(Outcome::InDoubt { why }));
    assert_eq!(world.all(), before());
    assert_eq!(told(&world).0.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_over_which_another_one_lies_is_neither_written_nor_called_undone() {
    const OVER: &str = "run/etc/theirs.conf";
    let with = |mut there: Tree, path: &str| {
        there.insert(path.to_owned(), String::new());
        there
    };
    let world = host();
    let there = with(before(), OVER);
    world.restore(&there);
    let why = "/etc/theirs.conf was changed since: there is another one in /run".to_owned();
    let outcome = world.process(Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Refused { why: why.clone() }));
    assert_eq!(world.all(), there);

    let world = applied().await;
    let there = with(after(), OVER);
    world.restore(&there);
    assert_eq!(world.undo(Fate::default()).await, Some(Err(why)));
    assert_eq!(world.all(), there);
    // While all is taken back it keeps nothing from that.
    world.restore(&with(after(), "run/etc/"));
    let fate = Fate {
        meddles: Some((4, OVER.to_owned(), String::new())),
        ..Fate::default()
    };
    let outcome = world.undo(fate).await.unwrap().unwrap();
    let why = "it was to be undone; /etc/theirs.conf: there is another one in /run".to_owned();
    assert_eq!(outcome, Outcome::InDoubt { why });
    assert_eq!(world.all(), with(before(), OVER));
    world.restore(&before());
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_loses_power_at_any_call_and_sets_what_its_files_say_comes_to_all_or_nothing() {
    let mut deaths = 0;
    for call in 0.. {
        let world = host();
        let survived = world.process(dies(call), BOOT).await.is_some();
        restart(&world);
        let outcome = world.process(Fate::default(), OTHER_BOOT).await.unwrap();
        assert_eq!(check(&world, &outcome), survived, "{call}: {outcome:?}");
        if survived {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_cut_at_any_byte_leads_back_to_all_files_or_none() {
    let whole = applied().await;
    let journal = fs::read(whole.journal_file()).unwrap();
    let mut seen = whole.seen.borrow().clone();
    seen.push((journal.len() as u64, whole.all()));
    for (at, (from, there)) in seen.iter().enumerate() {
        let to = seen.get(at + 1).map_or(*from, |(next, _)| *next);
        for cut in *from..=to {
            for boot in [BOOT, OTHER_BOOT] {
                let world = host();
                world.forget();
                world.restore(there);
                let cut = usize::try_from(cut).unwrap();
                fs::write(world.journal_file(), &journal[..cut]).unwrap();
                if boot == OTHER_BOOT {
                    restart(&world);
                }
                let outcome = world.process(Fate::default(), boot).await.unwrap();
                assert_eq!(check(&world, &outcome), cut == journal.len());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_lasts_is_undone_after_a_restart_as_well() {
    let world = applied().await;
    restart(&world);
    let outcome = world.process(Fate::default(), OTHER_BOOT).await.unwrap();
    assert!(check(&world, &outcome), "nothing is gone");
    for call in 0.. {
        let world = applied().await;
        restart(&world);
        let undone = world.undo_after(dies(call), OTHER_BOOT).await;
        let survived = undone.is_some();
        // And it loses power once more in the middle of that.
        restart(&world);
        let outcome = world.process(Fate::default(), "a third boot").await;
        let is_there = check(&world, &outcome.unwrap());
        if survived {
            assert!(!is_there);
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_not_as_the_plan_says_has_nothing_done_and_one_that_moves_has_all_taken_back()
 {
    for (path, says) in [
        (
            OURS,
            "/etc/ours.d/90-ours.conf was changed since: there is a file",
        ),
        (
            THEIRS,
            "/etc/theirs.conf was changed since: its text is another one",
        ),
    ] {
        let world = host();
        let mut there = before();
        there.insert(path.to_owned(), "x = 7\n".to_owned());
        world.restore(&there);
        let outcome = world.process(Fate::default(), BOOT).await;
        let why = says.to_owned();
        assert_eq!(outcome, Some(Outcome::Refused { why }));
        assert_eq!(world.all(), there);
    }
    // In the middle, while its turn has not come, what was set is taken back and the file is left.
    let (mut refused, mut rolled_back) = (0, 0);
    for call in 0.. {
        let world = host();
        let theirs = (call, THEIRS.to_owned(), "x = 7\n".to_owned());
        let fate = Fate {
            meddles: Some(theirs),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        let mut there = before();
        there.insert(THEIRS.to_owned(), "x = 7\n".to_owned());
        match &outcome {
            Outcome::Refused { .. } => refused += 1,
            Outcome::RolledBack { why } => {
                assert!(
                    why.starts_with("/etc/theirs.conf was changed when its turn"),
                    "{why}"
                );
                rolled_back += 1;
            }
            // It was written over just before, or after.
            _ => break,
        }
        assert_eq!(world.all(), there);
    }
    assert!(refused > 2 && rolled_back > 10, "{refused} {rolled_back}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_somebody_has_changed_since_keeps_an_undo_from_beginning() {
    let world = applied().await;
    let theirs = "a = 3\n".to_owned();
    let mut there = after();
    there.insert(THEIRS.to_owned(), theirs);
    world.restore(&there);
    let refused = world.undo(Fate::default()).await.unwrap().unwrap_err();
    let says = "/etc/theirs.conf was changed since: its text is another one";
    assert_eq!(refused, says);
    assert_eq!(world.all(), there);
    world.restore(&after());
    assert_eq!(world.undo(Fate::default()).await, Some(Ok(Outcome::Undone)));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_somebody_changes_while_all_is_taken_back_is_left_and_named() {
    let world = applied().await;
    // Two settings and two files are looked at, then the newer file: it is put back next.
    let theirs = (4, THEIRS.to_owned(), "a = 3\n".to_owned());
    let fate = Fate {
        meddles: Some(theirs),
        ..Fate::default()
    };
    let outcome = world.undo(fate).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::InDoubt { .. }), "{outcome:?}");
    let mut there = before();
    there.insert(THEIRS.to_owned(), "a = 3\n".to_owned());
    assert_eq!(world.all(), there);
    let left = world.account().standing.left();
    assert_eq!((left.len(), left[0].step), (1, 3));
    assert_eq!(left[0].found, "its text is another one");
    // The other file's reader knows of that all the same; this one's is its writer's to tell.
    assert_eq!(told(&world).0.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_written_has_all_taken_back() {
    let world = host();
    let fate = Fate {
        refuses: Some(format!("/{THEIRS}")),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(!check(&world, &outcome));
    let why = "/etc/theirs.conf was not written: it is not taken".to_owned();
    assert_eq!(outcome, Outcome::RolledBack { why });
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_goes_at_any_call_has_all_files_put_back() {
    for call in 0..26 {
        let world = host();
        let fate = Fate {
            disk_gone_at: Some(call),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert!(!matches!(outcome, Outcome::Applied { .. }), "{call}");
        assert_eq!(world.all(), before(), "{call}: {outcome:?}");
    }
}

/// Where an interrupt is taken. No file keeps it.
const IRQ: &str = "proc/irq/9/smp_affinity_list";

#[tokio::test(start_paused = true)]
async fn what_no_file_keeps_is_not_taken_back_after_a_restart_whatever_has_its_place() {
    let begun = || {
        let mut order = lasting();
        order.plan.changes[0].steps.push(step(IRQ, "1", "2"));
        let world = World::of(&[(IRQ, "1"), (A, OLD), (B, OLD), (THEIRS, "a = 1\nz = 9\n")]);
        world.make(&order);
        world
    };
    let is_back = |world: &World, outcome: &Outcome| {
        let is_back = matches!(outcome, Outcome::Undone | Outcome::RolledBack { .. });
        assert!(is_back, "{outcome:?}");
        let mut expected = before();
        expected.insert(IRQ.to_owned(), "3".to_owned());
        assert_eq!(world.all(), expected);
    };
    let whole = begun();
    let outcome = whole.process(Fate::default(), BOOT).await;
    assert_eq!(outcome, Some(Outcome::Applied { proven: 1 }));
    let last = whole.seen.borrow().len() - 1;
    restart(&whole);
    // Of another device by now.
    whole.set(IRQ, "3");
    let undone = whole.undo_after(Fate::default(), OTHER_BOOT).await;
    is_back(&whole, &undone.unwrap().unwrap());

    let world = begun();
    assert_eq!(world.process(dies(last), BOOT).await, None);
    restart(&world);
    world.set(IRQ, "3");
    let outcome = world.process(Fate::default(), OTHER_BOOT).await;
    is_back(&world, &outcome.unwrap());
}

#[tokio::test(start_paused = true)]
async fn files_that_are_not_all_written_in_the_time_that_the_plan_says_are_put_back_with_what_was_set()
 {
    let alone = order(vec![vec![step(A, OLD, NEW)]]);
    let within = alone.plan.within();
    let world = host_with(&Order {
        lasting: lasting().lasting,
        ..alone
    });
    let fate = Fate {
        slow: Some(within),
        ..Fate::default()
    };
    let outcome = world.process(fate, BOOT).await.unwrap();
    assert!(!check(&world, &outcome), "{outcome:?}");
    let Outcome::RolledBack { why } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        why,
        "not all files by which it lasts were written within 31 s: 1 of 2"
    );
}

#[tokio::test(start_paused = true)]
async fn larger_packets_that_do_not_cross_are_taken_back_before_any_file_is_written() {
    let mut order = lasting();
    order.plan.changes[0].disruption = Disruption::BouncesLink;
    order.plan.changes[0].steps.push(Step::Nic {
        nic: "nic0".into(),
        what: NicSetting::Mtu,
        from: "1500".into(),
        to: "9000".into(),
    });
    let mut there = before();
    there.insert("nic0".into(), "1500".into());
    for (network_has, file_is_written) in [("1500", false), ("9000", true)] {
        let files: Vec<(&str, &str)> = there
            .iter()
            .map(|(path, text)| (&**path, &**text))
            .collect();
        let world = World::of(&files);
        world.make(&order);
        let fate = Fate {
            narrowed_by: (network_has == "1500").then(|| ("nic0".into(), "9000".into())),
            ..Fate::default()
        };
        let outcome = world.process(fate, BOOT).await.unwrap();
        assert_eq!(world.account().standing.is_proved(), file_is_written);
        if file_is_written {
            assert_eq!(outcome, Outcome::Applied { proven: 1 });
            assert!(world.all().contains_key(OURS));
            let undone = world.undo(Fate::default()).await;
            assert_eq!(undone, Some(Ok(Outcome::Undone)));
        } else {
            assert!(matches!(outcome, Outcome::RolledBack { .. }), "{outcome:?}");
            let mut written = world.seen.borrow().clone().into_iter();
            assert!(!written.any(|(_, all)| all.contains_key(OURS)));
        }
        assert_eq!(world.all(), there, "{outcome:?}");
    }
}
