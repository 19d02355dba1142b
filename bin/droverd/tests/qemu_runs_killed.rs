//! A coordinator that is killed right after an entry of its journal, at one entry after the other: started again it
//! brings the run to its end.
//!
//! `DROVER_KILLS=100` makes a hundred of it; some without.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{MoveState, RunRequest, RunResult, RunView};
use drover_plan::Request;
use drover_store::{Embedded, HostClock, Journal, Key, Kind, Name, Store};
use drover_types::{HostName, RunId};
use hosts::{A, B, FAST, Hosts, PATIENCE, until};

/// Entries of a run with one move: begun, cordon or uncordon, planned, ordered, ended, round ended, finished.
const ENTRIES: u64 = 7;

/// Kills where nothing else is said: every second entry, there and back.
const KILLS: u64 = 4;

fn name(hosts: &Hosts, host: usize) -> HostName {
    hosts.host(host).name.parse().unwrap()
}

/// Has the guest leave the first host, or come home.
fn request(hosts: &Hosts, to: usize) -> RunRequest {
    let host = name(hosts, A);
    if to == B {
        return RunRequest::of(Request::Drain {
            hosts: [host].into(),
            avoid: [].into(),
        });
    }
    RunRequest {
        fail_back: true,
        ..RunRequest::of(Request::Resume {
            host,
            homes: Vec::new(),
            avoid: [].into(),
        })
    }
}

/// The run that is under way, as the coordinator's file has it.
async fn under_way(store: &Store) -> RunId {
    let key = Key::new(Kind::Run, "under-way".parse::<Name>().unwrap());
    until(PATIENCE, async || {
        let found = store.get(&key).await.map_err(|error| error.to_string())?;
        let document = found.ok_or_else(|| "no run is under way".to_owned())?;
        let value: serde_json::Value = document.read().unwrap();
        Ok::<RunId, String>(value["run"].as_str().unwrap().parse().unwrap())
    })
    .await
}

/// Waits until that entry is written, or the run has ended without it.
async fn written(store: &Store, run: RunId, number: u64) {
    let (journal, key) = (
        Journal::new(Name::from(run)),
        Key::new(Kind::Run, "under-way".parse::<Name>().unwrap()),
    );
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let page = store.entries(&journal, number, 1).await.unwrap();
        if !page.entries.is_empty() || store.get(&key).await.unwrap().is_none() {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "entry {number} is not written"
        );
    }
}

async fn ended(hosts: &Hosts, id: RunId) -> RunView {
    until(PATIENCE * 2, async || {
        let view = hosts.client(A).run(id).await;
        let view = view.map_err(|error| error.to_string())?;
        if view.phase.has_ended() {
            Ok(view)
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_killed_after_any_entry_brings_its_run_to_its_end() {
    let Some(mut hosts) = Hosts::new("anyentry", FAST).await else {
        return;
    };
    for host in [A, B] {
        hosts.configure(host, |config| {
            let changes = "policy.keep = { losses = 0, of = \"host\" }";
            config.extend(toml::from_str::<toml::Table>(changes).unwrap());
            let migration = config["migration"].as_table_mut().unwrap();
            migration.insert("outage_limit_s".into(), 30.into());
        });
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    let file = hosts.host(A).state().join("cluster.db");
    let store = Embedded::open(&file, HostClock::new().unwrap()).await;
    let store = Store::from(store.unwrap());
    let kills = std::env::var("DROVER_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    for kill in 0..kills {
        let to = if kill % 2 == 0 { B } else { A };
        let number = 1 + kill * 2 % ENTRIES;
        hosts.listen_on(to);
        let (client, asked) = (hosts.client(A).clone(), request(&hosts, to));
        // Whoever began it may not hear of it any more.
        let begun = tokio::spawn(async move { client.start_run(&asked).await });
        let id = under_way(&store).await;
        written(&store, id, number).await;
        hosts.kill_agent(A).await;
        drop(begun);
        hosts.start_agent(A).await;
        let view = ended(&hosts, id).await;
        assert_eq!(
            view.result,
            Some(RunResult::Completed),
            "killed at {number}: {view:#?}"
        );
        if !view.moves.iter().any(|step| step.state == MoveState::Moved) {
            // The agent that was killed is the destination's as well: a guest that could not come meanwhile is
            // named, and comes when it is asked for again.
            assert!(
                to == A && view.cause.is_some(),
                "killed at {number}: {view:#?}"
            );
            hosts.guest_runs_only_on(B).await;
            hosts.listen_on(A);
            let again = hosts.client(A).start_run(&request(&hosts, A)).await;
            let view = ended(&hosts, again.unwrap().id).await;
            assert_eq!(view.result, Some(RunResult::Completed), "{view:#?}");
        }
        hosts.guest_runs_only_on(to).await;
        println!(
            "{} of {kills}: killed after entry {number}, completed",
            kill + 1
        );
    }
}
