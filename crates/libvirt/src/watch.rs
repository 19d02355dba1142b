use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Connection;
use crate::domain::Domain;
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
        /// Its domains, by name.
        domains: Arc<[Domain]>,
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
        // It fails only where the task has ended, which it does when this is dropped.
        let _ = self.standing.changed().await;
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
    let Err(lost) = follow(&connection, teller).await;
    tell(
        teller,
        Standing::Unreachable(chain(&lost)),
        limits::RECONNECT,
    )
}

/// Lists domains whenever something happened, until that fails.
async fn follow(
    connection: &Connection,
    teller: &watch::Sender<Standing>,
) -> Result<std::convert::Infallible, CallError> {
    let mut events = connection.events();
    loop {
        let domains = connection.domains().await?;
        teller.send_replace(Standing::Reached {
            connection: connection.clone(),
            domains: domains.into(),
        });
        sleep(limits::RELIST).await;
        next(&mut events).await;
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
            tracing::info!(?standing, "libvirt");
            *known = standing;
        }
        new
    });
    pause
}

fn words(standing: &Standing) -> Option<&str> {
    match standing {
        Standing::NotThere(words) | Standing::Unreachable(words) => Some(words),
        Standing::Unknown | Standing::Reached { .. } => None,
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
