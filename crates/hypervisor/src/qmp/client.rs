use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{self, NoPlace, Shared, beginning};
use super::lines::Lines;
use super::message::{self, Message};
use super::{Closed, ConnectError, Events, QmpError, Version};
use crate::limits;

/// A connection to one QMP monitor. Clones share it; the last one dropped closes it.
#[derive(Debug, Clone)]
pub struct Qmp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Vec<u8>>,
    next_id: AtomicU64,
    version: Version,
    oob: bool,
    task: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.close(Closed::ByUs);
    }
}

impl Qmp {
    /// Connects to the monitor at `path` and negotiates, all `within` a time. With `oob` the
    /// monitor also takes out-of-band commands. A monitor serves one client: while another holds
    /// it, there is no greeting.
    ///
    /// # Errors
    /// Nothing listens, it is silent or no QMP, or it has no out-of-band commands.
    pub async fn connect(path: &Path, oob: bool, within: Duration) -> Result<Self, ConnectError> {
        let deadline = Instant::now() + within;
        let silent = |_| ConnectError::NoGreeting {
            path: path.to_owned(),
            within,
        };
        let stream = timeout_at(deadline, UnixStream::connect(path))
            .await
            .map_err(silent)?;
        let stream = stream.map_err(|source| ConnectError::NotThere {
            path: path.to_owned(),
            source,
        })?;
        let (reader, writer) = stream.into_split();
        let mut lines = Lines::new(BufReader::new(reader));
        let (version, offers_oob) = timeout_at(deadline, greeting(path, &mut lines))
            .await
            .map_err(silent)??;
        if oob && !offers_oob {
            return Err(ConnectError::NoOob {
                path: path.to_owned(),
                version,
            });
        }

        let shared = Arc::new(Shared::new());
        let (outgoing, queue) = mpsc::channel(limits::COMMANDS_WAITING);
        let task = tokio::spawn(connection::run(Arc::clone(&shared), lines, writer, queue));
        let next_id = AtomicU64::new(1);
        let task = task.abort_handle();
        let qmp = Self(Arc::new(Inner {
            shared,
            outgoing,
            next_id,
            version,
            oob,
            task,
        }));

        let enable = if oob {
            json!({"enable": ["oob"]})
        } else {
            Value::Null
        };
        let left = deadline.saturating_duration_since(Instant::now());
        qmp.execute_within("qmp_capabilities", enable, left)
            .await
            .map_err(|source| ConnectError::Negotiation {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        Ok(qmp)
    }

    /// QEMU's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Runs a command; `Null` for no arguments. Any number may wait at once; QEMU answers them
    /// in order. Dropping the future gives up the answer, not the command.
    ///
    /// # Errors
    /// QEMU refused, was silent for [`limits::COMMAND`], or the connection ended.
    pub async fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, limits::COMMAND)
            .await
    }

    /// As [`execute`](Self::execute), with a time of its own.
    ///
    /// # Errors
    /// The same.
    pub async fn execute_within(
        &self,
        command: &str,
        arguments: Value,
        within: Duration,
    ) -> Result<Value, QmpError> {
        self.run("execute", command, arguments, within).await
    }

    /// Runs a command out of band: before those that wait, and while QEMU's main loop hangs. Only
    /// few commands allow it (`yank`, `migrate-recover`, `migrate-pause`). It overtakes only while
    /// fewer than 8 others wait on this monitor, so keep a monitor for it alone.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute), within [`limits::OOB_COMMAND`]; or this connection was
    /// made without `oob`.
    pub async fn execute_oob(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        if !self.0.oob {
            return Err(QmpError::NotOob {
                command: command.to_owned(),
            });
        }
        self.run("exec-oob", command, arguments, limits::OOB_COMMAND)
            .await
    }

    /// Its events from now on. Take it before asking for the state, so that none falls between.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(Arc::clone(&self.0.shared))
    }

    /// How the connection ended, once it has.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.0.shared.closed()
    }

    async fn run(
        &self,
        verb: &str,
        command: &str,
        arguments: Value,
        within: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let lost = |source| QmpError::Lost {
            command: command.to_owned(),
            source,
        };
        let mut place = self.0.shared.place(id).map_err(|no_place| match no_place {
            NoPlace::Full => QmpError::TooManyWaiting {
                command: command.to_owned(),
            },
            NoPlace::Closed(source) => lost(source),
        })?;
        let answered = timeout(within, async {
            // When the task is gone, the place has been told why.
            let _ = self
                .0
                .outgoing
                .send(encode(verb, command, arguments, id))
                .await;
            place.reply().await
        });
        match answered.await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(refusal))) => Err(QmpError::Refused {
                command: command.to_owned(),
                class: refusal.class,
                description: refusal.description,
            }),
            Ok(Err(closed)) => Err(lost(closed)),
            Err(_) => Err(QmpError::TimedOut {
                command: command.to_owned(),
                within,
            }),
        }
    }
}

/// A monitor that QEMU has not opened for its client yet is given events as one that has been
/// negotiated (`monitor_qapi_event_emit`), so that a guest that starts to run just then is told of
/// before the greeting. Whoever connects asks for the state next, and misses nothing.
async fn greeting(
    path: &Path,
    lines: &mut Lines<BufReader<tokio::net::unix::OwnedReadHalf>>,
) -> Result<(Version, bool), ConnectError> {
    loop {
        let line = lines.next().await.map_err(|source| ConnectError::Lost {
            path: path.to_owned(),
            source,
        })?;
        match message::decode(line) {
            Some(Message::Greeting { version, oob }) => return Ok((version, oob)),
            Some(Message::Event(_)) => {}
            _ => {
                let excerpt = beginning(line);
                return Err(ConnectError::NotQmp {
                    path: path.to_owned(),
                    excerpt,
                });
            }
        }
    }
}

fn encode(verb: &str, command: &str, arguments: Value, id: u64) -> Vec<u8> {
    let mut message = json!({"id": id});
    message[verb] = command.into();
    if !arguments.is_null() {
        message["arguments"] = arguments;
    }
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
