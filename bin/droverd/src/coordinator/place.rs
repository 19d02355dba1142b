//! Where runs are kept, and whether this host may carry them out.
//!
//! ```text
//!   no `store.etcd`: a file below `state`, on the authority's host and nowhere else
//!   `store.etcd`:    etcd, on the authority's host and on those that it named; one leads at a time
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use drover_api::{ErrorCode, Refusal};
use drover_store::{Embedded, Etcd, HostClock, Members, Store, StoreError, TlsFiles};
use drover_trust::Fingerprint;
use tokio::sync::Mutex;

use super::keep::Keep;
use crate::agent::Context;
use crate::cluster::coordinators_in_words;

/// Characters of the authority's fingerprint in the name of a store's file: nobody has two that share them.
const AUTHORITY: usize = 16;

/// Where runs are kept.
#[derive(Debug)]
pub struct Place {
    context: Arc<Context>,
    /// Opened for the cluster of that authority: a host may leave it and join another one.
    open: Mutex<Option<(Fingerprint, Keep)>>,
}

impl Place {
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            open: Mutex::new(None),
        }
    }

    /// Whether other hosts may lead as well, and take over what this one no longer carries on.
    pub fn is_shared(&self) -> bool {
        self.context.config.etcd.is_some()
    }

    /// Whether a run of an earlier agent may be found here: opening the file would make it.
    pub fn may_hold_a_run(&self) -> bool {
        let armed = self.context.cluster.trust().armed();
        let file = armed.map(|armed| self.file(armed.authority));
        self.is_shared() || file.is_some_and(|file| file.exists())
    }

    /// The store, opened once.
    ///
    /// # Errors
    /// It cannot be, or this host is in no cluster.
    pub async fn keep(&self) -> Result<Keep, Refusal> {
        let cluster = &self.context.cluster;
        let armed = cluster.trust().armed();
        let authority = armed.ok_or_else(|| cluster.no_cluster())?.authority;
        let mut open = self.open.lock().await;
        if let Some((of, keep)) = open.as_ref()
            && *of == authority
        {
            return Ok(keep.clone());
        }
        let opened = self.open(authority).await;
        let keep = opened.map_err(|error| self.unavailable(&error))?;
        *open = Some((authority, keep.clone()));
        Ok(keep)
    }

    async fn open(&self, authority: Fingerprint) -> Result<Keep, StoreError> {
        let config = &self.context.config;
        let clock = HostClock::new()?;
        let store: Store = match &config.etcd {
            Some(etcd) => {
                let tls = etcd.tls.as_ref().map(TlsFiles::load).transpose()?;
                let members = Members::new(&etcd.members, tls)?;
                let cluster = authority.to_string().parse()?;
                Etcd::new(members, &cluster, clock).into()
            }
            None => Embedded::open(&self.file(authority), clock).await?.into(),
        };
        Keep::new(store, config.host.clone(), clock, self.is_shared())
    }

    /// Each cluster has its own: the runs of one that this host has left are not another's.
    fn file(&self, authority: Fingerprint) -> PathBuf {
        let authority: String = authority.to_string().chars().take(AUTHORITY).collect();
        let name = format!("cluster-{authority}.db");
        self.context.config.state.join(name)
    }

    fn file_in_words(&self) -> String {
        let armed = self.context.cluster.trust().armed();
        armed.map_or_else(
            || "cluster-*.db below `state`".to_owned(),
            |armed| self.file(armed.authority).display().to_string(),
        )
    }

    /// Whether runs may be carried out on this host.
    ///
    /// # Errors
    /// They may not, and where they may.
    pub fn check_is_here(&self) -> Result<(), Refusal> {
        let cluster = &self.context.cluster;
        let membership = cluster.membership().ok_or_else(|| cluster.no_cluster())?;
        let (own, authority) = (&self.context.config.host, &membership.authority);
        let who = coordinators_in_words(&membership);
        if !membership.may_coordinate(own) {
            let message = format!("runs are carried out by {who}, and not by {own}");
            let next = format!(
                "run the command on {authority}, or with --agent https://{authority} and --identity"
            );
            return Err(Refusal::new(ErrorCode::NotTheCoordinator, message).next(next));
        }
        if !membership.coordinators.is_empty() && !self.is_shared() {
            let message = format!(
                "several hosts may carry out runs ({who}), and {own} does not know the etcd in which they are kept"
            );
            return Err(Refusal::new(ErrorCode::NotTheCoordinator, message).next(format!(
                "set `store.etcd` in droverd.toml on {own} as on the others, and restart droverd"
            )));
        }
        Ok(())
    }

    /// What is told when the store does not do what it is asked.
    pub fn unavailable(&self, error: &StoreError) -> Refusal {
        let message = format!("runs cannot be read or written down: {error}");
        let next = if self.is_shared() {
            "moves under way end by themselves, and none begins until it answers; look at etcd's members \
             (`etcdctl endpoint health`) and at `store` in droverd.toml"
                .to_owned()
        } else {
            let file = self.file_in_words();
            format!("look at the file {file}, and at the disk it is on")
        };
        Refusal::new(ErrorCode::StoreUnavailable, message).next(next)
    }

    /// What is left where a journal contradicts itself.
    pub fn way_out(&self) -> String {
        let after = "moves under way end by themselves, and hosts stay cordoned";
        let armed = self.context.cluster.trust().armed();
        match armed.filter(|_| self.is_shared()) {
            Some(armed) => format!(
                "`etcdctl del drover/{}/state/run/under-way` has it no longer be under way; {after}",
                armed.authority
            ),
            None => format!(
                "stop droverd, move {} away and keep it, and start droverd: all runs are forgotten then; {after}",
                self.file_in_words()
            ),
        }
    }
}
