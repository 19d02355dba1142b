//! How the migration of a domain that leaves stands, and how it ended.
//!
//! ```text
//!   libvirt's answer ─── it has left, and has no hypervisor here ────────────────────────▶ left
//!        │ none           it failed ── and the domain is here ───────────────────────────▶ stays
//!        │                          └─ and is not ───────────────────────────────────────▶ gone
//!        ▼
//!   what libvirt shows ─ off as one that has left, or undefined ─────────────────────────▶ left
//!        │                off as one that was shut down, destroyed or saved ─────────────▶ gone
//!        │ off, and       there, and without a job for a while ──────────────────────────▶ stays
//!        ▼ not why
//!   the other host ───── runs it ────────────────────────────────────────────────────────▶ left
//!                         has nothing of it ─────────────────────────────────────────────▶ gone
//!                         has all of it ── and the session never ended ──────────────────▶ left
//!                                       └─ and it did: libvirt may have had it run on ───▶ nobody knows
//! ```
//! # Invariant
//! It is said to have left only where it has no hypervisor here, and did not run here after the other host had all of it, as far as
//! anybody can know. Where nobody does, nothing is said.

use std::time::{Instant, SystemTime};

use drover_hypervisor::{Exit, ExitStatus, MachineError, MigrationProgress, MigrationStatus};
use drover_libvirt::{Look, Why};
use tokio::time::timeout;

use super::call::Stands;
use super::leaving::{LOOK, Leaving, is_off, lock};
use super::limits;
use super::line::{failed, refused};
use super::other::Has;
use super::progress;
use crate::libvirt::domains::words;
use crate::limits::SHOW;

/// What libvirt tells of a domain that has no hypervisor here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Off {
    /// libvirt let go of it: the other libvirt had answered that it has all of it.
    Left,
    /// It ended here.
    Ended,
    /// Neither.
    Untold,
}

impl Off {
    /// None where it has a hypervisor.
    fn of(look: Option<&Look>, persistent: bool) -> Option<Self> {
        let Some(look) = look else {
            // Nobody but a person takes the definition of one away that libvirt did not let go of; one without a definition is
            // forgotten however it ended.
            return Some(if persistent { Self::Left } else { Self::Untold });
        };
        is_off(look).then_some(match look.why {
            Why::Left => Self::Left,
            // `VIR_DOMAIN_SHUTOFF_SHUTDOWN`, `_DESTROYED`, `_SAVED` and `_FROM_SNAPSHOT`.
            Why::Other(1 | 2 | 5 | 7) => Self::Ended,
            // A libvirtd that was started since knows no more (`_UNKNOWN`), found its hypervisor ended (`_CRASHED`), or has ended it
            // (`_DAEMON`), which it does to one that it was letting go of, too.
            _ => Self::Untold,
        })
    }
}

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
                _ => Err(self.is_gone(why)),
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
        let look = self.look().await?;
        match Off::of(look.as_ref(), self.terms.persistent) {
            None => self.by_its_job(why).await,
            Some(Off::Left) => Ok(self.has_left()),
            Some(Off::Ended) => Err(self.is_gone(why)),
            Some(Off::Untold) => match self.said_there().await {
                Said::Left => Ok(self.has_left()),
                Said::Gone(there) => Err(self.is_gone(format!("{why}; {there}"))),
                Said::NotYet(why) => Err(self.doubts(format!("{why}: it is asked again"))),
                Said::NobodyKnows => Err(self.doubts(self.what_a_person_can_do())),
            },
        }
    }

    async fn said_there(&self) -> Said {
        let has = self.terms.other.has().await;
        Said::by(has, self.call.has_session_ended())
    }

    /// It is here: it stays, if it has no job for a while.
    ///
    /// A libvirtd that was started again tells of no job before it is done with its QEMU, which it ends where it was letting go of it:
    /// `qemuProcessReconnect` in libvirt's `qemu_process.c` has the job that asking for one (`qemuDomainGetJobStatsInternal`) waits for.
    async fn by_its_job(&self, why: String) -> Result<MigrationProgress, MachineError> {
        let job = self.connection.job(self.terms.uuid).await;
        let job = job.map_err(|error| failed(LOOK, &error))?;
        let mut still = lock(&self.still);
        match job {
            Some(job) => {
                *still = None;
                Ok(progress::of_job(&job))
            }
            None if still.get_or_insert_with(Instant::now).elapsed() < limits::SETTLES => {
                Ok(progress::of(MigrationStatus::Active))
            }
            None => {
                let why = format!("{why}; libvirt has the domain here, and no migration of it");
                self.call.settle(Stands::Failed(why.clone()));
                Ok(progress::failed(why))
            }
        }
    }

    fn has_left(&self) -> MigrationProgress {
        self.call.settle(Stands::HasLeft);
        progress::of(MigrationStatus::Completed)
    }

    /// It has no hypervisor any more, and did not leave.
    fn is_gone(&self, why: String) -> MachineError {
        self.call.settle(Stands::Failed(why.clone()));
        let why = format!("libvirt has no hypervisor of it any more: {why}");
        let exit = Exit {
            status: ExitStatus::Unknown,
            stderr: vec![why.clone()],
            at: SystemTime::now(),
        };
        self.gone.send_replace(Some(exit));
        refused(LOOK, why)
    }

    /// Nothing here tells whether it has left.
    fn doubts(&self, what: String) -> MachineError {
        let told = format!("libvirt has no hypervisor of it here and does not tell why; {what}");
        if self.call.doubt().as_ref() != Some(&told) {
            tracing::warn!(domain = %self.terms.uuid, "{told}");
        }
        self.call.doubts(Some(told.clone()));
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
    use drover_libvirt::DomainState;

    use super::*;
    use crate::libvirt::seen::tests::domain;

    fn look(state: DomainState, why: Why) -> Look {
        Look {
            domain: domain("web", state),
            why,
        }
    }

    fn off(state: DomainState, why: Why) -> Option<Off> {
        Off::of(Some(&look(state, why)), true)
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
    fn why_a_domain_is_off_tells_whether_it_left_or_ended_or_neither() {
        let other = |number| off(DomainState::ShutOff, Why::Other(number));
        assert_eq!(off(DomainState::ShutOff, Why::Left), Some(Off::Left));
        for ended in [1, 2, 5, 7] {
            assert_eq!(other(ended), Some(Off::Ended), "{ended}");
        }
        for untold in [0, 3, 6, 8] {
            assert_eq!(other(untold), Some(Off::Untold), "{untold}");
        }
        for state in [DomainState::Running, DomainState::Paused] {
            assert_eq!(off(state, Why::Other(1)), None);
        }
    }

    #[test]
    fn a_domain_that_libvirt_does_not_know_has_left_only_if_it_had_a_definition() {
        assert_eq!(Off::of(None, true), Some(Off::Left));
        assert_eq!(Off::of(None, false), Some(Off::Untold));
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
