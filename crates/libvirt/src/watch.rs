use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Connection;
use crate::domain::Domains;
use crate::error::CallError;
use crate::events::{Events, Notice};
use crate::library::Library;
use crate::limits;

/// What is known of a host's libvirt.
#[derive(Debug, Clone)]
pub enum Standing {
    /// Nothing yet: it is being looked for.
    Unknown,
    /// Its library cannot be used, and why. A host without libvirt is one.
    NotThere(String),
    /// libvirtd cannot be reached, and why.
    Unreachable(String),
    /// It is reached.
    Reached {
        /// How.
        connection: Connection,
        /// Its domains.
        domains: Arc<Domains>,
        /// Why these are older than they should be, where libvirt could not list them since.
        late: Option<String>,
    },
}

/// Keeps looking at a host's libvirt: its library, its libvirtd, its domains. What is lost is looked for again, at first at once and
/// then less often. It logs nothing: what a change means to a host is its owner's to say.
#[derive(Debug)]
pub struct Watch {
    standing: watch::Receiver<Standing>,
    task: AbortHandle,
}

impl Watch {
    /// Begins, with the library of this path or name and the libvirtd of this URI. Needs a tokio runtime.
    #[must_use]
    pub fn begin(library: PathBuf, uri: String) -> Self {
        let (teller, standing) = watch::channel(Standing::Unknown);
        let keep = async move {
            let mut in_vain = 0;
            loop {
                let looked = look(&library, &uri, &teller).await;
                sleep(looked.pause(in_vain)).await;
                in_vain = looked.in_vain(in_vain);
            }
        };
        let task = tokio::spawn(keep).abort_handle();
        Self { standing, task }
    }

    /// What is known now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Waits until what is known differs from what was seen last.
    pub async fn changed(&mut self) -> Standing {
        // It fails only where the task has ended, which it does when this is dropped, or by a defect: then nothing changes again.
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.standing.borrow_and_update().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What came of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// There is no library that can be used.
    NoLibrary,
    /// libvirtd was not reached.
    NotReached,
    /// It was reached, and lost.
    Lost,
}

impl Looked {
    /// Until the next look, where so many in a row before this one did not reach libvirtd.
    fn pause(self, in_vain: u32) -> Duration {
        let doubled = limits::RECONNECT.saturating_mul(2_u32.saturating_pow(in_vain));
        match self {
            Self::NoLibrary => limits::RELOAD,
            Self::NotReached => doubled.min(limits::RECONNECT_MOST),
            Self::Lost => limits::RECONNECT,
        }
    }

    /// So many in a row, with this one.
    fn in_vain(self, before: u32) -> u32 {
        match self {
            Self::NotReached => before.saturating_add(1),
            Self::NoLibrary | Self::Lost => 0,
        }
    }
}

/// Until something is lost.
async fn look(library: &Path, uri: &str, teller: &watch::Sender<Standing>) -> Looked {
    let path = library.to_owned();
    let loaded = tokio::task::spawn_blocking(move || Library::load(&path)).await;
    let loaded = match loaded {
        Ok(loaded) => loaded.map_err(|error| chain(&error)),
        Err(error) => Err(error.to_string()),
    };
    let library = match loaded {
        Ok(library) => library,
        Err(words) => {
            tell(teller, Standing::NotThere(words));
            return Looked::NoLibrary;
        }
    };
    let connection = match Connection::open(library, uri).await {
        Ok(connection) => connection,
        Err(error) => {
            tell(teller, Standing::Unreachable(chain(&error)));
            return Looked::NotReached;
        }
    };
    let (lost, was_listed) = follow(&connection, teller).await;
    tell(teller, Standing::Unreachable(chain(&lost)));
    match was_listed {
        true => Looked::Lost,
        false => Looked::NotReached,
    }
}

/// Lists domains whenever something happened, until the connection ends; how it did, and whether they were ever listed. A listing
/// that fails costs no connection: a call that hangs, as where a domain's lock is held, would keep its own.
async fn follow(connection: &Connection, teller: &watch::Sender<Standing>) -> (CallError, bool) {
    let mut events = connection.events();
    let mut last = None;
    loop {
        match connection.domains().await {
            Ok(domains) => {
                let known = last.insert(Arc::new(domains));
                teller.send_replace(reached(connection, known, None));
                sleep(limits::RELIST).await;
                next(&mut events).await;
            }
            Err(lost @ CallError::Lost { .. }) => return (lost, last.is_some()),
            Err(error) => {
                let words = chain(&error);
                let standing = match &last {
                    Some(known) => reached(connection, known, Some(words)),
                    None => Standing::Unreachable(words),
                };
                tell(teller, standing);
                sleep(limits::RECONNECT).await;
            }
        }
    }
}

fn reached(connection: &Connection, domains: &Arc<Domains>, late: Option<String>) -> Standing {
    Standing::Reached {
        connection: connection.clone(),
        domains: Arc::clone(domains),
        late,
    }
}

/// Waits for something that may have changed domains: an event, the connection's end, or the time to look again.
async fn next(events: &mut Events) {
    let mut until = Instant::now() + limits::REFRESH;
    while let Ok(Notice::Event(_) | Notice::Missed(_)) = timeout_at(until, events.next()).await {
        // What came with it is seen by one listing.
        until = Instant::now();
    }
}

/// Once for each reason.
fn tell(teller: &watch::Sender<Standing>, standing: Standing) {
    teller.send_if_modified(|known| {
        let is_new = words(known) != words(&standing);
        if is_new {
            *known = standing;
        }
        is_new
    });
}

fn words(standing: &Standing) -> Option<&str> {
    match standing {
        Standing::NotThere(words) | Standing::Unreachable(words) => Some(words),
        Standing::Reached { late, .. } => late.as_deref(),
        Standing::Unknown => None,
    }
}

/// An error and what it came from, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_looked_for_at_once_and_what_stays_away_less_and_less_often() {
        let mut in_vain = 0;
        let mut pauses = Vec::new();
        let looks = [Looked::Lost].into_iter().chain([Looked::NotReached; 7]);
        for looked in looks.chain([Looked::Lost, Looked::NotReached]) {
            pauses.push(looked.pause(in_vain).as_secs());
            in_vain = looked.in_vain(in_vain);
        }
        assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 30, 30, 1, 1]);
        assert_eq!(Looked::NotReached.pause(u32::MAX), limits::RECONNECT_MOST);
        assert_eq!(Looked::NoLibrary.pause(0), limits::RELOAD);
    }
}
