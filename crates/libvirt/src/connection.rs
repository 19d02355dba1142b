use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::beside::{self, Beside};
use crate::domain::{self, DomainState, Domains, Look, Xml};
use crate::error::{CallError, Closed, ConnectError, Refusal};
use crate::events::{Events, Job};
use crate::library::{Connecting, Library};
use crate::limits;
use crate::moving::Shown;
use crate::opening;
use crate::raw;
use crate::shared::Shared;
use crate::version::Version;

type Call = Box<dyn FnOnce(&raw::Connection) + Send>;

/// A connection to a libvirtd. Clones share it; it is closed when the last one is dropped and no call is left.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: SyncSender<Call>,
    shared: Arc<Shared>,
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
    /// libvirt refuses, or does not answer within [`limits::CONNECT`], or [`limits::CONNECTING`] attempts have hung for as long.
    pub async fn open(library: Library, uri: &str) -> Result<Self, ConnectError> {
        let turn = Connecting::turn().await;
        let turn = turn.ok_or_else(|| ConnectError::Hanging {
            uri: uri.to_owned(),
        })?;
        let shared = Arc::new(Shared::new());
        let (calls, queue) = mpsc::sync_channel::<Call>(limits::CALLS_WAITING);
        let told = Arc::clone(&shared);
        // A libvirtd with no thread free for calls answers keepalive, and none of these.
        let first = move |connection: &mut raw::Connection| {
            let _until_they_are_answered = turn;
            connection.tell_of_events(&told)?;
            connection.versions()
        };
        let serve = move |connection| serve(&connection, &queue);
        let opened = opening::open(library, uri, "libvirt-calls", &shared, first, serve);
        let (daemon, hypervisor) = opened.await?;
        Ok(Self(Arc::new(Inner {
            calls,
            shared,
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

    /// All domains: running, paused and shut off ones, those without a definition too.
    ///
    /// # Errors
    /// No answer, or the connection is lost. A domain that libvirt does not tell of is no error but [`Domains::untold`].
    pub async fn domains(&self) -> Result<Domains, CallError> {
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

    /// What the host can do, as libvirt's XML tells.
    ///
    /// # Errors
    /// No answer, or the connection is lost.
    pub async fn capabilities(&self) -> Result<String, CallError> {
        let ask = |connection: &raw::Connection| connection.capabilities();
        self.call("tell what the host can do", ask).await
    }

    /// One domain as it is now; none where there is no such.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn look(&self, domain: Uuid) -> Result<Option<Look>, CallError> {
        let ask = move |connection: &raw::Connection| {
            unless_gone(connection.domain(domain).and_then(|at| domain::look(&at)))
        };
        self.call("look at a domain", ask).await
    }

    /// What libvirt has of a domain beside its definition. It answers that without the domain's QEMU.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn beside(&self, domain: Uuid) -> Result<Beside, CallError> {
        let ask = move |connection: &raw::Connection| beside::read(&connection.domain(domain)?);
        self.call("tell of a domain's snapshots and backups", ask)
            .await
    }

    /// The job of a domain that is in memory, such as its migration, while there is one. Of a migration only the source tells.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn job(&self, domain: Uuid) -> Result<Option<Job>, CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.job();
        self.call("tell of a domain's job", ask).await
    }

    /// How a domain stands whose migration nobody's answer ended.
    ///
    /// Its job is asked for first, which waits for whatever libvirt does with the domain: a libvirtd that was just started finds each
    /// domain again in such a job, and ends those whose migration it had confirmed (`qemuProcessReconnect`, and
    /// `qemuDomainGetJobStatsInternal`, which takes a job before it looks for one; 9.0.0 and 11.3.0). Only what is seen after that is
    /// so.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn shown(&self, domain: Uuid) -> Result<Shown, CallError> {
        let ask = move |connection: &raw::Connection| {
            let Some(at) = unless_gone(connection.domain(domain))? else {
                return Ok(Shown::default());
            };
            let job = match at.job() {
                Err(refusal) if refusal.is_no_domain() || refusal.is_of_its_state() => None,
                job => job?,
            };
            let look = unless_gone(domain::look(&at))?;
            Ok(Shown { job, look })
        };
        self.call("tell how a domain stands", ask).await
    }

    /// Ends a domain's hypervisor at once, as pulling the plug. That there is none is no error.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn destroy(&self, domain: Uuid) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| {
            let Some(at) = unless_gone(connection.domain(domain))? else {
                return Ok(());
            };
            match at.info()?.is_in_memory() {
                true => unless_gone(at.destroy()).map(drop),
                false => Ok(()),
            }
        };
        self.call("end a domain", ask).await
    }

    /// Takes the definition of a domain away that is off, with what libvirt itself keeps beside it. That there is none is no error. One
    /// that has a hypervisor keeps it, and its state is told: without a definition it would be lost when it ends.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn undefine(&self, domain: Uuid) -> Result<Option<DomainState>, CallError> {
        let ask = move |connection: &raw::Connection| {
            let Some(at) = unless_gone(connection.domain(domain))? else {
                return Ok(None);
            };
            let info = at.info()?;
            if info.is_in_memory() {
                return Ok(Some(DomainState::from_number(info.state)));
            }
            if at.is_persistent()? {
                unless_gone(domain::undefine(&at))?;
            }
            Ok(None)
        };
        self.call("take a domain's definition away", ask).await
    }

    /// Whether a domain that has a definition is started with its host.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn set_autostart(&self, domain: Uuid, wanted: bool) -> Result<(), CallError> {
        let ask =
            move |connection: &raw::Connection| connection.domain(domain)?.set_autostart(wanted);
        self.call("set whether a domain is started with its host", ask)
            .await
    }

    /// The longest that a domain that is in memory may stand still at the end of a migration.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn max_downtime(&self, domain: Uuid) -> Result<Duration, CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.max_downtime();
        self.call("tell how long a domain may stand still", ask)
            .await
    }

    /// The longest that a domain may stand still at the end of a migration that is under way, or of those to come.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn set_max_downtime(
        &self,
        domain: Uuid,
        downtime: Duration,
    ) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| {
            connection.domain(domain)?.set_max_downtime(downtime)
        };
        self.call("set how long a domain may stand still", ask)
            .await
    }

    /// Has a paused domain run.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn resume(&self, domain: Uuid) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.resume();
        self.call("resume a domain", ask).await
    }

    /// Makes a call when those before it have been made.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&raw::Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, CallError> {
        if let Some(source) = self.closed() {
            return Err(CallError::Lost { what, source });
        }
        let (sender, answer) = oneshot::channel();
        let call = move |connection: &raw::Connection| {
            // Whoever waits no longer wants it no longer.
            if !sender.is_closed() {
                let answer = ask(connection).map_err(|refusal| connection.failure(refusal));
                let _ = sender.send(answer);
            }
        };
        self.0
            .calls
            .try_send(Box::new(call))
            .map_err(|error| match error {
                TrySendError::Full(_) => CallError::TooMany {
                    what,
                    waiting: limits::CALLS_WAITING,
                },
                TrySendError::Disconnected(_) => self.0.shared.lost(what),
            })?;
        self.0.shared.answer(what, answer).await
    }
}

/// None where there is no such domain, or no longer.
pub(crate) fn unless_gone<T>(answer: Result<T, Refusal>) -> Result<Option<T>, Refusal> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(refusal) if refusal.is_no_domain() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Makes the calls, one after another, until nobody can ask for one.
fn serve(connection: &raw::Connection, queue: &Receiver<Call>) {
    while let Ok(call) = queue.recv() {
        call(connection);
    }
}
