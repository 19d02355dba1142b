//! Several processes on one embedded store: killed, paused, and counting at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod files;
mod suite;

use std::path::Path;

use drover_store::{Campaign, Embedded, Expect, HostClock, Store, StoreError, Transaction};
use files::{Child, word};
use suite::{fenced_put, host, name, number, put, value, win};

async fn on_host_clock(path: &Path) -> Store {
    Embedded::open(path, HostClock::new().unwrap())
        .await
        .unwrap()
        .into()
}

#[tokio::test]
async fn all_that_was_acknowledged_is_there_after_the_process_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut acknowledged = 0;
    for round in 1..=5 {
        let mut child = Child::start("writes_until_it_is_killed", &path);
        while acknowledged < round * 40 {
            acknowledged = child.says().parse().unwrap();
        }
        let last = child.kill();
        acknowledged = last.map_or(acknowledged, |last| last.parse().unwrap());
        let store = on_host_clock(&path).await;
        let count = number(&store.get(&host("count")).await.unwrap().unwrap());
        // One more may have been written and not yet said.
        assert!(
            count == acknowledged || count == acknowledged + 1,
            "{count} {acknowledged}"
        );
        // Written with it, at once: both or none.
        let double = number(&store.get(&host("double")).await.unwrap().unwrap());
        assert_eq!(double, count * 2);
        acknowledged = count;
    }
}

#[tokio::test]
#[ignore = "is started by the test above"]
async fn writes_until_it_is_killed() {
    let store = on_host_clock(&files::given_path()).await;
    let found = store.get(&host("count")).await.unwrap();
    let mut count = found.map_or(0, |document| number(&document));
    loop {
        count += 1;
        let both = Transaction::new()
            .put(host("count"), value(count), Expect::Anything)
            .put(host("double"), value(count * 2), Expect::Anything);
        store.commit(&both).await.unwrap();
        word(&count.to_string());
    }
}

#[tokio::test]
async fn two_processes_count_one_document_up_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = on_host_clock(&path).await;
    put(&store, &host("count"), 0).await;
    let mut children: Vec<_> = (0..2)
        .map(|_| Child::start("counts_up_a_hundred_times", &path))
        .collect();
    for child in &mut children {
        assert_eq!(child.says(), "done");
    }
    assert_eq!(
        number(&store.get(&host("count")).await.unwrap().unwrap()),
        200
    );
}

#[tokio::test]
#[ignore = "is started by the test above, twice"]
async fn counts_up_a_hundred_times() {
    let store = on_host_clock(&files::given_path()).await;
    let mut done = 0;
    while done < 100 {
        let found = store.get(&host("count")).await.unwrap().unwrap();
        let next = value(number(&found) + 1);
        match store
            .put(&host("count"), next, Expect::At(found.revision))
            .await
        {
            Ok(_) => done += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    word("done");
}

#[tokio::test]
async fn a_coordinator_that_was_paused_for_longer_than_its_lease_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = on_host_clock(&path).await;
    let mut child = Child::start("coordinates_and_writes_when_told", &path);
    assert_eq!(child.says(), "won");
    child.tell("write");
    assert_eq!(child.says(), "written");
    child.pause();
    let mut newer = None;
    suite::until("the paused one's lease has lapsed", async || {
        let campaign = store
            .campaign(&name("drain"), &name("b"), suite::TTL)
            .await
            .unwrap();
        if let Campaign::Won(leadership) = campaign {
            newer = Some(leadership);
        }
        newer.is_some()
    })
    .await;
    let newer = newer.unwrap();
    store
        .commit(&fenced_put(&newer, &host("a"), 2))
        .await
        .unwrap();
    child.go_on();
    child.tell("write");
    assert_eq!(child.says(), format!("fenced by {}", newer.generation().0));
    assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 2);
}

#[tokio::test]
#[ignore = "is started by the test above"]
async fn coordinates_and_writes_when_told() {
    let store = on_host_clock(&files::given_path()).await;
    let leader = win(&store, "drain", "a").await;
    word("won");
    while files::told() == "write" {
        match store.commit(&fenced_put(&leader, &host("a"), 1)).await {
            Ok(_) => word("written"),
            Err(StoreError::Fenced { by: Some(by), .. }) => {
                word(&format!("fenced by {}", by.generation.0));
            }
            Err(other) => panic!("{other}"),
        }
    }
}
