//! A host that is restarted, by power or by somebody: what was set is gone, and what was written down stays.

use std::fs;

use drover_api::{ChangeState, ErrorCode};

use crate::host::{Deaths, Host, records_of};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Host {
    /// Starts its agent after a start of the host with this id.
    pub async fn start_as(&mut self, boot: &str) {
        let file = self.place.path("boot_id");
        fs::write(&file, boot).unwrap();
        self.mounts.retain(|(_, over)| *over != BOOT_ID);
        self.mounts.push((file, BOOT_ID));
        self.start().await;
    }

    /// As the host comes up: with nothing of what was set.
    pub async fn restart(&mut self, boot: &str) {
        self.network.set_up();
        self.start_as(boot).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_killed_by_a_loss_of_power_at_any_record_of_a_change_comes_up_as_before_and_says_so()
{
    let Some(mut host) = Host::new("power").await else {
        return;
    };
    host.kill_agent();
    host.start_as("first").await;
    let before = host.facts().await;
    let plan = host.plan().await;
    let whole = host.applied(&plan).await.id;
    let records = host.account(whole).records.len();
    assert!(records >= 10, "{records}");
    host.kill_agent();
    host.restart("second").await;
    let view = host.ended(whole).await;
    assert_eq!(view.state, ChangeState::GoneWithRestart);
    let (code, message) = crate::refusals::refused(host.undo(whole).await);
    assert_eq!(code, ErrorCode::NotUndoable);
    assert!(message.contains("restarted since"), "{message}");
    assert_eq!(host.facts().await, before);
    let (code, message) = crate::refusals::refused(host.apply(&plan).await);
    assert_eq!(code, ErrorCode::ChangePlanUnusable, "{message}");

    let mut deaths = Deaths::default();
    for (round, at) in records_of(records, 3).enumerate() {
        let plan = host.plan().await;
        let id = host.apply(&plan).await.unwrap().id;
        host.when_written(id, at).await;
        host.kill_agent();
        host.kill_process(id);
        let had_ended = host.account(id).standing.has_ended();
        host.restart(&format!("round {round}")).await;
        let view = host.ended(id).await;
        let outcome = match view.state {
            ChangeState::GoneWithRestart => "gone with the restart",
            ChangeState::RolledBack if host.account(id).standing.boot.is_none() => "never begun",
            other => panic!("{at}: {other:?}, {had_ended} {view:#?}"),
        };
        assert!(!view.can_be_undone, "{view:#?}");
        assert_eq!(host.facts().await, before);
        deaths.came_to(outcome);
    }
    deaths.tell("the power of the host, at each record");
}
