//! What both back ends promise, as functions that run on either. `suite!` makes a test of each.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; each program of tests uses some of them"
)]

pub mod documents;
pub mod journals;
pub mod leaderships;
pub mod model;
pub mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drover_store::{
    Campaign, Clock, Document, Expect, Key, Kind, Leadership, Moment, Name, Revision, Scope, Store,
    Transaction, Value,
};
use tokio::time::{sleep, timeout};

/// Nothing in these tests takes longer unless it hangs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The shortest lease.
pub const TTL: Duration = Duration::from_secs(2);

/// A clock that only the test moves.
#[derive(Debug, Default)]
pub struct TestClock {
    milliseconds: AtomicU64,
    starts: AtomicU64,
}

impl TestClock {
    pub fn pass(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap();
        self.milliseconds.fetch_add(milliseconds, Ordering::SeqCst);
    }

    /// The host starts again.
    pub fn restart(&self) {
        self.starts.fetch_add(1, Ordering::SeqCst);
        self.milliseconds.store(0, Ordering::SeqCst);
    }
}

/// The same clock for several stores.
#[derive(Debug, Clone, Default)]
pub struct SharedClock(pub Arc<TestClock>);

impl Clock for SharedClock {
    fn now(&self) -> Moment {
        Moment {
            boot: uuid::Uuid::from_u128(u128::from(self.0.starts.load(Ordering::SeqCst))),
            up: Duration::from_millis(self.0.milliseconds.load(Ordering::SeqCst)),
        }
    }
}

/// A store to be tested, and how time passes for it.
pub struct Bench {
    pub store: Store,
    /// None where leases run by the store's own clock.
    pub clock: Option<SharedClock>,
    /// What the store lives on, dropped after it.
    pub ground: Box<dyn std::any::Any + Send>,
}

impl Bench {
    /// Waits until nobody renewed this lease for its length.
    pub async fn lapse(&self, leadership: &Leadership) {
        if let Some(clock) = &self.clock {
            clock.0.pass(TTL);
        }
        until("the lease has lapsed", async || {
            let holding = self.store.holding(leadership.name()).await.unwrap();
            holding.is_none_or(|holding| holding.generation != leadership.generation())
        })
        .await;
    }
}

/// Asks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "it never came that {what}");
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub fn host(text: &str) -> Key {
    Key::new(Kind::Host, name(text))
}

pub fn vm(text: &str) -> Key {
    Key::new(Kind::Vm, name(text))
}

pub fn value(number: u64) -> Value {
    Value::of(&number).unwrap()
}

pub fn number(document: &Document) -> u64 {
    document.read().unwrap()
}

pub async fn put(store: &Store, key: &Key, what: u64) -> Revision {
    store.put(key, value(what), Expect::Anything).await.unwrap()
}

pub async fn win(store: &Store, what: &str, holder: &str) -> Leadership {
    match store
        .campaign(&name(what), &name(holder), TTL)
        .await
        .unwrap()
    {
        Campaign::Won(leadership) => leadership,
        Campaign::Held(holding) => panic!("{what} is held by {}", holding.holder),
    }
}

pub async fn now(store: &Store) -> Revision {
    store
        .list(&Scope::kind(Kind::Host), None, 1)
        .await
        .unwrap()
        .at
}

pub fn fenced_put(leadership: &Leadership, key: &Key, what: u64) -> Transaction {
    Transaction::new()
        .fenced_by(leadership)
        .put(key.clone(), value(what), Expect::Anything)
}

/// Makes a test of each function of the suite: `$bench` gives a fresh store, or none when the
/// machine lacks what it needs, and has said so.
#[macro_export]
macro_rules! suite {
    ($bench:ident: $($part:ident { $($test:ident),* $(,)? })*) => {$(
        mod $part {
            $(#[tokio::test]
            async fn $test() {
                if let Some(bench) = super::$bench().await {
                    super::suite::$part::$test(&bench).await;
                }
            })*
        }
    )*};
}

/// The whole suite.
#[macro_export]
macro_rules! whole_suite {
    ($bench:ident) => {
        $crate::suite!($bench:
            documents {
                what_is_put_is_read_back_until_it_is_deleted,
                a_write_that_expects_another_revision_is_a_conflict_with_the_one_found,
                a_transaction_is_done_whole_or_not_at_all,
                pages_in_the_order_of_keys_give_every_document_once,
                a_page_of_the_largest_documents_ends_early_and_the_next_goes_on,
                a_scope_has_only_what_begins_like_it,
                many_tasks_count_one_document_up_and_none_is_lost,
                what_goes_beyond_a_limit_is_refused_before_anybody_is_asked,
                the_largest_transaction_is_done,
                text_with_odd_characters_comes_back_as_it_was,
            }
            journals {
                entries_are_read_back_from_any_number_on,
                an_entry_that_is_appended_twice_is_a_conflict_and_stands_there_once,
                an_entry_cannot_leave_a_gap,
                a_step_and_what_it_changes_are_written_at_once,
                a_full_journal_says_so_until_it_is_pruned,
                pruning_keeps_the_last_entry_so_that_the_next_one_follows_it,
                a_removed_journal_begins_anew,
            }
            leaderships {
                one_of_many_wins_and_the_others_are_told_who,
                a_held_name_is_shown_with_holder_and_time_left,
                a_holder_that_misses_its_renewals_is_shown_as_silent,
                a_later_leadership_has_a_larger_generation,
                the_writes_of_a_superseded_holder_are_refused_and_name_the_newer_one,
                a_holder_whose_lease_lapsed_cannot_write_though_nobody_followed,
                a_holder_that_renews_keeps_its_name,
                a_resigned_name_can_be_won_at_once,
                a_broken_leadership_ends_at_once_and_only_that_generation,
                a_holder_that_was_started_again_does_not_take_its_own_lease,
                the_same_holder_with_a_newer_generation_fences_its_earlier_self,
                names_are_led_independently,
                leases_of_no_sensible_length_are_refused,
                the_time_that_is_surely_left_is_never_longer_than_the_lease,
            }
            watches {
                changes_come_in_order_each_once,
                what_one_transaction_changed_comes_together,
                a_watch_begins_after_its_revision,
                a_list_and_a_watch_from_its_revision_give_every_state,
                a_watch_that_waits_is_woken_by_a_change,
                a_watch_that_is_dropped_while_it_waits_and_called_again_loses_nothing,
                a_slow_reader_gets_everything,
                a_deleted_document_is_a_change_without_a_value,
                a_journal_can_be_watched,
            }
        );
    };
}
