use std::time::Duration;

use drover_store::{
    Campaign, Clock, Holding, HostClock, Invalid, Leadership, Moment, Store, StoreError, limits,
};
use tokio::task::JoinSet;

use super::{Bench, TTL, fenced_put, host, name, number, win};

async fn campaign(store: &Store, what: &str, holder: &str) -> Campaign {
    store
        .campaign(&name(what), &name(holder), TTL)
        .await
        .unwrap()
}

async fn held(store: &Store, what: &str, holder: &str) -> Holding {
    match campaign(store, what, holder).await {
        Campaign::Held(holding) => holding,
        Campaign::Won(_) => panic!("{holder} won {what}, which is held"),
    }
}

/// The generation and holder that refused the write, if any.
async fn refused(store: &Store, leader: &Leadership) -> Option<(u64, String)> {
    let error = store
        .commit(&fenced_put(leader, &host("a"), 9))
        .await
        .unwrap_err();
    let StoreError::Fenced {
        name,
        generation,
        by,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((&name, generation), (leader.name(), leader.generation()));
    by.map(|by| (by.generation.0, by.holder.to_string()))
}

pub async fn one_of_many_wins_and_the_others_are_told_who(bench: &Bench) {
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let store = bench.store.clone();
        tasks.spawn(async move { campaign(&store, "drain", &format!("h{number}")).await });
    }
    let (mut won, mut told) = (Vec::new(), Vec::new());
    for ended in tasks.join_all().await {
        match ended {
            Campaign::Won(leadership) => won.push(leadership),
            Campaign::Held(holding) => told.push(holding),
        }
    }
    assert_eq!(won.len(), 1);
    for holding in told {
        assert_eq!(holding.generation, won[0].generation());
        assert_eq!(&holding.holder, won[0].holder());
    }
}

pub async fn a_held_name_is_shown_with_holder_and_time_left(bench: &Bench) {
    assert_eq!(bench.store.holding(&name("drain")).await.unwrap(), None);
    let leader = win(&bench.store, "drain", "a").await;
    let shown = bench.store.holding(&name("drain")).await.unwrap().unwrap();
    assert_eq!(
        (shown.holder.as_str(), shown.generation),
        ("a", leader.generation())
    );
    assert_eq!((&shown.name, shown.ttl), (leader.name(), TTL));
    assert!(shown.left <= TTL && shown.renewed_ago <= TTL, "{shown:?}");
    assert_eq!(held(&bench.store, "drain", "b").await.holder, name("a"));
}

pub async fn a_holder_that_misses_its_renewals_is_shown_as_silent(bench: &Bench) {
    let long = TTL * 2;
    let campaign = bench
        .store
        .campaign(&name("drain"), &name("a"), long)
        .await
        .unwrap();
    let Campaign::Won(mut leader) = campaign else {
        panic!("nobody else is there");
    };
    bench.store.renew(&mut leader).await.unwrap();
    let shown = bench.store.holding(leader.name()).await.unwrap().unwrap();
    assert!(!shown.is_silent(), "{shown:?}");
    if let Some(clock) = &bench.clock {
        clock.0.pass(long * 3 / 4);
    }
    super::until("it is shown as silent", async || {
        let holding = bench.store.holding(leader.name()).await.unwrap();
        holding.expect("it still holds its name").is_silent()
    })
    .await;
}

pub async fn a_later_leadership_has_a_larger_generation(bench: &Bench) {
    let mut last = 0;
    for holder in ["a", "b", "a"] {
        let leader = win(&bench.store, "drain", holder).await;
        assert!(leader.generation().0 > last);
        last = leader.generation().0;
        bench.store.resign(leader).await.unwrap();
    }
}

pub async fn the_writes_of_a_superseded_holder_are_refused_and_name_the_newer_one(bench: &Bench) {
    let store = &bench.store;
    let old = win(store, "drain", "a").await;
    store
        .commit(&fenced_put(&old, &host("a"), 1))
        .await
        .unwrap();
    bench.lapse(&old).await;
    let new = win(store, "drain", "b").await;
    assert_eq!(
        refused(store, &old).await,
        Some((new.generation().0, "b".to_owned()))
    );
    store
        .commit(&fenced_put(&new, &host("a"), 2))
        .await
        .unwrap();
    assert!(refused(store, &old).await.is_some());
    assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 2);
    let mut late = old;
    let renewed = store.renew(&mut late).await.unwrap_err();
    assert!(
        matches!(renewed, StoreError::Fenced { by: Some(_), .. }),
        "{renewed}"
    );
}

pub async fn a_holder_whose_lease_lapsed_cannot_write_though_nobody_followed(bench: &Bench) {
    let mut leader = win(&bench.store, "drain", "a").await;
    bench.lapse(&leader).await;
    assert_eq!(refused(&bench.store, &leader).await, None);
    let renewed = bench.store.renew(&mut leader).await.unwrap_err();
    assert!(
        matches!(renewed, StoreError::Fenced { by: None, .. }),
        "{renewed}"
    );
    assert_eq!(bench.store.get(&host("a")).await.unwrap(), None);
}

pub async fn a_holder_that_renews_keeps_its_name(bench: &Bench) {
    let mut leader = win(&bench.store, "drain", "a").await;
    // Longer than two leases in all.
    for _ in 0..7 {
        match &bench.clock {
            Some(clock) => clock.0.pass(leader.renew_every()),
            None => tokio::time::sleep(leader.renew_every()).await,
        }
        bench.store.renew(&mut leader).await.unwrap();
    }
    assert_eq!(
        held(&bench.store, "drain", "b").await.generation,
        leader.generation()
    );
    bench
        .store
        .commit(&fenced_put(&leader, &host("a"), 1))
        .await
        .unwrap();
}

pub async fn a_resigned_name_can_be_won_at_once(bench: &Bench) {
    let leader = win(&bench.store, "drain", "a").await;
    let copy = leader.clone();
    bench.store.resign(leader).await.unwrap();
    assert_eq!(bench.store.holding(&name("drain")).await.unwrap(), None);
    assert_eq!(refused(&bench.store, &copy).await, None);
    let next = win(&bench.store, "drain", "b").await;
    bench.store.resign(copy).await.unwrap();
    bench
        .store
        .commit(&fenced_put(&next, &host("a"), 1))
        .await
        .unwrap();
}

pub async fn a_broken_leadership_ends_at_once_and_only_that_generation(bench: &Bench) {
    let store = &bench.store;
    let ghost = win(store, "drain", "a").await;
    assert!(
        store
            .break_leadership(ghost.name(), ghost.generation())
            .await
            .unwrap()
    );
    assert_eq!(refused(store, &ghost).await, None);
    let next = win(store, "drain", "b").await;
    assert!(
        !store
            .break_leadership(ghost.name(), ghost.generation())
            .await
            .unwrap()
    );
    store
        .commit(&fenced_put(&next, &host("a"), 1))
        .await
        .unwrap();
    let mut ghost = ghost;
    let renewed = store.renew(&mut ghost).await.unwrap_err();
    assert!(
        matches!(renewed, StoreError::Fenced { by: Some(_), .. }),
        "{renewed}"
    );
}

pub async fn a_holder_that_was_started_again_does_not_take_its_own_lease(bench: &Bench) {
    let ghost = win(&bench.store, "drain", "a").await;
    assert_eq!(
        held(&bench.store, "drain", "a").await.generation,
        ghost.generation()
    );
}

pub async fn the_same_holder_with_a_newer_generation_fences_its_earlier_self(bench: &Bench) {
    let earlier = win(&bench.store, "drain", "a").await;
    bench
        .store
        .break_leadership(earlier.name(), earlier.generation())
        .await
        .unwrap();
    let later = win(&bench.store, "drain", "a").await;
    let by = Some((later.generation().0, "a".to_owned()));
    assert_eq!(refused(&bench.store, &earlier).await, by);
}

pub async fn names_are_led_independently(bench: &Bench) {
    let one = win(&bench.store, "drain", "a").await;
    let other = win(&bench.store, "update", "b").await;
    bench
        .store
        .commit(&fenced_put(&one, &host("a"), 1))
        .await
        .unwrap();
    bench
        .store
        .commit(&fenced_put(&other, &host("b"), 1))
        .await
        .unwrap();
    bench.store.resign(one).await.unwrap();
    bench
        .store
        .commit(&fenced_put(&other, &host("b"), 2))
        .await
        .unwrap();
}

pub async fn leases_of_no_sensible_length_are_refused(bench: &Bench) {
    for ttl in [
        Duration::ZERO,
        Duration::from_secs(1),
        Duration::from_millis(2500),
        limits::LEASE_MOST + Duration::from_secs(1),
    ] {
        let refused = bench.store.campaign(&name("drain"), &name("a"), ttl).await;
        let is_invalid = matches!(refused, Err(StoreError::Invalid(Invalid::Lease { .. })));
        assert!(is_invalid, "{ttl:?}: {refused:?}");
    }
}

pub async fn the_time_that_is_surely_left_is_never_longer_than_the_lease(bench: &Bench) {
    let now = || match &bench.clock {
        Some(clock) => clock.now(),
        None => HostClock::new().unwrap().now(),
    };
    let mut leader = win(&bench.store, "drain", "a").await;
    bench.store.renew(&mut leader).await.unwrap();
    let left = leader.surely_left(now());
    assert!(!left.is_zero() && left <= TTL, "{left:?}");
    let later = Moment {
        up: now().up + TTL,
        ..now()
    };
    assert_eq!(leader.surely_left(later), Duration::ZERO);
    let after_restart = Moment {
        boot: uuid::Uuid::max(),
        ..now()
    };
    assert_eq!(leader.surely_left(after_restart), Duration::ZERO);
}
