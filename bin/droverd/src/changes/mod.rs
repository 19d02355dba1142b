//! Changes to this host: planned, carried out by a process of their own, taken back.
//!
//! ```text
//!  plan: facts ─▶ tune ─▶ text, which a person reads
//!  apply: text ─▶ check ─▶ folder, lock ─▶ `droverd change`, which outlives this agent ─▶ journal
//!  keep_up: a journal without an end, and a lock that nobody holds ─▶ `droverd change` goes back
//! ```
//! Owns the folder `changes` below the state directory. What is done next, and what is taken back, is `drover-change`'s; this agent
//! starts its processes, one at a time, and shows what their journals say.
//!
//! # Invariant
//! Nobody but a process that holds the lock sets anything, and the lock is free only when that process has ended.

mod check;
mod folders;
mod forget;
mod hands;
mod lasting;
mod link;
mod paths;
mod plan;
mod process;
mod recover;
mod show;
mod uncordon;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::{ChangeDetailView, ChangeRequest, ChangeView, ErrorCode, Refusal, UndoRequest};
use drover_change::{Account, Journal, JournalError, Order, Plan};
use drover_tune::facts::Host;
use drover_types::{ChangeId, HostName, with_sources};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use self::folders::Folders;
pub use self::process::{What, run as run_process};
use crate::agent::Context;
use crate::migration::Migrations;
use crate::{facts, limits};

/// The folder with them, below the state directory.
pub const DIRECTORY: &str = "changes";

/// Where the host's own files are.
const ROOT: &str = "/";

/// Changes to this host.
#[derive(Debug)]
pub struct Changes {
    context: Arc<Context>,
    migrations: Arc<Migrations>,
    folders: Folders,
    /// Those of which nothing is to be done by itself any more.
    settled: Mutex<BTreeSet<ChangeId>>,
    /// Written by who begins or undoes a change that may take links away, from the look whether this host is drained until the journal tells
    /// of it; read by who lifts a cordon. Both refuse where they would have to wait. Taken before the lock of changes.
    bouncing: tokio::sync::RwLock<()>,
}

impl Changes {
    /// Those of this agent's host.
    pub fn new(context: Arc<Context>, migrations: Arc<Migrations>) -> Self {
        Self {
            folders: Folders::below(context.config.state.join(DIRECTORY)),
            context,
            migrations,
            settled: Mutex::default(),
            bouncing: tokio::sync::RwLock::default(),
        }
    }

    /// Begins to carry out the plan of a text.
    ///
    /// # Errors
    /// It cannot be, or another one is; nothing was changed then.
    pub async fn apply(&self, request: ChangeRequest) -> Result<ChangeView, Refusal> {
        let plan = drover_change::read(&request.plan).map_err(|error| check::unusable(&error))?;
        let plan = match (request.persist, &plan.lasting) {
            (true, None) => return Err(lasting::not_planned()),
            (true, Some(_)) => plan,
            (false, _) => Plan {
                lasting: None,
                ..plan
            },
        };
        let links = plan.links_by_hand();
        self.apply_plan(plan, links, request.force).await
    }

    /// Begins to carry out a plan, on a host that is not drained only with `force`, if it may take a link away. Afterwards these links
    /// have to be there, whether they are now or not. What makes it last is written as well, if the plan says what that is.
    ///
    /// # Errors
    /// It cannot be, or another one is; nothing was changed then.
    pub async fn apply_plan(
        &self,
        plan: Plan,
        links: BTreeSet<String>,
        force: bool,
    ) -> Result<ChangeView, Refusal> {
        check::fits(&plan, self.host(), &boot()?)?;
        let _begins = self.begins(plan.bounces())?;
        self.may_bounce(plan.bounces(), force).await?;
        let interfaces = facts::interfaces().await;
        let interfaces = interfaces.map_err(|error| internal(&error))?;
        let paths = paths::between(&interfaces, &self.context.peers.all());
        let links = links.into_iter().collect();
        let lasting = match &plan.lasting {
            Some(said) => Some(lasting::as_planned(&plan, said).await?),
            None => None,
        };
        let order = Order {
            lasting,
            plan,
            paths,
            links,
            moving: self.migrations.under_way().len(),
        };
        let id = ChangeId(Uuid::now_v7());
        let folder = self.folders.of(id);
        let journal = self.when_free(|| Journal::make(&folder, &order)).await?;
        tokio::task::block_in_place(|| self.begin(id, journal))?;
        self.view(id)
    }

    fn begin(&self, id: ChangeId, journal: Journal) -> Result<(), Refusal> {
        let folder = self.folders.of(id);
        let lock = journal.into_lock();
        // Held until there is a process that holds it, or nothing of the folder.
        let held = lock.try_clone().map_err(|error| internal(&error))?;
        let started = self.only_one(Some(id)).and_then(|()| {
            let in_the_way = self.folders.in_the_way(id, &boot()?)?;
            self.start(&folder, What::Apply, lock)?;
            Ok(in_the_way)
        });
        match &started {
            // Not before: nobody loses an undo for a change that does not begin.
            Ok(in_the_way) => self.folders.forget(in_the_way, &held),
            Err(_) => {
                // Nothing of it was begun. What cannot be removed is cleared up later.
                let _ = std::fs::remove_dir_all(&folder);
            }
        }
        drop(held);
        started.map(drop)
    }

    /// Takes a change back.
    ///
    /// # Errors
    /// It cannot be; nothing was changed then.
    pub async fn undo(&self, id: ChangeId, request: UndoRequest) -> Result<ChangeView, Refusal> {
        let folder = self.folders.existing(id)?;
        let read = tokio::task::block_in_place(|| Account::read(&folder));
        let read = read.map_err(|error| refused(self.host(), &error))?;
        let bounces = read.order.plan.bounces();
        let _begins = self.begins(bounces)?;
        let journal = self.when_free(|| Journal::open(&folder)).await?;
        let boot = boot()?;
        tokio::task::block_in_place(|| self.only_one(None))?;
        check::undoable(id, journal.account(), &boot)?;
        check::no_profile_is_active(journal.account().order.files(), Path::new(ROOT))?;
        self.may_bounce(bounces, request.force).await?;
        let records = journal.account().records.len();
        let process = self.start(&folder, What::Undo, journal.into_lock())?;
        match tokio::time::timeout(limits::UNDO_ANSWER, process).await {
            Ok(ended) => process::undone(id, ended, &folder, records)?,
            // It goes on, whoever looks.
            Err(_) => tracing::info!(%id, "is still being undone"),
        }
        self.view(id)
    }

    /// All that are remembered, newest first.
    ///
    /// # Errors
    /// The host does not tell since when it runs.
    pub fn list(&self) -> Result<Vec<ChangeView>, Refusal> {
        let boot = boot()?;
        let shown = |(id, read): (ChangeId, Result<Account, JournalError>)| match read {
            Ok(account) => Some(show::change(id, &account, &boot)),
            Err(JournalError::NotBegun { .. }) => None,
            Err(error) => Some(show::unreadable(id, &error)),
        };
        let listed = || self.folders.all().rev().filter_map(shown).collect();
        Ok(tokio::task::block_in_place(listed))
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn get(&self, id: ChangeId) -> Result<ChangeDetailView, Refusal> {
        let folder = self.folders.existing(id)?;
        match tokio::task::block_in_place(|| Account::read(&folder)) {
            Ok(account) => Ok(show::detail(id, &account, &boot()?)),
            Err(error) => Ok(ChangeDetailView {
                change: show::unreadable(id, &error),
                steps: Vec::new(),
                not_opened: Vec::new(),
                not_measured: Vec::new(),
                files: Vec::new(),
                by_hand: Vec::new(),
                not_kept: Vec::new(),
            }),
        }
    }

    fn view(&self, id: ChangeId) -> Result<ChangeView, Refusal> {
        Ok(self.get(id)?.change)
    }

    fn host(&self) -> &HostName {
        &self.context.config.host
    }

    /// Opens a folder, once the process of a change that is at its end has let go of the lock.
    async fn when_free(
        &self,
        open: impl Fn() -> Result<Journal, JournalError>,
    ) -> Result<Journal, Refusal> {
        let deadline = Instant::now() + limits::LOCK_LET_GO;
        let is_over = |(_, read): (_, Result<Account, JournalError>)| {
            read.is_ok_and(|account| account.standing.has_ended())
        };
        loop {
            let opened = tokio::task::block_in_place(&open);
            let is_busy = matches!(opened, Err(JournalError::Busy { .. }));
            let waits = is_busy
                && Instant::now() < deadline
                && tokio::task::block_in_place(|| self.folders.all().all(is_over));
            if !waits {
                return opened.map_err(|error| refused(self.host(), &error));
            }
            tokio::time::sleep(limits::LOCK_LOOK).await;
        }
    }

    /// Refuses while another change is not at its end, though no process is about it: what it left is taken back first. To be asked
    /// with the lock.
    fn only_one(&self, but: Option<ChangeId>) -> Result<(), Refusal> {
        for (id, read) in self.folders.all() {
            match read {
                _ if Some(id) == but => {}
                Ok(account) if account.standing.has_ended() => {}
                Err(JournalError::NotBegun { .. }) => {}
                Ok(_) => {
                    let host = self.host();
                    let message = format!(
                        "change {id} of host {host} is not at its end, and is taken back first"
                    );
                    let next = format!(
                        "try again in some seconds; `drover doctor changes` on {host} shows it"
                    );
                    return Err(Refusal::new(ErrorCode::ChangeUnderWay, message).next(next));
                }
                Err(error) => {
                    let why = with_sources(&error);
                    let folder = self.folders.of(id);
                    let message =
                        format!("it is not known what is left of an earlier change: {why}");
                    let host = self.host();
                    return Err(
                        Refusal::new(ErrorCode::ChangeUnderWay, message).next(format!(
                            "see what is set on {host}, then remove {} there",
                            folder.display()
                        )),
                    );
                }
            }
        }
        Ok(())
    }

    fn start(
        &self,
        folder: &Path,
        what: What,
        lock: std::os::fd::OwnedFd,
    ) -> Result<JoinHandle<io::Result<Output>>, Refusal> {
        process::start(&self.context.config, folder, what, lock).map_err(|error| {
            let message = format!("the process that changes this host was not started: {error}");
            Refusal::new(ErrorCode::Internal, message)
        })
    }

    fn settled(&self) -> std::sync::MutexGuard<'_, BTreeSet<ChangeId>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of this start of the host.
fn boot() -> Result<String, Refusal> {
    drover_host::boot_id(Path::new(ROOT)).map_err(|error| internal(&error))
}

/// Marks those of a host's interrupts that the kernel did not let a change move: before Linux 6.13 it tells of that in no other way. What
/// changes did before a restart, or cannot be read, tells nothing.
pub fn mark_fixed(state: &Path, host: &mut Host) {
    let Ok(boot) = boot() else { return };
    let passed = Folders::below(state.join(DIRECTORY)).passed_by(&boot);
    host.mark_fixed(|interrupt| {
        let before = passed.get(&interrupt.number);
        before.is_some_and(|cpus| *cpus == interrupt.cpus.to_string())
    });
}

fn internal(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(ErrorCode::Internal, with_sources(error))
}

/// Why a folder cannot be made or opened. Who reads it may have asked the agent of another host.
fn refused(host: &HostName, error: &JournalError) -> Refusal {
    match error {
        JournalError::Busy { .. } => {
            let message = format!("host {host} is being changed already");
            let next = format!(
                "`drover doctor changes` on {host} shows by what; try again when that is over"
            );
            Refusal::new(ErrorCode::ChangeUnderWay, message).next(next)
        }
        JournalError::Plan(_) | JournalError::Long { .. } => check::unusable(error),
        _ => internal(error),
    }
}
