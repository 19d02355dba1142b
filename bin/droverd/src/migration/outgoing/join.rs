//! Interfaces that join a session which is under way: new ones, and those whose path is dead while
//! another pairing would use them.

use std::collections::BTreeMap;
use std::time::Instant;

use drover_api::IncomingPaths;
use drover_migrate::paths::{self, Candidate, Selection, Side};
use drover_relay::PathState;
use drover_relay::limits::REDIAL_PATIENCE;
use drover_types::{MigrationId, Path, PathEnd, PathId};
use tokio::sync::oneshot;

use super::reach::{leads_there, probe};
use super::{Link, Message};
use crate::migration::carrier::Carrier;
use crate::migration::{links, placing};
use crate::{facts, limits};

/// Lets paths join, for ever.
pub async fn keep_joining(link: Link, carrier: Carrier, id: MigrationId, port: u16) {
    let mut events = link.context.links.subscribe();
    let mut joiner = Joiner {
        link,
        carrier,
        id,
        port,
        dead_since: BTreeMap::new(),
        probed: None,
    };
    loop {
        tokio::select! {
            _ = links::next(&mut events) => {
                // An interface that comes up gets its addresses one by one.
                tokio::time::sleep(limits::LINK_SETTLES).await;
                joiner.probed = None;
            }
            () = tokio::time::sleep(limits::JOIN_LOOK) => {}
        }
        joiner.look().await;
    }
}

struct Joiner {
    link: Link,
    carrier: Carrier,
    id: MigrationId,
    port: u16,
    dead_since: BTreeMap<PathId, Instant>,
    /// What was probed last, and when.
    probed: Option<(Vec<Candidate>, Instant)>,
}

impl Joiner {
    async fn look(&mut self) {
        let Ok(own) = facts::interfaces().await else {
            return; // the next look may tell
        };
        let current = self.carrier.paths();
        // A destination that does not answer is asked again at the next look.
        let Some(theirs) = self.tell(&current).await else {
            return;
        };
        let networks = &self.link.context.config.networks;
        let ours = paths::select(Side::Source, &own, networks);
        let theirs = paths::select(Side::Destination, &theirs, &Selection::default());
        let living = self.living(&current);
        let lives = |id: PathId| living.contains(&id);
        let in_use = |side: fn(&Path) -> &PathEnd, end: &PathEnd| {
            let uses = |path: &&Path| lives(path.id) && side(path).interface == end.interface;
            current.iter().find(uses).is_some()
        };
        let mut candidates = paths::candidates(&ours, &theirs);
        paths::unknown(&current, &mut candidates);
        candidates.retain(|candidate| {
            let idle = !in_use(|path| &path.source, &candidate.source)
                || !in_use(|path| &path.destination, &candidate.destination);
            idle && leads_there(&own, candidate)
        });
        if candidates.is_empty() || !self.is_news(&candidates) {
            return;
        }
        let mut answered = probe(candidates, self.port, REDIAL_PATIENCE).await;
        let living_paths = current.iter().filter(|path| lives(path.id));
        answered.extend(living_paths.map(|path| Candidate {
            source: path.source.clone(),
            destination: path.destination.clone(),
        }));
        let chosen = paths::choose(&ours, &theirs, &answered).paths;
        let joining = paths::joining(&current, lives, &chosen);
        if !joining.is_empty() {
            self.join(joining).await;
        }
    }

    /// The destination's interfaces by now; it is told the paths.
    async fn tell(&self, paths: &[Path]) -> Option<Vec<drover_types::Interface>> {
        let paths = paths.to_vec();
        let request = IncomingPaths { paths };
        match self.link.client.incoming_paths(self.id, &request).await {
            Ok(networks) => Some(networks.interfaces),
            Err(error) => {
                tracing::debug!(id = %self.id, %error, "the destination was not asked for its interfaces");
                None
            }
        }
    }

    /// Paths that have a lane, or had one a moment ago.
    fn living(&mut self, current: &[Path]) -> Vec<PathId> {
        let counters = self.carrier.relay.counters();
        let report = counters.map_or_else(Vec::new, |counters| counters.relay.paths);
        let up = |id| {
            let found = report.iter().find(|path| path.path == id);
            found.is_some_and(|path| path.state == PathState::Up)
        };
        let mut living = Vec::new();
        for path in current {
            if up(path.id) {
                self.dead_since.remove(&path.id);
                living.push(path.id);
                continue;
            }
            let since = *self.dead_since.entry(path.id).or_insert_with(Instant::now);
            if since.elapsed() < limits::PATH_DEAD {
                living.push(path.id);
            }
        }
        living
    }

    /// Whether these were not probed just now.
    fn is_news(&mut self, candidates: &[Candidate]) -> bool {
        let known = self
            .probed
            .as_ref()
            .is_some_and(|(probed, at)| probed == candidates && at.elapsed() < limits::PROBE_AGAIN);
        if !known {
            self.probed = Some((candidates.to_vec(), Instant::now()));
        }
        !known
    }

    async fn join(&self, joining: Vec<Path>) {
        let ends: Vec<_> = joining.iter().map(|path| path.source.clone()).collect();
        let nics = placing::nics(&self.link.context.config, &ends).await;
        self.carrier.relay.place(nics);
        let (known, shown) = oneshot::channel();
        self.link
            .tell(Message::Joining(joining.clone(), known))
            .await;
        // A task that has ended opens no lane.
        let _ = shown.await;
        // Its view shows them, and it tells their limits; without an answer the next look tells it.
        let _ = self.tell(&self.carrier.paths()).await;
        if !self.link.context.sharing.divided().await {
            tracing::warn!(id = %self.id, "a path joins before its share of limits is known");
        }
        self.link.tell(Message::Joined(joining)).await;
    }
}
