//! A guest whose disks are copied with it, for the migration's task: memory moves once they are the same.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_hypervisor::qmp::Version;
use drover_hypervisor::{
    Answer, AppliedSettings, Boxed, DiskProgress, Exit, Machine, MachineError, MachineEvents,
    MigrationAddress, MigrationProgress, MigrationSettings, MigrationStatus, Movable, RunState,
};
use drover_migrate::mirrors::Stage;
use drover_types::{Bytes, MigrationId};
use tokio::sync::watch;

use super::record::Record;
use super::{drive, name};

/// The copies of one guest's disks.
#[derive(Debug)]
pub struct Copying {
    state: PathBuf,
    pub migration: MigrationId,
    record: Mutex<Record>,
    /// Each disk's.
    pub names: Vec<String>,
    /// The way to QEMU: another one once that was lost.
    machine: Mutex<Option<Arc<dyn Machine>>>,
    /// Somebody wants it to stay.
    pub given_up: watch::Sender<bool>,
    /// Memory's migration was cut off, as it would not end.
    pub yanked: watch::Sender<bool>,
    shown: Mutex<Shown>,
    is_driven: Mutex<bool>,
}

/// What the migration's task sees.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    pub disks: Option<DiskProgress>,
    pub now: Now,
}

/// Of what it is told.
#[derive(Debug, Clone, Default)]
pub enum Now {
    /// Of QEMU's migration, as nothing else was begun.
    #[default]
    Rest,
    /// That disks are copied.
    Copies,
    /// Of QEMU's migration, but for a failure, which is told once copies are cleared away.
    Memory,
    /// Of its end; the reason where it is for the disks.
    Failed(String),
    /// It was called back while disks were copied.
    Cancelled,
}

impl Copying {
    pub fn new(state: &Path, migration: MigrationId, record: Record) -> Self {
        let names = 0..record.disks.len();
        Self {
            state: state.to_owned(),
            migration,
            names: names.map(|number| name(migration, number)).collect(),
            record: Mutex::new(record),
            machine: Mutex::default(),
            given_up: watch::Sender::new(false),
            yanked: watch::Sender::new(false),
            shown: Mutex::default(),
            is_driven: Mutex::default(),
        }
    }

    pub fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// Writes down how far it is, before that is acted upon.
    ///
    /// # Errors
    /// It cannot be.
    pub fn enter(&self, stage: Stage) -> std::io::Result<()> {
        let mut record = lock(&self.record);
        record.stage = Some(stage);
        record.write(&self.state, self.migration)
    }

    pub fn forget(&self) {
        Record::forget(&self.state, self.migration);
    }

    pub fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut lock(&self.shown));
    }

    /// The way to QEMU that is known now.
    pub fn machine(&self) -> Option<Arc<dyn Machine>> {
        lock(&self.machine).clone()
    }

    /// There is a way to QEMU. Copies that an earlier agent began are driven on.
    pub fn reached(self: &Arc<Self>, machine: Arc<dyn Machine>) {
        *lock(&self.machine) = Some(machine);
        if let Some(stage) = lock(&self.record).stage {
            self.drive(stage, false);
        }
    }

    /// Once, whoever asks for it.
    fn drive(self: &Arc<Self>, stage: Stage, begins: bool) {
        if std::mem::replace(&mut *lock(&self.is_driven), true) {
            return;
        }
        let now = match stage {
            Stage::Copying => Now::Copies,
            Stage::Memory | Stage::Ended => Now::Memory,
        };
        self.show(|shown| shown.now = now);
        tokio::spawn(drive::drive(Arc::clone(self), stage, begins));
    }
}

/// The same with the way to QEMU of that moment.
#[derive(Debug, Clone)]
pub struct WithCopies {
    pub copying: Arc<Copying>,
    pub machine: Arc<dyn Machine>,
}

impl WithCopies {
    async fn stands(&self) -> Result<MigrationProgress, MachineError> {
        let Shown { disks, now } = lock(&self.copying.shown).clone();
        let progress = match now {
            Now::Copies => MigrationProgress::of(MigrationStatus::Active),
            Now::Failed(why) => MigrationProgress::failed(why),
            Now::Cancelled => MigrationProgress::of(MigrationStatus::Cancelled),
            Now::Rest => self.machine.migration().await?,
            Now::Memory => as_under_way(self.machine.migration().await?),
        };
        Ok(MigrationProgress { disks, ..progress })
    }
}

/// Where it failed, copies are cleared away before that is told.
fn as_under_way(progress: MigrationProgress) -> MigrationProgress {
    let status = match progress.status {
        MigrationStatus::None | MigrationStatus::Failed | MigrationStatus::Cancelled => {
            MigrationStatus::Active
        }
        status => status,
    };
    MigrationProgress { status, ..progress }
}

/// Nothing that holds one of these locks panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Movable for WithCopies {
    fn version(&self) -> Version {
        self.machine.version()
    }

    fn state(&self) -> Answer<'_, RunState> {
        self.machine.state()
    }

    fn resume(&self) -> Answer<'_, ()> {
        self.machine.resume()
    }

    fn run_on(&self) -> Answer<'_, ()> {
        self.machine.run_on()
    }

    fn quit(&self) -> Answer<'_, Exit> {
        self.machine.quit()
    }

    fn kill(&self) -> Answer<'_, Exit> {
        self.machine.kill()
    }

    fn exited(&self) -> Boxed<'_, Exit> {
        self.machine.exited()
    }

    fn exit(&self) -> Option<Exit> {
        self.machine.exit()
    }

    fn set_migration<'a>(&'a self, settings: &'a MigrationSettings) -> Answer<'a, AppliedSettings> {
        Box::pin(async move {
            let settings = MigrationSettings {
                pauses: true,
                ..settings.clone()
            };
            self.machine.set_migration(&settings).await
        })
    }

    fn listen_incoming<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        self.machine.listen_incoming(address)
    }

    /// Begins to copy the disks; memory follows by itself, to the address that was written down for it.
    fn migrate<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            let begun = self.copying.enter(Stage::Copying);
            begun.map_err(|error| MachineError::Other {
                operation: "migrate",
                reason: format!("that its disks are copied cannot be written down: {error}"),
                unanswered: false,
            })?;
            self.copying.drive(Stage::Copying, true);
            Ok(())
        })
    }

    fn set_downtime_limit(&self, limit: Duration) -> Answer<'_, ()> {
        self.machine.set_downtime_limit(limit)
    }

    fn cancel(&self) -> Answer<'_, ()> {
        Box::pin(async {
            self.copying.given_up.send_replace(true);
            match self.copying.record().stage {
                // Its memory is not moved yet, and is not going to be.
                None | Some(Stage::Copying) => Ok(()),
                Some(Stage::Memory | Stage::Ended) => self.machine.cancel().await,
            }
        })
    }

    /// Cuts memory's connections. The copies' are, where they do not end within a while.
    fn yank_migration(&self) -> Answer<'_, ()> {
        self.copying.yanked.send_replace(true);
        self.machine.yank_migration()
    }

    fn lift_dirty_limit(&self) -> Answer<'_, ()> {
        self.machine.lift_dirty_limit()
    }

    fn dirtied(&self, within: Duration) -> Answer<'_, Option<Bytes>> {
        self.machine.dirtied(within)
    }

    fn migration(&self) -> Answer<'_, MigrationProgress> {
        Box::pin(self.stands())
    }

    fn events(&self) -> MachineEvents {
        self.machine.events()
    }
}
