//! Migrations of guests from and to this host.
//!
//! Each migration is a task that owns its state machine of [`drover_migrate`]; this module starts
//! the tasks, finds them for the API, and takes them up again after the agent was restarted.
//!
//! ```text
//!   API ──▶ Migrations ──▶ outgoing (source)  ──▶ QEMU, registry, relay, the peer's API
//!                     └──▶ incoming (destination) ──▶ QEMU, registry, relay, the peer's API
//! ```

mod amend;
mod arrivals;
mod carrier;
mod debts;
mod domains;
mod events;
mod expansion;
mod held;
mod incoming;
mod interrupts;
pub(crate) mod journal;
mod kept;
mod lanes;
mod latency;
mod links;
mod noticed;
mod observe;
mod offered;
mod orders;
mod outgoing;
mod own;
mod placing;
mod recover;
mod reduction;
pub mod relays;
mod resolve;
mod security;
mod silence;
mod snapshot;
mod start;
mod told;
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Context as _;
use drover_api::{
    ErrorCode, EventKind, EventView, LimitRequest, LimitScope, MigrationPhase, MigrationRole,
    MigrationView, PathLimits, ProtocolRange, Refusal, Verdict as ApiVerdict, VerdictView,
};
use drover_migrate::destination::Input as DestinationInput;
use drover_migrate::source::Input as SourceInput;
use drover_migrate::{CancelledBy, Refused, Verdict};
use drover_relay::{Cause, LaneListener};
use drover_trust::Membership;
use drover_types::{HostName, MigrationId};
use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};

pub use self::held::{Held, Sockets, Way};
use self::journal::Journal;
pub use self::lanes::near_interface;
pub use self::offered::offered;
use self::orders::Orders;
pub use self::outgoing::{CANCELLED_BY_OPERATOR, PAST_DEADLINE, leads_there};
use self::snapshot::Snapshot;
use crate::agent::Context;
use crate::api::Caller;
use crate::disks;
use crate::sharing::Limits;
use crate::{facts, limits};

/// One migration, and how to reach it.
#[derive(Debug, Clone)]
enum Known {
    /// The guest leaves this host.
    Outgoing(outgoing::Handle),
    /// The guest arrives at this host.
    Incoming(incoming::Handle),
    /// It has ended before this agent was started.
    Past(Box<Snapshot>),
}

impl Known {
    fn snapshot(&self) -> Snapshot {
        match self {
            Self::Outgoing(handle) => handle.snapshot.borrow().clone(),
            Self::Incoming(handle) => handle.snapshot.borrow().clone(),
            Self::Past(snapshot) => (**snapshot).clone(),
        }
    }
}

/// A migration among which limits are divided.
#[derive(Debug)]
pub struct Sharer {
    /// It.
    pub view: MigrationView,
    /// Its paths are all known.
    pub is_whole: bool,
}

/// A migration of one id can be known on both sides, when a host is its own peer in tests.
type Key = (MigrationId, bool);

/// Every migration that this agent knows of.
#[derive(Debug)]
pub struct Migrations {
    context: Arc<Context>,
    journal: Journal,
    /// Open once this host is in a cluster.
    lanes: OnceLock<Arc<LaneListener>>,
    known: Mutex<BTreeMap<Key, Known>>,
    /// Those to migrate that came with an id.
    orders: Orders,
    /// Arrivals that their sources gave up before they were heard of here.
    given_up: Mutex<VecDeque<MigrationId>>,
}

impl Migrations {
    /// None yet. The journal's directory is made and the port for lanes opened.
    ///
    /// # Errors
    /// The directory cannot be made, or another process has the port.
    pub fn open(context: Arc<Context>) -> anyhow::Result<Self> {
        let config = &context.config;
        let journal = Journal::open(&config.state)
            .with_context(|| format!("key `state`: cannot use {}", config.state.display()))?;
        let migrations = Self {
            journal,
            lanes: OnceLock::new(),
            known: Mutex::default(),
            orders: Orders::default(),
            given_up: Mutex::default(),
            context,
        };
        if migrations.context.cluster.is_member() {
            migrations.open_lanes()?;
        }
        Ok(migrations)
    }

    /// The port for lanes, where it was taken.
    pub fn lanes(&self) -> Option<&LaneListener> {
        self.lanes.get().map(Arc::as_ref)
    }

    /// How many connections to the port for lanes became none, by cause.
    pub fn lanes_refused(&self) -> BTreeMap<Cause, u64> {
        let open = self.lanes.get();
        open.map(|lanes| lanes.turned_away()).unwrap_or_default()
    }

    /// Takes the port for lanes, unless it is taken. It is open while a guest arrives, at the addresses
    /// that are offered for it.
    ///
    /// # Errors
    /// Another process has it.
    pub fn open_lanes(&self) -> anyhow::Result<()> {
        if self.lanes.get().is_some() {
            return Ok(());
        }
        let port = self.context.config.migration.data_port;
        let listener = LaneListener::hold(port).with_context(|| {
            format!(
                "key `migration.data_port`: port {port} cannot be opened; stop what uses it \
                 (`ss -tlnp`), or choose another"
            )
        })?;
        // Whoever came first has opened it as well.
        let _ = self.lanes.set(Arc::new(listener));
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows of one more, and lets go of the oldest that have ended, also on disk.
    fn add(&self, id: MigrationId, known: Known) {
        let source = known.snapshot().view.role == MigrationRole::Source;
        let old = self.insert((id, source), known);
        if old.is_empty() {
            return;
        }
        let journal = self.journal.clone();
        // Whether it is done in this moment or at the next start makes no difference.
        drop(tokio::task::spawn_blocking(move || {
            for (id, source) in old {
                let role = if source {
                    MigrationRole::Source
                } else {
                    MigrationRole::Destination
                };
                journal.forget(id, role);
            }
        }));
    }

    /// Those that are let go for it.
    fn insert(&self, key: Key, known: Known) -> Vec<Key> {
        let files = disks::recorded(&self.context.config.state);
        let mut all = self.known();
        all.insert(key, known);
        let ended = all.iter().filter_map(|(key, known)| {
            let snapshot = known.snapshot();
            let view = &snapshot.view;
            let owes = told::owed(view).is_some() || snapshot.owes() || files.contains(&key.0);
            (view.phase.has_ended() && !owes).then_some((view.started_at, *key))
        });
        let mut old: Vec<_> = ended.collect();
        // Not by their ids, which whoever gives orders may choose.
        old.sort_unstable();
        old.truncate(old.len().saturating_sub(limits::HISTORY));
        let old: Vec<Key> = old.into_iter().map(|(_, key)| key).collect();
        for key in &old {
            all.remove(key);
        }
        old
    }

    /// Under way and recent, newest first.
    pub async fn list(&self) -> Vec<MigrationView> {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let mut views: Vec<_> = known.iter().map(|known| known.snapshot().view).collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.started_at));
        views
    }

    /// Those that have not ended.
    pub fn under_way(&self) -> Vec<MigrationView> {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let views = known.iter().filter_map(|known| match known {
            Known::Outgoing(outgoing::Handle { snapshot, .. })
            | Known::Incoming(incoming::Handle { snapshot, .. }) => {
                let snapshot = snapshot.borrow();
                (!snapshot.view.phase.has_ended()).then(|| snapshot.view.clone())
            }
            Known::Past(_) => None,
        });
        views.collect()
    }

    /// Those that have not ended, as limits are divided among them.
    pub fn sharers(&self) -> Vec<Sharer> {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let under_way = known
            .iter()
            .filter(|known| !matches!(known, Known::Past(_)))
            .map(Known::snapshot)
            .filter(|snapshot| !snapshot.view.phase.has_ended());
        under_way
            .map(|Snapshot { view, is_whole, .. }| Sharer { view, is_whole })
            .collect()
    }

    /// The host that a guest comes from.
    pub fn source_of(&self, id: MigrationId) -> Option<HostName> {
        let known = self.known();
        known.get(&(id, false)).map(|k| k.snapshot().view.source)
    }

    /// Limits what a guest that leaves sends. A task that does not listen now is told at the next
    /// division.
    pub fn limit(&self, id: MigrationId, limits: Limits) {
        if let Some(Known::Outgoing(handle)) = self.known().get(&(id, true)) {
            let _ = handle.inbox.try_send(outgoing::Message::Limits(limits));
        }
    }

    /// An operator changed a limit: all that are under way have it in their history, of one migration's
    /// that one alone.
    pub fn limit_changed(&self, request: &LimitRequest) {
        let kind = EventKind::LimitChanged {
            scope: request.scope.clone(),
            limit: request.limit,
        };
        for ((id, _), known) in self.known().iter() {
            if matches!(&request.scope, LimitScope::Migration { migration } if migration != id) {
                continue;
            }
            // One that has ended listens no more, and one with a full inbox has more to tell than this.
            let _ = match known {
                Known::Outgoing(handle) => {
                    let message = outgoing::Message::Event(kind.clone());
                    handle.inbox.try_send(message).map_err(drop)
                }
                Known::Incoming(handle) => {
                    let message = incoming::Message::Event(kind.clone());
                    handle.inbox.try_send(message).map_err(drop)
                }
                Known::Past(_) => Ok(()),
            };
        }
    }

    /// The destination of a guest that leaves can take only so much.
    pub fn limit_paths(
        &self,
        caller: &Caller,
        id: MigrationId,
        limits: &PathLimits,
    ) -> Result<(), Refusal> {
        self.authorize(caller, id, true)?;
        if limits.paths.len() > limits::LIMITED_PATHS {
            let (count, most) = (limits.paths.len(), limits::LIMITED_PATHS);
            let message = format!("limits of {count} paths, at most {most} are taken");
            return Err(Refusal::new(ErrorCode::BadRequest, message));
        }
        if self.find(id)?.snapshot().view.phase.has_ended() {
            return Err(ended(id));
        }
        self.context.sharing.tell(id, limits.clone());
        Ok(())
    }

    /// One migration; the source's side of it where this host is both.
    pub async fn get(&self, id: MigrationId) -> Result<MigrationView, Refusal> {
        self.find(id).map(|known| known.snapshot().view)
    }

    /// What happened in one, oldest first; the source's side of it where this host is both.
    pub async fn events(&self, id: MigrationId) -> Result<Vec<EventView>, Refusal> {
        let snapshot = self.find(id)?.snapshot();
        Ok(snapshot.events.list().to_vec())
    }

    fn find(&self, id: MigrationId) -> Result<Known, Refusal> {
        let known = self.known();
        let found = known.get(&(id, true)).or_else(|| known.get(&(id, false)));
        found.cloned().ok_or_else(|| self.unknown(id))
    }

    fn unknown(&self, id: MigrationId) -> Refusal {
        let host = &self.context.config.host;
        Refusal::new(
            ErrorCode::NoSuchMigration,
            format!("{host} knows no migration {id}"),
        )
        .next("`drover status` shows those that it knows")
    }

    /// Cancels one. Of an id that is not known none will begin, as long as this agent runs: its order may
    /// be on its way.
    pub async fn cancel(&self, id: MigrationId) -> Result<MigrationView, Refusal> {
        let known = match self.find(id) {
            Ok(known) => known,
            Err(unknown) => {
                let begun = self.orders.call_back(id, || self.find(id).ok()).await;
                begun.ok_or(unknown)?
            }
        };
        let handle = match known {
            Known::Outgoing(handle) => handle,
            Known::Incoming(handle) => {
                let source = handle.snapshot.borrow().view.source.clone();
                let message = format!("migration {id} is decided on {source}, the host it leaves");
                return Err(Refusal::new(ErrorCode::WrongPhase, message)
                    .next(format!("run `drover cancel {id}` on {source}")));
            }
            Known::Past(_) => return Err(ended(id)),
        };
        cancel(&handle, CancelledBy::Operator)
            .await
            .map_err(|refused| match refused {
                Refused::TooLate => Refusal::new(ErrorCode::TooLate, refused.to_string()),
                Refused::Over => ended(id),
                Refused::Unexpected { .. }
                | Refused::RunsHere
                | Refused::PagesMissing
                | Refused::TooOld { .. } => {
                    Refusal::new(ErrorCode::WrongPhase, refused.to_string())
                }
            })?;
        let view = handle.snapshot.borrow().view.clone();
        Ok(view)
    }

    /// Whether `caller` may speak for the other host of an arriving or leaving guest.
    fn authorize(&self, caller: &Caller, id: MigrationId, source: bool) -> Result<(), Refusal> {
        let Caller::Peer(peer) = caller else {
            return Ok(());
        };
        let known = self.known().get(&(id, source)).map(Known::snapshot);
        let view = known.ok_or_else(|| self.unknown(id))?.view;
        let other = if source {
            view.destination
        } else {
            view.source
        };
        if *peer == other {
            return Ok(());
        }
        let message = format!("migration {id} is between other hosts than {peer}");
        Err(Refusal::new(ErrorCode::NotAPeer, message))
    }

    /// Whose the guest is.
    pub async fn verdict(&self, caller: Caller, id: MigrationId) -> Result<VerdictView, Refusal> {
        self.authorize(&caller, id, true)?;
        let known = self
            .known()
            .get(&(id, true))
            .cloned()
            .ok_or_else(|| self.unknown(id))?;
        if let (Known::Outgoing(handle), Caller::Peer(_)) = (&known, &caller) {
            // A destination asks once it has what the guest needs to run: in postcopy that is waited for.
            let arrived = outgoing::Message::Input(SourceInput::DestinationArrived);
            let _ = handle.inbox.try_send(arrived);
        }
        let verdict = match known.snapshot().verdict {
            Verdict::Undecided => ApiVerdict::Undecided,
            Verdict::HandedOff => ApiVerdict::HandedOff,
            Verdict::Kept => ApiVerdict::Kept,
            Verdict::CutOff => ApiVerdict::CutOff,
        };
        Ok(VerdictView { verdict })
    }

    /// Cuts the sessions with hosts that are no members any more: their lanes close, and what is
    /// undecided ends.
    pub async fn part_with_all_but(&self, membership: &Membership) {
        let known: Vec<Known> = self.known().values().cloned().collect();
        for known in known {
            let view = known.snapshot().view;
            let other = match view.role {
                MigrationRole::Source => view.destination,
                MigrationRole::Destination => view.source,
            };
            if view.phase.has_ended() || membership.member(&other).is_some() {
                continue;
            }
            let reason = format!("host {other} was removed from the cluster");
            tracing::warn!(id = %view.id, vm = %view.vm, reason, "cut");
            match known {
                Known::Outgoing(handle) => {
                    let reason = reason.into();
                    let input = SourceInput::SessionFailed { reason };
                    let _ = handle.inbox.send(outgoing::Message::Input(input)).await;
                }
                Known::Incoming(handle) => {
                    let reason = reason.into();
                    let input = DestinationInput::SessionFailed { reason };
                    let _ = handle.inbox.send(incoming::Message::Input(input)).await;
                }
                Known::Past(_) => {}
            }
        }
    }

    /// Brings every migration to where the next agent can take it up; new ones are refused from now
    /// on. Bounded by the caller, who must not drop the tasks of those that are left.
    pub async fn shutdown(&self) {
        let known: Vec<Known> = self.known().values().cloned().collect();
        // Side by side: one that is slow to end takes nothing from the time of the others.
        join_all(known.into_iter().map(Known::bring_to_an_end)).await;
    }
}

/// What becomes of a migration whose agent is told to end.
enum AtEnd {
    /// Its relay carries it on, and the next agent takes it up.
    Leave,
    /// Nothing was carried yet, and the next agent would not take it up.
    Cancel,
    /// It is decided, or nearly over.
    Finish,
}

impl AtEnd {
    fn of(phase: MigrationPhase) -> Self {
        use MigrationPhase::{
            Connecting, Filling, Prepared, Preparing, Receiving, Serving, Switching, Transferring,
        };
        match phase {
            Transferring | Switching | Serving | Receiving | Filling => Self::Leave,
            Preparing | Connecting | Prepared => Self::Cancel,
            _ => Self::Finish,
        }
    }
}

impl Known {
    async fn bring_to_an_end(self) {
        let view = self.snapshot().view;
        match AtEnd::of(view.phase) {
            AtEnd::Leave => {
                tracing::info!(id = %view.id, vm = %view.vm, "left to its relay and the next agent");
                return;
            }
            AtEnd::Cancel => self.cancel_at_end().await,
            AtEnd::Finish => {}
        }
        match self {
            Self::Outgoing(handle) => once_settled(handle.snapshot).await,
            Self::Incoming(handle) => once_settled(handle.snapshot).await,
            Self::Past(_) => {}
        }
    }

    async fn cancel_at_end(&self) {
        match self {
            Self::Outgoing(handle) => {
                // One that is too late to cancel is finished.
                let _ = cancel(handle, CancelledBy::AgentStopping).await;
            }
            Self::Incoming(handle) => {
                let reason = "the destination's agent was stopped".into();
                let input = DestinationInput::SessionFailed { reason };
                let _ = handle.inbox.send(incoming::Message::Input(input)).await;
            }
            Self::Past(_) => {}
        }
    }
}

/// The newest version of the relays' protocol that this host, `own`, and the other one speak.
fn common_protocol(
    own: &HostName,
    other: &HostName,
    theirs: ProtocolRange,
) -> Result<u32, Refusal> {
    let ours = facts::protocol();
    ours.newest_common(theirs).ok_or_else(|| {
        let message = format!(
            "no common protocol version: {own} speaks {} to {}, {other} speaks {} to {}",
            ours.min, ours.max, theirs.min, theirs.max
        );
        Refusal::new(ErrorCode::VersionMismatch, message)
            .next("bring the older of the two agents to a newer version")
    })
}

async fn cancel(handle: &outgoing::Handle, by: CancelledBy) -> Result<(), Refused> {
    let (answer, answered) = oneshot::channel();
    let message = outgoing::Message::Cancel(by, answer);
    if handle.inbox.send(message).await.is_err() {
        return Err(Refused::Over);
    }
    answered.await.unwrap_or(Err(Refused::Over))
}

fn ended(id: MigrationId) -> Refusal {
    let message = format!("migration {id} has ended");
    Refusal::new(ErrorCode::MigrationEnded, message).next("`drover status` tells how")
}

/// The first snapshot after the preparations, or the last one of all.
async fn once_prepared(mut snapshot: watch::Receiver<Snapshot>) -> Snapshot {
    let done = |s: &Snapshot| (s.prepared && s.refusal.is_none()) || s.view.phase.has_ended();
    let _ = snapshot.wait_for(done).await;
    snapshot.borrow().clone()
}

/// Once it has ended, or whose the guest is has been decided and pages that follow it are left to the next agent.
async fn once_settled(mut snapshot: watch::Receiver<Snapshot>) {
    use MigrationPhase::{Filling, Serving};
    let settled = |phase: MigrationPhase| phase.has_ended() || matches!(phase, Serving | Filling);
    // A task that ended without saying so has nothing to wait for either.
    let _ = snapshot.wait_for(|s| settled(s.view.phase)).await;
}
