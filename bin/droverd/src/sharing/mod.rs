//! Limits on what migrations carry: of this host, of its interfaces, of single migrations.
//!
//! ```text
//!   configuration, `drover limit` ──▶ limits ──▶ divided among the paths that cross them ──▶ relays
//!                                        └─ of what arrives: told to the sources' agents, which
//!                                           send no more
//! ```
//!
//! This module knows the limits; [`divide`] gives each path its share, again and again, and before
//! anything is carried on it; [`tell`] is what other agents hear.

pub(crate) mod changes;
mod divide;
mod links;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_api::{
    ErrorCode, Limit, LimitRequest, LimitScope, LimitView, MigrationRole, MigrationView, PathLimit,
    PathLimits, Refusal,
};
use drover_migrate::paths::Selection;
use drover_types::{BitRate, ByteRate, MigrationId, PathId};
use tokio::sync::{Notify, watch};

use self::changes::{Change, Changes, File};
pub use self::divide::run;
use self::links::Links;
use crate::config::LimitsConfig;
use crate::limits::DIVIDED;

/// What a relay is to hold, by path; of all together where there is none. A rate of none: as much as
/// goes.
pub type Limits = BTreeMap<Option<PathId>, Option<ByteRate>>;

/// Every limit of this host.
#[derive(Debug)]
pub struct Sharing {
    configured: LimitsConfig,
    file: File,
    now: Mutex<Now>,
    /// Wakes whoever divides before its time.
    again: Notify,
    divisions: watch::Sender<Divisions>,
}

/// Numbers of divisions.
#[derive(Debug, Clone, Copy, Default)]
struct Divisions {
    /// The last that began.
    begun: u64,
    /// The last of which every task here was told.
    done: u64,
    /// The last of which every other agent has heard that is to send less; one that does not answer is
    /// not waited for.
    heard: u64,
}

#[derive(Debug, Default)]
struct Now {
    changes: Changes,
    /// What the destinations of guests that leave can take.
    told: BTreeMap<MigrationId, Vec<PathLimit>>,
}

impl Sharing {
    /// As configured, and as it was changed by earlier agents.
    ///
    /// # Errors
    /// The file with the changes cannot be read.
    pub fn open(configured: LimitsConfig, state: &Path) -> std::io::Result<Self> {
        let file = File::below(state);
        let changes = file.read()?;
        let now = Now {
            changes,
            told: BTreeMap::new(),
        };
        Ok(Self {
            configured,
            file,
            now: Mutex::new(now),
            again: Notify::new(),
            divisions: watch::Sender::default(),
        })
    }

    /// Divides anew, and waits until the tasks of all guests that leave were told; false when that takes
    /// too long. What they are told next comes after it.
    pub async fn divided(&self) -> bool {
        self.after(|divisions| divisions.done).await
    }

    /// The same, and until the agents have heard of it whose guests come here and that are to send less.
    pub async fn heard(&self) -> bool {
        self.after(|divisions| divisions.done.min(divisions.heard))
            .await
    }

    /// Waits for a division that begins after this.
    async fn after(&self, reached: impl Fn(&Divisions) -> u64) -> bool {
        let mut divisions = self.divisions.subscribe();
        let before = divisions.borrow().begun;
        self.again.notify_one();
        let later = divisions.wait_for(|divisions| reached(divisions) > before);
        tokio::time::timeout(DIVIDED, later).await.is_ok()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the destination of a guest that leaves can take.
    pub fn tell(&self, id: MigrationId, limits: PathLimits) {
        self.now().told.insert(id, limits.paths);
        self.again.notify_one();
    }

    /// What a relay holds that an earlier agent told it counts until the destination tells anew: it may
    /// stand for what that can take.
    pub fn take_up(&self, id: MigrationId, held: Vec<PathLimit>) {
        self.now().told.entry(id).or_insert(held);
    }

    fn told(&self, id: MigrationId) -> Vec<PathLimit> {
        self.now().told.get(&id).cloned().unwrap_or_default()
    }

    /// Forgets migrations that have ended.
    fn keep_only(&self, under_way: &[MigrationId]) {
        let mut now = self.now();
        now.told.retain(|id, _| under_way.contains(id));
        now.changes
            .migrations
            .retain(|id, _| under_way.contains(id));
    }

    fn host(&self) -> Option<Limit> {
        let changed = self.now().changes.host;
        changed.map_or(self.configured.host, |change| change.limit)
    }

    fn nics(&self) -> BTreeMap<String, Limit> {
        let mut nics = self.configured.nics.clone();
        for (nic, change) in &self.now().changes.nics {
            match change.limit {
                Some(limit) => nics.insert(nic.clone(), limit),
                None => nics.remove(nic),
            };
        }
        nics
    }

    fn migrations(&self) -> BTreeMap<MigrationId, Limit> {
        self.now().changes.migrations.clone()
    }

    /// Sets a limit or lifts it; it holds from the next division on.
    pub async fn set(
        &self,
        request: &LimitRequest,
        views: &[MigrationView],
        selection: &Selection,
    ) -> Result<(), Refusal> {
        let link = self.link(&request.scope, views, selection).await?;
        if matches!(request.limit, Some(Limit::Percent(_))) && link.is_none() {
            let message = "the driver does not tell the link's rate";
            return Err(Refusal::new(ErrorCode::BadRequest, message)
                .next("give the limit in bits per second, such as 5gbit"));
        }
        let mut now = self.now();
        let mut changes = now.changes.clone();
        let change = Change {
            limit: request.limit,
        };
        match &request.scope {
            LimitScope::Host => changes.host = Some(change),
            LimitScope::Nic { nic } => drop(changes.nics.insert(nic.clone(), change)),
            LimitScope::Migration { migration } => match request.limit {
                Some(limit) => drop(changes.migrations.insert(*migration, limit)),
                None => drop(changes.migrations.remove(migration)),
            },
        }
        // What is configured needs no change to be remembered.
        if changes
            .host
            .is_some_and(|c| c.limit == self.configured.host)
        {
            changes.host = None;
        }
        let configured = |nic: &String| self.configured.nics.get(nic).copied();
        changes
            .nics
            .retain(|nic, change| change.limit != configured(nic));
        self.file.write(&changes).map_err(|error| {
            let message = format!("the limit cannot be kept in {}: {error}", self.file);
            Refusal::new(ErrorCode::Internal, message)
        })?;
        now.changes = changes;
        drop(now);
        self.again.notify_one();
        Ok(())
    }

    /// The rate of what is to be limited.
    async fn link(
        &self,
        scope: &LimitScope,
        views: &[MigrationView],
        selection: &Selection,
    ) -> Result<Option<BitRate>, Refusal> {
        let links = Links::read(selection).await;
        match scope {
            LimitScope::Host => Ok(links.host),
            LimitScope::Nic { nic } if links.names.contains(nic) => Ok(links.of(nic)),
            LimitScope::Nic { nic } => {
                let names = links.names.join(", ");
                let message = format!("this host has no interface {nic}; there are {names}");
                Err(Refusal::new(ErrorCode::BadRequest, message))
            }
            LimitScope::Migration { migration } => {
                let leaves = |view: &&MigrationView| {
                    let source = view.role == MigrationRole::Source;
                    view.id == *migration && source && !view.phase.has_ended()
                };
                let view = views.iter().find(leaves).ok_or_else(|| {
                    let message = format!("no migration {migration} from this host is under way");
                    Refusal::new(ErrorCode::NoSuchMigration, message)
                        .next("a migration is limited on the host that its guest leaves")
                })?;
                Ok(links::of_paths(view))
            }
        }
    }

    /// Every limit, and what is carried under it.
    pub async fn list(&self, views: &[MigrationView], selection: &Selection) -> Vec<LimitView> {
        let changes = self.now().changes.clone();
        let configured = &self.configured;
        if changes.is_empty() && *configured == LimitsConfig::default() {
            return Vec::new();
        }
        let links = Links::read(selection).await;
        let mut list = Vec::new();
        if configured.host.is_some() || changes.host.is_some() {
            let (out, inward) = carried(views, |view| view.traffic.rate);
            list.push(shown(
                LimitScope::Host,
                (configured.host, changes.host),
                links.host,
                (out, inward),
            ));
        }
        let names: BTreeSet<_> = configured.nics.keys().chain(changes.nics.keys()).collect();
        for nic in names {
            let over = |view: &MigrationView| {
                let nics = view.nics.iter().filter(|used| used.interface == *nic);
                nics.map(|used| used.traffic.rate).sum()
            };
            list.push(shown(
                LimitScope::Nic { nic: nic.clone() },
                (
                    configured.nics.get(nic).copied(),
                    changes.nics.get(nic).copied(),
                ),
                links.of(nic),
                carried(views, over),
            ));
        }
        for (id, limit) in &changes.migrations {
            let view = views.iter().find(|view| view.id == *id);
            let (migration, change) = (*id, Change::to(*limit));
            list.push(LimitView {
                vm: view.map(|view| view.vm.clone()),
                ..shown(
                    LimitScope::Migration { migration },
                    (None, Some(change)),
                    view.and_then(links::of_paths),
                    (view.map_or(ByteRate(0), |v| v.traffic.rate), ByteRate(0)),
                )
            });
        }
        list
    }
}

/// What is carried out of this host and into it.
fn carried(
    views: &[MigrationView],
    rate: impl Fn(&MigrationView) -> ByteRate,
) -> (ByteRate, ByteRate) {
    let of = |role: MigrationRole| {
        let under_way = |view: &&MigrationView| view.role == role && !view.phase.has_ended();
        views.iter().filter(under_way).map(&rate).sum()
    };
    (of(MigrationRole::Source), of(MigrationRole::Destination))
}

fn shown(
    scope: LimitScope,
    (configured, changed): (Option<Limit>, Option<Change>),
    link: Option<BitRate>,
    (out, inward): (ByteRate, ByteRate),
) -> LimitView {
    let limit = changed.map_or(configured, |change| change.limit);
    LimitView {
        scope,
        vm: None,
        limit,
        configured: changed.and(configured),
        bits_per_second: limit.and_then(|limit| links::resolve(limit, link)),
        out,
        inward,
    }
}

#[cfg(test)]
mod tests;
