//! Hosts that this agent took for a load, so that nobody else's is found as a fault of theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::{ErrorCode, LineView, LoadRequest, LoadTakeRequest, LoadTakenView, Refusal};
use drover_types::{HostName, LoadId};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::ask::not_loaded;
use super::limits;
use super::taken::{give_back, take};
use crate::agent::Context;
use crate::api::Caller;
use crate::limits::PEER_PROBE;

/// Loads of a cluster that were asked for.
pub struct Loads {
    /// How.
    pub request: LoadRequest,
    /// The hosts, or why nothing is loaded.
    hold: Result<Hold, String>,
}

/// Hosts that are part of one load. Dropped, they are given back without being waited for.
struct Hold {
    context: Arc<Context>,
    id: LoadId,
    /// Those that may have been taken.
    asked: Vec<HostName>,
    taken: BTreeMap<HostName, LoadTakenView>,
    not_taken: BTreeMap<HostName, String>,
}

impl Loads {
    /// Takes these hosts for it, one after the other in their order: of two who do so at once one gets all. Where one is part of another load none is
    /// taken, and nothing is loaded. Those that could not be taken within [`limits::LOADS_BEGIN`] are not loaded, because.
    pub async fn begin(context: &Arc<Context>, request: LoadRequest, hosts: &[HostName]) -> Self {
        let end = Instant::now() + limits::LOADS_BEGIN;
        let mut hold = Hold {
            context: Arc::clone(context),
            id: LoadId(Uuid::now_v7()),
            asked: Vec::new(),
            taken: BTreeMap::new(),
            not_taken: BTreeMap::new(),
        };
        for host in hosts {
            if let Err(busy) = hold.take(host, end).await {
                hold.give_back().await;
                let hold = Err(busy);
                return Self { request, hold };
            }
        }
        let hold = Ok(hold);
        Self { request, hold }
    }

    /// Its id, where hosts are taken for it.
    pub fn id(&self) -> Option<LoadId> {
        Some(self.hold.as_ref().ok()?.id)
    }

    /// Whether anything is loaded.
    pub fn are_made(&self) -> bool {
        self.hold.is_ok()
    }

    /// Of which load the paths between these two are, or why they are not loaded.
    pub fn between(&self, near: &HostName, far: &HostName) -> Result<LoadId, String> {
        let hold = self.hold.as_ref().map_err(Clone::clone)?;
        let mut not_taken = [near, far]
            .into_iter()
            .filter_map(|host| hold.not_taken.get(host));
        not_taken.next().map_or(Ok(hold.id), |why| Err(why.clone()))
    }

    /// The line of an interface, if its host told of it.
    pub fn line(&self, host: &str, nic: &str) -> Option<&LineView> {
        let mut taken = self.hold.as_ref().ok()?.taken.iter();
        let (_, view) = taken.find(|(taken, _)| taken.as_str() == host)?;
        view.lines.get(nic)
    }

    /// Gives the hosts back.
    pub async fn end(self) {
        if let Ok(mut hold) = self.hold {
            hold.give_back().await;
        }
    }
}

impl Hold {
    /// # Errors
    /// It is part of another load.
    async fn take(&mut self, host: &HostName, end: Instant) -> Result<(), String> {
        self.asked.push(host.clone());
        let request = LoadTakeRequest {
            id: self.id,
            time_s: limits::LOAD_TAKEN.as_secs(),
        };
        let why = match self.ask(host, request, end).await {
            Ok(view) => {
                self.taken.insert(host.clone(), view);
                return Ok(());
            }
            Err(refusal) if refusal.code == ErrorCode::TooManyRequests => {
                return Err(refusal.message);
            }
            Err(refusal) => refusal.message,
        };
        let why = format!("{host} could not be taken for a load: {why}");
        self.not_taken.insert(host.clone(), why);
        Ok(())
    }

    async fn ask(
        &self,
        host: &HostName,
        request: LoadTakeRequest,
        end: Instant,
    ) -> Result<LoadTakenView, Refusal> {
        if *host == self.context.config.host {
            return take(&self.context, Caller::Local, request).await;
        }
        let client = self.context.peers.client(host)?;
        let within = PEER_PROBE;
        let taken = timeout(within, client.take_for_load(&request));
        let message = match timeout_at(end, taken).await {
            Ok(Ok(taken)) => return taken.map_err(|error| not_loaded(host, &error)),
            Ok(Err(_)) => format!("its agent did not answer within {} s", within.as_secs()),
            Err(_) => {
                let seconds = limits::LOADS_BEGIN.as_secs();
                format!("taking hosts took {seconds} s already: name the hosts that matter")
            }
        };
        Err(Refusal::new(ErrorCode::PeerUnreachable, message))
    }

    async fn give_back(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        give_all_back(&self.context, self.id, asked).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        if asked.is_empty() {
            return;
        }
        let (context, id) = (Arc::clone(&self.context), self.id);
        // Without a runtime the agent is ending: their time does it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { give_all_back(&context, id, asked).await });
        }
    }
}

/// Who does not hear of it is free again when its time is over.
async fn give_all_back(context: &Context, id: LoadId, hosts: Vec<HostName>) {
    join_all(hosts.iter().map(async |host| {
        if *host == context.config.host {
            return give_back(context, &Caller::Local, id);
        }
        if let Ok(client) = context.peers.client(host) {
            let ended = timeout(PEER_PROBE, client.end_load(id)).await;
            if !matches!(ended, Ok(Ok(()))) {
                tracing::warn!(%host, %id, "was not told that a load is over");
            }
        }
    }))
    .await;
}
