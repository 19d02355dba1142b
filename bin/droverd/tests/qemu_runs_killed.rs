//! A coordinator that is killed right after an entry of its journal, at one entry after the other: started again it
//! brings the run to its end; with a real etcd another one does.
//!
//! `DROVER_KILLS=100` makes a hundred of each; some without.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::path::PathBuf;

use drover_api::{MoveState, RunRequest, RunResult, RunView};
use drover_plan::Request;
use drover_store::{Embedded, Etcd, HostClock, Journal, Key, Kind, Members, Name, Store};
use drover_types::{HostName, RunId};
use hosts::third::Three;
use hosts::{A, B, FAST, Hosts, PATIENCE, etcd, peer, until};

/// Entries of a run with one move: 1 begun, 2 cordon or uncordon, 3 its moves, 4 its hosts, 5 planned, 6 ordered,
/// 7 ended, 8 round ended, 9 finished; those first after which most can go wrong.
const ENTRIES: [u64; 9] = [6, 1, 7, 9, 2, 8, 5, 3, 4];

/// Kills where nothing else is said, there and back.
const KILLS: u64 = 4;

/// The same with etcd, where a lease has to lapse each time.
const KILLS_WITH_ETCD: u64 = 2;

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
            with_disks: false,
        });
    }
    RunRequest {
        fail_back: true,
        ..RunRequest::of(Request::Resume {
            host,
            homes: Vec::new(),
            avoid: [].into(),
            with_disks: false,
        })
    }
}

/// The run that is under way, after that of before, as the store has it.
async fn under_way(store: &Store, before: Option<RunId>) -> RunId {
    let key = Key::new(Kind::Run, "under-way".parse::<Name>().unwrap());
    until(PATIENCE, async || {
        let found = store.get(&key).await.map_err(|error| error.to_string())?;
        let document = found.ok_or_else(|| "no run is under way".to_owned())?;
        let value: serde_json::Value = document.read().unwrap();
        let run: RunId = value["run"].as_str().unwrap().parse().unwrap();
        if before == Some(run) {
            return Err(format!("{run} is under way still"));
        }
        Ok(run)
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

fn kills(otherwise: u64) -> u64 {
    std::env::var("DROVER_KILLS").map_or(otherwise, |text| text.parse().unwrap())
}

/// The entry of the run after which the coordinator is killed that time.
fn entry(kill: u64) -> u64 {
    let all = ENTRIES.len() as u64;
    ENTRIES[usize::try_from(kill % all).unwrap()]
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
    // Asked for runs, the agent makes it.
    assert_eq!(hosts.client(A).runs().await.unwrap(), []);
    let state = std::fs::read_dir(hosts.host(A).state()).unwrap();
    let mut files = state.map(|entry| entry.unwrap().path());
    let database = |file: &PathBuf| file.extension() == Some("db".as_ref());
    let file = files.find(database).unwrap();
    let store = Embedded::open(&file, HostClock::new().unwrap()).await;
    let store = Store::from(store.unwrap());
    let mut before = None;
    let kills = kills(KILLS);
    for kill in 0..kills {
        let to = if kill % 2 == 0 { B } else { A };
        let number = entry(kill);
        hosts.listen_on(to);
        let (client, asked) = (hosts.client(A).clone(), request(&hosts, to));
        // Whoever began it may not hear of it any more.
        let begun = tokio::spawn(async move { client.start_run(&asked).await });
        let id = under_way(&store, before).await;
        before = Some(id);
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
        let journal = Journal::new(Name::from(id));
        let last = store.entries(&journal, ENTRIES.len() as u64, 1).await;
        assert_eq!(last.unwrap().entries.len(), 1, "there are fewer entries");
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
            before = Some(view.id);
        }
        hosts.guest_runs_only_on(to).await;
        println!(
            "{} of {kills}: killed after entry {number}, completed",
            kill + 1
        );
    }
}

/// The run that begins now, once that entry of it is in etcd, which only the hosts reach.
async fn written_in_etcd(hosts: &Hosts, before: Option<RunId>, number: u64) -> RunId {
    let authority = peer::armed(&hosts.host(A)).authority;
    let members = Members::new(&etcd::addresses(hosts), None).unwrap();
    let cluster = authority.to_string().parse().unwrap();
    peer::on(&hosts.host(A), move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let store = Store::from(Etcd::new(members, &cluster, HostClock::new().unwrap()));
            let run = under_way(&store, before).await;
            written(&store, run, number).await;
            run
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_killed_after_any_entry_is_followed_by_one_that_ends_its_run() {
    let Some(mut three) = Three::new("anyfollow", FAST).await else {
        return;
    };
    let mut before = None;
    let kills = kills(KILLS_WITH_ETCD);
    for kill in 0..kills {
        let to = if kill % 2 == 0 { B } else { A };
        let number = entry(kill);
        three.hosts.listen_on(to);
        let (client, asked) = (three.third.client().clone(), request(&three.hosts, to));
        // Whoever began it may not hear of it any more.
        let begun = tokio::spawn(async move { client.start_run(&asked).await });
        let id = written_in_etcd(&three.hosts, before, number).await;
        before = Some(id);
        three.third.kill().await;
        drop(begun);
        let view = ended(&three.hosts, id).await;
        assert_eq!(
            view.result,
            Some(RunResult::Completed),
            "killed at {number}: {view:#?}"
        );
        let states: Vec<_> = view.moves.iter().map(|step| step.state).collect();
        assert_eq!(states, [MoveState::Moved], "killed at {number}: {view:#?}");
        three.hosts.guest_runs_only_on(to).await;
        three.third.start(&three.hosts).await;
        println!(
            "{} of {kills}: killed after entry {number}, completed",
            kill + 1
        );
    }
}
