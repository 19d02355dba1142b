//! The other hosts' agents.

use std::sync::Arc;

use drover_api::{Client, ClientError, ErrorCode, HostView, PeerView, Refusal};
use drover_types::HostName;
use futures_util::future::join_all;

use crate::config::{Config, Peer};
use crate::limits;

/// The configured peers.
#[derive(Debug, Clone)]
pub struct Peers {
    config: Arc<Config>,
}

impl Peers {
    /// Those of a configuration.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// A client of that host's agent.
    ///
    /// # Errors
    /// It is this host, or no configured peer.
    pub fn client(&self, host: &HostName) -> Result<Client, Refusal> {
        let own = &self.config.host;
        if host == own {
            let message = format!("{host} is this host: the guest is there already");
            return Err(Refusal::new(ErrorCode::SameHost, message));
        }
        self.config.peer(host).map(client).ok_or_else(|| {
            let known: Vec<_> = self.config.peers.iter().map(|p| p.host.as_str()).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            let message = format!("{own} knows no host {host}; the configured peers are: {known}");
            Refusal::new(ErrorCode::NoSuchHost, message).next(format!(
                "add a [[peers]] section for {host} to droverd.toml on {own}"
            ))
        })
    }

    /// Asks every peer whether it is there.
    pub async fn look(&self) -> Vec<PeerView> {
        join_all(self.config.peers.iter().map(look_at)).await
    }
}

fn client(peer: &Peer) -> Client {
    Client::tcp(peer.api.clone())
}

async fn look_at(peer: &Peer) -> PeerView {
    let answer = tokio::time::timeout(limits::PEER_PROBE, client(peer).host()).await;
    let found = match answer {
        Ok(Ok(view)) => same_host(&peer.host, &view).map(|()| view.version),
        Ok(Err(error)) => Err(unreachable(&peer.host, &error)),
        Err(_) => {
            let seconds = limits::PEER_PROBE.as_secs();
            let message = format!(
                "the agent of {} did not answer within {seconds} s",
                peer.host
            );
            Err(Refusal::new(ErrorCode::PeerUnreachable, message))
        }
    };
    let (version, problem) = match found {
        Ok(version) => (Some(version), None),
        Err(problem) => (None, Some(problem)),
    };
    PeerView {
        host: peer.host.clone(),
        api: peer.api.clone(),
        reachable: problem.is_none(),
        version,
        problem,
    }
}

/// A peer must answer under the name that it has here.
///
/// # Errors
/// It answers under another name.
pub fn same_host(expected: &HostName, view: &HostView) -> Result<(), Refusal> {
    if view.host == *expected {
        return Ok(());
    }
    let message = format!(
        "the agent at the addresses of {expected} calls itself {}",
        view.host
    );
    Err(Refusal::new(ErrorCode::PeerMismatch, message)
        .next("make `host` there and the [[peers]] section here agree"))
}

/// What to tell when a peer's agent could not be asked. Its own refusals are passed on.
pub fn unreachable(host: &HostName, error: &ClientError) -> Refusal {
    if let Some(refusal) = error.refusal() {
        return refusal.clone();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    Refusal::new(ErrorCode::PeerUnreachable, format!("host {host}: {text}")).next(format!(
        "check that droverd runs on {host} and that its address is right"
    ))
}
