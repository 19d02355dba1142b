//! This host's place in its cluster: its certificate, the members, and on one host the authority.
//!
//! ```text
//!   office.rs   on the authority's host: who is let in, renewed, removed
//!   orders.rs   who may coordinate, and so give orders
//!   member.rs   on every host: join, renew, hear what is new
//!   leave.rs    on every other host than the authority's: leave
//!   joins.rs    how often strangers may ask
//! ```
//! It owns the files below `<state>/trust` and the [`Trust`] that every connection reads. What is
//! in force is on disk before it is in force.

mod addresses;
mod joins;
mod leave;
mod member;
mod office;
mod orders;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError, RwLock};

use anyhow::{Context as _, bail};
use drover_api::{
    CertificateView, ClusterView, ErrorCode, MemberView, OperatorView, Refusal, RemovedView,
};
use drover_trust::{
    Armed, Clients, Credentials, Facts, Identity, Membership, Store, Stored, Trust, TrustError,
    system_clock,
};
use drover_types::HostName;
use jiff::Timestamp;
use tokio::sync::{Mutex, watch};

use self::joins::Joins;
use crate::config::Config;

pub use addresses::advertised;
pub use orders::in_words as coordinators_in_words;

/// This host's place in its cluster, or that it has none.
#[derive(Debug)]
pub struct Cluster {
    config: Arc<Config>,
    store: Store,
    trust: Trust,
    /// Held while something is changed: on disk, then here.
    stored: Mutex<Option<Stored>>,
    /// For those who only look.
    membership: RwLock<Option<Arc<Membership>>>,
    changes: watch::Sender<()>,
    problem: SyncMutex<Option<Refusal>>,
    joins: SyncMutex<Joins>,
    /// The newest revision that each member has heard, as far as the authority's host knows.
    heard: SyncMutex<BTreeMap<HostName, u64>>,
}

impl Cluster {
    /// As it was left.
    ///
    /// # Errors
    /// Its files cannot be used, or are another host's.
    pub fn open(config: Arc<Config>) -> anyhow::Result<Self> {
        let store = Store::below(&config.state);
        let stored = store.load().context("key `state`")?;
        let mut cluster = Self {
            store,
            trust: Trust::default(),
            stored: Mutex::new(None),
            membership: RwLock::new(None),
            changes: watch::Sender::new(()),
            problem: SyncMutex::new(None),
            joins: SyncMutex::default(),
            heard: SyncMutex::default(),
            config,
        };
        let Some(mut stored) = stored else {
            return Ok(cluster);
        };
        if let Some((authority, ledger)) = &stored.office {
            // The ledger is written first: a power cut may have left an older list.
            stored.membership = office::membership(&cluster.config.host, authority, ledger)?;
        }
        let credentials = stored.credentials().context("key `state`")?;
        let own = Identity::Host(cluster.config.host.clone());
        if credentials.facts.identity != own {
            bail!(
                "key `host`: this is {own}, but its certificate is that of {}; set the name back, \
                 or remove {} and join the cluster again",
                credentials.facts.identity,
                cluster.config.state.join("trust").display()
            );
        }
        cluster.arm(&stored)?;
        *cluster.stored.get_mut() = Some(stored);
        Ok(cluster)
    }

    /// What connections are made with.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Told at every change of certificate, members or removals.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Whether this host belongs to a cluster.
    pub fn is_member(&self) -> bool {
        self.membership().is_some()
    }

    /// The members, as last heard.
    pub fn membership(&self) -> Option<Arc<Membership>> {
        let membership = self.membership.read();
        membership.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a member's agent is asked: as the configuration says, or else as it said itself.
    pub fn addresses(&self, host: &HostName) -> Option<Vec<SocketAddr>> {
        let membership = self.membership()?;
        let member = membership.member(host)?;
        let configured = self.config.peer(host).map(|peer| peer.api.clone());
        Some(configured.unwrap_or_else(|| member.addresses.clone()))
    }

    /// Whether a member is said to be at this address. Nobody is believed for that, but he does not
    /// have to queue with strangers.
    pub fn expects(&self, address: IpAddr) -> bool {
        let Some(membership) = self.membership() else {
            return false;
        };
        let is = |known: &SocketAddr| known.ip().to_canonical() == address;
        let told = membership.members.iter().flat_map(|m| &m.addresses);
        let configured = self.config.peers.iter().flat_map(|peer| &peer.api);
        told.chain(configured).any(is)
    }

    /// From now on connections are made with these. They are on disk already.
    fn arm(&self, stored: &Stored) -> Result<(), TrustError> {
        let clients = if stored.office.is_some() {
            Clients::OrJoining
        } else {
            Clients::Certified
        };
        let credentials: Credentials = stored.credentials()?;
        let armed = Armed::host(&credentials, clients, &system_clock())?;
        self.trust.replace(armed);
        let place = self.membership.write();
        *place.unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(stored.membership.clone()));
        self.changes.send_replace(());
        Ok(())
    }

    fn set_problem(&self, problem: Option<Refusal>) {
        let mut place = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, problem.clone());
        if let Some(problem) = problem
            && before.as_ref() != Some(&problem)
        {
            tracing::warn!(%problem, "the cluster's authority");
        }
    }

    fn heard(&self, host: &HostName, revision: u64) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(host.clone(), revision);
    }

    /// The cluster as this host sees it.
    ///
    /// # Errors
    /// This host belongs to none.
    pub async fn view(&self) -> Result<ClusterView, Refusal> {
        let stored = self.stored.lock().await;
        let stored = stored.as_ref().ok_or_else(|| self.no_cluster())?;
        let armed = self.trust.armed().ok_or_else(|| self.no_cluster())?;
        let membership = &stored.membership;
        let ledger = stored.office.as_ref().map(|(_, ledger)| ledger);
        let now = Timestamp::now();
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let own = &self.config.host;
        let member = |member: &drover_trust::Member| MemberView {
            host: member.host.clone(),
            addresses: member.addresses.clone(),
            not_after: match ledger {
                Some(ledger) => ledger.good_until(&member.host, now),
                None => (member.host == *own).then(|| timestamp(armed.facts.not_after)),
            },
            up_to_date: ledger
                .filter(|_| member.host != *own)
                .map(|_| heard.get(&member.host).copied().unwrap_or(0) >= membership.revision),
        };
        let removed = ledger.map(|ledger| ledger.removed()).unwrap_or_default();
        let mut removals: Vec<RemovedView> = Vec::new();
        for removal in removed {
            let who = removal.identity.to_string();
            let at = removal.at;
            if !removals.iter().any(|r| r.who == who && r.at == at) {
                removals.push(RemovedView { who, at });
            }
        }
        let operators = ledger
            .map(|ledger| ledger.operators(now))
            .unwrap_or_default();
        let operator = |(name, not_after)| OperatorView { name, not_after };
        let tokens = ledger.map(|ledger| ledger.open_tokens(now));
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ClusterView {
            host: own.clone(),
            authority: membership.authority.clone(),
            coordinators: membership.coordinators.clone(),
            fingerprint: armed.authority,
            certificate: certificate(&armed.facts),
            revision: membership.revision,
            members: membership.members.iter().map(member).collect(),
            operators: operators.into_iter().map(operator).collect(),
            removed: removals,
            open_tokens: tokens.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
            problem: problem.clone(),
        })
    }

    /// Why nothing can be asked of other hosts.
    pub fn no_cluster(&self) -> Refusal {
        let message = format!("{} belongs to no cluster", self.config.host);
        Refusal::new(ErrorCode::NoCluster, message).next(
            "run `drover cluster init` on one host and `drover cluster token` there, then \
             `drover cluster join TOKEN` on the others",
        )
    }
}

fn certificate(facts: &Facts) -> CertificateView {
    CertificateView {
        serial: facts.serial.to_string(),
        not_after: timestamp(facts.not_after),
        renew_at: timestamp(facts.renew_at()),
    }
}

fn timestamp(time: std::time::SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

/// Writes to the disk, which may take its time, while others of this thread's tasks go on.
fn on_disk<T>(write: impl FnOnce() -> Result<T, TrustError>) -> Result<T, Refusal> {
    tokio::task::block_in_place(write).map_err(|error| failed(&error))
}

/// A failure of this host's own keys and files.
fn failed(error: &TrustError) -> Refusal {
    let text = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Refusal::new(ErrorCode::TrustFailed, text)
        .next("look at the directory `trust` below `state`, and at the disk it is on")
}
