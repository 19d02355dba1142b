//! Three members of etcd of which one or two are killed or silent, and peers that are no etcd.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod members;
mod suite;

use std::time::{Duration, Instant};

use drover_store::{
    Expect, Kind, Leadership, Outcome, Scope, Store, StoreError, Transaction, limits,
};
use members::{Cluster, loopback, store_at};
use suite::{DEADLINE, fenced_put, host, name, now, number, put, until, value, vm, win};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long anything may take with or without a quorum: all members are asked, the last of them
/// for as long as one may take, and a write has its own time on top.
fn bound() -> Duration {
    limits::QUORUM_WAIT + limits::MEMBER_ANSWER + limits::WRITE_ANSWER
}

/// Counts up by compare-and-set until told to end; an unknown outcome is looked at, as it must be.
/// Gives how often it counted.
async fn count_up(store: &Store, mut goes_on: impl FnMut() -> bool) -> u64 {
    let mut counted = 0;
    while goes_on() {
        let found = match store.get(&host("count")).await {
            Ok(found) => found.unwrap(),
            Err(StoreError::NoQuorum { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        let next = number(&found) + 1;
        let step = Transaction::new().put(host("count"), value(next), Expect::At(found.revision));
        match store.commit(&step).await {
            Ok(_) => counted += 1,
            Err(StoreError::NoQuorum {
                outcome: Outcome::NotDone,
                ..
            }) => {}
            Err(StoreError::NoQuorum {
                outcome: Outcome::Unknown,
                ..
            }) => {
                counted += u64::from(was_done(store, next).await);
            }
            Err(other) => panic!("{other}"),
        }
    }
    counted
}

/// Nobody else counts in these tests, so the document itself tells.
async fn was_done(store: &Store, next: u64) -> bool {
    loop {
        if let Ok(found) = store.get(&host("count")).await {
            return number(&found.unwrap()) == next;
        }
    }
}

#[tokio::test]
async fn members_that_are_killed_one_after_the_other_lose_no_write_and_no_lease() {
    let Some(mut cluster) = Cluster::start(3) else {
        return;
    };
    let store = cluster.ready("c").await;
    put(&store, &host("count"), 0).await;
    let mut leader = win(&store, "drain", "a").await;
    let from = now(&store).await;
    let mut counted = 0;
    for index in 0..3 {
        cluster.kill(index);
        let begun = Instant::now();
        let mut left = 10;
        counted += count_up(&store, || {
            left -= 1;
            left >= 0
        })
        .await;
        assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
        // While a majority lives, who renews keeps its name.
        renewed(&store, &mut leader).await;
        store
            .commit(&fenced_put(&leader, &vm("v"), counted))
            .await
            .unwrap();
        cluster.run(index);
        until("the member is back", async || {
            let alone = store_at(&cluster.addresses()[index..=index], "c", None);
            alone.get(&host("count")).await.is_ok()
        })
        .await;
    }
    assert_eq!(
        number(&store.get(&host("count")).await.unwrap().unwrap()),
        counted
    );
    assert!(counted >= 20, "{counted} of 30");
    let mut watch = store.watch(&Scope::kind(Kind::Host), from);
    for wanted in 1..=counted {
        let changes = timeout(DEADLINE, watch.next()).await.unwrap().unwrap();
        assert_eq!(changes.changes[0].value, Some(value(wanted)));
    }
}

async fn renewed(store: &Store, leader: &mut Leadership) {
    match store.renew(leader).await {
        Ok(()) => {}
        // A cluster of etcd that elects may be slower than the shortest lease.
        Err(StoreError::Fenced { by: None, .. }) => *leader = win(store, "drain", "a").await,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_silent_member_delays_writes_and_makes_none_uncertain() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let store = cluster.ready("c").await;
    put(&store, &host("count"), 0).await;
    for silent in 0..3 {
        cluster.stop(silent);
        // If it was etcd's own leader, the others elect one first.
        until("a majority answers", async || {
            store.get(&host("count")).await.is_ok()
        })
        .await;
        for _ in 0..5 {
            let begun = Instant::now();
            let found = store.get(&host("count")).await.unwrap().unwrap();
            let next = value(number(&found) + 1);
            store
                .put(&host("count"), next, Expect::At(found.revision))
                .await
                .unwrap();
            assert!(begun.elapsed() < bound(), "{:?}", begun.elapsed());
        }
        cluster.go_on(silent);
        until("the member has caught up", async || {
            let alone = store_at(&cluster.addresses()[silent..=silent], "c", None);
            alone.get(&host("count")).await.is_ok()
        })
        .await;
    }
    assert_eq!(
        number(&store.get(&host("count")).await.unwrap().unwrap()),
        15
    );
}

#[tokio::test]
async fn a_watch_goes_on_when_the_member_that_it_listens_to_is_silent_or_dies() {
    let Some(mut cluster) = Cluster::start(3) else {
        return;
    };
    let store = cluster.ready("c").await;
    let from = now(&store).await;
    // Knows one member first, which is the one that will be silent.
    let mut watch = store_at(&cluster.addresses(), "c", None).watch(&Scope::kind(Kind::Vm), from);
    let others = store_at(&cluster.addresses()[1..], "c", None);
    let first = put(&others, &vm("v"), 0).await;
    assert_eq!(watch.next().await.unwrap().revision, first);
    cluster.stop(0);
    until("the others answer", async || {
        others.get(&vm("v")).await.is_ok()
    })
    .await;
    let mut wanted = Vec::new();
    for number in 1..5 {
        wanted.push(put(&others, &vm("v"), number).await);
    }
    for revision in wanted {
        let changes = timeout(DEADLINE, watch.next()).await.unwrap().unwrap();
        assert_eq!(changes.revision, revision);
    }
    cluster.go_on(0);
    cluster.kill(1);
    let rest = store_at(&cluster.addresses(), "c", None);
    until("the others answer", async || {
        rest.get(&vm("v")).await.is_ok()
    })
    .await;
    let last = put(&rest, &vm("v"), 9).await;
    let changes = timeout(DEADLINE, watch.next()).await.unwrap().unwrap();
    assert_eq!(changes.revision, last);
}

fn is_no_quorum<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    match result {
        Err(StoreError::NoQuorum {
            outcome: Outcome::NotDone,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// Every kind of call, with nothing written; each within its bound.
async fn nothing_is_answered(store: &Store, leader: &mut Leadership) {
    let begun = Instant::now();
    let at = drover_store::Revision(1);
    let mut watch = store.watch(&Scope::kind(Kind::Host), at);
    let page = Scope::kind(Kind::Host);
    let (other, key) = (name("other"), host("a"));
    let fenced = fenced_put(leader, &host("a"), 2);
    let (read, listed, written, campaigned, renewed, watched) = tokio::join!(
        store.get(&key),
        store.list(&page, None, 10),
        store.commit(&fenced),
        store.campaign(&other, &other, suite::TTL),
        store.renew(leader),
        watch.next(),
    );
    is_no_quorum(read);
    is_no_quorum(listed);
    is_no_quorum(written);
    is_no_quorum(campaigned);
    is_no_quorum(renewed);
    is_no_quorum(watched);
    assert!(begun.elapsed() < bound(), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn without_a_quorum_every_call_says_so_in_time_and_afterwards_all_goes_on() {
    let Some(mut cluster) = Cluster::start(3) else {
        return;
    };
    let store = cluster.ready("c").await;
    put(&store, &host("a"), 1).await;
    let mut leader = win(&store, "drain", "a").await;
    // One is dead, one silent, and the last one answers without a majority: as it is for who is on
    // the smaller side of a network that is cut.
    cluster.kill(0);
    cluster.stop(1);
    nothing_is_answered(&store, &mut leader).await;
    cluster.go_on(1);
    until("a majority answers", async || {
        store.get(&host("a")).await.is_ok()
    })
    .await;
    assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 1);
    put(&store, &host("a"), 3).await;
}

#[tokio::test]
async fn members_that_do_not_run_are_no_quorum_and_each_is_named() {
    let unused = std::net::TcpListener::bind((loopback(), 0)).unwrap();
    let address = unused.local_addr().unwrap().to_string();
    drop(unused);
    let store = store_at(std::slice::from_ref(&address), "c", None);
    let begun = Instant::now();
    let error = store.get(&host("a")).await.unwrap_err();
    assert!(matches!(
        error,
        StoreError::NoQuorum {
            outcome: Outcome::NotDone,
            ..
        }
    ));
    assert!(error.to_string().contains(&address), "{error}");
    assert!(begun.elapsed() < bound());
}

/// A peer that reads a request and says this, for ever the same.
async fn peer_that_says(what: impl Fn() -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(&what()).await;
        }
    });
    address
}

fn http(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[tokio::test]
async fn a_peer_that_answers_nonsense_is_an_error_and_not_believed() {
    for (body, status) in [
        (&b"garbage"[..], "200 OK"),
        (b"{}{}", "200 OK"),
        (br#"{"kvs":[{"key":"!"}]}"#, "200 OK"),
        (br#"{"kvs":[{"key":"AAAA","value":"/w=="}]}"#, "200 OK"),
        (br#"{"header":{"revision":"-9x"}}"#, "200 OK"),
        (
            br#"{"code":7,"message":"permission denied"}"#,
            "403 Forbidden",
        ),
        (
            br#"{"code":16,"message":"invalid auth token"}"#,
            "401 Unauthorized",
        ),
    ] {
        let answer = http(status, body);
        let address = peer_that_says(move || answer.clone()).await;
        let store = store_at(&[address], "c", None);
        let shown = String::from_utf8_lossy(body).into_owned();
        let read = store.get(&host("a")).await;
        assert!(
            matches!(
                read,
                Err(StoreError::Unreadable { .. } | StoreError::Rejected { .. })
            ),
            "{shown}: {read:?}"
        );
        let mut watch = store.watch(&Scope::kind(Kind::Host), drover_store::Revision(1));
        assert!(watch.next().await.is_err(), "{shown}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_the_limit() {
    let address = peer_that_says(|| {
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
        answer.resize(limits::ANSWER_BYTES + 4096, b' ');
        answer
    })
    .await;
    let store = store_at(&[address], "c", None);
    let error = store.get(&host("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    // A list asks for less and less, and ends as well.
    let error = store
        .list(&Scope::kind(Kind::Vm), None, 500)
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
}

#[tokio::test]
async fn what_the_limit_of_etcd_refuses_is_told_as_full() {
    let body = br#"{"code":8,"message":"etcdserver: mvcc: database space exceeded"}"#;
    let answer = http("429 Too Many Requests", body);
    let address = peer_that_says(move || answer.clone()).await;
    let store = store_at(&[address], "c", None);
    let error = store.get(&host("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
}
