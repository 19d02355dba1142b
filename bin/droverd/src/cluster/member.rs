//! What every host does to be, and to stay, a member.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use drover_api::{
    AdmissionRequest, Client, ClientError, ErrorCode, HostCertificate, Refusal, RenewalRequest,
    SyncRequest,
};
use drover_trust::{Credentials, Identity, JoinToken, KeyAndRequest, Membership, Stored};
use drover_types::with_sources;
use jiff::Timestamp;

use super::{Cluster, advertised, failed, on_disk};
use crate::api::Caller;
use crate::{limits, peers};

impl Cluster {
    /// Whether this host is in another cluster than the one that a token is for.
    ///
    /// # Errors
    /// The token cannot be used.
    pub fn is_of_another(&self, token: &str) -> Result<bool, Refusal> {
        let token = parsed(token)?;
        let armed = self.trust.armed();
        Ok(armed.is_some_and(|armed| armed.authority != token.authority))
    }

    /// Joins the cluster that a token is for. A host that is in one leaves it by that.
    ///
    /// # Errors
    /// The token cannot be used, or the authority cannot be asked, or it refused.
    pub async fn join(&self, token: &str, addresses: Vec<SocketAddr>) -> Result<(), Refusal> {
        self.may_join().await?;
        let token = parsed(token)?;
        let own = KeyAndRequest::generate().map_err(|error| failed(&error))?;
        let question = AdmissionRequest {
            secret: token.secret.to_text(),
            host: self.config.host.clone(),
            request: own.request,
            addresses,
            clock: Timestamp::now(),
        };
        let client = Client::authority_at(token.authority, token.addresses.clone());
        let answer = client.trust_admission(&question).await;
        let answer = answer.map_err(|error| not_joined(&error))?;
        let stored = Stored {
            key: own.key,
            certificate: answer.certificate,
            authority: answer.authority,
            membership: answer.membership,
            office: None,
        };
        let credentials = self.check(&stored)?;
        if credentials.authority() != token.authority {
            return Err(token_refused(
                "the answer is of another authority than the token's",
            ));
        }
        let mut place = self.stored.lock().await;
        on_disk(|| self.store.save(&stored))?;
        self.arm(&stored).map_err(|error| failed(&error))?;
        tracing::info!(authority = %stored.membership.authority, "joined the cluster");
        *place = Some(stored);
        drop(place);
        self.set_problem(None);
        Ok(())
    }

    async fn may_join(&self) -> Result<(), Refusal> {
        let stored = self.stored.lock().await;
        match stored.as_ref() {
            Some(stored) if stored.office.is_some() => Err(self.in_cluster(stored)),
            _ => Ok(()),
        }
    }

    /// What another host sent is looked at before it replaces anything.
    fn check(&self, stored: &Stored) -> Result<Credentials, Refusal> {
        let credentials = stored
            .membership
            .check()
            .and_then(|()| stored.credentials())
            .map_err(|error| Refusal::new(ErrorCode::PeerMismatch, error.to_string()))?;
        let own = Identity::Host(self.config.host.clone());
        if credentials.facts.identity != own {
            let message = format!(
                "the authority sent a certificate of {}",
                credentials.facts.identity
            );
            return Err(Refusal::new(ErrorCode::PeerMismatch, message));
        }
        Ok(credentials)
    }

    /// A new key and certificate now. Connections that are open stay open.
    ///
    /// # Errors
    /// The authority cannot be asked, or refused.
    pub async fn rotate(&self) -> Result<(), Refusal> {
        let membership = self.membership().ok_or_else(|| self.no_cluster())?;
        if membership.authority == self.config.host {
            return self.renew_own().await;
        }
        let own = KeyAndRequest::generate().map_err(|error| failed(&error))?;
        let request = RenewalRequest {
            request: own.request,
        };
        let client = self.authority(&membership);
        let answer: HostCertificate = client
            .trust_renewal(&request)
            .await
            .map_err(|error| peers::unreachable(&membership.authority, &error))?;
        self.hear(answer.membership).await?;
        self.replace_own(own.key, answer.certificate).await
    }

    pub(super) async fn replace_own(
        &self,
        key: String,
        certificate: String,
    ) -> Result<(), Refusal> {
        let mut place = self.stored.lock().await;
        let stored = place.as_mut().ok_or_else(|| self.no_cluster())?;
        let before = (
            std::mem::replace(&mut stored.key, key),
            std::mem::replace(&mut stored.certificate, certificate),
        );
        let replaced = self.check(stored).and_then(|_| {
            on_disk(|| self.store.save_host(&stored.key, &stored.certificate))?;
            self.arm(stored).map_err(|error| failed(&error))
        });
        if replaced.is_err() {
            (stored.key, stored.certificate) = before;
        }
        replaced
    }

    pub(super) fn authority(&self, membership: &Membership) -> Client {
        let host = membership.authority.clone();
        let addresses = self.addresses(&host).unwrap_or_default();
        Client::host_at(host, addresses, self.trust.clone())
    }

    /// News from the authority's host.
    ///
    /// # Errors
    /// They are from somebody else, or make no sense.
    pub async fn news(&self, caller: &Caller, news: Membership) -> Result<(), Refusal> {
        let authority = self.membership().ok_or_else(|| self.no_cluster())?;
        if *caller != Caller::Peer(authority.authority.clone()) {
            let message = format!("only {} tells what is new", authority.authority);
            return Err(Refusal::new(ErrorCode::NotAPeer, message));
        }
        self.hear(news).await
    }

    /// Takes what is newer than what is known.
    async fn hear(&self, news: Membership) -> Result<(), Refusal> {
        let mut place = self.stored.lock().await;
        let stored = place.as_mut().ok_or_else(|| self.no_cluster())?;
        if stored.office.is_some() || news.revision <= stored.membership.revision {
            return Ok(());
        }
        news.check()
            .map_err(|error| Refusal::new(ErrorCode::BadRequest, error.to_string()))?;
        let own = self.config.host.clone();
        if news.member(&own).is_none() {
            tracing::error!(host = %own, "this host was removed from the cluster");
        }
        let before = std::mem::replace(&mut stored.membership, news);
        let heard = on_disk(|| self.store.save_membership(&stored.membership))
            .and_then(|()| self.arm(stored).map_err(|error| failed(&error)));
        if heard.is_err() {
            stored.membership = before;
        }
        heard
    }

    /// Asks for what is new and renews the certificate in time, until the agent ends.
    pub async fn keep_up(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(limits::SYNC);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.is_member() {
                let kept = self.keep().await;
                self.set_problem(kept.err());
            }
        }
    }

    async fn keep(self: &Arc<Self>) -> Result<(), Refusal> {
        let membership = self.membership().ok_or_else(|| self.no_cluster())?;
        let addresses = advertised(&self.config).await?;
        let request = SyncRequest {
            addresses,
            revision: membership.revision,
        };
        if membership.authority == self.config.host {
            self.sync(&Caller::Peer(self.config.host.clone()), request)
                .await?;
        } else {
            let client = self.authority(&membership);
            let news = client.trust_sync(&request).await;
            let news = news.map_err(|error| peers::unreachable(&membership.authority, &error))?;
            self.hear(news).await?;
        }
        let due = self
            .trust
            .armed()
            .is_some_and(|armed| armed.facts.renew_at() <= SystemTime::now());
        if due {
            self.rotate().await?;
        }
        Ok(())
    }
}

fn parsed(token: &str) -> Result<JoinToken, Refusal> {
    token
        .parse()
        .map_err(|error| token_refused(&format!("{error}")))
}

fn token_refused(message: &str) -> Refusal {
    Refusal::new(ErrorCode::TokenRefused, message)
        .next("make a new one with `drover cluster token` on the authority's host")
}

fn not_joined(error: &ClientError) -> Refusal {
    if let Some(refusal) = error.refusal() {
        return refusal.clone();
    }
    let (code, next) = match error {
        ClientError::Untrusted { problem, .. } => (ErrorCode::PeerUntrusted, problem.next()),
        ClientError::Lost { .. } | ClientError::Timeout { .. } => (
            ErrorCode::PeerUnreachable,
            "the token may be spent: look at `drover cluster status` on the authority's host, and \
             remove this host there if it is a member already",
        ),
        _ => (
            ErrorCode::PeerUnreachable,
            "check that droverd runs on the authority's host and that this one reaches one of its \
             addresses, TCP port 7470 unless `api.listen` says otherwise",
        ),
    };
    Refusal::new(code, with_sources(error)).next(next)
}
