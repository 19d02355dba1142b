//! A host leaves its cluster by itself.

use std::sync::PoisonError;

use drover_api::{Client, ClientError, ErrorCode, Refusal};
use drover_trust::Problem;

use super::{Cluster, on_disk};
use crate::api::Caller;
use crate::peers;

/// How often the authority's host is asked. It closes the connection of a host that it removed, so that its answer
/// may not arrive; asked once more it does not believe that host any longer.
const ASKED: usize = 2;

impl Cluster {
    /// Has the authority remove this host, and forgets the cluster.
    ///
    /// # Errors
    /// This host has the authority's key, or the authority's host cannot be asked, or it refused; nothing was changed
    /// then. Or the files cannot be removed.
    pub async fn leave(&self) -> Result<(), Refusal> {
        let membership = self.membership().ok_or_else(|| self.no_cluster())?;
        let (own, authority) = (&self.config.host, &membership.authority);
        if own == authority {
            let message = format!("{own} has the authority's key: without it the cluster has none");
            return Err(Refusal::new(ErrorCode::SameHost, message).next(format!(
                "have every other host leave first; then stop droverd and remove {}",
                self.config.state.join("trust").display()
            )));
        }
        let client = self.authority(&membership);
        self.be_removed(&client).await.map_err(|error| {
            let refusal = peers::unreachable(authority, &error);
            let next = refusal.next.clone().unwrap_or_default();
            refusal.next(format!(
                "{next}; or run `drover cluster remove {own}` on {authority}, and then this again"
            ))
        })?;
        let mut stored = self.stored.lock().await;
        on_disk(|| self.store.forget())?;
        *stored = None;
        self.trust.clear();
        let place = self.membership.write();
        *place.unwrap_or_else(PoisonError::into_inner) = None;
        drop(stored);
        self.set_problem(None);
        self.changes.send_replace(());
        tracing::info!(%authority, "left the cluster");
        Ok(())
    }

    /// Whoever was removed already, by this or by somebody else, is done.
    async fn be_removed(&self, client: &Client) -> Result<(), ClientError> {
        let mut asked = client.trust_leave().await;
        for _ in 1..ASKED {
            if matches!(asked, Err(ClientError::Lost { .. })) {
                asked = client.trust_leave().await;
            }
        }
        match asked {
            Err(ClientError::Untrusted {
                problem: Problem::RemovedUs,
                ..
            }) => Ok(()),
            asked => asked,
        }
    }

    /// Removes the host that asks for it.
    ///
    /// # Errors
    /// As for [`remove_host`](Self::remove_host), or whoever asks is no host.
    pub async fn let_go(&self, caller: &Caller) -> Result<(), Refusal> {
        let host = self.peer(caller)?;
        self.remove_host(&host).await
    }
}
