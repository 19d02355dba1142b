use drover_store::{Expect, Journal, StoreError, Transaction};

use super::{Bench, host, number, put, value, vm, win};

fn journal() -> Journal {
    Journal::try_from("run-1").unwrap()
}

async fn fill(bench: &Bench, journal: &Journal, entries: u64) -> drover_store::Leadership {
    let leader = win(&bench.store, "drain", "a").await;
    for entry in 1..=entries {
        bench
            .store
            .append(journal, entry, value(entry), &leader)
            .await
            .unwrap();
    }
    leader
}

async fn numbers(bench: &Bench, journal: &Journal, from: u64) -> Vec<u64> {
    let found = bench.store.entries(journal, from, 500).await.unwrap();
    assert!(
        found
            .entries
            .iter()
            .all(|(entry, document)| *entry == number(document))
    );
    found.entries.into_iter().map(|(entry, _)| entry).collect()
}

pub async fn entries_are_read_back_from_any_number_on(bench: &Bench) {
    let journal = journal();
    assert_eq!(bench.store.next_entry(&journal).await.unwrap(), 1);
    fill(bench, &journal, 12).await;
    assert_eq!(bench.store.next_entry(&journal).await.unwrap(), 13);
    assert_eq!(
        numbers(bench, &journal, 1).await,
        (1..=12).collect::<Vec<_>>()
    );
    assert_eq!(numbers(bench, &journal, 9).await, [9, 10, 11, 12]);
    assert_eq!(numbers(bench, &journal, 13).await, [0; 0]);
    let some = bench.store.entries(&journal, 2, 3).await.unwrap();
    assert_eq!(
        (some.entries.len(), some.entries[0].0, some.more),
        (3, 2, true)
    );
    assert_eq!(
        numbers(bench, &Journal::try_from("run").unwrap(), 0).await,
        [0; 0]
    );
}

pub async fn an_entry_that_is_appended_twice_is_a_conflict_and_stands_there_once(bench: &Bench) {
    let leader = fill(bench, &journal(), 2).await;
    let again = bench
        .store
        .append(&journal(), 2, value(9), &leader)
        .await
        .unwrap_err();
    assert!(
        matches!(again, StoreError::Conflict { found: Some(_), .. }),
        "{again}"
    );
    assert_eq!(numbers(bench, &journal(), 1).await, [1, 2]);
}

pub async fn an_entry_cannot_leave_a_gap(bench: &Bench) {
    let leader = fill(bench, &journal(), 2).await;
    let later = bench
        .store
        .append(&journal(), 4, value(4), &leader)
        .await
        .unwrap_err();
    assert!(
        matches!(later, StoreError::Conflict { found: None, .. }),
        "{later}"
    );
    let zero = bench
        .store
        .append(&journal(), 0, value(0), &leader)
        .await
        .unwrap_err();
    assert!(matches!(zero, StoreError::Invalid(_)), "{zero}");
    assert_eq!(numbers(bench, &journal(), 1).await, [1, 2]);
}

pub async fn a_step_and_what_it_changes_are_written_at_once(bench: &Bench) {
    let store = &bench.store;
    let leader = fill(bench, &journal(), 1).await;
    let at = put(store, &host("a"), 1).await;
    let step = |entry, expect| {
        Transaction::new()
            .fenced_by(&leader)
            .append(&journal(), entry, value(entry))
            .unwrap()
            .put(host("a"), value(entry), expect)
            .delete(vm("v"), Expect::Anything)
    };
    let done = store.commit(&step(2, Expect::At(at))).await.unwrap();
    assert_eq!(store.get(&host("a")).await.unwrap().unwrap().revision, done);
    store.commit(&step(3, Expect::At(at))).await.unwrap_err();
    store.commit(&step(2, Expect::At(done))).await.unwrap_err();
    assert_eq!(numbers(bench, &journal(), 1).await, [1, 2]);
    assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 2);
}

pub async fn a_full_journal_says_so_until_it_is_pruned(bench: &Bench) {
    let store = &bench.store;
    let journal = journal().with_room(4);
    let leader = fill(bench, &journal, 4).await;
    let full = store
        .append(&journal, 5, value(5), &leader)
        .await
        .unwrap_err();
    assert!(
        matches!(full, StoreError::JournalFull { limit: 4, .. }),
        "{full}"
    );
    assert_eq!(store.prune(&journal, 3, Some(&leader)).await.unwrap(), 2);
    for entry in 5..=6 {
        store
            .append(&journal, entry, value(entry), &leader)
            .await
            .unwrap();
    }
    let full = store
        .append(&journal, 7, value(7), &leader)
        .await
        .unwrap_err();
    assert!(matches!(full, StoreError::JournalFull { .. }), "{full}");
    assert_eq!(numbers(bench, &journal, 1).await, [3, 4, 5, 6]);
}

pub async fn pruning_keeps_the_last_entry_so_that_the_next_one_follows_it(bench: &Bench) {
    let store = &bench.store;
    // More than one transaction deletes.
    let leader = fill(bench, &journal(), 90).await;
    assert_eq!(store.prune(&journal(), u64::MAX, None).await.unwrap(), 89);
    assert_eq!(numbers(bench, &journal(), 1).await, [90]);
    store
        .append(&journal(), 91, value(91), &leader)
        .await
        .unwrap();
    assert_eq!(store.prune(&journal(), 1, None).await.unwrap(), 0);
}

pub async fn a_removed_journal_begins_anew(bench: &Bench) {
    let leader = fill(bench, &journal(), 3).await;
    assert_eq!(
        bench
            .store
            .remove_journal(&journal(), Some(&leader))
            .await
            .unwrap(),
        3
    );
    assert_eq!(bench.store.next_entry(&journal()).await.unwrap(), 1);
    bench
        .store
        .append(&journal(), 1, value(1), &leader)
        .await
        .unwrap();
}
