//! The embedded store's file: what it survives, and what it refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod files;
mod suite;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use drover_store::{
    Embedded, Expect, Kind, Outcome, Revision, Scope, Store, StoreError, Transaction, Value, limits,
};
use files::Mount;
use suite::{SharedClock, fenced_put, host, name, now, number, put, value, vm, win};

async fn open(path: &Path) -> Result<Store, StoreError> {
    Embedded::open(path, SharedClock::default())
        .await
        .map(Store::from)
}

async fn refused(path: &Path) -> String {
    match open(path).await {
        Err(error @ StoreError::Unusable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_store_that_is_opened_again_has_everything_and_goes_on_counting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let clock = SharedClock::default();
    let store: Store = Embedded::open(&path, clock.clone()).await.unwrap().into();
    let leader = win(&store, "drain", "a").await;
    let written = store
        .commit(&fenced_put(&leader, &host("a"), 7))
        .await
        .unwrap();
    drop(store);
    let store: Store = Embedded::open(&path, clock).await.unwrap().into();
    let document = store.get(&host("a")).await.unwrap().unwrap();
    assert_eq!((document.revision, number(&document)), (written, 7));
    assert_eq!(
        store
            .holding(&name("drain"))
            .await
            .unwrap()
            .unwrap()
            .generation,
        leader.generation()
    );
    assert!(put(&store, &host("a"), 8).await > written);
    let mut watch = store.watch(&Scope::kind(Kind::Host), Revision(written.0 - 1));
    assert_eq!(watch.next().await.unwrap().revision, written);
}

#[tokio::test]
async fn a_lease_of_before_the_hosts_restart_has_lapsed() {
    let folder = tempfile::tempdir().unwrap();
    let clock = SharedClock::default();
    let store = Embedded::open(&folder.path().join("store.db"), clock.clone())
        .await
        .unwrap();
    let store = Store::from(store);
    let old = win(&store, "drain", "a").await;
    clock.0.restart();
    assert_eq!(store.holding(&name("drain")).await.unwrap(), None);
    let new = win(&store, "drain", "a").await;
    assert!(new.generation() > old.generation());
    let late = store
        .commit(&fenced_put(&old, &host("a"), 1))
        .await
        .unwrap_err();
    assert!(
        matches!(late, StoreError::Fenced { by: Some(_), .. }),
        "{late}"
    );
}

#[tokio::test]
async fn only_its_owner_can_read_the_file_and_those_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = open(&path).await.unwrap();
    put(&store, &host("a"), 1).await;
    let files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await.unwrap();
    for number in 0..200 {
        let text = Value::of(&"x".repeat(400)).unwrap();
        store
            .put(&vm(&format!("v{number}")), text, Expect::Absent)
            .await
            .unwrap();
    }
    drop(store);
    // The thread closes the file after its last order, and takes the -wal with it.
    suite::until("the file is closed", async || {
        !path.with_extension("db-wal").exists()
    })
    .await;
    let whole = std::fs::read(&path).unwrap();
    let mut cut_within = whole.clone();
    let pages = whole.len() / 4096;
    cut_within[4096 * (pages / 2)..4096 * (pages / 2 + 1)].fill(0x5a);
    let mut wrong_header = whole.clone();
    wrong_header[..16].copy_from_slice(b"Not SQLite here\0");
    let truncated = whole[..whole.len() / 2].to_vec();
    for damaged in [cut_within, wrong_header, truncated, b"garbage".repeat(1000)] {
        std::fs::write(&path, &damaged).unwrap();
        let error = refused(&path).await;
        assert!(
            error.contains("store.db") && error.contains("damaged"),
            "{error}"
        );
        assert!(error.contains("restore it from a backup"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let error = refused(&path).await;
    assert!(error.contains("another program"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    put(&open(&path).await.unwrap(), &host("a"), 1).await;
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 9).unwrap();
    let error = refused(&path).await;
    assert!(
        error.contains("version 9") && error.contains("up to 1"),
        "{error}"
    );
    newer.pragma_update(None, "user_version", 1).unwrap();
    assert!(
        open(&path)
            .await
            .unwrap()
            .get(&host("a"))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_directory_that_is_not_there_or_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("missing/store.db")).await;
    assert!(
        error.contains("missing/store.db") && error.contains("cannot be made"),
        "{error}"
    );
    // Root may write to any directory, but not to what is mounted read-only.
    let Some(mount) = Mount::tmpfs(folder.path(), "ro") else {
        return;
    };
    let error = refused(&folder.path().join("store.db")).await;
    assert!(error.contains("cannot be made"), "{error}");
    drop(mount);
}

#[tokio::test]
async fn a_full_disk_refuses_the_write_and_keeps_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=1m") else {
        return;
    };
    let path = folder.path().join("store.db");
    let store = open(&path).await.unwrap();
    let text = Value::of(&"x".repeat(60_000)).unwrap();
    let mut written = 0;
    let refused = loop {
        match store
            .put(&vm(&format!("v{written}")), text.clone(), Expect::Absent)
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "a disk of 1 MiB took all that");
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(written > 0);
    drop(store);
    suite::until("it opens again", async || open(&path).await.is_ok()).await;
    let store = open(&path).await.unwrap();
    let page = store.list(&Scope::kind(Kind::Vm), None, 500).await.unwrap();
    assert_eq!(page.documents.len(), written);
    drop((store, mount));
}

#[tokio::test]
async fn a_watch_that_is_too_far_behind_is_told_to_list_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store.db")).await.unwrap();
    let from = now(&store).await;
    let mut behind = store.watch(&Scope::kind(Kind::Vm), from);
    let most = usize::try_from(limits::HISTORY_CHANGES).unwrap();
    for round in 0..=most / limits::TRANSACTION_WRITES {
        let several = (0..limits::TRANSACTION_WRITES).fold(Transaction::new(), |all, number| {
            let key = vm(&format!("v{number}"));
            all.put(key, value(round as u64), Expect::Anything)
        });
        store.commit(&several).await.unwrap();
    }
    let lagged = behind.next().await.unwrap_err();
    let StoreError::Lagged { after, oldest } = lagged else {
        panic!("{lagged}");
    };
    assert!(after == from && oldest > from);
    let mut again = store.watch(&Scope::kind(Kind::Vm), oldest);
    assert!(again.next().await.unwrap().revision > oldest);
    let mut of_another_store = store.watch(&Scope::kind(Kind::Vm), Revision(u64::MAX >> 1));
    let lagged = of_another_store.next().await.unwrap_err();
    assert!(matches!(lagged, StoreError::Lagged { .. }), "{lagged}");
}

#[tokio::test]
async fn a_file_that_another_process_keeps_locked_is_unavailable_within_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await.unwrap();
    put(&store, &host("a"), 1).await;
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Readers need no lock, writers do.
    assert!(store.get(&host("a")).await.unwrap().is_some());
    let error = store
        .put(&host("a"), value(2), Expect::Anything)
        .await
        .unwrap_err();
    let is_not_done = matches!(
        error,
        StoreError::Unavailable {
            outcome: Outcome::NotDone,
            ..
        }
    );
    assert!(
        is_not_done && error.to_string().contains("another process"),
        "{error}"
    );
    other.execute_batch("ROLLBACK").unwrap();
    put(&store, &host("a"), 3).await;
}

#[tokio::test]
async fn what_another_process_writes_reaches_the_watches_here_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (here, there) = (open(&path).await.unwrap(), open(&path).await.unwrap());
    let mut watch = here.watch(&Scope::kind(Kind::Vm), now(&here).await);
    let mut wanted = Vec::new();
    for number in 0..6 {
        let store = if number % 2 == 0 { &there } else { &here };
        wanted.push(put(store, &vm("v"), number).await);
    }
    wanted.push(put(&there, &vm("v"), 9).await);
    for revision in wanted {
        assert_eq!(watch.next().await.unwrap().revision, revision);
    }
}

#[tokio::test]
async fn a_file_whose_making_was_cut_short_is_made_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let begun = rusqlite::Connection::open(&path).unwrap();
    let set = begun.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
    set.unwrap();
    drop(begun);
    assert!(std::fs::metadata(&path).unwrap().len() > 0);
    put(&open(&path).await.unwrap(), &host("a"), 1).await;
}

#[tokio::test]
async fn several_that_make_the_file_at_the_same_time_all_open_it() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (a, b, c) = tokio::join!(open(&path), open(&path), open(&path));
        let stores = [a.unwrap(), b.unwrap(), c.unwrap()];
        put(&stores[0], &host("a"), 7).await;
        for store in &stores {
            assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 7);
        }
    }
}
