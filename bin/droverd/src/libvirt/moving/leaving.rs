//! A domain on the host that it leaves.

use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::DomainHeld;
use drover_hypervisor::qmp::Version;
use drover_hypervisor::{
    Answer, AppliedSettings, Boxed, Exit, MachineError, MachineEvents, MigrationAddress,
    MigrationProgress, MigrationSettings, Movable, RunState,
};
use drover_libvirt::{
    CallError, Connection, CopiedDisks, DomainState, Look, Migration, Ready, Why, Xml, abort_job,
};
use drover_types::{Throttle, ThrottleMost, with_sources};
use tokio::sync::watch;
use uuid::Uuid;

use super::call::{Call, Stands};
use super::disks;
use super::events::DomainEvents;
use super::last::Last;
use super::line::{Line, exit, failed, refused};
use super::other::{Has, OtherHost};
use super::record::DomainRecord;
use crate::libvirt::domains::words;
use crate::peers::Peers;
use crate::registry::files;

const MIGRATE: &str = "migrate";
const FORGET: &str = "let go of the domain";
pub(super) const LOOK: &str = "look at the domain";

/// What is known of a domain before it moves, and how it is to.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Its id.
    pub uuid: Uuid,
    /// What is written down of it.
    pub domain: DomainRecord,
    /// Where the relay listens for libvirtd.
    pub control: PathBuf,
    /// The host that it goes to.
    pub other: OtherHost,
    /// All others, that one among them.
    pub peers: Peers,
    /// Where its definition is kept, which libvirt takes away at the end.
    pub kept: PathBuf,
    /// Where the relay listens for its disks, if they are copied.
    pub disks: Option<PathBuf>,
}

impl Terms {
    fn copied(&self) -> Option<CopiedDisks> {
        let targets = disks::of(&self.domain.moving).iter();
        Some(CopiedDisks {
            socket: self.disks.clone()?,
            targets: targets.map(|disk| disk.target.clone()).collect(),
        })
    }

    /// It stays, and its definition with it.
    pub fn forget_definition(&self) {
        if let Err(error) = files::remove(&self.kept) {
            tracing::warn!(file = %self.kept.display(), %error, "not removed");
        }
    }
}

/// A domain that leaves, over one connection.
#[derive(Debug)]
pub struct Leaving {
    line: Arc<Line>,
    pub(super) connection: Connection,
    pub(super) terms: Arc<Terms>,
    pub(super) call: Call,
    settings: Mutex<MigrationSettings>,
    pub(super) last: Mutex<Option<MigrationProgress>>,
    pub(super) gone: watch::Sender<Option<Exit>>,
}

impl Leaving {
    pub fn new(line: Arc<Line>, connection: Connection, terms: Arc<Terms>, call: Call) -> Self {
        Self {
            line,
            connection,
            terms,
            call,
            settings: Mutex::default(),
            last: Mutex::default(),
            gone: watch::Sender::new(None),
        }
    }

    pub(super) async fn look(&self) -> Result<Option<Look>, MachineError> {
        let looked = self.connection.look(self.terms.uuid).await;
        looked.map_err(|error| failed(LOOK, &error))
    }

    /// Begins to migrate it, once all that must be known of that is written down.
    ///
    /// That may take longer than whoever wants it waits for it. Then nothing is begun, and nothing stays changed.
    async fn begin(&self, memory: PathBuf) -> Result<(), MachineError> {
        let may_begin = || self.call.may_begin().map_err(|why| refused(MIGRATE, why));
        let settings = lock(&self.settings).clone();
        let migration = Migration {
            control: self.terms.control.clone(),
            memory,
            channels: NonZeroU8::new(settings.channels),
            disks: self.terms.copied(),
            auto_converge: settings.throttle.is_some(),
            persistent: self.terms.domain.moving.persistent,
        };
        let library = self.line.library().await;
        let library = library.map_err(|why| refused(MIGRATE, why))?;
        let (uri, uuid) = (self.line.uri(), self.terms.uuid);
        let ready = Ready::new(library, uri, uuid, &migration).await;
        let ready = ready.map_err(|error| refused(MIGRATE, with_sources(&error)))?;
        let is_paused = ready.domain().state == DomainState::Paused;
        if is_paused != self.terms.domain.moving.paused {
            let state = words(ready.domain().state);
            let why = format!("it is {state} by now, which it was not when this began");
            return Err(refused(MIGRATE, why));
        }
        if self.terms.domain.moving.persistent {
            self.keep_definition().await?;
        }
        may_begin()?;
        // A host that loses power while it lets go of the domain does not start it again.
        if self.terms.domain.moving.autostart {
            let taken = self.connection.set_autostart(uuid, false).await;
            // Whatever became of that, libvirt was not asked to migrate it.
            taken.map_err(|error| refused(MIGRATE, with_sources(&error)))?;
        }
        let begun = self.call.begin(ready);
        if let Err(why) = begun {
            // Whoever ended the migration may have given it back before it was taken.
            self.give_autostart_back().await;
            self.terms.forget_definition();
            return Err(refused(MIGRATE, why));
        }
        Ok(())
    }

    async fn give_autostart_back(&self) {
        if self.terms.domain.moving.autostart
            && let Err(error) = self.connection.set_autostart(self.terms.uuid, true).await
        {
            let why = with_sources(&error);
            tracing::error!(domain = %self.terms.uuid, why, "it is not started with its host any more, as it was before");
        }
    }

    /// Writes its definition down: from when libvirt lets go of it until it runs there the destination has the only one.
    async fn keep_definition(&self) -> Result<(), MachineError> {
        let xml = self.connection.xml(self.terms.uuid, Xml::Kept).await;
        let xml = xml.map_err(|error| refused(MIGRATE, with_sources(&error)))?;
        let path = self.terms.kept.clone();
        let written =
            tokio::task::spawn_blocking(move || files::write_whole(&path, xml.as_bytes()));
        let written = written
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| {
            let kept = self.terms.kept.display();
            refused(
                MIGRATE,
                format!("its definition cannot be kept in {kept}: {error}"),
            )
        })
    }

    async fn runs(&self) -> Result<RunState, MachineError> {
        let leaves = !matches!(self.call.stands(), Stands::NotBegun | Stands::Failed(_));
        let look = self.look().await?;
        Ok(match look {
            None => RunState::PostMigrate,
            Some(look) => state(&look, leaves),
        })
    }

    /// Sees to it that nothing of a domain that has left can be started here.
    async fn forget(&self) -> Result<Exit, MachineError> {
        let Some(look) = self.look().await? else {
            return Ok(exit(None));
        };
        if !is_off(&look) {
            return Err(is_here(look.domain.state));
        }
        if !self.terms.domain.moving.persistent {
            // It did not go along, and is nowhere else.
            let why = "somebody defined the domain here while it moved: see that this definition is not started";
            return Ok(exit(Some(why)));
        }
        match self.last(look.why).await {
            Last::No => {}
            Last::NotKnown(why) => return Err(refused(FORGET, why)),
            Last::Left(why) => return Ok(exit(Some(&why))),
        }
        let undefined = self.connection.undefine(self.terms.uuid).await;
        match undefined.map_err(|error| failed(FORGET, &error))? {
            Some(state) => Err(is_here(state)),
            None => Ok(exit(None)),
        }
    }

    /// Whether the definition that is left here may be the last one: somebody may have brought the domain back since.
    async fn last(&self, off: Why) -> Last {
        let other = &self.terms.other;
        let there = other.holds(self.terms.uuid).await;
        let is_absent = there == Ok(DomainHeld::Absent);
        match Last::by(&other.host, there, off) {
            Last::NotKnown(why) if is_absent => match other.has().await {
                Has::Nothing(why) => Last::given_up(&why),
                _ => Last::NotKnown(why),
            },
            last => last,
        }
    }

    async fn abort(&self) -> Result<(), MachineError> {
        const CANCEL: &str = "cancel the migration";
        if self.call.never("it was given up before libvirt was asked") {
            return Ok(());
        }
        if self.call.is_in_doubt() {
            // Nothing of it is here that could be cancelled.
            return Ok(());
        }
        let library = self.line.library().await;
        let library = library.map_err(|why| refused(CANCEL, why))?;
        let aborted = abort_job(library, self.line.uri(), self.terms.uuid).await;
        aborted.map_err(|error| refused(CANCEL, with_sources(&error)))
    }

    /// Lets it run on as it did before.
    async fn go_on(&self) -> Result<(), MachineError> {
        if self.terms.domain.moving.paused {
            return Ok(());
        }
        let resumed = self.connection.resume(self.terms.uuid).await;
        resumed.map_err(|error| failed("run the domain", &error))
    }
}

/// Of one that was handed off: it is in memory here.
fn is_here(state: DomainState) -> MachineError {
    let state = words(state);
    let why = format!(
        "libvirt says that the domain is {state} here, which was handed off: `virsh list` tells what it is"
    );
    refused(FORGET, why)
}

/// It has no hypervisor.
pub(super) fn is_off(look: &Look) -> bool {
    look.domain.state == DomainState::ShutOff
}

/// As a hypervisor would say it.
fn state(look: &Look, leaves: bool) -> RunState {
    match look.domain.state {
        DomainState::Running | DomainState::ShuttingDown => RunState::Running,
        DomainState::Paused if leaves && look.why == Why::Migrating => RunState::FinishMigrate,
        DomainState::Paused => RunState::Paused,
        DomainState::ShutOff => RunState::PostMigrate,
        DomainState::Asleep => RunState::Suspended,
        DomainState::Crashed | DomainState::Other(_) => RunState::InternalError,
    }
}

/// Nothing that holds one of these locks panics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Movable for Leaving {
    fn version(&self) -> Version {
        version(&self.connection)
    }

    fn state(&self) -> Answer<'_, RunState> {
        Box::pin(self.runs())
    }

    fn resume(&self) -> Answer<'_, ()> {
        Box::pin(self.go_on())
    }

    fn quit(&self) -> Answer<'_, Exit> {
        Box::pin(self.forget())
    }

    fn kill(&self) -> Answer<'_, Exit> {
        // Nothing is ended by force that libvirt did not let go of by itself.
        Box::pin(self.forget())
    }

    fn exited(&self) -> Boxed<'_, Exit> {
        Box::pin(exited(self.gone.subscribe()))
    }

    fn exit(&self) -> Option<Exit> {
        self.gone.borrow().clone()
    }

    fn set_migration<'a>(&'a self, settings: &'a MigrationSettings) -> Answer<'a, AppliedSettings> {
        Box::pin(async move {
            *lock(&self.settings) = settings.clone();
            let uuid = self.terms.uuid;
            let limit = settings.downtime_limit;
            let mut left_out = Vec::new();
            // What it was is set again in the end.
            let set = match self.terms.domain.downtime_limit_ms.is_some() {
                true => self
                    .connection
                    .set_max_downtime(uuid, limit)
                    .await
                    .map_err(|error| with_sources(&error)),
                false => Err("libvirt does not tell what it was".to_owned()),
            };
            if let Err(why) = set {
                left_out.push(format!("downtime limit before it begins ({why})"));
            }
            left_out.extend(not_libvirts(settings.throttle));
            Ok(AppliedSettings {
                left_out,
                postcopy: false,
            })
        })
    }

    fn listen_incoming<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async {
            let why = "the domain is to leave this host".to_owned();
            Err(refused("listen for a migration", why))
        })
    }

    fn migrate<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            match address {
                MigrationAddress::Unix(memory) => self.begin(memory.clone()).await,
                MigrationAddress::Uri(uri) => {
                    let why = format!("{uri:?} is no socket of a relay");
                    Err(refused(MIGRATE, why))
                }
            }
        })
    }

    fn set_downtime_limit(&self, limit: std::time::Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let set = self.connection.set_max_downtime(self.terms.uuid, limit);
            let set: Result<(), CallError> = set.await;
            set.map_err(|error| failed("set the downtime limit", &error))
        })
    }

    fn cancel(&self) -> Answer<'_, ()> {
        Box::pin(self.abort())
    }

    fn yank_migration(&self) -> Answer<'_, ()> {
        // libvirt has no way to: whoever has the relay closes its sockets.
        Box::pin(async { Ok(()) })
    }

    fn migration(&self) -> Answer<'_, MigrationProgress> {
        Box::pin(self.stands())
    }

    fn events(&self) -> MachineEvents {
        MachineEvents::new(DomainEvents {
            events: self.connection.events(),
            domain: self.terms.uuid,
            call: Some(self.call.follow()),
        })
    }
}

/// What of how a guest is slowed down libvirt does not do.
fn not_libvirts(throttle: Option<(Throttle, ThrottleMost)>) -> Vec<String> {
    let Some((how, most)) = throttle else {
        return Vec::new();
    };
    let how = (how == Throttle::DirtyLimit)
        .then(|| "dirty-limit by libvirt, but auto-converge".to_owned());
    let (all, most) = (ThrottleMost::default().get(), most.get());
    let most = (most != all).then(|| {
        format!("at most {most} % of its time by libvirt (throttle_most): its auto-converge goes up to {all} %")
    });
    how.into_iter().chain(most).collect()
}

/// Waits until it has no hypervisor any more.
pub(super) async fn exited(mut gone: watch::Receiver<Option<Exit>>) -> Exit {
    loop {
        if let Some(exit) = gone.borrow_and_update().clone() {
            return exit;
        }
        if gone.changed().await.is_err() {
            // Whoever would tell is gone, and whoever waits with it.
            std::future::pending::<()>().await;
        }
    }
}

/// The version of the QEMU that libvirt starts by itself.
pub(super) fn version(connection: &Connection) -> Version {
    const UNKNOWN: Version = Version {
        major: 0,
        minor: 0,
        micro: 0,
    };
    let told = connection.hypervisor().to_string();
    Version::read(&told).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;

    #[test]
    fn what_libvirt_does_not_do_of_how_a_guest_is_slowed_down_is_told() {
        let most = |most: i64| ThrottleMost::try_from(most).unwrap();
        let left_out = |how, percent| not_libvirts(Some((how, most(percent))));
        assert_eq!(not_libvirts(None), [""; 0]);
        assert_eq!(left_out(Throttle::AutoConverge, 99), [""; 0]);
        let bounded = left_out(Throttle::AutoConverge, 40);
        assert!(
            bounded[0].contains("at most 40 % of its time by libvirt"),
            "{bounded:?}"
        );
        assert_eq!(left_out(Throttle::DirtyLimit, 40).len(), 2);
    }

    #[test]
    fn a_domain_that_stands_still_for_its_migration_is_told_from_one_that_was_paused() {
        let look = |state, why| Look {
            domain: domain("web", state),
            why,
        };
        let switching = look(DomainState::Paused, Why::Migrating);
        assert_eq!(state(&switching, true), RunState::FinishMigrate);
        // A libvirtd that was killed leaves it so, and nothing moves it on.
        assert_eq!(state(&switching, false), RunState::Paused);
        let paused = look(DomainState::Paused, Why::Asked);
        assert_eq!(state(&paused, true), RunState::Paused);
        let off = look(DomainState::ShutOff, Why::Left);
        assert!(is_off(&off));
        assert_eq!(state(&off, true), RunState::PostMigrate);
        let runs = look(DomainState::Running, Why::Other(1));
        assert_eq!(state(&runs, true), RunState::Running);
    }
}
