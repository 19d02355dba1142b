//! The suite on etcd, on a real member for each test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod members;
mod suite;

use drover_store::{Expect, Kind, Revision, Scope, StoreError, Transaction, Value, limits};
use members::{Cluster, etcd};
use proptest::test_runner::{Config, TestRunner};
use suite::{Bench, host, now, put, vm};

whole_suite!(etcd);

#[test]
fn random_operations_agree_with_a_model() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    runtime.block_on(cluster.ready("c"));
    let case = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config::with_cases(12));
    let run = |steps| {
        case.set(case.get() + 1);
        let bench = Bench {
            store: cluster.store(&format!("c{}", case.get())),
            clock: None,
            ground: Box::new(()),
        };
        runtime.block_on(suite::model::agrees_with_the_model(&bench, steps));
        Ok(())
    };
    runner.run(&suite::model::steps(40, false), run).unwrap();
}

#[tokio::test]
async fn three_members_keep_the_same_promises() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    cluster.ready("x").await;
    let bench = |name: &str| Bench {
        store: cluster.store(name),
        clock: None,
        ground: Box::new(()),
    };
    suite::documents::many_tasks_count_one_document_up_and_none_is_lost(&bench("a")).await;
    suite::watches::a_list_and_a_watch_from_its_revision_give_every_state(&bench("b")).await;
    suite::leaderships::one_of_many_wins_and_the_others_are_told_who(&bench("c")).await;
    suite::leaderships::a_holder_whose_lease_lapsed_cannot_write_though_nobody_followed(&bench(
        "d",
    ))
    .await;
}

#[tokio::test]
async fn clusters_in_one_etcd_do_not_see_each_other() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let (one, other) = (cluster.ready("one").await, cluster.store("one-more"));
    put(&one, &host("a"), 1).await;
    let leader = suite::win(&one, "drain", "a").await;
    assert_eq!(other.get(&host("a")).await.unwrap(), None);
    assert_eq!(
        other
            .list(&Scope::kind(Kind::Host), None, 10)
            .await
            .unwrap()
            .documents,
        []
    );
    assert_eq!(other.holding(leader.name()).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_of_what_was_compacted_is_told_to_list_again() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let store = cluster.ready("c").await;
    let first = put(&store, &vm("v"), 1).await;
    put(&store, &vm("v"), 2).await;
    let last = put(&store, &vm("v"), 3).await;
    members::compact(&cluster.addresses()[0], last).await;
    let lagged = store
        .watch(&Scope::kind(Kind::Vm), first)
        .next()
        .await
        .unwrap_err();
    let StoreError::Lagged { after, oldest } = lagged else {
        panic!("{lagged}");
    };
    assert_eq!((after, oldest), (first, last));
    let ahead = Revision(last.0 + 100);
    let lagged = store
        .watch(&Scope::kind(Kind::Vm), ahead)
        .next()
        .await
        .unwrap_err();
    assert!(matches!(lagged, StoreError::Lagged { .. }), "{lagged}");
}

#[tokio::test]
async fn a_reader_that_is_far_behind_gets_large_changes_in_parts_and_each_once() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let store = cluster.ready("c").await;
    let from = now(&store).await;
    let large = Value::of(&"x".repeat(limits::VALUE_BYTES - 2)).unwrap();
    let mut wanted = Vec::new();
    for _ in 0..10 {
        let several = (0..7).fold(Transaction::new(), |all, number| {
            let key = vm(&format!("v{number}"));
            all.put(key, large.clone(), Expect::Anything)
        });
        wanted.push(store.commit(&several).await.unwrap());
    }
    let mut watch = store.watch(&Scope::kind(Kind::Vm), from);
    for revision in wanted {
        let changes = watch.next().await.unwrap();
        assert_eq!((changes.revision, changes.changes.len()), (revision, 7));
        assert!(
            changes
                .changes
                .iter()
                .all(|change| change.value.as_ref() == Some(&large))
        );
    }
}

#[tokio::test]
async fn an_etcd_that_has_reached_its_quota_is_full_and_still_read() {
    let Some(cluster) = Cluster::start_with(1, None, &["--quota-backend-bytes=4194304"]) else {
        return;
    };
    let store = cluster.ready("c").await;
    let large = Value::of(&"x".repeat(limits::VALUE_BYTES - 2)).unwrap();
    let mut written = 0;
    let refused = loop {
        match store
            .put(&vm(&format!("v{written}")), large.clone(), Expect::Absent)
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "4 MiB took all that");
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert_eq!(store.get(&vm("v0")).await.unwrap().unwrap().value, large);
}
