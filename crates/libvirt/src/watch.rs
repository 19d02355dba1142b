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

/// Keeps looking at a host's libvirt: its library, its libvirtd, its domains. What is lost is looked for again.
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
            loop {
                let pause = look(&library, &uri, &teller).await;
                sleep(pause).await;
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

/// Until something is lost; gives how long to wait then.
async fn look(library: &Path, uri: &str, teller: &watch::Sender<Standing>) -> Duration {
    let path = library.to_owned();
    let loaded = tokio::task::spawn_blocking(move || Library::load(&path)).await;
    let library = match loaded {
        Ok(Ok(library)) => library,
        Ok(Err(error)) => return tell(teller, Standing::NotThere(chain(&error)), limits::RELOAD),
        Err(error) => {
            return tell(
                teller,
                Standing::NotThere(error.to_string()),
                limits::RELOAD,
            );
        }
    };
    let connection = match Connection::open(library, uri).await {
        Ok(connection) => connection,
        Err(error) => {
            return tell(
                teller,
                Standing::Unreachable(chain(&error)),
                limits::RECONNECT,
            );
        }
    };
    let lost = follow(&connection, teller).await;
    tell(
        teller,
        Standing::Unreachable(chain(&lost)),
        limits::RECONNECT,
    )
}

/// Lists domains whenever something happened, until the connection ends. A listing that fails costs no connection: a call
/// that hangs, as where a domain's lock is held, would keep its own.
async fn follow(connection: &Connection, teller: &watch::Sender<Standing>) -> CallError {
    let mut events = connection.events();
    let mut last = None;
    loop {
        match connection.domains().await {
            Ok(domains) => {
                if last.is_none() {
                    tracing::info!(libvirtd = %connection.daemon(), "libvirt is reached");
                }
                let known = last.insert(Arc::new(domains));
                teller.send_replace(reached(connection, known, None));
                sleep(limits::RELIST).await;
                next(&mut events).await;
            }
            Err(lost @ CallError::Lost { .. }) => return lost,
            Err(error) => {
                let words = chain(&error);
                let standing = match &last {
                    Some(known) => reached(connection, known, Some(words)),
                    None => Standing::Unreachable(words),
                };
                sleep(tell(teller, standing, limits::RECONNECT)).await;
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

fn tell(teller: &watch::Sender<Standing>, standing: Standing, pause: Duration) -> Duration {
    teller.send_if_modified(|known| {
        let new = words(known) != words(&standing);
        if new {
            tracing::warn!(why = words(&standing), "libvirt");
            *known = standing;
        }
        new
    });
    pause
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
