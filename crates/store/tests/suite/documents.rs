use std::collections::BTreeSet;

use drover_store::{Expect, Invalid, Kind, Scope, StoreError, Transaction, Value, limits};
use tokio::task::JoinSet;

use super::{Bench, host, number, put, value, vm};

pub async fn what_is_put_is_read_back_until_it_is_deleted(bench: &Bench) {
    let store = &bench.store;
    assert_eq!(store.get(&host("a")).await.unwrap(), None);
    let revision = put(store, &host("a"), 7).await;
    let document = store.get(&host("a")).await.unwrap().unwrap();
    assert_eq!((document.revision, number(&document)), (revision, 7));
    assert_eq!(document.key, host("a"));
    let deleted = store
        .delete(&host("a"), Expect::At(revision))
        .await
        .unwrap();
    assert!(deleted > revision);
    assert_eq!(store.get(&host("a")).await.unwrap(), None);
}

pub async fn a_write_that_expects_another_revision_is_a_conflict_with_the_one_found(bench: &Bench) {
    let store = &bench.store;
    let first = put(store, &host("a"), 1).await;
    let second = put(store, &host("a"), 2).await;
    for (expect, key, is) in [
        (Expect::At(first), "a", Some(second)),
        (Expect::Absent, "a", Some(second)),
        (Expect::Present, "b", None),
        (Expect::At(second), "b", None),
    ] {
        let written = store.put(&host(key), value(3), expect).await;
        let deleted = store.delete(&host(key), expect).await;
        for refused in [written.unwrap_err(), deleted.unwrap_err()] {
            let StoreError::Conflict {
                key: which,
                expected,
                found,
            } = refused
            else {
                panic!("{refused}");
            };
            assert_eq!((which, expected, found), (host(key), expect, is));
        }
    }
    let document = store.get(&host("a")).await.unwrap().unwrap();
    assert_eq!((document.revision, number(&document)), (second, 2));
}

pub async fn a_transaction_is_done_whole_or_not_at_all(bench: &Bench) {
    let store = &bench.store;
    let at = put(store, &host("a"), 1).await;
    let both = Transaction::new()
        .put(host("a"), value(2), Expect::At(at))
        .delete(host("gone"), Expect::Anything)
        .put(vm("v"), value(3), Expect::Absent);
    let done = store.commit(&both).await.unwrap();
    for key in [host("a"), vm("v")] {
        assert_eq!(store.get(&key).await.unwrap().unwrap().revision, done);
    }
    let refused = Transaction::new()
        .put(host("b"), value(1), Expect::Absent)
        .require(vm("v"), Expect::Absent);
    let error = store.commit(&refused).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Conflict { ref key, .. } if *key == vm("v")),
        "{error}"
    );
    assert_eq!(store.get(&host("b")).await.unwrap(), None);
}

pub async fn pages_in_the_order_of_keys_give_every_document_once(bench: &Bench) {
    let store = &bench.store;
    let mut wanted = BTreeSet::new();
    for number in 0..25 {
        let key = vm(&format!("v{}", number * 7 % 25));
        put(store, &key, number).await;
        wanted.insert(key.to_string());
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .list(&Scope::kind(Kind::Vm), after.as_ref(), 10)
            .await
            .unwrap();
        assert!(page.documents.len() <= 10);
        seen.extend(
            page.documents
                .iter()
                .map(|document| document.key.to_string()),
        );
        after = page.documents.last().map(|document| document.key.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, wanted.into_iter().collect::<Vec<_>>());
}

pub async fn a_page_of_the_largest_documents_ends_early_and_the_next_goes_on(bench: &Bench) {
    let store = &bench.store;
    let large = Value::of(&"x".repeat(limits::VALUE_BYTES - 2)).unwrap();
    const COUNT: usize = 80;
    for number in 0..COUNT {
        let key = vm(&format!("v{number:03}"));
        store
            .put(&key, large.clone(), Expect::Absent)
            .await
            .unwrap();
    }
    let (mut seen, mut pages, mut after) = (0, 0, None);
    loop {
        let page = store
            .list(&Scope::kind(Kind::Vm), after.as_ref(), 500)
            .await
            .unwrap();
        assert!(
            page.documents
                .iter()
                .all(|document| document.value == large)
        );
        seen += page.documents.len();
        pages += 1;
        after = page.documents.last().map(|document| document.key.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, COUNT);
    assert!(pages > 1, "{COUNT} of the largest came in one page");
}

pub async fn a_scope_has_only_what_begins_like_it(bench: &Bench) {
    let store = &bench.store;
    for key in [
        vm("db"),
        vm("db-1"),
        vm("db-2"),
        vm("dc"),
        vm("d"),
        host("db-1"),
    ] {
        put(store, &key, 1).await;
    }
    let scope = Scope::beginning(Kind::Vm, "db").unwrap();
    let page = store.list(&scope, None, 10).await.unwrap();
    let keys: Vec<_> = page
        .documents
        .into_iter()
        .map(|document| document.key)
        .collect();
    assert_eq!(keys, [vm("db"), vm("db-1"), vm("db-2")]);
}

pub async fn many_tasks_count_one_document_up_and_none_is_lost(bench: &Bench) {
    const TASKS: u64 = 8;
    const EACH: u64 = 10;
    put(&bench.store, &host("a"), 0).await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = bench.store.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                loop {
                    let document = store.get(&host("a")).await.unwrap().unwrap();
                    let next = value(number(&document) + 1);
                    match store
                        .put(&host("a"), next, Expect::At(document.revision))
                        .await
                    {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let document = bench.store.get(&host("a")).await.unwrap().unwrap();
    assert_eq!(number(&document), TASKS * EACH);
}

pub async fn what_goes_beyond_a_limit_is_refused_before_anybody_is_asked(bench: &Bench) {
    let too_long = Value::of(&"x".repeat(limits::VALUE_BYTES));
    assert!(
        matches!(too_long, Err(Invalid::TooMuch { .. })),
        "{too_long:?}"
    );
    let writes = |count: usize, of: &Value| {
        (0..count).fold(Transaction::new(), |all, number| {
            all.put(vm(&format!("v{number}")), of.clone(), Expect::Anything)
        })
    };
    let large = Value::of(&"x".repeat(limits::VALUE_BYTES - 2)).unwrap();
    let twice = writes(1, &large).put(vm("v0"), value(1), Expect::Anything);
    for transaction in [
        writes(limits::TRANSACTION_WRITES + 1, &value(1)),
        writes(limits::TRANSACTION_BYTES / limits::VALUE_BYTES + 1, &large),
        twice,
        Transaction::new().require(vm("v0"), Expect::Absent),
    ] {
        let refused = bench.store.commit(&transaction).await.unwrap_err();
        assert!(matches!(refused, StoreError::Invalid(_)), "{refused}");
    }
    assert_eq!(bench.store.get(&vm("v0")).await.unwrap(), None);
}

pub async fn the_largest_transaction_is_done(bench: &Bench) {
    let large = Value::of(&"x".repeat(limits::VALUE_BYTES - 2)).unwrap();
    let count = limits::TRANSACTION_BYTES / limits::VALUE_BYTES;
    let mut all = (0..count).fold(Transaction::new(), |all, number| {
        all.put(vm(&format!("v{number}")), large.clone(), Expect::Absent)
    });
    for number in count..limits::TRANSACTION_WRITES {
        all = all.delete(vm(&format!("v{number}")), Expect::Absent);
    }
    for number in 0..limits::TRANSACTION_CONDITIONS - limits::TRANSACTION_WRITES {
        all = all.require(host(&format!("h{number}")), Expect::Absent);
    }
    bench.store.commit(&all).await.unwrap();
    assert!(bench.store.get(&vm("v0")).await.unwrap().is_some());
}

pub async fn text_with_odd_characters_comes_back_as_it_was(bench: &Bench) {
    let odd = "\u{0}\n\"\\/é\u{1f404} '; DROP TABLE document; --";
    let written = Value::of(odd).unwrap();
    bench
        .store
        .put(&vm("v"), written, Expect::Absent)
        .await
        .unwrap();
    let document = bench.store.get(&vm("v")).await.unwrap().unwrap();
    assert_eq!(document.read::<String>().unwrap(), odd);
}
