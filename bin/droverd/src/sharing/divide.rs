//! Gives each path its share of the limits that it crosses, again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use drover_api::{Limit, MigrationRole, MigrationView, PathLimit, PathView};
use drover_migrate::share::{Division, Flow};
use drover_types::{BitRate, ByteRate, MigrationId, PathId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::MissedTickBehavior;

use super::Limits;
use super::links::{self, Links};
use super::tell::{Words, tell};
use crate::agent::Context;
use crate::limits::{DIVIDE, LINKS_AGAIN};
use crate::migration::{Migrations, Sharer, near_interface};

/// Divides until it is dropped. Nobody's silence holds it up.
pub async fn run(context: Arc<Context>, migrations: Arc<Migrations>) {
    let mut tick = tokio::time::interval(DIVIDE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let sharing = &context.sharing;
    let mut divider = Divider::default();
    let mut words = Words::default();
    let mut calls = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = sharing.again.notified() => {}
            Some((id, heard)) = calls.next() => {
                words.answered(id, heard);
                sharing.divisions.send_modify(|d| d.heard = words.heard(d.done));
                continue;
            }
        }
        sharing.divisions.send_modify(|d| d.begun += 1);
        let arriving = divider.divide(&context, &migrations).await;
        let number = sharing.divisions.borrow().begun;
        for (id, limits) in words.due(Instant::now(), number, arriving) {
            calls.push(tell(
                Arc::clone(&context),
                Arc::clone(&migrations),
                id,
                limits,
            ));
        }
        sharing.divisions.send_modify(|d| {
            d.done = d.begun;
            d.heard = words.heard(d.done);
        });
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

#[derive(Default)]
struct Divider {
    division: Division<FlowId, Resource>,
    links: Option<(Instant, Links)>,
}

impl Divider {
    /// Has the relays of guests that leave hold their shares; those of guests that arrive. A migration
    /// counts as soon as its paths are known, so that there is room for it when it begins to carry.
    async fn divide(
        &mut self,
        context: &Context,
        migrations: &Migrations,
    ) -> BTreeMap<MigrationId, Vec<PathLimit>> {
        let sharing = &context.sharing;
        let sharers = migrations.sharers();
        let ids: Vec<_> = sharers.iter().map(|sharer| sharer.view.id).collect();
        sharing.keep_only(&ids);
        if sharers.is_empty() {
            return BTreeMap::new();
        }
        let limits = self.limits(context).await;
        let flows: Vec<_> = sharers
            .iter()
            .flat_map(|sharer| flows(&sharer.view))
            .collect();
        let shares = self.division.divide(&limits, &flows);
        let of_migrations = sharing.migrations();
        // A relay that is not found again yet holds what it held, and some of its paths may not be known.
        let known = |sharer: &&Sharer| sharer.is_whole && !sharer.view.paths.is_empty();
        let leaving = sharers.iter().filter(known).map(|sharer| &sharer.view);
        for view in leaving.filter(|view| leaves(view)) {
            let own = of_migrations.get(&view.id).copied();
            let wanted = wanted(view, own, &sharing.told(view.id), &shares);
            if !holds(view, &wanted) {
                migrations.limit(view.id, wanted);
            }
        }
        let arriving = sharers.iter().filter(|sharer| !leaves(&sharer.view));
        let arriving = arriving.filter(known);
        arriving
            .map(|sharer| (sharer.view.id, path_limits(&sharer.view, &shares)))
            .collect()
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
}

fn leaves(view: &MigrationView) -> bool {
    view.role == MigrationRole::Source
}

/// Whether its relay was told all of this.
fn holds(view: &MigrationView, wanted: &Limits) -> bool {
    let held = |path: &Option<PathId>| match path {
        None => view.limit,
        Some(id) => {
            let path = view.paths.iter().find(|path| path.path.id == *id);
            path.and_then(|path| path.limit)
        }
    };
    wanted.iter().all(|(path, rate)| held(path) == *rate)
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

#[cfg(test)]
#[path = "divide_tests.rs"]
mod tests;
