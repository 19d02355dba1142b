use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::message::{self, Event, Message, Refusal};
use super::{Closed, lines::Lines};
use crate::limits;

/// What an answer can be.
pub(super) type Reply = Result<Result<Value, Refusal>, Closed>;

/// What the task of a connection and its users share: who waits for what.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Reply>>,
    /// Gone once the connection is.
    events: Option<broadcast::Sender<Event>>,
    closed: Option<Closed>,
}

/// A place in the queue for an answer, given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    reply: oneshot::Receiver<Reply>,
    shared: Arc<Shared>,
}

/// Why no place was given.
pub(super) enum NoPlace {
    Full,
    Closed(Closed),
}

impl Shared {
    pub(super) fn new() -> Self {
        let (events, _) = broadcast::channel(limits::EVENTS_KEPT);
        Self(Mutex::new(Waiting {
            answers: HashMap::new(),
            events: Some(events),
            closed: None,
        }))
    }

    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the answer to command `id`.
    pub(super) fn place(self: &Arc<Self>, id: u64) -> Result<Place, NoPlace> {
        let mut waiting = self.lock();
        if let Some(closed) = &waiting.closed {
            return Err(NoPlace::Closed(closed.clone()));
        }
        if waiting.answers.len() >= limits::COMMANDS_WAITING {
            return Err(NoPlace::Full);
        }
        let (sender, reply) = oneshot::channel();
        waiting.answers.insert(id, sender);
        Ok(Place {
            id,
            reply,
            shared: Arc::clone(self),
        })
    }

    /// Events from now on; `None` when the connection is gone.
    pub(super) fn subscribe(&self) -> Option<broadcast::Receiver<Event>> {
        self.lock()
            .events
            .as_ref()
            .map(broadcast::Sender::subscribe)
    }

    /// How the connection ended, once it has.
    pub(super) fn closed(&self) -> Option<Closed> {
        self.lock().closed.clone()
    }

    /// Ends it for everybody; the first reason stays.
    pub(super) fn close(&self, reason: Closed) {
        let mut waiting = self.lock();
        let reason = waiting.closed.get_or_insert(reason).clone();
        waiting.events = None;
        for (_, sender) in waiting.answers.drain() {
            // A command that is no longer waited for has nobody to tell.
            let _ = sender.send(Err(reason.clone()));
        }
    }

    fn deliver(&self, message: Message) {
        match message {
            Message::Answer {
                id: Some(id),
                result,
            } => {
                let sender = self.lock().answers.remove(&id);
                match sender {
                    Some(sender) => drop(sender.send(Ok(result))),
                    None => tracing::debug!(id, "an answer came after its time"),
                }
            }
            Message::Answer { id: None, result } => {
                tracing::warn!(?result, "qemu answered what it could not read");
            }
            Message::Event(event) => {
                if let Some(events) = &self.lock().events {
                    // Nobody listening is no error.
                    let _ = events.send(event);
                }
            }
            Message::Greeting { .. } | Message::Unknown => {
                tracing::debug!(?message, "a message of no use");
            }
        }
    }
}

impl Place {
    /// The answer, or how the connection ended.
    pub(super) async fn reply(&mut self) -> Reply {
        (&mut self.reply).await.unwrap_or(Err(Closed::ByUs))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.lock().answers.remove(&self.id);
    }
}

/// Carries lines both ways until either end is gone.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut lines: Lines<BufReader<OwnedReadHalf>>,
    mut writer: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
) {
    let reading = async {
        loop {
            match lines.next().await {
                Ok(line) => match message::decode(line) {
                    Some(message) => shared.deliver(message),
                    None => {
                        return Closed::Garbage {
                            excerpt: beginning(line),
                        };
                    }
                },
                Err(closed) => return closed,
            }
        }
    };
    let writing = async {
        while let Some(line) = outgoing.recv().await {
            if let Err(error) = writer.write_all(&line).await {
                return Closed::failed(&error);
            }
        }
        Closed::ByUs
    };
    // Both at once: a monitor that reads nothing must not keep us from reading.
    let reason = tokio::select! {
        reason = reading => reason,
        reason = writing => reason,
    };
    shared.close(reason);
}

/// The beginning of a line that nobody understands.
pub(super) fn beginning(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * limits::EXCERPT_CHARS)]);
    message::excerpt(&text)
}
