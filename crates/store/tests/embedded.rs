//! The suite on the embedded store, its leases in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod suite;

use drover_store::{Embedded, Store};
use proptest::test_runner::{Config, TestRunner};
use suite::{Bench, SharedClock};

async fn embedded() -> Option<Bench> {
    let folder = tempfile::tempdir().unwrap();
    let clock = SharedClock::default();
    let store = Embedded::open(&folder.path().join("store.db"), clock.clone()).await;
    Some(Bench {
        store: Store::from(store.unwrap()),
        clock: Some(clock),
        ground: Box::new(folder),
    })
}

whole_suite!(embedded);

#[test]
fn random_operations_agree_with_a_model() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config::with_cases(150));
    let run = |steps| {
        runtime.block_on(async {
            let bench = embedded().await.unwrap();
            suite::model::agrees_with_the_model(&bench, steps).await;
        });
        Ok(())
    };
    runner.run(&suite::model::steps(60, true), run).unwrap();
}
