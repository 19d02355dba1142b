//! Gives each path its share of the limits that it crosses, again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use drover_api::{Client, Limit, MigrationRole, MigrationView, PathLimit, PathLimits, PathView};
use drover_migrate::share::{Division, Flow};
use drover_types::{BitRate, ByteRate, MigrationId, PathId};
use futures_util::future::join_all;
use tokio::time::MissedTickBehavior;

use super::links::{self, Links};
use crate::agent::Context;
use crate::limits::{DIVIDE, LINKS_AGAIN, TELL_LIMITS};
use crate::migration::{Migrations, near_interface};

/// Divides until it is dropped.
pub async fn run(context: Arc<Context>, migrations: Arc<Migrations>) {
    let mut tick = tokio::time::interval(DIVIDE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut divider = Divider::default();
    loop {
        tick.tick().await;
        divider.divide(&context, &migrations).await;
    }
}

/// A path of a migration, and whether the guest leaves.
type FlowId = (MigrationId, bool, PathId);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// All that leaves this host, or all that comes.
    Host { leaves: bool },
    /// The same over one interface.
    Nic { name: String, leaves: bool },
}

/// By path; `None` for all together.
type Limits = BTreeMap<Option<PathId>, Option<ByteRate>>;

#[derive(Default)]
struct Divider {
    division: Division<FlowId, Resource>,
    /// What relays here were told.
    applied: BTreeMap<MigrationId, Limits>,
    /// What agents of sources were told.
    told: BTreeMap<MigrationId, Vec<PathLimit>>,
    links: Option<(Instant, Links)>,
}

impl Divider {
    async fn divide(&mut self, context: &Context, migrations: &Migrations) {
        let sharing = &context.sharing;
        let views = migrations.under_way();
        let ids: Vec<_> = views.iter().map(|view| view.id).collect();
        sharing.keep_only(&ids);
        self.applied.retain(|id, _| ids.contains(id));
        self.told.retain(|id, _| ids.contains(id));
        let carrying: Vec<_> = views.iter().filter(|view| carries(view)).collect();
        if carrying.is_empty() {
            return;
        }
        let limits = self.limits(context).await;
        let flows: Vec<_> = carrying.iter().flat_map(|view| flows(view)).collect();
        let shares = self.division.divide(&limits, &flows);
        let of_migrations = sharing.migrations();
        for view in carrying.iter().filter(|view| leaves(view)) {
            let own = of_migrations.get(&view.id).copied();
            let wanted = wanted(view, own, &sharing.told(view.id), &shares);
            self.apply(migrations, view.id, wanted);
        }
        let arriving = carrying.iter().filter(|view| !leaves(view));
        let arriving: Vec<_> = arriving
            .map(|view| (*view, path_limits(view, &shares)))
            .collect();
        self.tell(context, arriving).await;
    }

    /// What each interface and the host may carry, in each direction.
    async fn limits(&mut self, context: &Context) -> BTreeMap<Resource, ByteRate> {
        let (host, nics) = (context.sharing.host(), context.sharing.nics());
        let percent = |limit: &Limit| matches!(limit, Limit::Percent(_));
        if host.iter().chain(nics.values()).any(percent) {
            let fresh = |(at, _): &(Instant, Links)| at.elapsed() < LINKS_AGAIN;
            if !self.links.as_ref().is_some_and(fresh) {
                let links = Links::read(&context.config.networks).await;
                self.links = Some((Instant::now(), links));
            }
        }
        let none = Links::default();
        let links = self.links.as_ref().map_or(&none, |(_, links)| links);
        let mut limits = BTreeMap::new();
        for leaves in [true, false] {
            if let Some(rate) = host.and_then(|limit| links::resolve(limit, links.host)) {
                limits.insert(Resource::Host { leaves }, bytes(rate));
            }
            for (name, limit) in &nics {
                let name = name.clone();
                if let Some(rate) = links::resolve(*limit, links.of(&name)) {
                    limits.insert(Resource::Nic { name, leaves }, bytes(rate));
                }
            }
        }
        limits
    }

    /// Has a relay here hold its limits; only what is new is told.
    fn apply(&mut self, migrations: &Migrations, id: MigrationId, wanted: Limits) {
        let applied = self.applied.entry(id).or_default();
        for (path, rate) in wanted {
            if applied.get(&path) != Some(&rate) && migrations.limit(id, path, rate) {
                applied.insert(path, rate);
            }
        }
    }

    /// Tells the agents of sources what they may send; those first that are to send less.
    async fn tell(&mut self, context: &Context, arriving: Vec<(&MigrationView, Vec<PathLimit>)>) {
        let mut less = Vec::new();
        let mut more = Vec::new();
        for (view, limits) in arriving {
            let before = self.told.get(&view.id).cloned().unwrap_or_default();
            if limits == before {
                continue;
            }
            let Ok(client) = context.peers.client(&view.source) else {
                continue;
            };
            let call = tell(client, view.id, limits.clone());
            let shrinks = limits.iter().any(|limit| is_less(limit, &before));
            if shrinks { &mut less } else { &mut more }.push(call);
        }
        for calls in [less, more] {
            for (id, limits) in join_all(calls).await.into_iter().flatten() {
                self.told.insert(id, limits);
            }
        }
    }
}

/// Tells one agent; what it was told, if it has heard.
async fn tell(
    client: Client,
    id: MigrationId,
    paths: Vec<PathLimit>,
) -> Option<(MigrationId, Vec<PathLimit>)> {
    let limits = PathLimits { paths };
    match tokio::time::timeout(TELL_LIMITS, client.limit_paths(id, &limits)).await {
        Ok(Ok(_)) => Some((id, limits.paths)),
        Ok(Err(error)) => {
            tracing::debug!(%id, %error, "the source was not told its limits");
            None
        }
        Err(_) => None,
    }
}

fn is_less(limit: &PathLimit, before: &[PathLimit]) -> bool {
    let known = before.iter().find(|known| known.path == limit.path);
    let most = |rate: Option<ByteRate>| rate.unwrap_or(ByteRate(u64::MAX));
    most(limit.rate) < most(known.and_then(|known| known.rate))
}

fn leaves(view: &MigrationView) -> bool {
    view.role == MigrationRole::Source
}

/// Whether there is a relay that could be told.
fn carries(view: &MigrationView) -> bool {
    view.paths.iter().any(|path| !path.lanes.is_empty())
}

fn bytes(rate: BitRate) -> ByteRate {
    ByteRate(rate.0 / 8)
}

fn flows(view: &MigrationView) -> Vec<Flow<FlowId, Resource>> {
    let leaves = leaves(view);
    let flow = |path: &PathView| {
        let name = near_interface(view.role, path).to_owned();
        Flow {
            flow: (view.id, leaves, path.path.id),
            over: vec![Resource::Host { leaves }, Resource::Nic { name, leaves }],
            rate: path.traffic.rate,
        }
    };
    view.paths.iter().map(flow).collect()
}

type Shares = BTreeMap<FlowId, ByteRate>;

/// What the relay of a guest that leaves is to hold: the least of its own limits and of what the
/// destination can take.
fn wanted(view: &MigrationView, own: Option<Limit>, told: &[PathLimit], shares: &Shares) -> Limits {
    let total = own.and_then(|limit| links::resolve(limit, links::of_paths(view)));
    let mut wanted = Limits::from([(None, total.map(bytes))]);
    for path in &view.paths {
        let id = path.path.id;
        let share = shares.get(&(view.id, true, id)).copied();
        let told = told.iter().find(|told| told.path == id);
        let told = told.and_then(|told| told.rate);
        let least = [share, told].into_iter().flatten().min();
        wanted.insert(Some(id), least);
    }
    wanted
}

/// What the agent of a guest's source is to be told.
fn path_limits(view: &MigrationView, shares: &Shares) -> Vec<PathLimit> {
    let limit = |path: &PathView| {
        let rate = shares.get(&(view.id, false, path.path.id)).copied();
        rate.map(|rate| PathLimit {
            path: path.path.id,
            rate: Some(rate),
        })
    };
    view.paths.iter().filter_map(limit).collect()
}
