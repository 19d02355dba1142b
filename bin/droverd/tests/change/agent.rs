//! What an agent applies and takes back, and that it may die at any moment of it.

use std::process::Command;
use std::time::Duration;

use drover_api::{ChangeState, ChangeStepState};
use drover_change::Outcome;

use crate::host::{Deaths, Host, kills};

/// Longer than an agent takes from one look at its changes to the next.
const OF_A_LOOK: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_and_undone_leaves_every_fact_as_before() {
    let Some(host) = Host::new("undo").await else {
        return;
    };
    let before = host.facts().await;
    let plan = host.plan().await;
    for setting in ["tcp_timestamps = 1", "tcp_wmem = 4096 65536 "] {
        assert!(plan.contains(setting), "{plan}");
    }
    let applied = host.applied(&plan).await;
    assert_eq!((applied.paths, applied.set), (2, applied.steps));
    let after = host.facts().await;
    assert_ne!(after, before);
    let timestamps = after.setting("net.ipv4.tcp_timestamps");
    assert_eq!(timestamps, Ok("1"));
    let again = host.client().plan_changes(&Default::default()).await;
    assert_eq!(again.unwrap().plan, None, "nothing is left to be done");
    let detail = host.client().change(applied.id).await.unwrap();
    let done = |step: &drover_api::ChangeStepView| step.state == ChangeStepState::Done;
    assert!(detail.steps.iter().all(done), "{detail:#?}");

    let undone = host.undo(applied.id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    assert_eq!(host.facts().await, before);
    let listed = host.client().changes().await.unwrap();
    assert_eq!(listed, [undone]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_at_any_record_of_a_change_does_not_keep_it_from_its_end() {
    let Some(mut host) = Host::new("agent").await else {
        return;
    };
    let before = host.facts().await;
    let plan = host.plan().await;
    let whole = host.applied(&plan).await;
    let records = host.account(whole.id).records.len();
    assert!(records >= 10, "{records}");
    host.undo(whole.id).await.unwrap();
    let mut deaths = Deaths::default();
    for at in (0..records).cycle().take(kills(records)) {
        let id = host.apply(&plan).await.unwrap().id;
        host.when_written(id, at).await;
        host.kill_agent();
        let account = host.when_ended(id).await;
        let ended = account.records.last();
        host.start().await;
        let view = host.ended(id).await;
        assert_eq!(view.state, ChangeState::Applied, "{at}: {ended:?}");
        host.undo(id).await.unwrap();
        assert_eq!(host.facts().await, before);
        deaths.came_to("applied, and undone");
    }
    deaths.tell("the agent, at each record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_process_is_killed_is_taken_back_by_the_agent_or_by_the_next_one() {
    let Some(mut host) = Host::new("process").await else {
        return;
    };
    let before = host.facts().await;
    let plan = host.plan().await;
    let mut taken_back = [0, 0];
    let mut deaths = Deaths::default();
    for at in (0..8).cycle().take(kills(8)) {
        let id = host.apply(&plan).await.unwrap().id;
        host.when_written(id, at).await;
        // With the agent alive, and with neither alive.
        let was_there = if at % 2 == 0 {
            host.kill_process(id)
        } else {
            host.kill_agent();
            let was_there = host.kill_process(id);
            host.start().await;
            was_there
        };
        let view = host.ended(id).await;
        match view.state {
            ChangeState::RolledBack => taken_back[at % 2] += 1,
            // It was quicker than the test.
            ChangeState::Applied => assert!(host.undo(id).await.is_ok()),
            other => panic!("{other:?}"),
        }
        assert_eq!(host.facts().await, before);
        if was_there {
            deaths.came_to(match view.state {
                ChangeState::RolledBack => "rolled back",
                _ => "applied, and undone",
            });
        }
    }
    deaths.tell("the process, or the agent and its process, at each of eight records");
    assert!(
        taken_back.iter().all(|deaths| *deaths > 0),
        "{taken_back:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_whose_process_is_killed_is_brought_to_its_end_by_the_living_agent() {
    let Some(host) = Host::new("undoing").await else {
        return;
    };
    let strace_runs = Command::new("strace").arg("--version").output().is_ok();
    if !strace_runs {
        println!(
            "skipped, because strace does not run, which slows it down: it may be at its end before it is killed"
        );
    }
    let before = host.facts().await;
    let plan = host.plan().await;
    if strace_runs {
        host.slow_down();
    }
    let mut killed = 0;
    for more in 0..4 {
        let id = host.applied(&plan).await.id;
        let records = host.account(id).records.len();
        host.when_process_gone(id).await;
        let death = async {
            if more == 0 {
                // Before it has written that it begins, over a look of the agent, which finds a change at its end.
                while !host.signal_process(id, "-STOP") && host.account(id).records.len() == records
                {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(OF_A_LOOK).await;
                host.signal_process(id, "-CONT");
            }
            host.when_written(id, records + 1 + more).await;
            host.kill_process(id)
        };
        let (undone, was_there) = tokio::join!(host.undo(id), death);
        killed += u32::from(was_there);
        undone.unwrap();
        assert_eq!(host.ended(id).await.state, ChangeState::Undone, "{more}");
        assert_eq!(host.facts().await, before);
    }
    assert!(killed > 2 || !strace_runs, "{killed} of 4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_after_which_a_path_does_not_work_is_taken_back_and_names_it() {
    let Some(host) = Host::new("path").await else {
        return;
    };
    let before = host.facts().await;
    let id = host.apply(&host.plan().await).await.unwrap().id;
    host.when_written(id, 2).await;
    host.network.set_far("nic1", "down");
    let account = host.when_ended(id).await;
    host.network.set_far("nic1", "up");
    let outcome = account.records.last().unwrap();
    let view = host.ended(id).await;
    assert_eq!(view.state, ChangeState::RolledBack, "{outcome:?}");
    let why = view.why.unwrap();
    assert!(
        why.contains("nic1 10.77.1.1 to b 10.77.1.2:7470") && !why.contains("nic0"),
        "{why}"
    );
    let mut after = host.facts().await;
    for (nic, was) in after.nics.iter_mut().zip(&before.nics) {
        nic.carrier_changes = was.carrier_changes.clone();
    }
    assert_eq!(after, before);
    assert!(!matches!(
        account.standing.phase,
        drover_change::Phase::Ended(Outcome::Applied { .. })
    ));
}
