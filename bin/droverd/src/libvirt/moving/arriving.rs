//! A domain on the host that it goes to.

use std::sync::Arc;

use drover_hypervisor::qmp::Version;
use drover_hypervisor::{
    Answer, AppliedSettings, Boxed, Exit, MachineError, MachineEvents, MigrationAddress,
    MigrationProgress, MigrationSettings, MigrationStatus, Movable, RunState,
};
use drover_libvirt::{Comes, Connection, Look, Why};
use tokio::sync::watch;
use uuid::Uuid;

use super::arrival::{Arrival, Whose};
use super::events::DomainEvents;
use super::leaving::{exited, version};
use super::limits;
use super::line::{exit, failed, refused};
use crate::agent::Context;
use crate::libvirt::domains::words;
use crate::libvirt::is_in_memory;

const LOOK: &str = "look at the domain";
const RUN: &str = "run the domain";
const END: &str = "end the domain";

/// What is known of a domain before it comes.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// Its id.
    pub uuid: Uuid,
    /// Its definition comes with it.
    pub persistent: bool,
    /// It is to stand still.
    pub paused: bool,
}

/// A domain that comes, over one connection. libvirt starts its hypervisor when the source's asks for that.
#[derive(Debug)]
pub struct Arriving {
    context: Arc<Context>,
    connection: Connection,
    expected: Expected,
    arrival: Arc<Arrival>,
    gone: watch::Sender<Option<Exit>>,
}

/// One look at it.
struct Seen {
    look: Option<Look>,
    comes: Comes,
    whose: Option<Whose>,
}

impl Arriving {
    pub fn new(
        context: Arc<Context>,
        connection: Connection,
        expected: Expected,
        arrival: Arc<Arrival>,
    ) -> Self {
        Self {
            context,
            connection,
            expected,
            arrival,
            gone: watch::Sender::new(None),
        }
    }

    async fn look(&self) -> Result<Seen, MachineError> {
        let look = self.connection.look(self.expected.uuid).await;
        let look = look.map_err(|error| failed(LOOK, &error))?;
        let comes = Comes::of(look.as_ref(), self.arrival.before());
        let in_memory = |look: &Look| is_in_memory(look.domain.state);
        let whose = match look.as_ref().filter(|look| in_memory(look)) {
            Some(_) => {
                let process = self.context.libvirt.process_of(self.expected.uuid).await;
                Some(self.arrival.see(comes, process))
            }
            None => None,
        };
        // What came has ended, where another one has its id.
        let comes = match whose {
            Some(Whose::Another(_)) => Comes::Gone,
            _ => comes,
        };
        if comes == Comes::Gone {
            self.gone.send_replace(Some(exit(Some(&ended(whose)))));
        }
        Ok(Seen { look, comes, whose })
    }

    async fn stands(&self) -> Result<MigrationProgress, MachineError> {
        let status = match self.look().await?.comes {
            Comes::NotYet | Comes::Gone => MigrationStatus::None,
            Comes::Receives => MigrationStatus::Active,
            Comes::Whole | Comes::Runs => MigrationStatus::Completed,
        };
        Ok(MigrationProgress::of(status))
    }

    async fn runs(&self) -> Result<RunState, MachineError> {
        let seen = self.look().await?;
        Ok(run_state(
            seen.comes,
            seen.look.as_ref().map(|look| look.why),
        ))
    }

    /// Has it run, unless it stood still before.
    async fn run(&self) -> Result<(), MachineError> {
        match self.look().await?.comes {
            Comes::Runs => Ok(()),
            Comes::Whole if self.expected.paused => Ok(()),
            Comes::Whole => {
                let resumed = self.connection.resume(self.expected.uuid).await;
                resumed.map_err(|error| failed(RUN, &error))
            }
            Comes::NotYet | Comes::Receives => {
                Err(refused(RUN, "it has not arrived yet".to_owned()))
            }
            Comes::Gone => Err(refused(RUN, "libvirt has no hypervisor of it".to_owned())),
        }
    }

    /// Takes away what came of it: its hypervisor, and the definition that came with it.
    async fn take_away(&self) -> Result<Exit, MachineError> {
        let mut seen = self.look().await?;
        if seen.comes == Comes::NotYet && self.arrival.has_begun() {
            // A libvirtd that was just starting it for a connection that is closed by now ends it by itself; what it forgets
            // would be in the way of the next attempt.
            tokio::time::sleep(limits::SETTLES).await;
            seen = self.look().await?;
        }
        if let Some(why) = not_to_be_ended(&seen) {
            return Err(refused(END, why));
        }
        if !matches!(seen.comes, Comes::Receives | Comes::Whole) {
            return Ok(exit(Some(&ended(seen.whose))));
        }
        let uuid = self.expected.uuid;
        let ended = self.connection.destroy(uuid).await;
        ended.map_err(|error| failed(END, &error))?;
        // Before all of it was here none had come with it: one that is there is somebody's.
        if seen.comes == Comes::Whole && self.expected.persistent {
            let undefined = self.connection.undefine(uuid).await;
            if let Some(state) = undefined.map_err(|error| failed(END, &error))? {
                let state = words(state);
                let why = format!(
                    "somebody started the domain here right after what came was ended: libvirt says that it is {state}"
                );
                return Err(refused(END, why));
            }
        }
        Ok(exit(Some("it was ended, as it is not to come")))
    }
}

/// Why a domain that is not to come is left as it is; none where it may be ended.
fn not_to_be_ended(seen: &Seen) -> Option<String> {
    let state = seen.look.as_ref().map(|look| words(look.domain.state))?;
    match (seen.comes, seen.whose) {
        (Comes::Runs, _) => Some(format!(
            "somebody has it run here, where it is not to: libvirt says that it is {state}; end it with `virsh destroy`, if it is the copy \
             that the source did not hand off"
        )),
        (Comes::Receives | Comes::Whole, Some(Whose::NotKnown) | None) => Some(format!(
            "libvirt says that it is {state} here, and the agent has not seen it come, or does not find its process: it may be another \
             life of the domain; end it with `virsh destroy`, if it is the copy that the source did not hand off"
        )),
        _ => None,
    }
}

/// Why there is no hypervisor of it any more.
fn ended(whose: Option<Whose>) -> String {
    match whose {
        Some(Whose::Another(process)) => format!(
            "what came has ended; process {}, which has its id by now, is another one",
            process.pid
        ),
        _ => "libvirt has no hypervisor of it any more".to_owned(),
    }
}

/// As a hypervisor would say it: one that stands still for a reason of its own has run, if it has, whatever that is.
fn run_state(comes: Comes, why: Option<Why>) -> RunState {
    match comes {
        Comes::NotYet | Comes::Receives => RunState::InMigrate,
        Comes::Whole if why == Some(Why::Asked) => RunState::Paused,
        Comes::Whole => RunState::InternalError,
        Comes::Runs => RunState::Running,
        Comes::Gone => RunState::Shutdown,
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
        self.arrival.begins();
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
        MachineEvents::new(DomainEvents {
            events: self.connection.events(),
            domain: self.expected.uuid,
            call: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;
    use drover_hypervisor::ProcessId;
    use drover_libvirt::DomainState;

    fn seen(state: DomainState, comes: Comes, whose: Option<Whose>) -> Seen {
        let look = Some(Look {
            domain: domain("web", state),
            why: Why::Asked,
        });
        Seen { look, comes, whose }
    }

    #[test]
    fn only_what_the_agent_saw_come_and_nobody_has_run_is_ended() {
        let paused = |comes, whose| not_to_be_ended(&seen(DomainState::Paused, comes, Some(whose)));
        for comes in [Comes::Receives, Comes::Whole] {
            assert_eq!(paused(comes, Whose::Came), None);
            let why = paused(comes, Whose::NotKnown).unwrap();
            assert!(why.contains("has not seen it come"), "{why}");
        }
        let runs = seen(DomainState::Running, Comes::Runs, Some(Whose::Came));
        let why = not_to_be_ended(&runs).unwrap();
        assert!(why.contains("libvirt says that it is running"), "{why}");
    }

    #[test]
    fn a_later_life_of_the_domain_is_nothing_that_came() {
        let process = ProcessId {
            pid: 12,
            start_time: 1,
        };
        let another = Some(Whose::Another(process));
        let later = seen(DomainState::Paused, Comes::Gone, another);
        assert_eq!(not_to_be_ended(&later), None);
        assert!(ended(another).contains("process 12"));
        assert_eq!(run_state(Comes::Gone, Some(Why::Asked)), RunState::Shutdown);
    }

    #[test]
    fn a_domain_that_stands_still_by_a_word_is_told_from_one_that_something_stopped() {
        let whole = |why| run_state(Comes::Whole, Some(why));
        assert_eq!(whole(Why::Asked), RunState::Paused);
        for why in [Why::DiskFailed, Why::Watchdog, Why::Other(0)] {
            assert_eq!(whole(why), RunState::InternalError, "{why}");
        }
    }
}
