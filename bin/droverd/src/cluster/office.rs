//! What the authority's host does for the cluster.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use drover_api::{
    AdmissionRequest, Client, ErrorCode, HostCertificate, OperatorCertificate, Refusal,
    RenewalRequest, SyncRequest, TokenRequest, TokenView,
};
use drover_trust::{
    Authority, Identity, JoinRefused, JoinToken, KeyAndRequest, Ledger, Member, Membership, Secret,
    Stored, TrustError, Validity, limits,
};
use drover_types::{HostName, OperatorName};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::{Cluster, failed, on_disk, timestamp};
use crate::api::Caller;
use crate::limits as our;

/// What members are told.
pub fn membership(
    host: &HostName,
    authority: &Authority,
    ledger: &Ledger,
) -> Result<Membership, TrustError> {
    let revision = ledger.revision();
    Ok(Membership {
        revision,
        authority: host.clone(),
        members: ledger.members().to_vec(),
        coordinators: ledger.coordinators().to_vec(),
        removals: authority.sign_removals(revision, ledger.removed(), SystemTime::now())?,
    })
}

impl Cluster {
    /// Makes a cluster with this host as its authority and first member.
    ///
    /// # Errors
    /// It belongs to one already, or its files cannot be written.
    pub async fn init(&self, addresses: Vec<SocketAddr>) -> Result<(), Refusal> {
        let mut place = self.stored.lock().await;
        if let Some(stored) = place.as_ref() {
            return Err(self.in_cluster(stored));
        }
        let stored = self.found(addresses).map_err(|error| failed(&error))?;
        on_disk(|| self.store.save(&stored))?;
        self.arm(&stored).map_err(|error| failed(&error))?;
        *place = Some(stored);
        tracing::info!(authority = %self.config.host, "the cluster begins here");
        Ok(())
    }

    fn found(&self, addresses: Vec<SocketAddr>) -> Result<Stored, TrustError> {
        let now = SystemTime::now();
        let host = self.config.host.clone();
        let authority = Authority::create(Validity::from(now, limits::AUTHORITY_LIFETIME))?;
        let mut ledger = Ledger::default();
        ledger.add_member(Member {
            host: host.clone(),
            addresses,
        });
        let own = KeyAndRequest::generate()?;
        let who = Identity::Host(host.clone());
        let validity = Validity::from(now, limits::HOST_LIFETIME);
        let (certificate, facts) = authority.issue(&own.request, &who, validity)?;
        ledger.issued(&facts, timestamp(now));
        Ok(Stored {
            key: own.key,
            certificate,
            authority: authority.certificate_pem().to_owned(),
            membership: membership(&host, &authority, &ledger)?,
            office: Some((authority, ledger)),
        })
    }

    pub(super) fn in_cluster(&self, stored: &Stored) -> Refusal {
        let (own, authority) = (&self.config.host, &stored.membership.authority);
        let message =
            format!("{own} belongs to a cluster already; its authority is on {authority}");
        let refusal = Refusal::new(ErrorCode::InCluster, message);
        if own != authority {
            return refusal.next(
                "`drover cluster status` shows it; `drover cluster leave` leaves it for good",
            );
        }
        refusal.next(format!(
            "`drover cluster status` shows it; to end it for good, remove the directory {} while the agent is stopped",
            self.config.state.join("trust").display()
        ))
    }

    /// Changes what the authority remembers: on disk first, then in force; members are told if it
    /// concerns them.
    pub(super) async fn change<T>(
        &self,
        change: impl FnOnce(&Authority, &mut Ledger) -> Result<T, Refusal>,
    ) -> Result<(T, Option<Arc<Membership>>), Refusal> {
        let mut place = self.stored.lock().await;
        let stored = place.as_mut().ok_or_else(|| self.no_cluster())?;
        let Some((authority, ledger)) = &mut stored.office else {
            let message = format!("{} does not have the authority's key", self.config.host);
            let on = &stored.membership.authority;
            return Err(Refusal::new(ErrorCode::NotTheAuthority, message)
                .next(format!("run the command on {on}")));
        };
        let mut next = ledger.clone();
        let done = change(authority, &mut next)?;
        on_disk(|| self.store.save_ledger(&next))?;
        let news = next.revision() != ledger.revision();
        *ledger = next;
        if !news {
            return Ok((done, None));
        }
        let host = &self.config.host;
        stored.membership = membership(host, authority, ledger).map_err(|error| failed(&error))?;
        // The ledger is on the disk, and the next start makes this list of it anew: what was removed
        // is so at once, whatever becomes of the file.
        self.arm(stored).map_err(|error| failed(&error))?;
        on_disk(|| self.store.save_membership(&stored.membership))?;
        Ok((done, Some(Arc::new(stored.membership.clone()))))
    }

    /// A token with which one host can join.
    ///
    /// # Errors
    /// The authority is on another host, or the life asked for is too long.
    pub async fn token(&self, request: &TokenRequest) -> Result<TokenView, Refusal> {
        let ttl = request.ttl_s.map_or(limits::TOKEN_TTL, Duration::from_secs);
        if ttl.is_zero() || ttl > limits::TOKEN_TTL_MOST {
            let most = limits::TOKEN_TTL_MOST.as_secs();
            let message = format!("a token cannot live {} s: give 1 to {most}", ttl.as_secs());
            return Err(Refusal::new(ErrorCode::BadRequest, message));
        }
        let addresses = self.addresses(&self.config.host).unwrap_or_default();
        let secret = Secret::generate().map_err(|error| failed(&error))?;
        let now = Timestamp::now();
        let expires_at = now + SignedDuration::try_from(ttl).unwrap_or_default();
        let making = self.change(|authority, ledger| {
            ledger.add_token(&secret, expires_at, now);
            Ok(authority.fingerprint())
        });
        let (authority, _) = making.await?;
        let token = JoinToken {
            authority,
            secret,
            addresses,
        };
        tracing::info!(%expires_at, "join token made");
        Ok(TokenView {
            token: token.to_string(),
            expires_at,
        })
    }

    /// Lets a host in that shows a good secret.
    ///
    /// # Errors
    /// Why it is not let in.
    pub async fn admit(
        self: &Arc<Self>,
        from: IpAddr,
        request: AdmissionRequest,
    ) -> Result<HostCertificate, Refusal> {
        let may = {
            let mut joins = self.joins.lock().unwrap_or_else(PoisonError::into_inner);
            joins.attempt(from, Instant::now())
        };
        if !may {
            let seconds = our::JOIN_SPAN.as_secs();
            let message = format!("too many attempts to join within {seconds} s");
            return Err(Refusal::new(ErrorCode::TooManyRequests, message)
                .next(format!("wait {seconds} s, then try again")));
        }
        let now = Timestamp::now();
        let secret = Secret::from_text(&request.secret)
            .ok_or_else(|| Refusal::new(ErrorCode::TokenRefused, "the secret is none"))?;
        let member = Member {
            host: request.host.clone(),
            addresses: bounded(request.addresses)?,
        };
        let host = request.host.clone();
        let letting_in = self.change(|authority, ledger| {
            let skew = self.skew(&host, request.clock, now);
            ledger
                .admit(&secret, member, now)
                .map_err(|refused| not_admitted(&refused))?;
            // Only who has a good token is told the time, and it is not spent on a wrong clock.
            skew?;
            issue(authority, ledger, &request.request, &host, now)
        });
        let admitted = letting_in.await.inspect_err(|refusal| {
            tracing::warn!(%from, host = %request.host, %refusal, "not let in");
        });
        let ((certificate, authority), news) = admitted?;
        tracing::info!(%from, host = %request.host, "joined the cluster");
        let membership = news.ok_or_else(|| Refusal::new(ErrorCode::Internal, "no news"))?;
        // The answer tells it.
        self.heard(&request.host, membership.revision);
        let (cluster, newest, joined) = (Arc::clone(self), Arc::clone(&membership), request.host);
        tokio::spawn(async move { cluster.tell(&newest, &[joined]).await });
        Ok(HostCertificate {
            certificate,
            authority,
            membership: (*membership).clone(),
        })
    }

    fn skew(&self, host: &HostName, theirs: Timestamp, ours: Timestamp) -> Result<(), Refusal> {
        let apart = ours.duration_since(theirs).unsigned_abs();
        if apart <= limits::CLOCK_SKEW {
            return Ok(());
        }
        let own = &self.config.host;
        let (seconds, most) = (apart.as_secs(), limits::CLOCK_SKEW.as_secs());
        let message = format!(
            "the clock of {host} says {theirs:.0}, that of {own} {ours:.0}: {seconds} s apart, more \
             than {most} s"
        );
        Err(Refusal::new(ErrorCode::ClockSkew, message)
            .next("set the clock that is wrong, then use the same token again"))
    }

    /// A new certificate for a member that shows its old one.
    ///
    /// # Errors
    /// It is no member, or the request cannot be used.
    pub async fn renew(
        &self,
        caller: &Caller,
        request: &RenewalRequest,
    ) -> Result<HostCertificate, Refusal> {
        let host = self.peer(caller)?;
        let now = Timestamp::now();
        let renewing = self.change(|authority, ledger| {
            if !ledger.members().iter().any(|member| member.host == host) {
                return Err(no_such_member(&host));
            }
            issue(authority, ledger, &request.request, &host, now)
        });
        let ((certificate, authority), _) = renewing.await?;
        tracing::info!(%host, "certificate renewed");
        let membership = self.membership().ok_or_else(|| self.no_cluster())?;
        Ok(HostCertificate {
            certificate,
            authority,
            membership: (*membership).clone(),
        })
    }

    /// A new key and certificate for the authority's own host.
    pub(super) async fn renew_own(&self) -> Result<(), Refusal> {
        let own = KeyAndRequest::generate().map_err(|error| failed(&error))?;
        let (host, now) = (self.config.host.clone(), Timestamp::now());
        let renewing =
            self.change(|authority, ledger| issue(authority, ledger, &own.request, &host, now));
        let ((certificate, _), _) = renewing.await?;
        self.replace_own(own.key, certificate).await
    }

    /// A member says where it is; what it is to know.
    ///
    /// # Errors
    /// It is no member.
    pub async fn sync(
        self: &Arc<Self>,
        caller: &Caller,
        request: SyncRequest,
    ) -> Result<Membership, Refusal> {
        let host = self.peer(caller)?;
        let addresses = bounded(request.addresses)?;
        let moved = self.moved(&host, &addresses, request.revision);
        if moved {
            let changing = self.change(|_, ledger| {
                if request.revision > ledger.revision() {
                    let (heard, known) = (request.revision, ledger.revision());
                    tracing::warn!(%host, heard, known, "the ledger is older than what members heard");
                    ledger.outrun(heard);
                }
                ledger.set_addresses(&host, &addresses);
                Ok(())
            });
            if let (_, Some(news)) = changing.await? {
                let (cluster, asks) = (Arc::clone(self), host.clone());
                tokio::spawn(async move { cluster.tell(&news, &[asks]).await });
            }
        }
        let newest = self.membership().ok_or_else(|| self.no_cluster())?;
        if newest.member(&host).is_none() {
            // After a restore from a backup of before it joined.
            return Err(no_such_member(&host).next(format!(
                "remove the directory `trust` below `state` on {host} while its agent is stopped, \
                 then join it again"
            )));
        }
        self.heard(&host, newest.revision);
        Ok((*newest).clone())
    }

    /// Whether what a member says differs from what is known: most questions change nothing.
    fn moved(&self, host: &HostName, addresses: &[SocketAddr], heard: u64) -> bool {
        let Some(membership) = self.membership() else {
            return true;
        };
        let same = membership
            .member(host)
            .is_some_and(|member| member.addresses == addresses);
        !same || heard > membership.revision
    }

    pub(super) fn peer(&self, caller: &Caller) -> Result<HostName, Refusal> {
        match caller {
            Caller::Peer(host) => Ok(host.clone()),
            Caller::Local | Caller::Operator(_) => {
                let message = "only a host can ask this, with its own certificate";
                Err(Refusal::new(ErrorCode::NotAPeer, message))
            }
        }
    }

    /// Removes a host. Answers once the members that can be reached know it.
    ///
    /// # Errors
    /// It is no member, or this host itself.
    pub async fn remove_host(&self, host: &HostName) -> Result<(), Refusal> {
        if *host == self.config.host && self.is_member() {
            let message = format!("{host} has the authority's key: it cannot be removed");
            return Err(Refusal::new(ErrorCode::SameHost, message)
                .next("make a new cluster on another host with `drover cluster init`"));
        }
        self.remove(&Identity::Host(host.clone()), no_such_member(host))
            .await
    }

    /// Removes an operator.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn remove_operator(&self, name: &OperatorName) -> Result<(), Refusal> {
        let message = format!("no operator {name} has a certificate");
        let unknown = Refusal::new(ErrorCode::NoSuchMember, message)
            .next("`drover cluster status` shows the operators");
        self.remove(&Identity::Operator(name.clone()), unknown)
            .await
    }

    async fn remove(&self, who: &Identity, unknown: Refusal) -> Result<(), Refusal> {
        let now = Timestamp::now();
        let removing = self.change(|_, ledger| {
            if ledger.remove(who, now) {
                Ok(())
            } else {
                Err(unknown)
            }
        });
        let ((), news) = removing.await?;
        tracing::info!(%who, "removed from the cluster");
        if let Some(news) = news {
            self.tell(&news, &[]).await;
        }
        Ok(())
    }

    /// Signs an operator's certificate.
    ///
    /// # Errors
    /// The authority is on another host, or the request cannot be used.
    pub async fn operator(
        &self,
        name: &OperatorName,
        request: &str,
    ) -> Result<OperatorCertificate, Refusal> {
        let now = Timestamp::now();
        let who = Identity::Operator(name.clone());
        let signing = self.change(|authority, ledger| {
            let validity = Validity::from(now.into(), limits::OPERATOR_LIFETIME);
            let (certificate, facts) = authority
                .issue(request, &who, validity)
                .map_err(|error| bad_request(&error))?;
            ledger.issued(&facts, now);
            Ok(OperatorCertificate {
                certificate,
                authority: authority.certificate_pem().to_owned(),
                not_after: timestamp(facts.not_after),
                hosts: ledger.members().to_vec(),
            })
        });
        let (signed, _) = signing.await?;
        tracing::info!(%who, not_after = %signed.not_after, "certificate made");
        Ok(signed)
    }

    /// Tells every member but these what is new, all at once. One that does not answer will ask.
    pub(super) async fn tell(&self, news: &Membership, except: &[HostName]) {
        let others = news
            .members
            .iter()
            .filter(|member| member.host != self.config.host && !except.contains(&member.host));
        let telling = others.map(async |member| {
            let addresses = self.addresses(&member.host).unwrap_or_default();
            let client = Client::host_at(member.host.clone(), addresses, self.trust.clone());
            let told = tokio::time::timeout(our::NEWS, client.trust_news(news)).await;
            match told {
                Ok(Ok(())) => self.heard(&member.host, news.revision),
                Ok(Err(error)) => tracing::info!(host = %member.host, %error, "not told yet"),
                Err(_) => tracing::info!(host = %member.host, "not told yet: no answer"),
            }
        });
        join_all(telling).await;
    }
}

fn issue(
    authority: &Authority,
    ledger: &mut Ledger,
    request: &str,
    host: &HostName,
    now: Timestamp,
) -> Result<(String, String), Refusal> {
    let who = Identity::Host(host.clone());
    let validity = Validity::from(now.into(), limits::HOST_LIFETIME);
    let (certificate, facts) = authority
        .issue(request, &who, validity)
        .map_err(|error| bad_request(&error))?;
    ledger.issued(&facts, now);
    Ok((certificate, authority.certificate_pem().to_owned()))
}

fn bounded(addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refusal> {
    let most = limits::ADDRESSES;
    if addresses.is_empty() || addresses.len() > most {
        let message = format!("{} addresses: give 1 to {most}", addresses.len());
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    Ok(addresses)
}

fn bad_request(error: &TrustError) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, error.to_string())
}

fn no_such_member(host: &HostName) -> Refusal {
    let message = format!("the cluster has no host {host}");
    Refusal::new(ErrorCode::NoSuchMember, message).next("`drover cluster status` shows the hosts")
}

fn not_admitted(refused: &JoinRefused) -> Refusal {
    let (code, next) = match refused {
        JoinRefused::NameTaken { name } => (
            ErrorCode::HostExists,
            format!(
                "if that host is gone, run `drover cluster remove {name}` on the authority's host; \
                 otherwise give this one another name (`host` in droverd.toml)"
            ),
        ),
        JoinRefused::Full(_) => (
            ErrorCode::TokenRefused,
            "remove a host with `drover cluster remove`".to_owned(),
        ),
        JoinRefused::Unknown | JoinRefused::Used { .. } | JoinRefused::Expired { .. } => (
            ErrorCode::TokenRefused,
            "make a new one with `drover cluster token` on the authority's host".to_owned(),
        ),
    };
    Refusal::new(code, refused.to_string()).next(next)
}
