//! A network that is cut between members of etcd, with a coordinator on the smaller side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cut;
mod members;
mod suite;

use cut::Network;
use drover_store::{Campaign, Kind, Outcome, Scope, Store, StoreError};
use members::{Cluster, store_at};
use suite::{DEADLINE, TTL, fenced_put, host, name, now, number, put, until, vm, win};
use tokio::time::timeout;

#[test]
fn a_coordinator_on_the_smaller_side_of_a_cut_cannot_write_and_is_fenced_when_it_heals() {
    cut::in_a_network_of_its_own("each_side_of_a_cut_network");
}

#[tokio::test]
#[ignore = "is started by the test above, in a network of its own"]
async fn each_side_of_a_cut_network() {
    let network = Network::new(3);
    let Some(cluster) = Cluster::start_at(network.places(), None, &[]) else {
        return;
    };
    cluster.ready("c").await;
    // Whoever of them is etcd's own leader at that time.
    for smaller in 0..3 {
        one_cut(&network, &cluster, smaller).await;
    }
}

async fn one_cut(network: &Network, cluster: &Cluster, smaller: usize) {
    let mut larger = cluster.addresses();
    let here = store_at(&[larger.remove(smaller)], "c", None);
    let there = store_at(&larger, "c", None);
    put(&here, &host("a"), 1).await;
    let mut watch = here.watch(&Scope::kind(Kind::Vm), now(&here).await);
    let first = put(&here, &vm("v"), 0).await;
    assert_eq!(watch.next().await.unwrap().revision, first);
    let old = win(&here, "drain", "a").await;
    here.commit(&fenced_put(&old, &host("a"), 2)).await.unwrap();

    network.cut(smaller);
    let newer = win_when_lapsed(&there).await;
    there
        .commit(&fenced_put(&newer, &host("a"), 3))
        .await
        .unwrap();
    let unseen = put(&there, &vm("v"), 1).await;
    // It may not even read: what it would be shown is no longer so.
    let (key, fenced) = (host("a"), fenced_put(&old, &host("a"), 4));
    let (read, written) = tokio::join!(here.get(&key), here.commit(&fenced));
    for refused in [read.unwrap_err(), written.unwrap_err()] {
        let is_no_quorum = matches!(
            refused,
            StoreError::NoQuorum {
                outcome: Outcome::NotDone,
                ..
            }
        );
        assert!(is_no_quorum, "{refused}");
    }

    network.heal(smaller);
    until("the smaller side answers", async || {
        here.get(&host("a")).await.is_ok()
    })
    .await;
    let late = here
        .commit(&fenced_put(&old, &host("a"), 5))
        .await
        .unwrap_err();
    let StoreError::Fenced { by: Some(by), .. } = late else {
        panic!("{late}");
    };
    assert_eq!((by.generation, by.holder), (newer.generation(), name("b")));
    assert_eq!(number(&here.get(&host("a")).await.unwrap().unwrap()), 3);
    let changes = timeout(DEADLINE, seen_again(&mut watch)).await.unwrap();
    assert_eq!(changes.revision, unseen);
    there.resign(newer).await.unwrap();
}

async fn win_when_lapsed(store: &Store) -> drover_store::Leadership {
    let mut won = None;
    until("the lease of the cut off one has lapsed", async || {
        match store.campaign(&name("drain"), &name("b"), TTL * 10).await {
            Ok(Campaign::Won(leadership)) => won = Some(leadership),
            Ok(Campaign::Held(_)) | Err(StoreError::NoQuorum { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        won.is_some()
    })
    .await;
    won.unwrap()
}

async fn seen_again(watch: &mut drover_store::Watch) -> drover_store::Changes {
    loop {
        match watch.next().await {
            Ok(changes) => return changes,
            Err(StoreError::NoQuorum { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
