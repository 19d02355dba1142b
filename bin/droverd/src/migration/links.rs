//! A session's lanes follow what happens to the host's links: those on an interface that carries
//! nothing are given up at once, and dialled at once when it is back.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_host::{LinkChange, LinkEvent};
use drover_migrate::paths::{Side, Trouble, trouble};
use drover_types::{Interface, Path, PathEnd, PathId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use super::carrier::Carrier;
use crate::agent::Context;
use crate::facts;

/// Work that ends with this value.
#[derive(Debug)]
pub struct Following(Vec<AbortHandle>);

impl Following {
    /// Begins it.
    pub fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(vec![tokio::spawn(work).abort_handle()])
    }

    /// And this beside it.
    pub fn and(mut self, work: impl Future<Output = ()> + Send + 'static) -> Self {
        self.0.push(tokio::spawn(work).abort_handle());
        self
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Tells the relay of `carrier` what happens to this host's ends of its paths, for ever.
pub async fn follow(context: Arc<Context>, carrier: Carrier, side: Side) {
    let mut events = context.links.subscribe();
    let mut follower = Follower {
        carrier,
        side,
        troubled: BTreeMap::new(),
    };
    loop {
        match facts::interfaces().await {
            Ok(own) => follower.look(&own),
            Err(error) => tracing::warn!(%error, "links not looked at"),
        }
        follower.renamed(&next(&mut events).await);
    }
}

/// The next events, all that there are by now.
pub async fn next(events: &mut Receiver<LinkEvent>) -> Vec<LinkEvent> {
    let mut all = vec![match events.recv().await {
        Ok(event) => event,
        Err(RecvError::Lagged(_)) => LinkEvent::Missed,
        // The agent is ending.
        Err(RecvError::Closed) => std::future::pending().await,
    }];
    while let Ok(event) = events.try_recv() {
        all.push(event);
    }
    all
}

struct Follower {
    carrier: Carrier,
    side: Side,
    /// Paths whose end here carries nothing.
    troubled: BTreeMap<PathId, Trouble>,
}

impl Follower {
    fn end<'a>(&self, path: &'a mut Path) -> &'a mut PathEnd {
        match self.side {
            Side::Source => &mut path.source,
            Side::Destination => &mut path.destination,
        }
    }

    /// Compares every path's end here with the interfaces as they are.
    fn look(&mut self, own: &[Interface]) {
        for mut path in self.carrier.paths() {
            let id = path.id;
            let end = self.end(&mut path);
            let (now, before) = (trouble(own, end), self.troubled.get(&id));
            match (&now, before) {
                (Some(trouble), known) if known != Some(trouble) => {
                    tracing::info!(path = %id, %trouble, "link lost");
                    self.carrier.relay.link_lost(id, &trouble.to_string());
                }
                (None, Some(_)) => {
                    tracing::info!(path = %id, interface = end.interface, "link back");
                    self.carrier.relay.link_back(id, end.clone());
                }
                _ => {}
            }
            match now {
                Some(trouble) => drop(self.troubled.insert(id, trouble)),
                None => drop(self.troubled.remove(&id)),
            }
        }
    }

    /// Lanes are bound to the interface, not to its name: they live on, and new ones need the new
    /// name.
    fn renamed(&self, events: &[LinkEvent]) {
        for event in events {
            let LinkEvent::Changed {
                interface: to,
                change: LinkChange::Renamed { from },
            } = event
            else {
                continue;
            };
            self.carrier.change_paths(|paths| {
                for path in paths {
                    let id = path.id;
                    let end = self.end(path);
                    if end.interface == *from {
                        end.interface.clone_from(to);
                        if !self.troubled.contains_key(&id) {
                            self.carrier.relay.link_back(id, end.clone());
                        }
                    }
                }
            });
        }
    }
}
