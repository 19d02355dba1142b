//! What libvirt shows of a domain that moves, read as how far its migration is. Without I/O; whoever acts on it decides.
//!
//! # Invariant
//! A domain has [left](Leaves::Left) only where libvirt itself says so. That it has no hypervisor is no evidence: one that was not
//! let go of runs on, and ends as any other does, when its disks are newer than the memory that the destination has.

use crate::domain::{DomainState, Look, Why};
use crate::events::Job;

/// What was seen of a domain that comes, before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Before {
    /// It had a hypervisor.
    pub there: bool,
    /// All of it was there.
    pub whole: bool,
}

/// How far a domain is that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// Nothing of it is there.
    NotYet,
    /// Its hypervisor takes its memory in.
    Receives,
    /// All of it is there, as far as can be told, and it stands still.
    Whole,
    /// It runs, by somebody's word.
    Runs,
    /// It has no hypervisor any more.
    Gone,
}

impl Comes {
    /// What a look means; none where there is no such domain.
    ///
    /// Only a domain that stands still for its migration, or until its hypervisor has been started, takes its memory in: whatever
    /// else stops one stops one that has run. To take one for whole that is not costs nothing, since then its source says that it has not
    /// decided, or keeps it.
    ///
    /// One that is shutting down shows no more than that its hypervisor ends: libvirt says so of a copy that has never run, too, while
    /// that is destroyed. It is what it was.
    #[must_use]
    pub fn of(look: Option<&Look>, before: Before) -> Self {
        let Some(look) = look else {
            return if before.there {
                Self::Gone
            } else {
                Self::NotYet
            };
        };
        match (look.domain.state, look.why) {
            (DomainState::ShutOff, _) => Self::Gone,
            (DomainState::Paused, Why::Migrating | Why::StartingUp) if !before.whole => {
                Self::Receives
            }
            (DomainState::ShuttingDown, _) if before.there && !before.whole => Self::Receives,
            (
                DomainState::Paused
                | DomainState::ShuttingDown
                | DomainState::Crashed
                | DomainState::Other(_),
                _,
            ) => Self::Whole,
            (DomainState::Running | DomainState::Asleep, _) => Self::Runs,
        }
    }
}

/// A domain whose migration nobody's answer ended: its job, and what was seen of it after that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its job, while there is one.
    pub job: Option<Job>,
    /// Itself; none where there is no such domain.
    pub look: Option<Look>,
}

/// How the migration of a domain that leaves stands, by what libvirt shows alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaves {
    /// libvirt carries it out.
    UnderWay(Box<Job>),
    /// libvirt has let go of it here, by its own word.
    Left,
    /// It has its hypervisor, and no migration.
    Stays,
    /// It has no hypervisor, and ended here.
    Ended(Why),
    /// It has no hypervisor, and libvirt does not tell whether it left or ended; what it does tell of one that has a definition. It
    /// forgets why when it is started again, or its host is, and it forgets a domain without a definition either way.
    Untold(Option<Why>),
}

impl Leaves {
    /// What libvirt shows of a domain that had a definition, or had none, when it was to leave.
    ///
    /// A libvirtd that was started since finds one that it was letting go of ended ([`Why::Crashed`]), or ends it
    /// ([`Why::Unfollowed`]). So it does with one that had run on for days.
    #[must_use]
    pub fn of(shown: &Shown, had_definition: bool) -> Self {
        match (&shown.look, &shown.job) {
            // libvirt takes the definition away of one that has left, as it was told to.
            (None, _) if had_definition => Self::Left,
            (None, _) => Self::Untold(None),
            (Some(look), _) if look.domain.state == DomainState::ShutOff => match look.why {
                Why::Left => Self::Left,
                why @ (Why::ShutDown | Why::Destroyed | Why::Saved | Why::FromSnapshot) => {
                    Self::Ended(why)
                }
                why => Self::Untold(Some(why)),
            },
            (Some(_), Some(job)) => Self::UnderWay(Box::new(job.clone())),
            (Some(_), None) => Self::Stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    use drover_types::Bytes;
    use uuid::Uuid;

    use super::*;
    use crate::domain::Domain;

    fn look(state: DomainState, reason: c_int) -> Look {
        let domain = Domain {
            name: "web".to_owned(),
            uuid: Uuid::from_u128(7),
            state,
            persistent: true,
            autostart: false,
            memory: Bytes(1 << 30),
            vcpus: 1,
        };
        let why = Why::from_number(state, reason);
        Look { domain, why }
    }

    fn before(there: bool, whole: bool) -> Before {
        Before { there, whole }
    }

    /// All that `virDomainPausedReason` has: unknown, user, migration, save, dump, I/O error, watchdog, from a snapshot, shutting down,
    /// snapshot, crashed, starting up, postcopy, postcopy failed, API error.
    const PAUSED: std::ops::Range<c_int> = 0..15;

    #[test]
    fn only_what_an_incoming_domain_shows_is_taken_for_one_by_an_agent_that_has_seen_nothing() {
        let comes = |reason, before| Comes::of(Some(&look(DomainState::Paused, reason)), before);
        for reason in PAUSED {
            let expected = match reason {
                2 | 11 => Comes::Receives,
                _ => Comes::Whole,
            };
            assert_eq!(comes(reason, Before::default()), expected, "{reason}");
            assert_eq!(comes(reason, before(true, false)), expected, "{reason}");
            let whole = comes(reason, before(true, true));
            assert_eq!(whole, Comes::Whole, "{reason}, and it was whole");
        }
        for state in [DomainState::Crashed, DomainState::Other(0)] {
            assert_eq!(
                Comes::of(Some(&look(state, 0)), Before::default()),
                Comes::Whole
            );
        }
    }

    #[test]
    fn a_domain_that_comes_is_told_from_one_that_runs_and_from_one_that_was_there() {
        let of = |state| Comes::of(Some(&look(state, 1)), Before::default());
        for state in [DomainState::Running, DomainState::Asleep] {
            assert_eq!(of(state), Comes::Runs);
        }
        assert_eq!(of(DomainState::ShutOff), Comes::Gone);
        assert_eq!(Comes::of(None, Before::default()), Comes::NotYet);
        assert_eq!(Comes::of(None, before(true, false)), Comes::Gone);
    }

    #[test]
    fn a_domain_that_is_shutting_down_has_not_run_by_that() {
        let of = |before| Comes::of(Some(&look(DomainState::ShuttingDown, 1)), before);
        assert_eq!(of(before(true, true)), Comes::Whole);
        assert_eq!(of(before(true, false)), Comes::Receives);
        // Whose it is was never seen: it is not taken for what is to come.
        assert_eq!(of(Before::default()), Comes::Whole);
    }

    #[test]
    fn a_domain_has_left_only_by_libvirts_own_word() {
        let off = |reason| Shown {
            job: None,
            look: Some(look(DomainState::ShutOff, reason)),
        };
        // All that `virDomainShutoffReason` has: unknown (as after a loss of power), shut down, destroyed, crashed, migrated, saved,
        // failed, from a snapshot, and ended by libvirtd.
        for reason in 0..9 {
            let leaves = Leaves::of(&off(reason), true);
            match reason {
                4 => assert_eq!(leaves, Leaves::Left),
                1 | 2 | 5 | 7 => {
                    assert!(matches!(leaves, Leaves::Ended(_)), "{reason}: {leaves:?}");
                }
                _ => {
                    let why = Why::from_number(DomainState::ShutOff, reason);
                    assert_eq!(leaves, Leaves::Untold(Some(why)), "{reason}");
                }
            }
            assert_eq!(Leaves::of(&off(reason), false), leaves);
        }
        let none = Shown::default();
        assert_eq!(Leaves::of(&none, true), Leaves::Left);
        assert_eq!(Leaves::of(&none, false), Leaves::Untold(None));
    }

    #[test]
    fn a_domain_that_is_there_stays_unless_libvirt_is_at_it() {
        for state in [
            DomainState::Running,
            DomainState::Paused,
            DomainState::Crashed,
        ] {
            let mut shown = Shown {
                job: Some(Job::default()),
                look: Some(look(state, 2)),
            };
            let under_way = Leaves::UnderWay(Box::default());
            assert_eq!(Leaves::of(&shown, true), under_way);
            shown.job = None;
            assert_eq!(Leaves::of(&shown, true), Leaves::Stays);
        }
    }
}
