//! Runs of two real hosts: emptied, taken back, ended, and taken up by an agent that was killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{
    CancelRunRequest, ClientError, CordonRequest, ErrorCode, MoveState, RunPhase, RunRequest,
    RunResult, RunView, RunningMoves,
};
use drover_lab::settings::GuestSettings;
use drover_types::RunId;
use hosts::runs::{self, drain, ended, host, two_that_may_lose_one, when, with_policy};
use hosts::{A, B, FAST, Hosts, SLOWER, qemu, refused, small_guest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Two hosts, of which one may be lost: of two, none is left when one is drained. The first has the
/// authority's key, and so it coordinates.
async fn two_hosts(test: &str, rates: &str) -> Option<Hosts> {
    let mut hosts = two_that_may_lose_one(test, rates).await?;
    hosts.boot().await;
    Some(hosts)
}

/// With the guests that come home.
fn resume(hosts: &Hosts, number: usize) -> RunRequest {
    RunRequest {
        fail_back: true,
        ..runs::resume(hosts, number)
    }
}

/// Begins a run that moves the guest to the other host.
async fn begin(hosts: &mut Hosts, to: usize, request: RunRequest) -> RunId {
    hosts.listen_on(to);
    let view = hosts.client(A).start_run(&request).await.unwrap();
    assert_eq!(view.coordinator, host(hosts, A));
    view.id
}

async fn is_cordoned(hosts: &Hosts, host: usize) -> bool {
    hosts.client(host).host().await.unwrap().cordon.is_some()
}

/// Holds these lines against what a host's agent has for Prometheus.
async fn scrape_tells(hosts: &Hosts, host: usize, lines: &[&str]) {
    let socket = hosts.host(host).api_socket();
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    for wanted in lines {
        assert!(
            answer.lines().any(|line| line == *wanted),
            "{wanted}\n{answer}"
        );
    }
}

fn states(view: &RunView) -> Vec<MoveState> {
    view.moves.iter().map(|step| step.state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_emptied_and_its_guest_comes_home() {
    let Some(mut hosts) = two_hosts("run", FAST).await else {
        return;
    };
    let request = drain(&hosts, A);
    let id = begin(&mut hosts, B, request).await;
    scrape_tells(&hosts, A, &["drover_run_under_way 1"]).await;
    let drained = ended(&hosts, id).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    let counted = [
        r#"drover_runs_total{kind="drain",result="completed"} 1"#,
        r#"drover_run_guests_total{outcome="moved"} 1"#,
        r#"drover_run_phase_seconds{kind="drain",phase="stopping"} 0.0"#,
        "drover_run_under_way 0",
    ];
    scrape_tells(&hosts, A, &counted).await;
    let elsewhere = r#"drover_runs_total{kind="drain",result="completed"} 0"#;
    scrape_tells(&hosts, B, &[elsewhere]).await;
    assert_eq!(states(&drained), [MoveState::Moved]);
    assert!(drained.plan.is_some() && drained.expected.is_some());
    assert_eq!(drained.cordoned, [host(&hosts, A)]);
    assert!(is_cordoned(&hosts, A).await);
    hosts.guest_runs_only_on(B).await;

    // What was left behind is known after the agent was started again.
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let again = hosts.client(A).run(id).await.unwrap();
    assert_eq!((again.moves, again.result), (drained.moves, drained.result));

    let request = resume(&hosts, A);
    let id = begin(&mut hosts, A, request).await;
    let resumed = ended(&hosts, id).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(states(&resumed), [MoveState::Moved]);
    assert!(!is_cordoned(&hosts, A).await);
    let counted_since_its_start = [
        r#"drover_runs_total{kind="drain",result="completed"} 0"#,
        r#"drover_runs_total{kind="resume",result="completed"} 1"#,
        r#"drover_run_guests_total{outcome="moved"} 1"#,
    ];
    scrape_tells(&hosts, A, &counted_since_its_start).await;
    hosts.guest_runs_only_on(A).await;
    hosts.guest_is_whole().await;
    let newest = hosts.client(A).newest_run().await.unwrap();
    let runs = hosts.client(A).runs().await.unwrap();
    assert_eq!(newest.unwrap().id, runs[0].id);
    assert_eq!(
        runs.iter().map(|run| run.id).collect::<Vec<_>>(),
        [id, again.id]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_in_the_middle_of_its_run_goes_on_with_it() {
    let Some(mut hosts) = two_hosts("runkill", SLOWER).await else {
        return;
    };
    let request = drain(&hosts, A);
    let id = begin(&mut hosts, B, request).await;
    let carries = |view: &RunView| {
        let mut moves = view.moves.iter();
        moves.any(|step| step.live.is_some_and(|live| live.transferred.0 > 0))
    };
    let before = when(&hosts, id, carries).await;
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let drained = ended(&hosts, id).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(states(&drained), [MoveState::Moved]);
    assert_eq!(
        drained.moves[0].migration, before.moves[0].migration,
        "the same one"
    );
    hosts.guest_runs_only_on(B).await;
    hosts.guest_is_whole().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_calls_back_what_runs_and_takes_back_the_cordon() {
    let Some(mut hosts) = two_hosts("runcancel", SLOWER).await else {
        return;
    };
    let request = drain(&hosts, A);
    let id = begin(&mut hosts, B, request).await;
    when(&hosts, id, |view| states(view).contains(&MoveState::Moving)).await;
    let second = hosts.client(A).start_run(&drain(&hosts, B)).await;
    let (code, words) = refused(second);
    assert_eq!(code, ErrorCode::RunUnderWay);
    assert!(words.contains(&id.to_string()), "{words}");

    let how = CancelRunRequest {
        running: RunningMoves::Cancel,
        uncordon: true,
        by: None,
    };
    hosts.client(A).cancel_run(id, &how).await.unwrap();
    let cancelled = ended(&hosts, id).await;
    assert_eq!(
        cancelled.result,
        Some(RunResult::Cancelled),
        "{cancelled:#?}"
    );
    assert_eq!(states(&cancelled), [MoveState::Cancelled]);
    assert!(!is_cordoned(&hosts, A).await);
    hosts.guest_runs_only_on(A).await;
    let (code, _) = refused(hosts.client(A).cancel_run(id, &how).await);
    assert_eq!(code, ErrorCode::RunEnded);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_plan_nothing_moves_and_the_cordon_is_taken_back() {
    let Some(hosts) = two_hosts("runless", FAST).await else {
        return;
    };
    let (code, words) = refused(hosts.client(B).start_run(&drain(&hosts, A)).await);
    assert_eq!(code, ErrorCode::NotTheCoordinator);
    assert!(words.contains(host(&hosts, A).as_str()), "{words}");

    // Before any host is told anything.
    let hosts_of_it = [host(&hosts, A), "nowhere".parse().unwrap()];
    let nowhere = RunRequest {
        request: drover_plan::Request::Drain {
            hosts: hosts_of_it.into(),
            avoid: Default::default(),
            with_disks: false,
        },
        ..drain(&hosts, A)
    };
    let (code, words) = refused(hosts.client(A).start_run(&nowhere).await);
    assert_eq!(code, ErrorCode::NoSuchHost, "{words}");
    assert!(!is_cordoned(&hosts, A).await);

    let reason = Some("new memory".to_owned());
    hosts
        .client(B)
        .cordon(&CordonRequest { reason })
        .await
        .unwrap();
    let view = hosts.client(A).start_run(&drain(&hosts, A)).await.unwrap();
    let none = ended(&hosts, view.id).await;
    assert_eq!(none.result, Some(RunResult::Refused), "{none:#?}");
    let cause = none.cause.as_deref().unwrap_or_default();
    assert!(cause.contains("is cordoned"), "{none:#?}");
    // All that a dry run tells, and what to do next.
    let asked = drover_api::PlanRequest {
        request: drain(&hosts, A).request,
    };
    let planned = hosts.client(A).plan(&asked).await;
    let Err(ClientError::Refused(refusal)) = planned else {
        panic!("{planned:?}");
    };
    let all = refusal.message.lines().chain(refusal.next.as_deref());
    for line in all {
        assert!(cause.contains(line.trim_end()), "{line}\n{none:#?}");
    }
    assert_eq!(refusal.details.unwrap()["refusal"], "no-host-left");
    assert!(!is_cordoned(&hosts, A).await && is_cordoned(&hosts, B).await);
    assert_eq!(none.phase, RunPhase::Ended);
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_was_given_is_carried_out_as_it_is_or_not_at_all() {
    let Some(mut hosts) = two_hosts("runplan", FAST).await else {
        return;
    };
    let wanted = drain(&hosts, A);
    let asked = drover_api::PlanRequest {
        request: wanted.request.clone(),
    };
    let plan = hosts.client(A).plan(&asked).await.unwrap().plan;
    let mut edited = plan.clone();
    edited.steps.clear();
    let with = |plan| RunRequest {
        plan: Some(plan),
        ..wanted.clone()
    };
    let (code, words) = refused(hosts.client(A).start_run(&with(edited)).await);
    assert_eq!(code, ErrorCode::PlanOutdated, "{words}");

    hosts
        .client(B)
        .cordon(&CordonRequest::default())
        .await
        .unwrap();
    let view = hosts
        .client(A)
        .start_run(&with(plan.clone()))
        .await
        .unwrap();
    let outdated = ended(&hosts, view.id).await;
    assert_eq!(outdated.result, Some(RunResult::Refused), "{outdated:#?}");
    let cause = outdated.cause.as_deref().unwrap_or_default();
    assert!(cause.contains("no longer as it was"), "{outdated:#?}");
    hosts.client(B).uncordon().await.unwrap();
    assert!(!is_cordoned(&hosts, A).await);

    let id = begin(&mut hosts, B, with(plan.clone())).await;
    let drained = ended(&hosts, id).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(drained.plan.map(|plan| plan.seal), Some(plan.seal));
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_removed_while_a_guest_moves_there_leaves_it_where_it_was() {
    let Some(hosts) = two_hosts("runremove", SLOWER).await else {
        return;
    };
    let request = drain(&hosts, A);
    let id = hosts.client(A).start_run(&request).await.unwrap().id;
    let carries = |view: &RunView| {
        let mut moves = view.moves.iter();
        moves.any(|step| step.live.is_some_and(|live| live.transferred.0 > 0))
    };
    when(&hosts, id, carries).await;
    let gone = host(&hosts, B);
    hosts.client(A).cluster_remove(&gone).await.unwrap();
    let view = ended(&hosts, id).await;
    assert_eq!(view.result, Some(RunResult::Partial), "{view:#?}");
    assert_eq!(states(&view), [MoveState::Failed]);
    let cause = view.cause.unwrap();
    assert!(cause.contains("guest ("), "{cause}");
    // It has no place any more, and is not stopped for that.
    hosts.guest_runs_only_on(A).await;
}

/// Rates at which a guest takes some twenty seconds: longer than members are not asked anew. One that writes would not
/// come to its end at them before it was slowed down by nine tenths.
const SLOWEST: &str = "25mbit,25mbit";

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_pinned_while_another_one_moves_stays() {
    let Some(qemu) = qemu().await else { return };
    let quiet = GuestSettings {
        dirty: "none".parse().unwrap(),
        ..small_guest(qemu, 7)
    };
    let hosts = Hosts::with_guests_like("runpin", SLOWEST, quiet).await;
    let mut hosts = with_policy(hosts, "inbound = 1").await;
    hosts.boot().await;
    let other = hosts.definition_of(&"other".parse().unwrap()).await;
    let _console = hosts.boot_another(&other).await;
    let request = drain(&hosts, A);
    let id = hosts.client(A).start_run(&request).await.unwrap().id;
    let moves = |view: &RunView| {
        view.moves
            .iter()
            .any(|step| step.state == MoveState::Moving)
    };
    let view = when(&hosts, id, moves).await;
    assert_eq!(states(&view).len(), 2, "{view:#?}");
    let waiting = |step: &&drover_api::MoveView| step.state == MoveState::Waiting;
    let second = view.moves.iter().find(waiting).unwrap().vm.clone();
    let mut definition = hosts.definition_of(&second).await;
    let at_home = host(&hosts, A);
    definition.policy.pinned.hosts.insert(at_home.clone());
    hosts.define(A, &definition);
    let view = ended(&hosts, id).await;
    // Without the look before it begins it would have moved; the next round's plan leaves it where it is.
    assert_eq!(
        states(&view),
        [MoveState::Moved, MoveState::Failed],
        "{view:#?}"
    );
    let cause = view.moves[1].cause.as_deref().unwrap();
    assert!(cause.contains("is pinned"), "{cause}");
    assert_eq!(view.result, Some(RunResult::Partial), "{view:#?}");
    assert!(view.cause.unwrap().contains("is pinned"));
    let there = hosts.client(A).vm(&second).await.unwrap();
    assert!(there.pid.is_some(), "{there:#?}");
}
