//! How the migration of a domain that leaves stands, and how it ended.
//!
//! ```text
//!   libvirt's answer ─── it has left, and has no hypervisor here ────────────────────────▶ left
//!        │ none           it failed ── and the domain is here ───────────────────────────▶ stays
//!        │                          └─ and is not ───────────────────────────────────────▶ gone
//!        ▼
//!   what libvirt shows ─ off as one that has left, or undefined ─────────────────────────▶ left
//!   (drover_libvirt::     off as one that was shut down, destroyed or saved ─────────────▶ gone
//!        │    Leaves)     there, and without a job ──────────────────────────────────────▶ stays
//!        ▼ off, and not why
//!   the other host ───── runs it ────────────────────────────────────────────────────────▶ left
//!                         has nothing of it ─────────────────────────────────────────────▶ gone
//!                         has all of it ── and the session never ended ──────────────────▶ left
//!                                       └─ and it did: libvirt may have had it run on ───▶ nobody knows
//! ```
//! # Invariant
//! It is said to have left only where it has no hypervisor here, and did not run here after the other host had all of it, as far as
//! anybody can know. Where nobody does, nothing is said.

use drover_hypervisor::{MachineError, MigrationProgress, MigrationStatus};
use drover_libvirt::{Leaves, Look};
use tokio::time::timeout;

use super::call::Stands;
use super::leaving::{LOOK, Leaving, is_off, lock};
use super::line::{exit, failed, refused};
use super::other::Has;
use super::progress;
use crate::libvirt::domains::words;
use crate::limits::SHOW;

/// Of one that libvirt says has left: that it is here all the same.
fn still_here(look: Option<&Look>) -> Option<String> {
    let look = look.filter(|look| !is_off(look))?;
    let state = words(look.domain.state);
    Some(format!(
        "libvirt says that it has left, and that it is {state} here"
    ))
}

/// What follows where only the other host can tell.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Left,
    Gone(String),
    /// It does not tell yet; why.
    NotYet(String),
    /// It has all of it, which may be older by now than what the guest wrote here.
    NobodyKnows,
}

impl Said {
    fn by(has: Has, session_ended: bool) -> Self {
        match has {
            Has::Runs => Self::Left,
            // An answer that was not lost has reached libvirt here, which had the domain run on without one only.
            Has::All if !session_ended => Self::Left,
            Has::All => Self::NobodyKnows,
            Has::Nothing(why) => Self::Gone(why),
            Has::NotKnown(why) => Self::NotYet(why),
        }
    }
}

impl Leaving {
    /// How its migration stands.
    pub(super) async fn stands(&self) -> Result<MigrationProgress, MachineError> {
        match self.call.stands() {
            Stands::NotBegun => Ok(progress::of(MigrationStatus::None)),
            Stands::UnderWay => Ok(self.under_way().await),
            Stands::HasLeft => self.unless_here().await,
            Stands::Failed(why) => match self.look().await? {
                Some(look) if !is_off(&look) => Ok(progress::failed(why)),
                _ => Err(self.is_gone(&why)),
            },
            Stands::Unanswered(why) => self.by_what_is_shown(why).await,
        }
    }

    /// libvirt carries it out and answers when it is over: numbers may be late, and are not waited for.
    async fn under_way(&self) -> MigrationProgress {
        let job = self.connection.job(self.terms.uuid);
        if let Ok(Ok(Some(job))) = timeout(SHOW, job).await {
            *lock(&self.last) = Some(progress::of_job(&job));
        }
        let last = lock(&self.last).clone();
        last.unwrap_or_else(|| progress::of(MigrationStatus::Active))
    }

    /// libvirt says that it has left. It says so, too, where it did not manage to end it here, and then has it run on
    /// (`qemuMigrationSrcPerformJob` in libvirt's `qemu_migration.c`).
    async fn unless_here(&self) -> Result<MigrationProgress, MachineError> {
        let Some(why) = still_here(self.look().await?.as_ref()) else {
            return Ok(progress::of(MigrationStatus::Completed));
        };
        self.call.settle(Stands::Failed(why.clone()));
        Ok(progress::failed(why))
    }

    /// Nobody's answer tells how it ended: this agent was started since, or libvirtd was.
    async fn by_what_is_shown(&self, why: String) -> Result<MigrationProgress, MachineError> {
        let shown = self.connection.shown(self.terms.uuid).await;
        let shown = shown.map_err(|error| failed(LOOK, &error))?;
        match Leaves::of(&shown, self.terms.domain.moving.persistent) {
            Leaves::UnderWay(job) => Ok(progress::of_job(&job)),
            Leaves::Left => Ok(self.has_left()),
            Leaves::Stays => {
                let why = format!("{why}; libvirt has the domain here, and no migration of it");
                self.call.settle(Stands::Failed(why.clone()));
                Ok(progress::failed(why))
            }
            Leaves::Ended(how) => Err(self.is_gone(&format!("{why}; it is off, because {how}"))),
            Leaves::Untold => match self.said_there().await {
                Said::Left => Ok(self.has_left()),
                Said::Gone(there) => Err(self.is_gone(&format!("{why}; {there}"))),
                Said::NotYet(why) => Err(self.doubts(&format!("{why}: it is asked again"))),
                Said::NobodyKnows => Err(self.doubts(&self.what_a_person_can_do())),
            },
        }
    }

    async fn said_there(&self) -> Said {
        let has = self.terms.other.has().await;
        Said::by(has, self.call.has_session_ended())
    }

    fn has_left(&self) -> MigrationProgress {
        self.call.settle(Stands::HasLeft);
        progress::of(MigrationStatus::Completed)
    }

    /// It has no hypervisor any more, and did not leave.
    fn is_gone(&self, why: &str) -> MachineError {
        self.call.settle(Stands::Failed(why.to_owned()));
        let why = format!("libvirt has no hypervisor of it any more: {why}");
        self.gone.send_replace(Some(exit(Some(&why))));
        // Its end is told by that.
        MachineError::Other {
            operation: LOOK,
            reason: why,
            unanswered: true,
        }
    }

    /// Nothing here tells whether it has left.
    fn doubts(&self, what: &str) -> MachineError {
        self.call.doubts(true);
        let told = format!("libvirt has no hypervisor of it here and does not tell why; {what}");
        refused(LOOK, told)
    }

    /// A person may know whether it has left, and says so by what is done with the domain on either host.
    fn what_a_person_can_do(&self) -> String {
        let (uuid, there) = (self.terms.uuid, &self.terms.other.host);
        format!(
            "{there} has all of it, and it may have run on here since; if the last `shutting down` in its log in /var/log/libvirt/qemu has \
             reason `migrated` or `daemon`, it had left, and `virsh resume {uuid}` on {there} has it run; otherwise `virsh destroy {uuid}` on \
             {there} gives that copy up, which may be older than its disks"
        )
    }
}

#[cfg(test)]
mod tests {
    use drover_libvirt::{DomainState, Why};

    use super::*;
    use crate::libvirt::seen::tests::domain;

    fn look(state: DomainState, why: Why) -> Look {
        Look {
            domain: domain("web", state),
            why,
        }
    }

    #[test]
    fn a_domain_that_is_here_has_not_left_whatever_libvirt_says() {
        // `VIR_DOMAIN_RUNNING_MIGRATION_CANCELED`.
        let runs = look(DomainState::Running, Why::Other(6));
        let why = still_here(Some(&runs)).unwrap();
        assert!(why.contains("it is running here"), "{why}");
        assert!(still_here(Some(&look(DomainState::Paused, Why::Migrating))).is_some());
        assert_eq!(
            still_here(Some(&look(DomainState::ShutOff, Why::Left))),
            None
        );
        assert_eq!(still_here(None), None);
    }

    #[test]
    fn what_the_other_host_has_counts_for_as_much_as_it_can_tell() {
        for session_ended in [false, true] {
            let said = |has| Said::by(has, session_ended);
            assert_eq!(said(Has::Runs), Said::Left);
            let nothing = Has::Nothing("it was abandoned".to_owned());
            assert_eq!(said(nothing), Said::Gone("it was abandoned".to_owned()));
            let silent = Has::NotKnown("b is silent".to_owned());
            assert_eq!(said(silent), Said::NotYet("b is silent".to_owned()));
        }
        assert_eq!(Said::by(Has::All, false), Said::Left);
        assert_eq!(Said::by(Has::All, true), Said::NobodyKnows);
    }
}
