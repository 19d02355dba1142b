//! Disks of guests that run, which move to other files of this host: docs/decisions/0044.
//!
//! ```text
//!   order ─▶ libvirt::disk_ready: may it ─▶ Record, on disk ─▶ drive: look ─ drover_migrate::storage_move ─ act ─▶ files: what goes
//! ```
//! Owns what is known of each move, and the task that carries it out. How libvirt is told is `crate::libvirt`'s.
//!
//! # Invariant
//! What is about to be done is on disk before it is done, so that the next agent goes on from there.

mod drive;
mod files;
mod limits;
mod record;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{
    DiskFormat, ErrorCode, Refusal, StorageMovePhase, StorageMoveRequest, StorageMoveView,
};
use drover_libvirt::DiskCopy;
use drover_migrate::storage_move::Stage;
use drover_types::{ByteRate, Bytes, StorageMoveId};
use jiff::Timestamp;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::agent::Context;
use crate::disks::KnownFile;
use crate::libvirt::{self, DiskReady, DomainDisk};
use record::{Journal, Owes, Record};

pub use record::with_files;

/// Bits of a byte.
const BITS: u64 = 8;

/// All moves of disks that this agent knows of.
#[derive(Debug)]
pub struct StorageMoves {
    context: Arc<Context>,
    journal: Journal,
    known: Mutex<BTreeMap<StorageMoveId, Arc<Move>>>,
    /// No guest is stopped any more.
    ends: AtomicBool,
}

/// One of them.
#[derive(Debug)]
struct Move {
    record: Mutex<Record>,
    /// Somebody wants something of it.
    wanted: Notify,
}

impl Move {
    fn new(record: Record) -> Arc<Self> {
        let wanted = Notify::new();
        let record = Mutex::new(record);
        Arc::new(Self { record, wanted })
    }

    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> StorageMoveView {
        self.record().view.clone()
    }
}

impl StorageMoves {
    /// With those that are below the agent's state directory, of which each goes on that has not ended.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn open(context: Arc<Context>) -> io::Result<Arc<Self>> {
        let journal = Journal::open(&context.config.state)?;
        let records = journal.load()?;
        let moves = Arc::new(Self {
            context,
            journal,
            known: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        for record in records {
            let moving = Move::new(record);
            let id = moving.view().id;
            moves.lock().insert(id, Arc::clone(&moving));
            moves.take_up(moving);
        }
        Ok(moves)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<StorageMoveId, Arc<Move>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with one that an agent before began, or with what is left to do of it.
    fn take_up(self: &Arc<Self>, moving: Arc<Move>) {
        let record = moving.record().clone();
        let moves = Arc::clone(self);
        if record.stage.is_none() {
            tokio::spawn(async move { moves.settle(&moving).await });
            return;
        }
        let disk = self.disk_of(&record);
        moving
            .record()
            .tell("the agent was started anew, and goes on with it");
        tokio::spawn(async move { moves.drive(&moving, disk, None).await });
    }

    /// The disk of one, in its domain's turn where nobody else has it.
    fn disk_of(&self, record: &Record) -> DomainDisk {
        let (id, view) = (record.view.id, &record.view);
        let paths = [view.from.as_path(), &view.to];
        libvirt::disk_taken_up(&self.context, id, record.domain, &view.disk, paths)
    }

    /// Begins to move a disk. Answers when that is written down.
    ///
    /// # Errors
    /// It cannot be moved; nothing was changed then.
    pub async fn start(
        self: &Arc<Self>,
        request: StorageMoveRequest,
    ) -> Result<StorageMoveView, Refusal> {
        let id = StorageMoveId(Uuid::now_v7());
        let ready = libvirt::disk_ready(&self.context, &request, id).await?;
        let ready = ready.ok_or_else(|| self.not_libvirts(&request))?;
        let copy = DiskCopy {
            target: ready.target.clone(),
            to: ready.new.path.clone(),
            format: DiskFormat::from(ready.new.layout).as_str(),
            limit: request.limit.map(|rate| ByteRate((rate.0 / BITS).max(1))),
        };
        let record = self.begun(id, &request, &ready)?;
        let moving = Move::new(record);
        {
            let mut known = self.lock();
            let under_way = known.values().filter(|one| one.record().stage.is_some());
            if under_way.count() >= limits::AT_ONCE {
                let most = limits::AT_ONCE;
                let message =
                    format!("{most} disks are being moved already, which are all at once");
                let refusal = Refusal::new(ErrorCode::VmBusy, message);
                return Err(refusal.next("wait for the end of one: `drover storage status`"));
            }
            self.let_go(&mut known);
            known.insert(id, Arc::clone(&moving));
        }
        if let Err(error) = self.write(&moving.record()) {
            self.lock().remove(&id);
            let message = format!("the move cannot be written down: {error}");
            return Err(Refusal::new(ErrorCode::Internal, message)
                .next("see that the agent's state directory can be written to"));
        }
        let view = moving.view();
        let moves = Arc::clone(self);
        let DiskReady { disk, new, .. } = ready;
        tokio::spawn(async move { moves.drive(&moving, disk, Some((new, copy))).await });
        Ok(view)
    }

    /// Those that are too old.
    fn let_go(&self, known: &mut BTreeMap<StorageMoveId, Arc<Move>>) {
        let over = known.iter().filter(|(_, one)| one.record().is_over());
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        let too_many = over.len().saturating_sub(limits::HISTORY);
        for id in over.into_iter().take(too_many) {
            known.remove(&id);
            self.journal.forget(id);
        }
    }

    fn begun(
        &self,
        id: StorageMoveId,
        request: &StorageMoveRequest,
        ready: &DiskReady,
    ) -> Result<Record, Refusal> {
        let old = match request.remove_old {
            true => Some(self.known_old(request, ready)?),
            false => None,
        };
        let view = StorageMoveView {
            id,
            vm: request.vm.clone(),
            disk: ready.target.clone(),
            from: ready.from.clone(),
            from_format: ready.from_format,
            to: ready.new.path.clone(),
            to_format: ready.new.layout.into(),
            remove_old: request.remove_old,
            phase: StorageMovePhase::Preparing,
            copied: Bytes(0),
            total: ready.new.size,
            paused_ms: None,
            started_at: Timestamp::now(),
            ended_at: None,
            cause: None,
            next: None,
            events: Vec::new(),
        };
        Ok(Record {
            view,
            domain: ready.domain,
            stage: Some(Stage::Making),
            cancelled: false,
            paused_at: None,
            old,
            owes: Owes::Nothing,
        })
    }

    fn known_old(
        &self,
        request: &StorageMoveRequest,
        ready: &DiskReady,
    ) -> Result<KnownFile, Refusal> {
        let known = tokio::task::block_in_place(|| KnownFile::at(&ready.from));
        known.map_err(|error| {
            let (vm, from) = (&request.vm, ready.from.display());
            let message = format!("guest {vm}: {from} could not be removed afterwards: {error}");
            Refusal::new(ErrorCode::DiskStays, message)
                .next("move the disk without --remove-old, and remove what it leaves by hand")
        })
    }

    /// Of a guest of the agent's own, or of none.
    fn not_libvirts(&self, request: &StorageMoveRequest) -> Refusal {
        let (vm, host) = (&request.vm, &self.context.config.host);
        let held = self.context.registry.held(vm);
        if held.process || held.definition {
            let message = format!(
                "guest {vm} of {host} is by a definition: only disks of libvirt's domains move alone by now"
            );
            return Refusal::new(ErrorCode::DiskStays, message).next(
                "stop it, copy the file, have the definition name the copy, and start it: `drover vm stop`, `drover vm start`",
            );
        }
        let message = format!("{host} has no guest {vm}");
        Refusal::new(ErrorCode::NoSuchVm, message).next("`drover vm list` names those that it has")
    }

    /// All of them, newest first.
    pub fn all(&self) -> Vec<StorageMoveView> {
        let known = self.lock();
        known.values().rev().map(|moving| moving.view()).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn get(&self, id: StorageMoveId) -> Result<StorageMoveView, Refusal> {
        Ok(self.find(id)?.view())
    }

    fn find(&self, id: StorageMoveId) -> Result<Arc<Move>, Refusal> {
        let found = self.lock().get(&id).cloned();
        found.ok_or_else(|| {
            let message = format!("no storage move {id} is remembered");
            Refusal::new(ErrorCode::NoSuchStorageMove, message)
                .next("`drover storage status` lists them")
        })
    }

    /// Has the disk stay. Answers when that is written down.
    ///
    /// # Errors
    /// It has ended, or is about to.
    pub fn cancel(&self, id: StorageMoveId) -> Result<StorageMoveView, Refusal> {
        let moving = self.find(id)?;
        let mut record = moving.record();
        let (vm, disk) = (&record.view.vm, &record.view.disk);
        match record.stage {
            None => {
                let message = format!("the move of {disk} of guest {vm} has ended");
                return Err(Refusal::new(ErrorCode::StorageMoveEnded, message)
                    .next("`drover storage status` tells how"));
            }
            Some(Stage::Pivoting { .. }) => {
                let message = format!(
                    "disk {disk} of guest {vm} is about to be {}",
                    record.view.to.display()
                );
                return Err(Refusal::new(ErrorCode::TooLate, message)
                    .next("move it back once it is: `drover storage move`"));
            }
            Some(_) => {}
        }
        if !record.cancelled {
            record.cancelled = true;
            record.tell("it is to be given up");
            if let Err(error) = self.write(&record) {
                tracing::warn!(%id, %error, "that it is to be given up is not written down");
            }
            moving.wanted.notify_one();
        }
        Ok(record.view.clone())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        tokio::task::block_in_place(|| self.journal.write(record))
    }

    /// Stops no guest any more, and waits until those run that were stopped.
    pub async fn shutdown(&self) {
        self.ends.store(true, Ordering::SeqCst);
        let stands = || {
            let known = self.lock();
            let mut all = known.values().map(|moving| moving.record().stage);
            all.any(|stage| {
                matches!(
                    stage,
                    Some(Stage::Pivoting { .. } | Stage::GivingUp { resumes: true })
                )
            })
        };
        while stands() {
            tokio::time::sleep(limits::MOMENT).await;
        }
    }
}
