//! A domain on the host that it goes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use drover_hypervisor::qmp::Version;
use drover_hypervisor::{
    Answer, AppliedSettings, Boxed, Exit, ExitStatus, MachineError, MachineEvents,
    MigrationAddress, MigrationProgress, MigrationSettings, MigrationStatus, Movable, RunState,
};
use drover_libvirt::{Connection, DomainState, Look, Why};
use tokio::sync::watch;
use uuid::Uuid;

use super::events::Told;
use super::leaving::{exited, version};
use super::limits;
use super::line::{failed, refused};
use super::progress;
use crate::libvirt::domains::words;

const LOOK: &str = "look at the domain";
const RUN: &str = "run the domain";

/// What this host has seen of a domain that comes, whichever connection showed it.
#[derive(Debug, Default)]
pub struct Seen {
    /// The source may have asked its libvirt to begin.
    begun: AtomicBool,
    /// It was there.
    there: AtomicBool,
    /// All of it was.
    whole: AtomicBool,
}

impl Seen {
    /// By an agent before this one, as far as can be known.
    pub fn of_before() -> Self {
        Self {
            begun: AtomicBool::new(true),
            ..Self::default()
        }
    }
}

/// A domain that comes, over one connection. libvirt starts its hypervisor when the source's asks for that.
#[derive(Debug)]
pub struct Arriving {
    connection: Connection,
    uuid: Uuid,
    /// It is to stand still.
    paused: bool,
    seen: Arc<Seen>,
    gone: watch::Sender<Option<Exit>>,
}

/// How far a domain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Come {
    /// Nothing is here yet.
    NotYet,
    /// Its hypervisor takes its memory in.
    Receives,
    /// All of it is here, and it stands still.
    Whole,
    /// It runs, by somebody's word.
    Runs,
    /// It was here, and has no hypervisor any more.
    Gone,
}

impl Come {
    fn of(look: Option<&Look>, seen: &Seen) -> Self {
        let was_there = seen.there.load(Ordering::Relaxed);
        let Some(look) = look else {
            return if was_there { Self::Gone } else { Self::NotYet };
        };
        let was_whole = seen.whole.load(Ordering::Relaxed);
        match (look.domain.state, look.why) {
            (DomainState::ShutOff, _) => Self::Gone,
            (DomainState::Paused, Why::Asked) => Self::Whole,
            // One that was whole may be stopped by whatever stops a domain.
            (DomainState::Paused, _) if was_whole => Self::Whole,
            (DomainState::Paused, _) => Self::Receives,
            (DomainState::Crashed, _) if was_whole => Self::Whole,
            (DomainState::Crashed | DomainState::Other(_), _) => Self::Receives,
            _ => Self::Runs,
        }
    }
}

impl Arriving {
    pub fn new(connection: Connection, uuid: Uuid, paused: bool, seen: Arc<Seen>) -> Self {
        Self {
            connection,
            uuid,
            paused,
            seen,
            gone: watch::Sender::new(None),
        }
    }

    async fn come(&self) -> Result<Come, MachineError> {
        let look = self.connection.look(self.uuid).await;
        let look = look.map_err(|error| failed(LOOK, &error))?;
        let come = Come::of(look.as_ref(), &self.seen);
        match come {
            Come::NotYet => {}
            Come::Receives => self.seen.there.store(true, Ordering::Relaxed),
            Come::Whole | Come::Runs => {
                self.seen.there.store(true, Ordering::Relaxed);
                self.seen.whole.store(true, Ordering::Relaxed);
            }
            Come::Gone => {
                let why = "libvirt has no hypervisor of it any more";
                self.gone.send_replace(Some(exit(why)));
            }
        }
        Ok(come)
    }

    async fn stands(&self) -> Result<MigrationProgress, MachineError> {
        let status = match self.come().await? {
            Come::NotYet | Come::Gone => MigrationStatus::None,
            Come::Receives => MigrationStatus::Active,
            Come::Whole | Come::Runs => MigrationStatus::Completed,
        };
        Ok(progress::of(status))
    }

    async fn runs(&self) -> Result<RunState, MachineError> {
        Ok(match self.come().await? {
            Come::NotYet | Come::Receives => RunState::InMigrate,
            Come::Whole => RunState::Paused,
            Come::Runs => RunState::Running,
            Come::Gone => RunState::Shutdown,
        })
    }

    /// Has it run, unless it stood still before.
    async fn run(&self) -> Result<(), MachineError> {
        match self.come().await? {
            Come::Runs => Ok(()),
            Come::Whole if self.paused => Ok(()),
            Come::Whole => {
                let resumed = self.connection.resume(self.uuid).await;
                resumed.map_err(|error| failed(RUN, &error))
            }
            Come::NotYet | Come::Receives => Err(refused(RUN, "it has not arrived yet".to_owned())),
            Come::Gone => Err(refused(RUN, "libvirt has no hypervisor of it".to_owned())),
        }
    }

    /// Takes away what came of it: its hypervisor, and its definition, of which there was none before it came.
    async fn take_away(&self) -> Result<Exit, MachineError> {
        const END: &str = "end the domain";
        let look = async || {
            let look = self.connection.look(self.uuid).await;
            look.map_err(|error| failed(END, &error))
        };
        let mut there = look().await?;
        let was_there = self.seen.there.load(Ordering::Relaxed);
        if there.is_none() && !was_there && self.seen.begun.load(Ordering::Relaxed) {
            // A libvirtd that was just starting it for a connection that is closed by now ends it by itself; what it forgets
            // would be in the way of the next attempt.
            tokio::time::sleep(limits::SETTLES).await;
            there = look().await?;
        }
        if let Some(look) = there {
            let state = look.domain.state;
            if Come::of(Some(&look), &self.seen) == Come::Runs {
                let why = format!(
                    "somebody has it run here, where it is not to: libvirt says that it is {}; end it with `virsh destroy`, if it is the \
                     copy that the source did not hand off",
                    words(state)
                );
                return Err(refused(END, why));
            }
            let ended = self.connection.destroy(self.uuid).await;
            ended.map_err(|error| failed(END, &error))?;
            let undefined = self.connection.undefine(self.uuid).await;
            undefined.map_err(|error| failed(END, &error))?;
        }
        Ok(exit("it was ended, as it is not to come"))
    }
}

fn exit(why: &str) -> Exit {
    Exit {
        status: ExitStatus::Unknown,
        stderr: vec![why.to_owned()],
        at: SystemTime::now(),
    }
}

impl Movable for Arriving {
    fn version(&self) -> Version {
        version(&self.connection)
    }

    fn state(&self) -> Answer<'_, RunState> {
        Box::pin(self.runs())
    }

    fn resume(&self) -> Answer<'_, ()> {
        Box::pin(self.run())
    }

    fn quit(&self) -> Answer<'_, Exit> {
        Box::pin(self.take_away())
    }

    fn kill(&self) -> Answer<'_, Exit> {
        Box::pin(self.take_away())
    }

    fn exited(&self) -> Boxed<'_, Exit> {
        Box::pin(exited(self.gone.subscribe()))
    }

    fn exit(&self) -> Option<Exit> {
        self.gone.borrow().clone()
    }

    fn set_migration<'a>(
        &'a self,
        _settings: &'a MigrationSettings,
    ) -> Answer<'a, AppliedSettings> {
        // libvirt tells its own QEMU what the source's libvirt wants.
        Box::pin(async { Ok(AppliedSettings::default()) })
    }

    fn listen_incoming<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        // Its QEMU does, once the source's libvirt has asked for it.
        self.seen.begun.store(true, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn migrate<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async {
            Err(refused(
                "migrate",
                "the domain is to arrive here".to_owned(),
            ))
        })
    }

    fn set_downtime_limit(&self, _limit: std::time::Duration) -> Answer<'_, ()> {
        Box::pin(async {
            let why = "the host that it leaves has it".to_owned();
            Err(refused("set the downtime limit", why))
        })
    }

    fn cancel(&self) -> Answer<'_, ()> {
        Box::pin(async {
            let why = "the host that it leaves does that".to_owned();
            Err(refused("cancel the migration", why))
        })
    }

    fn yank_migration(&self) -> Answer<'_, ()> {
        // Whoever has the relay closes its sockets.
        Box::pin(async { Ok(()) })
    }

    fn migration(&self) -> Answer<'_, MigrationProgress> {
        Box::pin(self.stands())
    }

    fn events(&self) -> MachineEvents {
        MachineEvents::new(Told {
            events: self.connection.events(),
            domain: self.uuid,
            call: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;

    fn come(state: DomainState, why: Why, seen: &Seen) -> Come {
        let look = Look {
            domain: domain("web", state),
            why,
        };
        Come::of(Some(&look), seen)
    }

    #[test]
    fn a_domain_is_whole_only_once_libvirt_says_that_it_stands_still_by_a_word() {
        let seen = Seen::default();
        assert_eq!(Come::of(None, &seen), Come::NotYet);
        let paused = |why, seen: &Seen| come(DomainState::Paused, why, seen);
        // `VIR_DOMAIN_PAUSED_STARTING_UP`.
        assert_eq!(paused(Why::Other(11), &seen), Come::Receives);
        assert_eq!(paused(Why::Migrating, &seen), Come::Receives);
        assert_eq!(paused(Why::Asked, &seen), Come::Whole);
        seen.there.store(true, Ordering::Relaxed);
        assert_eq!(Come::of(None, &seen), Come::Gone);
        seen.whole.store(true, Ordering::Relaxed);
        assert_eq!(paused(Why::Other(5), &seen), Come::Whole, "a disk failed");
    }

    #[test]
    fn a_domain_that_somebody_has_run_is_told_from_one_that_waits() {
        let seen = Seen::default();
        let runs = come(DomainState::Running, Why::Other(1), &seen);
        assert_eq!(runs, Come::Runs);
        let off = come(DomainState::ShutOff, Why::Other(2), &seen);
        assert_eq!(off, Come::Gone);
    }
}
