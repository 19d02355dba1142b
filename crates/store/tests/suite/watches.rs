use std::collections::BTreeMap;
use std::time::Duration;

use drover_store::{Changes, Expect, Journal, Kind, Revision, Scope, Transaction, Watch};
use tokio::time::timeout;

use super::{Bench, DEADLINE, fenced_put, host, now, number, put, value, vm, win};

async fn next(watch: &mut Watch) -> Changes {
    timeout(DEADLINE, watch.next())
        .await
        .expect("no change came")
        .unwrap()
}

fn vms() -> Scope {
    Scope::kind(Kind::Vm)
}

pub async fn changes_come_in_order_each_once(bench: &Bench) {
    let mut watch = bench.store.watch(&vms(), now(&bench.store).await);
    let mut wanted = Vec::new();
    for number in 0..20 {
        put(&bench.store, &host("noise"), number).await;
        let revision = put(&bench.store, &vm(&format!("v{}", number % 3)), number).await;
        wanted.push((revision, value(number)));
    }
    for (revision, value) in wanted {
        let changes = next(&mut watch).await;
        assert_eq!((changes.revision, changes.changes.len()), (revision, 1));
        assert_eq!(changes.changes[0].value.as_ref(), Some(&value));
    }
}

pub async fn what_one_transaction_changed_comes_together(bench: &Bench) {
    let mut watch = bench.store.watch(&vms(), now(&bench.store).await);
    let several = (0..30).fold(
        Transaction::new().put(host("a"), value(1), Expect::Absent),
        |all, number| all.put(vm(&format!("v{number:02}")), value(number), Expect::Absent),
    );
    let revision = bench.store.commit(&several).await.unwrap();
    let changes = next(&mut watch).await;
    assert_eq!(changes.revision, revision);
    let keys: Vec<_> = changes
        .changes
        .into_iter()
        .map(|change| change.key)
        .collect();
    assert_eq!(
        keys,
        (0..30)
            .map(|number| vm(&format!("v{number:02}")))
            .collect::<Vec<_>>()
    );
}

pub async fn a_watch_begins_after_its_revision(bench: &Bench) {
    put(&bench.store, &vm("v"), 1).await;
    let middle = put(&bench.store, &vm("v"), 2).await;
    let last = put(&bench.store, &vm("v"), 3).await;
    let mut watch = bench.store.watch(&vms(), middle);
    assert_eq!(next(&mut watch).await.revision, last);
}

pub async fn a_list_and_a_watch_from_its_revision_give_every_state(bench: &Bench) {
    let store = bench.store.clone();
    let leader = win(&store, "drain", "a").await;
    let writer = tokio::spawn(async move {
        for number in 0..60_u64 {
            let key = vm(&format!("v{:02}", number * 7 % 13));
            if number % 5 == 4 {
                store.delete(&key, Expect::Anything).await.unwrap();
            } else {
                store
                    .commit(&fenced_put(&leader, &key, number))
                    .await
                    .unwrap();
            }
        }
        put(&store, &vm("zz-last"), 1).await
    });
    let (mut seen, mut from, mut after) = (BTreeMap::new(), None::<Revision>, None);
    loop {
        let page = bench.store.list(&vms(), after.as_ref(), 3).await.unwrap();
        from = from.or(Some(page.at));
        after = page.documents.last().map(|document| document.key.clone());
        for document in page.documents {
            seen.insert(document.key.clone(), (document.revision, number(&document)));
        }
        if !page.more {
            break;
        }
    }
    let mut watch = bench.store.watch(&vms(), from.unwrap());
    let last = writer.await.unwrap();
    loop {
        let changes = next(&mut watch).await;
        for change in changes.changes {
            match change.value {
                Some(value) => {
                    let number = value.as_str().parse().unwrap();
                    seen.insert(change.key, (changes.revision, number));
                }
                None => {
                    seen.remove(&change.key);
                }
            }
        }
        if changes.revision == last {
            break;
        }
    }
    let page = bench.store.list(&vms(), None, 500).await.unwrap();
    let there: BTreeMap<_, _> = page
        .documents
        .iter()
        .map(|document| (document.key.clone(), (document.revision, number(document))))
        .collect();
    assert_eq!(seen, there);
}

pub async fn a_watch_that_waits_is_woken_by_a_change(bench: &Bench) {
    let mut watch = bench.store.watch(&vms(), now(&bench.store).await);
    let waiting = tokio::spawn(async move { next(&mut watch).await });
    let revision = put(&bench.store, &vm("v"), 1).await;
    assert_eq!(waiting.await.unwrap().revision, revision);
}

pub async fn a_watch_that_is_dropped_while_it_waits_and_called_again_loses_nothing(bench: &Bench) {
    let mut watch = bench.store.watch(&vms(), now(&bench.store).await);
    let mut wanted = Vec::new();
    for number in 0..10 {
        // Given up at an arbitrary moment, again and again.
        if let Ok(changes) = timeout(Duration::from_millis(number), watch.next()).await {
            let seen = changes.unwrap().revision;
            assert_eq!(wanted.remove(0), seen);
        }
        wanted.push(put(&bench.store, &vm("v"), number).await);
    }
    for revision in wanted {
        assert_eq!(next(&mut watch).await.revision, revision);
    }
}

pub async fn a_slow_reader_gets_everything(bench: &Bench) {
    let from = now(&bench.store).await;
    let mut watch = bench.store.watch(&vms(), from);
    let first = put(&bench.store, &vm("v"), 0).await;
    assert_eq!(next(&mut watch).await.revision, first);
    let mut wanted = Vec::new();
    // More than a watch takes at once.
    for number in 0..12 {
        let several = (0..20).fold(Transaction::new(), |all, vm_number| {
            all.put(
                vm(&format!("v{vm_number}")),
                value(number),
                Expect::Anything,
            )
        });
        wanted.push(bench.store.commit(&several).await.unwrap());
    }
    for revision in wanted {
        let changes = next(&mut watch).await;
        assert_eq!((changes.revision, changes.changes.len()), (revision, 20));
    }
}

pub async fn a_deleted_document_is_a_change_without_a_value(bench: &Bench) {
    let from = put(&bench.store, &vm("v"), 1).await;
    let mut watch = bench.store.watch(&vms(), from);
    bench
        .store
        .delete(&vm("never-there"), Expect::Anything)
        .await
        .unwrap();
    let deleted = bench.store.delete(&vm("v"), Expect::Present).await.unwrap();
    let changes = next(&mut watch).await;
    assert_eq!((changes.revision, changes.changes.len()), (deleted, 1));
    assert_eq!(
        (&changes.changes[0].key, &changes.changes[0].value),
        (&vm("v"), &None)
    );
}

pub async fn a_journal_can_be_watched(bench: &Bench) {
    let journal = Journal::try_from("run-1").unwrap();
    let mut watch = bench
        .store
        .watch(&Scope::from(&journal), now(&bench.store).await);
    let leader = win(&bench.store, "drain", "a").await;
    for entry in 1..=3 {
        let revision = bench
            .store
            .append(&journal, entry, value(entry), &leader)
            .await
            .unwrap();
        assert_eq!(next(&mut watch).await.revision, revision);
    }
}
