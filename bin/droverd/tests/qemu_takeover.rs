//! Three agents that may coordinate, with a real etcd: the one that leads is killed, stands still, is cut off or
//! may no longer, etcd has no quorum.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{
    CancelRunRequest, Client, CoordinatorRequest, ErrorCode, MoveState, RunRequest, RunResult,
    RunView, RunningMoves,
};
use drover_plan::Request;
use drover_types::{HostName, RunId};
use hosts::etcd;
use hosts::third::Three;
use hosts::{A, B, Hosts, PATIENCE, SLOWER, Signal, refused, until};

fn name(hosts: &Hosts, host: usize) -> HostName {
    hosts.host(host).name.parse().unwrap()
}

fn drain(hosts: &Hosts) -> RunRequest {
    RunRequest::of(Request::Drain {
        hosts: [name(hosts, A)].into(),
        avoid: [].into(),
        with_disks: false,
    })
}

async fn when(client: &Client, id: RunId, accept: impl Fn(&RunView) -> bool) -> RunView {
    until(PATIENCE * 2, async || {
        let view = client.run(id).await;
        let view = view.map_err(|error| error.to_string())?;
        if accept(&view) {
            Ok(view)
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await
}

fn carries(view: &RunView) -> bool {
    let mut moves = view.moves.iter();
    moves.any(|step| step.live.is_some_and(|live| live.transferred.0 > 0))
}

fn has_ended(view: &RunView) -> bool {
    view.phase.has_ended()
}

fn states(view: &RunView) -> Vec<MoveState> {
    view.moves.iter().map(|step| step.state).collect()
}

impl Three {
    /// Has the third host begin to drain the first; the run once it carries, as the second one is told.
    async fn drain_midway(&mut self) -> RunView {
        self.hosts.listen_on(B);
        let begun = self.third.client().start_run(&drain(&self.hosts)).await;
        let view = when(self.hosts.client(B), begun.unwrap().id, carries).await;
        assert_eq!(view.coordinator.as_str(), "c");
        view
    }

    async fn is_drained(&self, before: &RunView, view: &RunView) {
        assert_eq!(view.result, Some(RunResult::Completed), "{view:#?}");
        assert_eq!(states(view), [MoveState::Moved]);
        assert_eq!(
            view.moves[0].migration, before.moves[0].migration,
            "the same one"
        );
        self.hosts.guest_runs_only_on(B).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_killed_in_the_middle_of_a_drain_is_followed_by_another() {
    let Some(mut three) = Three::new("follow", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    three.third.kill().await;
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    assert_ne!(view.coordinator.as_str(), "c", "{view:#?}");
    three.is_drained(&before, &view).await;
    // Who is back finds it ended, and can begin the next one.
    three.third.start(&three.hosts).await;
    let again = three.third.client().run(before.id).await.unwrap();
    assert_eq!(again.result, Some(RunResult::Completed));
    // Whoever led the last one may not have let go when the next is asked for.
    let clients = [A, B].map(|host| three.hosts.client(host));
    for client in [three.third.client()].into_iter().chain(clients) {
        let next = client.start_run(&drain(&three.hosts)).await.unwrap();
        let next = when(client, next.id, has_ended).await;
        assert_eq!(
            (next.result, next.moves.len()),
            (Some(RunResult::Completed), 0)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_stood_still_does_no_harm_once_it_goes_on() {
    let Some(mut three) = Three::new("stood", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    three.third.agent().signal(Signal::STOP);
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    assert_ne!(view.coordinator.as_str(), "c", "{view:#?}");
    three.is_drained(&before, &view).await;

    three.hosts.listen_on(A);
    let home = RunRequest {
        fail_back: true,
        ..RunRequest::of(Request::Resume {
            host: name(&three.hosts, A),
            homes: Vec::new(),
            avoid: [].into(),
            with_disks: false,
        })
    };
    let id = three.hosts.client(B).start_run(&home).await.unwrap().id;
    when(three.hosts.client(B), id, carries).await;
    three.third.agent().signal(Signal::CONT);
    let home = when(three.hosts.client(B), id, has_ended).await;
    assert_eq!(home.result, Some(RunResult::Completed), "{home:#?}");
    three.hosts.guest_runs_only_on(A).await;
    let runs = until(PATIENCE, async || three.third.client().runs().await).await;
    let results: Vec<_> = runs.iter().map(|run| (run.id, run.result)).collect();
    let completed = Some(RunResult::Completed);
    assert_eq!(results, [(id, completed), (before.id, completed)]);
    assert!(three.hosts.client(A).host().await.unwrap().cordon.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_revoked_in_the_middle_of_a_drain_lets_go_of_it_to_another() {
    let Some(mut three) = Three::new("revoked", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    let no_longer = CoordinatorRequest { coordinates: false };
    let office = three.hosts.client(A);
    // The authority's own host coordinates as long as it is that.
    let (own, third) = (name(&three.hosts, A), before.coordinator.clone());
    let asked = office.cluster_coordinator(&own, &no_longer).await;
    assert_eq!(refused(asked).0, ErrorCode::SameHost);
    let asked = office.cluster_coordinator(&third, &no_longer).await;
    asked.unwrap();
    let view = when(three.hosts.client(B), before.id, |view| {
        view.coordinator.as_str() != "c"
    })
    .await;
    assert_eq!(
        view.result, None,
        "taken over before its lease has lapsed: {view:#?}"
    );
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    three.is_drained(&before, &view).await;
    let (code, _) = refused(three.third.client().runs().await);
    assert_eq!(code, ErrorCode::NotTheCoordinator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_cut_off_from_etcd_is_followed_and_does_no_harm_when_it_is_back() {
    let Some(mut three) = Three::new("cutoff", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    etcd::cut_off_third(&three.hosts).await;
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    assert_ne!(view.coordinator.as_str(), "c", "{view:#?}");
    three.is_drained(&before, &view).await;
    etcd::let_third_back(&three.hosts).await;
    let seen = when(three.third.client(), before.id, has_ended).await;
    assert_eq!(seen.coordinator, view.coordinator);
    three.is_drained(&before, &seen).await;
    let next = three.third.client().start_run(&drain(&three.hosts)).await;
    let next = when(three.third.client(), next.unwrap().id, has_ended).await;
    assert_eq!(next.result, Some(RunResult::Completed), "{next:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_coordinator_whichever_host_is_asked() {
    let Some(mut three) = Three::new("stopall", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    let (code, words) = refused(three.hosts.client(B).start_run(&drain(&three.hosts)).await);
    assert_eq!(code, ErrorCode::RunUnderWay);
    assert!(words.contains("carried out by c"), "{words}");
    let how = CancelRunRequest {
        running: RunningMoves::Cancel,
        uncordon: true,
        by: None,
    };
    three
        .hosts
        .client(B)
        .cancel_run(before.id, &how)
        .await
        .unwrap();
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    assert_eq!(view.result, Some(RunResult::Cancelled), "{view:#?}");
    assert_eq!(states(&view), [MoveState::Cancelled]);
    three.hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_begins_what_moves_arrives_and_the_run_goes_on_afterwards() {
    let Some(mut three) = Three::new("quorum", SLOWER).await else {
        return;
    };
    let before = three.drain_midway().await;
    for member in [1, 2] {
        three.etcd.kill(member).await;
    }
    let (code, _) = refused(three.hosts.client(B).start_run(&drain(&three.hosts)).await);
    assert_eq!(code, ErrorCode::StoreUnavailable);
    three.hosts.guest_runs_only_on(B).await;
    let view = three.third.client().run(before.id).await.unwrap();
    assert_eq!(
        view.result, None,
        "nothing could be written down: {view:#?}"
    );
    for member in [1, 2] {
        three.etcd.run(&three.hosts, member);
    }
    let view = when(three.hosts.client(B), before.id, has_ended).await;
    three.is_drained(&before, &view).await;
}
