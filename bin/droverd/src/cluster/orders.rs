//! Whose orders are taken: of other hosts, those that the authority lets coordinate.

use std::sync::Arc;

use drover_api::{ErrorCode, Refusal};
use drover_trust::{CoordinatorRefused, Membership};
use drover_types::HostName;

use super::Cluster;

impl Cluster {
    /// Whether another host may give orders here: the one with the authority's key, which could sign itself
    /// an operator's certificate anyway, and those that it named.
    pub fn takes_orders_from(&self, host: &HostName) -> bool {
        self.membership()
            .is_some_and(|membership| membership.may_coordinate(host))
    }

    /// Whether there are several hosts that may coordinate, of which one leads at a time.
    pub fn has_coordinators(&self) -> bool {
        self.membership()
            .is_some_and(|membership| !membership.coordinators.is_empty())
    }

    /// Lets a member coordinate, or no longer. Answers once the members that can be reached know it.
    ///
    /// # Errors
    /// The authority is on another host, or that host cannot be named.
    pub async fn set_coordinator(
        self: &Arc<Self>,
        host: &HostName,
        coordinates: bool,
    ) -> Result<(), Refusal> {
        if self.is_authority(host) {
            let message = format!("{host} has the authority's key: it may always coordinate");
            return Err(Refusal::new(ErrorCode::SameHost, message));
        }
        if coordinates && self.is_authority(&self.config.host) && self.config.etcd.is_none() {
            return Err(self.needs_etcd());
        }
        let naming = self.change(|_, ledger| {
            let set = ledger.set_coordinator(host, coordinates);
            set.map_err(|refused| not_named(&refused))
        });
        let ((), news) = naming.await?;
        if let Some(news) = news {
            tracing::info!(%host, coordinates, "who may coordinate has changed");
            self.tell(&news, &[]).await;
        }
        Ok(())
    }

    fn needs_etcd(&self) -> Refusal {
        let own = &self.config.host;
        let message =
            format!("{own} keeps runs in a file of its own, which no other host can read");
        Refusal::new(ErrorCode::StoreUnavailable, message).next(format!(
            "set `store.etcd` in droverd.toml on {own}, restart droverd while no run is under way, and repeat the command"
        ))
    }

    fn is_authority(&self, host: &HostName) -> bool {
        let membership = self.membership();
        membership.is_some_and(|membership| membership.authority == *host)
    }
}

/// The hosts that may coordinate, in words.
pub fn in_words(membership: &Membership) -> String {
    let others = membership.coordinators.iter().map(HostName::as_str);
    let all: Vec<&str> = std::iter::once(membership.authority.as_str())
        .chain(others)
        .collect();
    all.join(", ")
}

fn not_named(refused: &CoordinatorRefused) -> Refusal {
    let (code, next) = match refused {
        CoordinatorRefused::NoMember(_) => (
            ErrorCode::NoSuchMember,
            "`drover cluster status` shows the hosts",
        ),
        CoordinatorRefused::Full(_) => (
            ErrorCode::BadRequest,
            "take it from another one with `drover cluster coordinator HOST --revoke`",
        ),
    };
    Refusal::new(code, refused.to_string()).next(next)
}
