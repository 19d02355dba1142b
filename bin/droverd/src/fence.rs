//! Which leadership's orders are taken: the newest that has given one here.
//!
//! ```text
//!   order of generation 7 ──▶ done, and 7 is on disk
//!   order of generation 9 ──▶ waits for those of 7 that are being done; 9 is on disk; done
//!   order of generation 7 ──▶ refused: superseded
//! ```
//! A coordinator that was cut off, or stood still, does not know that another one leads. What it wrote
//! would be refused by the store; what it orders is refused here.
//!
//! # Invariant
//! No order is taken once one of a newer leadership of the same cluster was, also after the agent was started again. What an
//! older one has begun, and whose asker is gone, goes on: the newer leadership knows it by its id.

use std::cmp::Ordering;
use std::io;
use std::path::{Path, PathBuf};

use drover_api::{ErrorCode, Refusal};
use drover_types::HostName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::registry::files;

/// The newest leadership whose orders were taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Newest {
    generation: u64,
    coordinator: HostName,
    since: Timestamp,
    /// The authority of the cluster in which it led: another cluster's leaderships count from the beginning. Missing
    /// where an earlier version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
}

/// What keeps orders out that come too late.
#[derive(Debug)]
pub struct Fence {
    host: HostName,
    file: PathBuf,
    newest: RwLock<Option<Newest>>,
}

/// An order that is being done. One of a newer leadership waits for its end.
#[derive(Debug)]
#[must_use]
pub struct Admitted<'a> {
    _newest: RwLockReadGuard<'a, Option<Newest>>,
}

impl Fence {
    /// As it was left below the agent's state directory.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(host: HostName, state: &Path) -> io::Result<Self> {
        let file = state.join("orders.json");
        let newest = files::read_document(&file)?;
        Ok(Self {
            host,
            file,
            newest: RwLock::new(newest),
        })
    }

    /// Takes an order of a leadership of that authority's cluster, unless a newer one has given orders since.
    ///
    /// # Errors
    /// [`ErrorCode::Superseded`], or it cannot be written down; nothing was done then.
    pub async fn admit(
        &self,
        authority: &str,
        generation: u64,
        coordinator: &HostName,
    ) -> Result<Admitted<'_>, Refusal> {
        let of_this = |newest: &&Newest| {
            let known = newest.authority.as_deref();
            known.is_none_or(|known| known == authority)
        };
        let known = self.newest.read().await;
        let here = known.as_ref().filter(of_this);
        if self.is_known(here, generation, coordinator)? {
            return Ok(Admitted { _newest: known });
        }
        drop(known);
        let mut newest = self.newest.write().await;
        let here = newest.as_ref().filter(of_this);
        if !self.is_known(here, generation, coordinator)? {
            let next = Newest {
                generation,
                coordinator: coordinator.clone(),
                since: Timestamp::now(),
                authority: Some(authority.to_owned()),
            };
            self.keep(&next).map_err(|error| self.not_kept(&error))?;
            tracing::info!(%coordinator, generation, "orders of this leadership are taken from now on");
            *newest = Some(next);
        }
        Ok(Admitted {
            _newest: RwLockWriteGuard::downgrade(newest),
        })
    }

    /// Whether that leadership is the newest; an error if it is an older one.
    fn is_known(
        &self,
        newest: Option<&Newest>,
        generation: u64,
        coordinator: &HostName,
    ) -> Result<bool, Refusal> {
        let Some(newest) = newest else {
            return Ok(false);
        };
        match generation.cmp(&newest.generation) {
            Ordering::Greater => Ok(false),
            Ordering::Equal if newest.coordinator == *coordinator => Ok(true),
            Ordering::Equal | Ordering::Less => {
                Err(self.superseded(newest, generation, coordinator))
            }
        }
    }

    fn superseded(&self, newest: &Newest, generation: u64, coordinator: &HostName) -> Refusal {
        let Newest {
            generation: known,
            coordinator: by,
            since,
            ..
        } = newest;
        let message = format!(
            "{} has taken orders of {by} with generation {known}, since {since:.0}: one of {coordinator} with \
             generation {generation} comes too late",
            self.host
        );
        Refusal::new(ErrorCode::Superseded, message).next(format!(
            "if {by} does not coordinate any more since etcd was made anew, or restored from a backup, or since \
             these hosts do not use the same etcd: mend that, then remove {} on {} and restart droverd",
            self.file.display(),
            self.host
        ))
    }

    fn keep(&self, newest: &Newest) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(newest).map_err(io::Error::other)?;
        tokio::task::block_in_place(|| files::write_whole(&self.file, &text))
    }

    fn not_kept(&self, error: &io::Error) -> Refusal {
        let message = format!("{} cannot be changed: {error}", self.file.display());
        Refusal::new(ErrorCode::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HERE: &str = "the authority's fingerprint";

    fn open(state: &Path) -> Fence {
        Fence::open("a".parse().unwrap(), state).unwrap()
    }

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn orders_of_an_older_leadership_are_refused_also_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let fence = open(state.path());
        drop(fence.admit(HERE, 7, &host("b")).await.unwrap());
        drop(fence.admit(HERE, 7, &host("b")).await.unwrap());
        drop(fence.admit(HERE, 9, &host("c")).await.unwrap());
        for fence in [fence, open(state.path())] {
            let late = fence.admit(HERE, 7, &host("b")).await.unwrap_err();
            assert_eq!(late.code, ErrorCode::Superseded);
            assert!(late.message.contains("c with generation 9"), "{late}");
            drop(fence.admit(HERE, 9, &host("c")).await.unwrap());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_that_went_to_another_cluster_takes_orders_of_its_first_leadership() {
        let state = tempfile::tempdir().unwrap();
        let fence = open(state.path());
        drop(fence.admit(HERE, 70, &host("b")).await.unwrap());
        for fence in [open(state.path()), open(state.path())] {
            drop(fence.admit("another", 1, &host("c")).await.unwrap());
        }
        let fence = open(state.path());
        let late = fence.admit("another", 0, &host("b")).await.unwrap_err();
        assert_eq!(late.code, ErrorCode::Superseded);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_hosts_with_the_same_generation_do_not_use_the_same_etcd() {
        let state = tempfile::tempdir().unwrap();
        let fence = open(state.path());
        drop(fence.admit(HERE, 7, &host("b")).await.unwrap());
        let other = fence.admit(HERE, 7, &host("c")).await.unwrap_err();
        assert!(other.next.unwrap().contains("the same etcd"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_newer_leadership_waits_for_the_end_of_orders_that_are_being_done() {
        let state = tempfile::tempdir().unwrap();
        let fence = open(state.path());
        let (old, new) = (host("b"), host("c"));
        let being_done = fence.admit(HERE, 7, &old).await.unwrap();
        let newer = tokio::time::timeout(Duration::from_millis(50), fence.admit(HERE, 9, &new));
        assert!(newer.await.is_err(), "it does not wait");
        drop(being_done);
        drop(fence.admit(HERE, 9, &new).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_leadership_that_cannot_be_written_down_gives_no_orders() {
        let state = tempfile::tempdir().unwrap();
        let fence = open(state.path());
        std::fs::create_dir(state.path().join("orders.json.new")).unwrap();
        let refused = fence.admit(HERE, 7, &host("b")).await.unwrap_err();
        assert!(refused.message.contains("orders.json"), "{refused}");
        std::fs::remove_dir(state.path().join("orders.json.new")).unwrap();
        drop(fence.admit(HERE, 5, &host("b")).await.unwrap());
    }
}
