//! The domains of this host's libvirt: listed and watched, and moved by libvirt itself over this agent's relays.
//!
//! ```text
//!   `[libvirt]` ─▶ keep ── drover_libvirt::Watch ─▶ libvirtd
//!                   │
//!                   ▼ Seen: whether it is reached, its domains as it told last
//!      listing (beside the agent's own guests) · inventory · refusals of orders · metrics · moving
//! ```
//! Owns what was seen last, and which processes are domains'. Whoever wants a domain started or stopped is refused with what does it instead; only
//! `moving` asks libvirt to change anything, and only of a domain that somebody ordered to another host.
//!
//! # Invariant
//! A domain that was told of stays known until libvirt says that it is gone: a libvirtd that died has left its QEMUs running.

mod domains;
mod holds;
mod keep;
mod listing;
mod moving;
mod orders;
mod preflight;
mod present;
mod process;
mod seen;
mod twins;
mod vacancy;
mod virsh;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use drover_hypervisor::ProcessId;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use uuid::Uuid;

pub use domains::{is_in_memory, name, state};
pub use listing::{all, show};
pub use moving::{
    Debt, DiskReady, DiskShown, DomainDisk, DomainRecord, DomainWay, Ended, Fit, Hang,
    LOOK_FOR_FILES, Left, Looks, Offer, Owed, ToLeave, Untold, Whose, answer, arrive, disk_ready,
    disk_taken_up, fits, forget_arrivals, holder, kept_definition, taken_up, to_leave, whose,
};
pub use orders::find;
pub use present::Present;
#[cfg(test)]
pub use seen::tests;
pub use seen::{Contact, Seen};
pub use twins::Own;
pub use vacancy::Vacancy;
pub use virsh::Order;

use crate::config::LibvirtAt;
use crate::limits;
use keep::{Whereabouts, no_systems};
use moving::{Fits, HeldPaths, Looked, Offers, Turns, files_told};
use process::Processes;

/// This host's libvirt.
#[derive(Debug)]
pub struct Libvirt {
    seen: watch::Receiver<Seen>,
    /// Where it is looked for; none where it is not.
    at: Option<Whereabouts>,
    processes: Processes,
    /// Domains that move.
    turns: Turns,
    looks: Looks,
    offers: Offers,
    fits: Fits,
    task: Option<AbortHandle>,
}

impl Libvirt {
    /// Looks at it from now on, unless that is configured off. Needs a tokio runtime.
    pub fn open(at: &LibvirtAt) -> Self {
        let Some(whereabouts) = Whereabouts::of(at) else {
            return Self::at_rest(Seen::off());
        };
        let (teller, seen) = watch::channel(Seen::looking(&whereabouts.uri));
        let task = tokio::spawn(keep::keep(whereabouts.clone(), teller)).abort_handle();
        Self {
            seen,
            at: Some(whereabouts),
            processes: Processes::default(),
            turns: Turns::default(),
            looks: Looks::default(),
            offers: Offers::default(),
            fits: Fits::default(),
            task: Some(task),
        }
    }

    /// One of which this was seen, and nothing will be any more.
    pub(crate) fn at_rest(seen: Seen) -> Self {
        let (_, seen) = watch::channel(seen);
        Self {
            seen,
            at: None,
            processes: Processes::default(),
            turns: Turns::default(),
            looks: Looks::default(),
            offers: Offers::default(),
            fits: Fits::default(),
            task: None,
        }
    }

    /// The process ids of the domains that were in memory then, or may have been, as far as they are found: within
    /// [`limits::SHOW`].
    pub async fn pids(&self, seen: &Seen) -> BTreeMap<Uuid, u32> {
        let told = orders::told(seen).filter(|domain| is_in_memory(domain.state));
        let untold = seen.domains.iter().flat_map(|domains| &domains.untold);
        let told = told.map(|domain| domain.uuid);
        let ids = told.chain(untold.map(|domain| domain.uuid));
        let found = self.processes.of(ids.collect()).await;
        let pids = found.into_iter().map(|(id, process)| (id, process.pid));
        pids.collect()
    }

    /// The process of one domain, if it is found within [`limits::SHOW`].
    async fn process_of(&self, domain: Uuid) -> Option<ProcessId> {
        self.processes.of([domain].into()).await.remove(&domain)
    }

    /// Those of several.
    async fn processes_of(&self, domains: BTreeSet<Uuid>) -> BTreeMap<Uuid, ProcessId> {
        self.processes.of(domains).await
    }

    /// Which domains move, from here or to here.
    fn turns(&self) -> &Turns {
        &self.turns
    }

    /// What is at these paths, and whether this process has it open: each is waited for within [`limits::SHOW`].
    pub async fn looked(&self, paths: impl IntoIterator<Item = PathBuf>, pid: u32) -> Looked {
        let paths = paths.into_iter().map(|path| (path, [pid].into()));
        let looked = self.looks.held(paths.collect::<HeldPaths>(), limits::SHOW);
        files_told(looked.await).await
    }

    /// Looks for what domains need that come.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// What was asked of this host lately for domains that may come.
    fn offers(&self) -> &Offers {
        &self.offers
    }

    /// What is known of domains that may leave.
    fn fits(&self) -> &Fits {
        &self.fits
    }

    /// Between which hosts domains move now, from here or to here.
    pub fn ways(&self) -> BTreeMap<Uuid, DomainWay> {
        self.turns.ways()
    }

    /// Where it is looked for; none where it is not.
    fn whereabouts(&self) -> Option<Whereabouts> {
        self.at.clone()
    }

    /// Where its daemon listens.
    fn socket(&self) -> Option<PathBuf> {
        self.at.as_ref()?.socket()
    }

    /// Whether domains can be moved to here.
    pub fn takes_domains(&self) -> bool {
        self.takes_no_domains().is_none()
    }

    /// Why domains cannot be moved to here; none where they can.
    pub fn takes_no_domains(&self) -> Option<String> {
        let seen = self.seen();
        if let Some(why) = seen.uri.as_deref().and_then(no_systems) {
            return Some(why);
        }
        match seen.contact {
            Contact::Connected { .. } if self.socket().is_some() => None,
            Contact::Connected { .. } => Some(format!(
                "its libvirt is at {}, which names no socket that domains could come by",
                seen.uri.as_deref().unwrap_or("no URI")
            )),
            Contact::Off => Some("its agent looks at no libvirt".to_owned()),
            Contact::Looking => Some("its libvirt is being looked for".to_owned()),
            Contact::Absent(why) => Some(format!("it has no libvirt: {why}")),
            Contact::Lost(why) => Some(format!("its libvirt is not reached: {why}")),
        }
    }

    /// Waits until it is reached or known to be none, for [`limits::LIBVIRT_KNOWN`] at most: the agent may have just been started,
    /// or libvirtd again.
    pub async fn looked_at(&self) {
        let mut told = self.seen.clone();
        let is_known = |seen: &Seen| {
            let contact = self.corrected(seen.clone()).contact;
            !matches!(contact, Contact::Looking | Contact::Lost(_))
        };
        // Where nobody tells any more it stays as it is.
        let _ = timeout(limits::LIBVIRT_KNOWN, told.wait_for(is_known)).await;
    }

    /// What is known of it now. One that has come since it was looked for last is not known, and one that is not there is not
    /// looked for.
    pub fn seen(&self) -> Seen {
        self.corrected(self.seen.borrow().clone())
    }

    fn corrected(&self, mut seen: Seen) -> Seen {
        if let Some(at) = &self.at {
            seen.correct(at.absence());
        }
        seen
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
