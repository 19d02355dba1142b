use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use crate::domain::{self, Domain, Xml};
use crate::error::{CallError, Closed, ConnectError, Failure, Refusal};
use crate::events::Events;
use crate::library::{Attempt, Library};
use crate::limits;
use crate::migration::Migration;
use crate::raw;
use crate::shared::Shared;
use crate::version::Version;

/// The system's libvirtd, by its own socket.
pub const SYSTEM_URI: &str = "qemu:///system";

/// The URI of a libvirtd by the path of its socket.
#[must_use]
pub fn uri_of_socket(socket: &Path) -> String {
    format!("qemu+unix:///system?socket={}", socket.display())
}

type Call = Box<dyn FnOnce(&Arc<raw::Connection>) + Send>;

/// A connection to a libvirtd. Clones share it; it is closed when the last one is dropped and no call is left.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: SyncSender<Call>,
    shared: Arc<Shared>,
    migrations: Arc<Semaphore>,
    daemon: Version,
    hypervisor: Version,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close(Closed::ByUs);
    }
}

impl Connection {
    /// Connects to the libvirtd of this URI, in a thread of its own, which makes the calls from then on.
    ///
    /// # Errors
    /// libvirt refuses, or does not answer within [`limits::CONNECT`].
    pub async fn open(library: Library, uri: &str) -> Result<Self, ConnectError> {
        let owned = || uri.to_owned();
        let text = CString::new(uri).map_err(|_| ConnectError::Uri { uri: owned() })?;
        let attempt = Attempt::begin().ok_or_else(|| ConnectError::Hanging { uri: owned() })?;
        let shared = Arc::new(Shared::new());
        let (calls, queue) = mpsc::sync_channel::<Call>(limits::CALLS_WAITING);
        let (opened, answer) = oneshot::channel();
        let told = Arc::clone(&shared);
        let connect = move || {
            let connection = open(library, &text, &told);
            drop(attempt);
            let (connection, versions) = match connection {
                Ok((connection, versions)) => (Some(connection), Ok(versions)),
                Err(refusal) => (None, Err(refusal)),
            };
            // Where nobody waits any more it is closed again.
            let wanted = opened.send(versions).is_ok();
            if let Some(connection) = connection.filter(|_| wanted) {
                serve(&Arc::new(connection), &queue);
            }
        };
        spawn("libvirt-calls", connect).map_err(|source| ConnectError::Thread { source })?;
        let within = limits::CONNECT;
        let no_answer = || ConnectError::NoAnswer {
            uri: owned(),
            within,
        };
        let answered = timeout(within, answer).await.map_err(|_| no_answer())?;
        let (daemon, hypervisor) =
            answered
                .map_err(|_| no_answer())?
                .map_err(|source| ConnectError::Refused {
                    uri: owned(),
                    source,
                })?;
        Ok(Self(Arc::new(Inner {
            calls,
            shared,
            migrations: Arc::new(Semaphore::new(limits::MIGRATIONS)),
            daemon,
            hypervisor,
        })))
    }

    /// libvirtd's version.
    #[must_use]
    pub fn daemon(&self) -> Version {
        self.0.daemon
    }

    /// The version of the hypervisor that libvirtd starts domains with by itself.
    #[must_use]
    pub fn hypervisor(&self) -> Version {
        self.0.hypervisor
    }

    /// Events from now on. Take it before asking for the state, so that none falls between.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(Arc::clone(&self.0.shared))
    }

    /// How the connection ended, once it has.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.0.shared.closed()
    }

    /// All domains, by name: running, paused and shut off ones, those without a definition too.
    ///
    /// # Errors
    /// No answer, or the connection is lost.
    pub async fn domains(&self) -> Result<Vec<Domain>, CallError> {
        self.call("list the domains", domain::list).await
    }

    /// A domain's XML.
    ///
    /// # Errors
    /// It is not there, no answer, or the connection is lost.
    pub async fn xml(&self, domain: Uuid, kind: Xml) -> Result<String, CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.xml(kind.flags());
        self.call("tell a domain's XML", ask).await
    }

    /// Has a paused domain run.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn resume(&self, domain: Uuid) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.resume();
        self.call("resume a domain", ask).await
    }

    /// Ends a domain's job, such as its migration; that fails then, and the domain goes on where it was.
    ///
    /// # Errors
    /// It has no job, no answer, or the connection is lost.
    pub async fn abort_job(&self, domain: Uuid) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.abort_job();
        self.call("end a domain's job", ask).await
    }

    /// Migrates a domain and returns when that is over, however long it takes. libvirtd carries it out: it goes on when
    /// this future is dropped or the connection is lost, until [`abort_job`](Self::abort_job).
    ///
    /// # Errors
    /// libvirt's reason, or the connection is lost: then nobody knows yet how it ended.
    pub async fn migrate(&self, domain: Uuid, migration: &Migration) -> Result<(), CallError> {
        const WHAT: &str = "migrate a domain";
        let prepared = migration.prepare(WHAT)?;
        let place = Arc::clone(&self.0.migrations).try_acquire_owned();
        let place = place.map_err(|_| CallError::TooMany {
            what: WHAT,
            waiting: limits::MIGRATIONS,
        })?;
        let (sender, answer) = oneshot::channel();
        let begin = move |connection: &Arc<raw::Connection>| {
            let connection = Arc::clone(connection);
            let migrate = move || {
                let migrated = prepared.carry_out(&connection, domain);
                let migrated = migrated.map_err(|refusal| connection.failure(refusal));
                drop((place, connection));
                let _ = sender.send(migrated);
            };
            spawn("libvirt-migrate", migrate)
        };
        let begun = self.queue(WHAT, move |connection| Ok(begin(connection)))?;
        self.answered(WHAT, limits::CALL, begun)
            .await?
            .map_err(|error| CallError::Thread {
                what: WHAT,
                words: error.to_string(),
            })?;
        self.understood(WHAT, answer.await)
    }

    /// Makes a call when those before it have been made.
    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&raw::Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, CallError> {
        let answer = self.queue(what, move |connection| ask(connection))?;
        self.answered(what, limits::CALL, answer).await
    }

    fn queue<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&Arc<raw::Connection>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Failure>>, CallError> {
        if let Some(source) = self.closed() {
            return Err(CallError::Lost { what, source });
        }
        let (sender, answer) = oneshot::channel();
        let call = move |connection: &Arc<raw::Connection>| {
            // Whoever waits no longer wants it no longer.
            if !sender.is_closed() {
                let answer = ask(connection).map_err(|refusal| connection.failure(refusal));
                let _ = sender.send(answer);
            }
        };
        match self.0.calls.try_send(Box::new(call)) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(CallError::TooMany {
                what,
                waiting: limits::CALLS_WAITING,
            }),
            Err(TrySendError::Disconnected(_)) => Err(self.lost(what)),
        }
    }

    async fn answered<T>(
        &self,
        what: &'static str,
        within: Duration,
        answer: oneshot::Receiver<Result<T, Failure>>,
    ) -> Result<T, CallError> {
        match timeout(within, answer).await {
            Ok(answer) => self.understood(what, answer),
            Err(_) => Err(CallError::TimedOut { what, within }),
        }
    }

    fn understood<T>(
        &self,
        what: &'static str,
        answer: Result<Result<T, Failure>, oneshot::error::RecvError>,
    ) -> Result<T, CallError> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Failure::Refused(source))) => Err(CallError::Refused { what, source }),
            // The thread of events may not have noticed yet why.
            Ok(Err(Failure::Lost(refusal))) => {
                let closed = Closed::Failed(refusal.to_string());
                let source = self.0.shared.close(closed);
                Err(CallError::Lost { what, source })
            }
            Err(_) => Err(self.lost(what)),
        }
    }

    fn lost(&self, what: &'static str) -> CallError {
        let source = self.closed().unwrap_or(Closed::ByUs);
        CallError::Lost { what, source }
    }
}

fn open(
    library: Library,
    uri: &CString,
    shared: &Arc<Shared>,
) -> Result<(raw::Connection, (Version, Version)), Refusal> {
    let connection = raw::Connection::open(library.0, uri, shared)?;
    let versions = connection.versions()?;
    Ok((connection, versions))
}

/// Makes the calls, one after another, until nobody can ask for one. The connection is closed in the thread that has it last.
fn serve(connection: &Arc<raw::Connection>, queue: &Receiver<Call>) {
    while let Ok(call) = queue.recv() {
        call(connection);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_libvirtd_has_a_uri() {
        assert_eq!(
            uri_of_socket(Path::new("/run/a/libvirt-sock")),
            "qemu+unix:///system?socket=/run/a/libvirt-sock"
        );
    }
}
