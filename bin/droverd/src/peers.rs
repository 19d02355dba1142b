//! The other hosts' agents.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    Client, ClientError, DomainHeld, DomainNeedsRequest, DomainNeedsView, ErrorCode, PeerView,
    Refusal,
};
use drover_types::{HostName, VmName, with_sources};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::elsewhere::Elsewhere;
use crate::limits;

/// The other hosts of the cluster.
#[derive(Debug, Clone)]
pub struct Peers {
    config: Arc<Config>,
    cluster: Arc<Cluster>,
}

impl Peers {
    /// Those of a cluster.
    pub fn new(config: Arc<Config>, cluster: Arc<Cluster>) -> Self {
        Self { config, cluster }
    }

    /// A client of that host's agent.
    ///
    /// # Errors
    /// It is this host, or no member, or there is no cluster.
    pub fn client(&self, host: &HostName) -> Result<Client, Refusal> {
        let own = &self.config.host;
        if host == own {
            let message = format!("{host} is this host: the guest is there already");
            return Err(Refusal::new(ErrorCode::SameHost, message));
        }
        let others = self.others()?;
        match self.cluster.addresses(host) {
            Some(addresses) => Ok(self.client_or_at(host, addresses)),
            None => {
                let known: Vec<_> = others.iter().map(HostName::as_str).collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                let message =
                    format!("the cluster of {own} has no host {host}; the others are: {known}");
                Err(Refusal::new(ErrorCode::NoSuchHost, message).next(format!(
                    "join {host} with `drover cluster token` and `drover cluster join`"
                )))
            }
        }
    }

    /// A client of a host that is asked where the cluster has it at the time, or, while it is no member,
    /// where it was last.
    pub fn client_or_at(&self, host: &HostName, last: Vec<SocketAddr>) -> Client {
        let (cluster, member) = (Arc::clone(&self.cluster), host.clone());
        let find = move || cluster.addresses(&member).unwrap_or_else(|| last.clone());
        Client::host_found_by(host.clone(), find, self.cluster.trust().clone())
    }

    /// Where the cluster has a host now.
    pub fn addresses(&self, host: &HostName) -> Vec<SocketAddr> {
        self.cluster.addresses(host).unwrap_or_default()
    }

    /// Every other member, and where the cluster has it now.
    pub fn all(&self) -> Vec<(HostName, Vec<SocketAddr>)> {
        let others = self.others().unwrap_or_default().into_iter();
        others
            .map(|host| {
                let addresses = self.addresses(&host);
                (host, addresses)
            })
            .collect()
    }

    /// Whether it is known which hosts there are.
    ///
    /// # Errors
    /// This host is in no cluster: nobody is silent then, and nobody has said anything.
    pub fn are_known(&self) -> Result<(), Refusal> {
        self.others().map(drop)
    }

    /// The names of the other members.
    fn others(&self) -> Result<Vec<HostName>, Refusal> {
        let membership = self.cluster.membership();
        let membership = membership.ok_or_else(|| self.cluster.no_cluster())?;
        let names = membership.members.iter().map(|member| member.host.clone());
        Ok(names.filter(|host| *host != self.config.host).collect())
    }

    /// Asks every other member whether it is there.
    pub async fn look(&self) -> Vec<PeerView> {
        let others = self.others().unwrap_or_default();
        join_all(others.iter().map(|host| self.look_at(host))).await
    }

    /// Asks every other member whether it has a process of this guest.
    pub async fn ask_for(&self, vm: &VmName) -> Elsewhere {
        let others = self.others().unwrap_or_default();
        let asked = others.into_iter().map(async |host| {
            let client = self.client_or_at(&host, Vec::new());
            let answer = tokio::time::timeout(limits::PEER_PROBE, client.held(vm)).await;
            (host, answer.ok().and_then(Result::ok))
        });
        let mut found = Elsewhere::default();
        for (host, held) in join_all(asked).await {
            match held.and_then(|held| held.domain) {
                Some(DomainHeld::InMemory) => found.domains.push(host.clone()),
                Some(DomainHeld::NotKnown) => found.untold.push(host.clone()),
                Some(DomainHeld::Absent | DomainHeld::Off) | None => {}
            }
            match held {
                Some(held) if held.process => found.on.push(host),
                Some(held) if held.suspended => found.suspended.push(host),
                Some(_) => {}
                None => found.silent.push(host),
            }
        }
        found
    }

    /// Asks every other member the same; when each answered, or failed to.
    pub async fn ask_all<T>(
        &self,
        ask: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Vec<(HostName, Result<T, Refusal>, Instant)> {
        self.ask_these(self.others().unwrap_or_default(), ask).await
    }

    /// Asks these the same; when each answered, or failed to.
    pub async fn ask_these<T>(
        &self,
        hosts: Vec<HostName>,
        ask: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Vec<(HostName, Result<T, Refusal>, Instant)> {
        let asked = hosts.into_iter().map(async |host| {
            let client = self.client_or_at(&host, Vec::new());
            let told = match tokio::time::timeout(limits::INVENTORY, ask(&client)).await {
                Ok(told) => told.map_err(|error| unreachable(&host, &error)),
                Err(_) => Err(late(&host, limits::INVENTORY)),
            };
            (host, told, Instant::now())
        });
        join_all(asked).await
    }

    /// Asks these for what domains need; what each has, or why it did not say.
    pub async fn needs_of(
        &self,
        hosts: Vec<HostName>,
        request: &DomainNeedsRequest,
    ) -> Vec<(HostName, Result<DomainNeedsView, Refusal>)> {
        join_all(hosts.into_iter().map(|host| self.has(host, request))).await
    }

    async fn has(
        &self,
        host: HostName,
        request: &DomainNeedsRequest,
    ) -> (HostName, Result<DomainNeedsView, Refusal>) {
        let client = self.client_or_at(&host, Vec::new());
        let asked = tokio::time::timeout(limits::INVENTORY, client.domain_needs(request)).await;
        let told = match asked {
            Ok(told) => told.map_err(|error| unreachable(&host, &error)),
            Err(_) => Err(late(&host, limits::INVENTORY)),
        };
        (host, told)
    }

    /// Asks one of them whether it is there.
    pub async fn look_at(&self, host: &HostName) -> PeerView {
        let client = self.client_or_at(host, Vec::new());
        let answer = tokio::time::timeout(limits::PEER_PROBE, client.host()).await;
        let found = match answer {
            Ok(Ok(view)) => Ok(view.version),
            Ok(Err(error)) => Err(unreachable(host, &error)),
            Err(_) => Err(late(host, limits::PEER_PROBE)),
        };
        let (version, problem) = match found {
            Ok(version) => (Some(version), None),
            Err(problem) => (None, Some(problem)),
        };
        PeerView {
            host: host.clone(),
            api: self.addresses(host),
            reachable: problem.is_none(),
            version,
            problem,
        }
    }
}

fn late(host: &HostName, within: Duration) -> Refusal {
    let seconds = within.as_secs();
    let message = format!("the agent of {host} did not answer within {seconds} s");
    Refusal::new(ErrorCode::PeerUnreachable, message)
}

/// Why a host did not do what it was ordered. Where it may have done it all the same that is said, with how to look.
pub fn open(host: &HostName, error: &ClientError, look: &str) -> Refusal {
    if error.refusal().is_some() || !error.leaves_it_open() {
        return unreachable(host, error);
    }
    let why = with_sources(error);
    let message = format!("it is not known whether host {host} did what it was asked: {why}");
    Refusal::new(ErrorCode::OutcomeUnknown, message).next(look)
}

/// What to tell when a peer's agent could not be asked. Its own refusals are passed on.
pub fn unreachable(host: &HostName, error: &ClientError) -> Refusal {
    if let Some(refusal) = error.refusal() {
        return refusal.clone();
    }
    let message = format!("host {host}: {}", with_sources(error));
    match error {
        ClientError::Untrusted { problem, .. } => {
            Refusal::new(ErrorCode::PeerUntrusted, message).next(problem.next())
        }
        _ => Refusal::new(ErrorCode::PeerUnreachable, message).next(format!(
            "check that droverd runs on {host} and that its address is right"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_was_not_answered_may_have_been_obeyed_and_one_that_nobody_got_was_not() {
        let host: HostName = "b".parse().unwrap();
        let (endpoint, call) = (String::from("b"), String::from("POST /v1/links"));
        let late = ClientError::Timeout {
            endpoint: endpoint.clone(),
            call,
            after: Duration::from_secs(15),
        };
        let refusal = open(&host, &late, "look there");
        assert_eq!(refusal.code, ErrorCode::OutcomeUnknown);
        assert!(!refusal.code.is_preflight());
        assert!(
            refusal.message.contains("not known whether host b"),
            "{refusal}"
        );
        assert_eq!(refusal.next.as_deref(), Some("look there"));
        let source = std::io::ErrorKind::ConnectionRefused.into();
        let gone = ClientError::Unreachable { endpoint, source };
        let refusal = open(&host, &gone, "look there");
        assert_eq!(refusal.code, ErrorCode::PeerUnreachable);
        let own = Refusal::new(ErrorCode::NotDrained, "it has guests");
        assert_eq!(open(&host, &own.clone().into(), "look there"), own);
    }
}
