//! What watches read: a stream of one member, and from where it goes on at another.

use std::collections::VecDeque;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::members::{decode, unreadable};
use super::words::{EventKind, Message, Number, Range, Text, Watch, WatchCreate, Watched};
use super::{Etcd, revision};
use crate::error::{Outcome, StoreError};
use crate::key::Scope;
use crate::limits;
use crate::transaction::Revision;
use crate::value::Value;
use crate::watch::{Change, Changes, by_revision};

/// Where a watch is, and the stream that it listens to.
#[derive(Debug)]
pub(crate) struct Follower {
    store: Etcd,
    scope: Scope,
    after: Revision,
    /// Whether etcd has come as far as `after`.
    is_of_this_store: bool,
    stream: Option<Stream>,
    /// The beginning of a message that comes in parts.
    part: Vec<(Revision, Change)>,
    /// Since when every stream has ended without a message.
    failing: Option<Instant>,
}

/// A stream that is open.
#[derive(Debug)]
struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
    /// Dropped with the stream, which ends it.
    _connection: Connection,
}

/// What a stream has to say.
enum Heard {
    Line(Vec<u8>),
    Silence,
    End(String),
}

impl Follower {
    pub(super) fn new(store: Etcd, scope: Scope, after: Revision) -> Self {
        Self {
            store,
            scope,
            after,
            is_of_this_store: false,
            stream: None,
            part: Vec::new(),
            failing: None,
        }
    }

    /// What follows; waits until there is something.
    pub async fn more(&mut self) -> Result<VecDeque<Changes>, StoreError> {
        let more = self.read_on().await;
        if more.is_err() {
            // What was read and not understood must be read again, not passed over.
            self.leave();
        }
        more
    }

    async fn read_on(&mut self) -> Result<VecDeque<Changes>, StoreError> {
        self.check_store().await?;
        loop {
            let changes = match self.hear().await? {
                Heard::Line(line) => self.understand(&line).await?,
                Heard::Silence => {
                    self.leave();
                    continue;
                }
                Heard::End(why) => {
                    self.bear(why).await?;
                    continue;
                }
            };
            if let Some(last) = changes.back() {
                self.after = last.revision;
                return Ok(changes);
            }
        }
    }

    /// etcd would wait in silence for a revision that it has not reached, as one that was restored
    /// from a backup has not.
    async fn check_store(&mut self) -> Result<(), StoreError> {
        if self.is_of_this_store {
            return Ok(());
        }
        let range = Range {
            keys_only: true,
            ..Range::key(self.store.path(self.scope.first()))
        };
        let now = revision(self.store.find(&range).await?.header.revision);
        if self.after > now {
            return Err(StoreError::Lagged {
                after: self.after,
                oldest: now,
            });
        }
        self.is_of_this_store = true;
        Ok(())
    }

    async fn hear(&mut self) -> Result<Heard, StoreError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = Stream::open(&self.store, &self.scope, self.after).await?;
                self.stream.insert(stream)
            }
        };
        match timeout(limits::WATCH_SILENCE, stream.line()).await {
            Ok(heard) => heard,
            Err(_) => Ok(Heard::Silence),
        }
    }

    /// Goes on at another member, from where it is.
    fn leave(&mut self) {
        self.stream = None;
        self.part.clear();
        self.store.members.prefer_next();
    }

    /// A stream that ended is opened again, but not without end.
    async fn bear(&mut self, why: String) -> Result<(), StoreError> {
        self.leave();
        let since = *self.failing.get_or_insert_with(Instant::now);
        let waited = since.elapsed();
        if waited >= limits::QUORUM_WAIT {
            self.failing = None;
            return Err(StoreError::NoQuorum {
                waited,
                outcome: Outcome::NotDone,
                detail: why,
            });
        }
        sleep(limits::QUORUM_PAUSE).await;
        Ok(())
    }

    async fn understand(&mut self, line: &[u8]) -> Result<VecDeque<Changes>, StoreError> {
        let message: Message<Watched> = decode(line)?;
        let Some(watched) = message.result else {
            let why = message.error.unwrap_or_default().to_string();
            self.bear(drover_types::in_short(why)).await?;
            return Ok(VecDeque::new());
        };
        if watched.compact_revision.0 > 0 {
            return Err(StoreError::Lagged {
                after: self.after,
                oldest: revision(watched.compact_revision),
            });
        }
        if watched.canceled {
            self.bear(drover_types::in_short(watched.cancel_reason))
                .await?;
            return Ok(VecDeque::new());
        }
        self.failing = None;
        self.take(watched)
    }

    pub(super) fn take(&mut self, watched: Watched) -> Result<VecDeque<Changes>, StoreError> {
        for event in watched.events {
            let change = Change {
                key: self.store.key(&event.kv.key.0)?,
                value: (event.kind == EventKind::Put).then(|| Value::stored(event.kv.value.0)),
            };
            self.part.push((revision(event.kv.mod_revision), change));
        }
        if !watched.fragment {
            return Ok(by_revision(std::mem::take(&mut self.part)));
        }
        // The last revision of a part may go on in the next one.
        let last = self.part.last().map(|(revision, _)| *revision);
        let (whole, rest) = std::mem::take(&mut self.part)
            .into_iter()
            .partition(|(revision, _)| Some(*revision) != last);
        self.part = rest;
        let whole: Vec<_> = whole;
        Ok(by_revision(whole))
    }
}

impl Stream {
    async fn open(store: &Etcd, scope: &Scope, after: Revision) -> Result<Self, StoreError> {
        let request = Watch {
            create_request: WatchCreate {
                key: Text(store.path(scope.first())),
                range_end: Text(store.path(&scope.end())),
                start_revision: Number::of(after.0.saturating_add(1)),
                fragment: true,
            },
        };
        let (connection, body) = store.members.stream("/v3/watch", &request).await?;
        Ok(Self {
            body,
            buffer: Vec::new(),
            _connection: connection,
        })
    }

    /// The next line. May be dropped and called again: what has come stays in the buffer.
    async fn line(&mut self) -> Result<Heard, StoreError> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.buffer[seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(seen + end + 1);
                return Ok(Heard::Line(std::mem::replace(&mut self.buffer, rest)));
            }
            seen = self.buffer.len();
            if seen > limits::WATCH_MESSAGE_BYTES {
                let most = limits::WATCH_MESSAGE_BYTES;
                return Err(unreadable(format!("a message of more than {most} bytes")));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Ok(Heard::End(error.to_string())),
                None => return Ok(Heard::End("the stream ended".to_owned())),
            }
        }
    }
}
