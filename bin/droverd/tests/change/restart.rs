//! A host that is restarted, by power or by somebody: what was set is gone, and what was written down stays.

use std::fs;

use drover_api::{ChangeState, ErrorCode};

use crate::host::Host;

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
async fn a_host_that_loses_power_in_the_middle_comes_up_as_before_and_says_so() {
    let Some(mut host) = Host::new("power").await else {
        return;
    };
    host.kill_agent();
    host.start_as("first").await;
    let before = host.facts().await;
    let plan = host.plan().await;
    for (at, boot) in [(0, "second"), (3, "third"), (6, "fourth")] {
        let plan = host.plan().await;
        let id = host.apply(&plan).await.unwrap().id;
        host.when_written(id, at).await;
        host.kill_agent();
        host.kill_process(id);
        let had_ended = host.account(id).standing.has_ended();
        host.restart(boot).await;
        let view = host.ended(id).await;
        // Nothing of it was begun, or it is gone.
        let is_gone = match view.state {
            ChangeState::GoneWithRestart => true,
            ChangeState::RolledBack => host.account(id).standing.boot.is_none(),
            _ => false,
        };
        assert!(is_gone && !view.can_be_undone, "{had_ended} {view:#?}");
        assert_eq!(host.facts().await, before);
    }
    let (code, message) = crate::refusals::refused(host.apply(&plan).await);
    assert_eq!(code, ErrorCode::ChangePlanUnusable, "{message}");

    let applied = host.applied(&host.plan().await).await;
    host.kill_agent();
    host.restart("fifth").await;
    let view = host.ended(applied.id).await;
    assert_eq!(view.state, ChangeState::GoneWithRestart);
    let (code, message) = crate::refusals::refused(host.undo(applied.id).await);
    assert_eq!(code, ErrorCode::NotUndoable);
    assert!(message.contains("restarted since"), "{message}");
    assert_eq!(host.facts().await, before);
}
