//! Hosts emptied and filled again by drover: one request to the coordinator's agent.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use drover_api::{Client, MigrateRequest, MoveState, RunRequest, RunResult, RunView};
use drover_plan::Request;
use drover_types::{Convergence, HostName, RunId, VmName};

use crate::agent::Agent;
use crate::compare::{DroverFacts, check_move, follow_move};
use crate::limits;

/// Asks for a host to be emptied.
pub(super) fn drain(host: &HostName) -> RunRequest {
    RunRequest::of(Request::Drain {
        hosts: [host.clone()].into(),
        avoid: [].into(),
        with_disks: false,
    })
}

/// Asks for its guests to be brought home.
pub(super) fn fail_back(host: &HostName) -> RunRequest {
    let request = Request::Resume {
        host: host.clone(),
        homes: Vec::new(),
        avoid: [].into(),
        with_disks: false,
    };
    RunRequest {
        fail_back: true,
        ..RunRequest::of(request)
    }
}

/// Has a run carried out, and waits for its end. An agent that does not answer meanwhile is waited
/// for.
///
/// # Errors
/// It was refused, or does not end in time.
pub(super) async fn carry_out(client: &Client, request: &RunRequest) -> Result<RunView> {
    let begun = client.start_run(request).await?;
    follow(client, begun.id).await
}

/// Waits for the end of a run.
///
/// # Errors
/// It does not end in time.
pub(super) async fn follow(client: &Client, id: RunId) -> Result<RunView> {
    let deadline = Instant::now() + limits::RUN;
    loop {
        let seen = client.run(id).await;
        match &seen {
            Ok(view) if view.phase.has_ended() => return Ok(view.clone()),
            _ if Instant::now() < deadline => {}
            Ok(view) => bail!(
                "run {id} is still {:?} after {} s",
                view.phase,
                limits::RUN.as_secs()
            ),
            Err(_) => return seen.context("the coordinator does not answer"),
        }
        tokio::time::sleep(limits::RUN_LOOK).await;
    }
}

/// Moves one guest to another agent's host, as a drain would; what both say of it.
///
/// # Errors
/// The agent refused, or the move failed.
pub(super) async fn move_one(from: &Agent, to: &Agent, guest: &VmName) -> Result<DroverFacts> {
    let request = MigrateRequest {
        to: to.host.name.parse().context("a host's name")?,
        convergence: Convergence::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    };
    let begun = from.client.migrate(guest, &request).await?;
    let left = follow_move(from, &begun, &mut |_| {}).await?;
    check_move(&left)?;
    let arrived = follow_move(to, &begun, &mut |_| {}).await?;
    Ok(DroverFacts::of(&[left, arrived]))
}

/// What agents say of the moves of a run that succeeded.
///
/// # Errors
/// One does not answer.
pub(super) async fn facts(agents: &[Agent], run: &RunView) -> Result<Vec<DroverFacts>> {
    let mut all = Vec::new();
    for step in &run.moves {
        let of = |name: &HostName| {
            let found = agents.iter().find(|agent| agent.host.name == name.as_str());
            found.with_context(|| format!("no agent runs on host {name}"))
        };
        let Some(id) = step.migration.filter(|_| step.state == MoveState::Moved) else {
            continue;
        };
        let left = of(&step.from)?.client.migration(id).await?;
        // It may still write down that its guest runs.
        let arrived = follow_move(of(&step.to)?, &left, &mut |_| {}).await?;
        all.push(DroverFacts::of(&[left, arrived]));
    }
    Ok(all)
}

/// How it ended, where that is not as wanted.
pub(super) fn trouble(view: &RunView) -> Option<String> {
    (view.result != Some(RunResult::Completed)).then(|| in_words(view))
}

/// How it ended: its cause, what became of moves that did not succeed, and its notes.
pub(super) fn in_words(view: &RunView) -> String {
    let mut words = vec![format!("{:?}", view.result)];
    words.extend(view.cause.clone());
    let failed = view
        .moves
        .iter()
        .filter(|step| step.state != MoveState::Moved);
    words.extend(failed.map(|step| {
        let cause = step.cause.as_deref().unwrap_or("no cause");
        let state = step.state;
        format!(
            "{} {} -> {} {state:?}: {cause}",
            step.vm, step.from, step.to
        )
    }));
    words.extend(
        view.left
            .iter()
            .map(|left| format!("{} {}: {}", left.vm, left.then, left.why)),
    );
    words.extend(view.notes.iter().cloned());
    words.join("; ")
}
