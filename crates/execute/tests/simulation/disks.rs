//! Guests that move with disks that only their host has.

use drover_execute::journal::{Began, Entry, Move, Part, UnixMillis};
use drover_execute::{Ask, Run};
use drover_plan::Request;
use drover_types::{Bytes, HostName, MigrationId, RunId};
use uuid::Uuid;

use crate::text;

const AT: UnixMillis = UnixMillis(0);

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

/// A run of two moves, of the first of which the plan has disks.
fn journal() -> Vec<Entry> {
    let planned = |vm: &str, with_disks| Move {
        wave: 1,
        vm: vm.parse().unwrap(),
        from: host("a"),
        to: host("b"),
        memory: Bytes(1 << 30),
        with_disks,
    };
    let ordered = |number: u32| Entry::Ordered {
        number,
        migration: MigrationId(Uuid::from_u128(number.into())),
        at: AT,
    };
    vec![
        Entry::Began(Began {
            run: RunId(Uuid::from_u128(1)),
            request: Request::Drain {
                hosts: [host("a")].into(),
                avoid: [].into(),
                with_disks: true,
            },
            exactly: None,
            parked: Vec::new(),
            by: text("an operator"),
            at: AT,
        }),
        Entry::Cordoned {
            host: host("a"),
            before: false,
        },
        Entry::Part(Part {
            round: 1,
            part: 1,
            moves: vec![planned("db", true), planned("web", false)],
            left: Vec::new(),
            hosts: Vec::new(),
        }),
        Entry::Round {
            round: 1,
            parts: 1,
            at_once: 2,
            expected: None,
        },
        ordered(1),
        ordered(2),
    ]
}

#[test]
fn who_takes_a_run_over_orders_with_the_disks_that_its_plan_has_and_plans_by_the_same_word() {
    let written = serde_json::to_string(&journal()).unwrap();
    let entries: Vec<Entry> = serde_json::from_str(&written).unwrap();
    let run = Run::replay(&entries).unwrap();
    let ordered = run.asks().into_iter().filter_map(|ask| match ask {
        Ask::Order { vm, with_disks, .. } => Some((vm.to_string(), with_disks)),
        _ => None,
    });
    let ordered: Vec<_> = ordered.collect();
    let expected = [("db", true), ("web", false)].map(|(vm, with)| (vm.to_owned(), with));
    assert_eq!(ordered, expected);
    assert!(run.request().with_disks());
}

#[test]
fn a_journal_without_the_word_is_written_and_read_as_before() {
    let mut entries = journal();
    for entry in &mut entries {
        match entry {
            Entry::Began(Began {
                request: Request::Drain { with_disks, .. },
                ..
            }) => *with_disks = false,
            Entry::Part(part) => part.moves[0].with_disks = false,
            _ => {}
        }
    }
    let written = serde_json::to_string(&entries).unwrap();
    assert!(!written.contains("with_disks"), "{written}");
    let read: Vec<Entry> = serde_json::from_str(&written).unwrap();
    assert_eq!(read, entries);
}
