//! How the migration of a domain that leaves stands, and how it ended.
//!
//! ```text
//!   libvirt's answer ─── it has left, and has no hypervisor here ────────────────────────▶ left
//!        │                └─ and is off as one that was shut down, destroyed or saved ─────▶ gone
//!        │ none           it failed ── and the domain is here ───────────────────────────▶ stays
//!        │                          └─ and is not ───────────────────────────────────────▶ gone
//!        ▼
//!   what libvirt shows ─ off as one that has left, or undefined ── the session never ended ▶ left
//!        │                └─ and it did: another host than that one ── has it, or may ─────▶ nobody knows
//!        │                                                         └─ has not ─────────────▶ left
//!   (drover_libvirt::     off as one that was shut down, destroyed or saved ─────────────▶ gone
//!        │    Leaves)     there, and without a job ──────────────────────────────────────▶ stays
//!        ▼ off, and not why
//!   the other host ───── runs it ────────────────────────────────────────────────────────▶ left
//!                         has nothing of it ─────────────────────────────────────────────▶ gone
//!                         has all of it ── and the session never ended ──────────────────▶ left
//!                                       └─ it did, or a QEMU that ended by itself was
//!                                          not watched: libvirt may have had it run on ──▶ nobody knows
//! ```
//! # Invariant
//! It is said to have left only where it has no hypervisor here, and did not run here after the other host had all of it, as far as
//! anybody can know. Where nobody does, nothing is said.

use drover_hypervisor::{MachineError, MigrationProgress, MigrationStatus};
use drover_libvirt::{Leaves, Look, Why};
use drover_types::{HostName, VmName};
use tokio::time::timeout;
use uuid::Uuid;

use super::call::Stands;
use super::leaving::{LOOK, Leaving, is_off, lock};
use super::line::{exit, failed, refused};
use super::other::Has;
use super::progress;
use crate::elsewhere::Elsewhere;
use crate::libvirt::domains::words;
use crate::limits::SHOW;

const UNTOLD: &str = "libvirt has no hypervisor of it here and does not tell why";
const LEFT: &str = "libvirt shows that it has left, and not by which migration";

/// What speaks for a domain being on another host than the destination, by what all said.
fn moved_on(destination: &HostName, domain: Uuid, found: &Elsewhere) -> Option<String> {
    if let Some(there) = others(destination, found.domains.iter()) {
        return Some(format!(
            "libvirt of {there} has it in memory: it may have run on here and been moved there by hand, and what {destination} has is older \
             than its disks then; `virsh destroy {domain}` on {destination} gives that copy up; if it is the domain that is on \
             {destination}, end the other one"
        ));
    }
    let silent = others(destination, found.silent.iter().chain(&found.untold))?;
    Some(format!(
        "it may have run on here and been moved by hand to a host that does not tell what it has: {silent}. They are asked again; one \
         that is gone for good has to leave the cluster first (`drover cluster remove`)"
    ))
}

/// The names of those that are not the destination, if there are any.
fn others<'a>(destination: &HostName, hosts: impl Iterator<Item = &'a HostName>) -> Option<String> {
    let others = hosts.filter(|host| *host != destination);
    let names: Vec<_> = others.map(HostName::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Of one that libvirt says has left: that it is here all the same.
fn still_here(look: Option<&Look>) -> Option<String> {
    let look = look.filter(|look| !is_off(look))?;
    let state = words(look.domain.state);
    Some(format!(
        "libvirt says that it has left, and that it is {state} here"
    ))
}

/// Of one that libvirt says has left: that it ran on here, and ended, by libvirt's own word for why it is off. What libvirt forgets, or
/// says of one that it let go of, too, when it is started again, is no such word.
fn ended_here(look: Option<&Look>) -> Option<Why> {
    let why = look?.why;
    matches!(
        why,
        Why::ShutDown | Why::Destroyed | Why::Saved | Why::FromSnapshot
    )
    .then_some(why)
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
    fn by(has: Has, may_have_run_on: bool) -> Self {
        match has {
            Has::Runs => Self::Left,
            // An answer that was not lost has reached libvirt here, which had the domain run on without one only.
            Has::All if !may_have_run_on => Self::Left,
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
            Stands::NotBegun => Ok(MigrationProgress::of(MigrationStatus::None)),
            Stands::UnderWay => Ok(self.under_way().await),
            Stands::HasLeft => self.unless_here().await,
            Stands::Failed(why) => match self.look().await? {
                Some(look) if !is_off(&look) => Ok(MigrationProgress::failed(why)),
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
        last.unwrap_or_else(|| MigrationProgress::of(MigrationStatus::Active))
    }

    /// libvirt says that it has left. It says so, too, where it did not manage to end it here, and then has it run on
    /// (`qemuMigrationSrcPerformJob` in libvirt's `qemu_migration.c`).
    async fn unless_here(&self) -> Result<MigrationProgress, MachineError> {
        let look = self.look().await?;
        if let Some(why) = still_here(look.as_ref()) {
            self.call.settle(Stands::Failed(why.clone()));
            return Ok(MigrationProgress::failed(why));
        }
        match ended_here(look.as_ref()) {
            Some(how) => Err(self.is_gone(&format!(
                "libvirt says that it has left, and is off, because {how}"
            ))),
            None => Ok(MigrationProgress::of(MigrationStatus::Completed)),
        }
    }

    /// Nobody's answer tells how it ended: this agent was started since, or libvirtd was.
    async fn by_what_is_shown(&self, why: String) -> Result<MigrationProgress, MachineError> {
        let shown = self.connection.shown(self.terms.uuid).await;
        let shown = shown.map_err(|error| failed(LOOK, &error))?;
        match Leaves::of(&shown, self.terms.domain.moving.persistent) {
            Leaves::UnderWay(job) => Ok(progress::of_job(&job)),
            Leaves::Left => match self.moved_on().await {
                None => Ok(self.has_left()),
                Some(moved) => match self.said_there(true).await {
                    Said::Left => Ok(self.has_left()),
                    Said::Gone(there) => Err(self.is_gone(&format!("{why}; {moved}; {there}"))),
                    Said::NotYet(_) | Said::NobodyKnows => Err(self.doubts(LEFT, &moved)),
                },
            },
            Leaves::Stays => {
                let why = format!("{why}; libvirt has the domain here, and no migration of it");
                self.call.settle(Stands::Failed(why.clone()));
                Ok(MigrationProgress::failed(why))
            }
            Leaves::Ended(how) => Err(self.is_gone(&format!("{why}; it is off, because {how}"))),
            Leaves::Untold(off) => match self.said_there(self.call.may_have_run_on(off)).await {
                Said::Left => Ok(self.has_left()),
                Said::Gone(there) => Err(self.is_gone(&format!("{why}; {there}"))),
                Said::NotYet(why) => Err(self.doubts(UNTOLD, &format!("{why}: it is asked again"))),
                Said::NobodyKnows => Err(self.doubts(UNTOLD, &self.what_a_person_can_do())),
            },
        }
    }

    async fn said_there(&self, may_have_run_on: bool) -> Said {
        Said::by(self.terms.other.has().await, may_have_run_on)
    }

    /// Why it may not be this migration by which it has left: libvirt had it run on when the session ended, and somebody moved it to
    /// another host by hand, which libvirt shows in the same way. None where it can be no other.
    async fn moved_on(&self) -> Option<String> {
        if !self.call.has_session_ended() {
            return None;
        }
        let id = self.terms.uuid.to_string().parse::<VmName>().ok()?;
        let found = self.terms.peers.ask_for(&id).await;
        moved_on(&self.terms.other.host, self.terms.uuid, &found)
    }

    fn has_left(&self) -> MigrationProgress {
        self.call.settle(Stands::HasLeft);
        MigrationProgress::of(MigrationStatus::Completed)
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
    fn doubts(&self, shown: &str, what: &str) -> MachineError {
        self.call.doubts(true);
        refused(LOOK, format!("{shown}; {what}"))
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
    fn a_domain_that_ran_on_and_ended_has_not_left_whatever_libvirt_says() {
        let off = |why| ended_here(Some(&look(DomainState::ShutOff, why)));
        for why in [Why::ShutDown, Why::Destroyed, Why::Saved, Why::FromSnapshot] {
            assert_eq!(off(why), Some(why));
        }
        // So it is where libvirtd was started again since it let go of it, too.
        for why in [Why::Left, Why::Crashed, Why::Unfollowed, Why::Other(0)] {
            assert_eq!(off(why), None, "{why}");
        }
        assert_eq!(ended_here(None), None);
    }

    #[test]
    fn a_domain_that_a_third_host_has_or_may_have_has_not_left_by_this_migration_for_certain() {
        let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let (b, id) = ("b".parse().unwrap(), Uuid::from_u128(7));
        let of = |domains: &[&str], untold: &[&str], silent: &[&str]| {
            let found = Elsewhere {
                domains: names(domains),
                untold: names(untold),
                silent: names(silent),
                ..Elsewhere::default()
            };
            moved_on(&b, id, &found)
        };
        assert_eq!(of(&[], &[], &[]), None);
        assert_eq!(of(&["b"], &["b"], &["b"]), None, "it is the destination's");
        let there = of(&["b", "c"], &[], &["d"]).unwrap();
        assert!(
            there.starts_with("libvirt of c has it in memory"),
            "{there}"
        );
        assert!(
            there.contains(&format!("`virsh destroy {id}` on b")),
            "{there}"
        );
        for silent in [of(&["b"], &["c"], &[]), of(&["b"], &[], &["c"])] {
            let silent = silent.unwrap();
            assert!(silent.contains("does not tell what it has: c"), "{silent}");
        }
    }

    #[test]
    fn what_the_other_host_has_counts_for_as_much_as_it_can_tell() {
        for may_have_run_on in [false, true] {
            let said = |has| Said::by(has, may_have_run_on);
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
