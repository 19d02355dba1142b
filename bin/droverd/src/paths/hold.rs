//! Hosts that this agent took for a load, so that nobody else's is found as a fault of theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::{ErrorCode, LineView, LoadRequest, LoadTakeRequest, LoadTakenView, Refusal};
use drover_types::{HostName, LoadId};
use futures_util::future::join_all;
use tokio::time::timeout;
use uuid::Uuid;

use super::ask::not_answered;
use super::taken::{give_back, take};
use crate::agent::Context;
use crate::api::Caller;
use crate::limits;

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
    /// taken, and nothing is loaded.
    pub async fn begin(context: &Arc<Context>, request: LoadRequest, hosts: &[HostName]) -> Self {
        let mut hold = Hold {
            context: Arc::clone(context),
            id: LoadId(Uuid::now_v7()),
            asked: Vec::new(),
            taken: BTreeMap::new(),
            not_taken: BTreeMap::new(),
        };
        for host in hosts {
            if let Err(busy) = hold.take(host).await {
                hold.give_back().await;
                let hold = Err(busy);
                return Self { request, hold };
            }
        }
        let hold = Ok(hold);
        Self { request, hold }
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

    /// The line of an interface, as its host told.
    pub fn line(&self, host: &str, nic: &str) -> LineView {
        let hold = self.hold.as_ref().ok();
        let mut taken = hold.into_iter().flat_map(|hold| &hold.taken);
        let view = taken.find(|(taken, _)| taken.as_str() == host);
        let line = view.and_then(|(_, view)| view.lines.get(nic));
        line.cloned().unwrap_or_default()
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
    async fn take(&mut self, host: &HostName) -> Result<(), String> {
        self.asked.push(host.clone());
        let request = LoadTakeRequest {
            id: self.id,
            time_s: limits::LOAD_TAKEN.as_secs(),
        };
        let why = match self.ask(host, request).await {
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
    ) -> Result<LoadTakenView, Refusal> {
        if *host == self.context.config.host {
            return take(&self.context, Caller::Local, request).await;
        }
        let client = self.context.peers.client(host)?;
        let within = limits::PEER_PROBE;
        match timeout(within, client.take_for_load(&request)).await {
            Ok(taken) => taken.map_err(|error| not_answered(host, &error)),
            Err(_) => {
                let message = format!("its agent did not answer within {} s", within.as_secs());
                Err(Refusal::new(ErrorCode::PeerUnreachable, message))
            }
        }
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
            let ended = timeout(limits::PEER_PROBE, client.end_load(id)).await;
            if !matches!(ended, Ok(Ok(()))) {
                tracing::warn!(%host, %id, "was not told that a load is over");
            }
        }
    }))
    .await;
}
