//! The agent as its relay's process sees it: one connection that is never waited for.

use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::history::History;
use crate::limits::{LAST_WORDS, UNREAD_BYTES};
use crate::lines::{self, Lines};
use crate::protocol::{Answer, Asked, Said};

/// One connection of an agent.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its number, never used again.
    pub(crate) connection: u64,
    /// It wants to be told what happened after this event.
    heard: Option<u64>,
    socket: UnixStream,
    lines: Lines,
    unsent: Vec<u8>,
}

impl Agent {
    pub(crate) fn new(connection: u64, socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            connection,
            heard: None,
            socket,
            lines: Lines::default(),
            unsent: Vec::new(),
        })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// It knows of everything up to this event, and wants to be told what happened since.
    pub(crate) fn attached_after(&mut self, event: u64) {
        self.heard = Some(event);
    }

    /// Whether it wants to be told what happens.
    pub(crate) fn is_attached(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether something happened that it was not told and wants to know.
    pub(crate) fn misses(&self, history: &History) -> bool {
        let heard = self.heard;
        heard.is_some_and(|heard| history.after(heard).next().is_some())
    }

    /// Says what happened since it was last told, if it wants to know.
    pub(crate) fn tell(&mut self, history: &History) {
        let Some(heard) = self.heard else {
            return;
        };
        for (sequence, told) in history.after(heard) {
            self.say(&Said::Event {
                sequence,
                told: told.clone(),
            });
            self.heard = Some(sequence);
        }
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Receives what is there; false when the agent is gone.
    pub(crate) fn receive(&mut self) -> bool {
        match self.lines.fill(&self.socket) {
            Ok(more) => more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => {
                tracing::warn!(%error, "the connection of the agent failed");
                false
            }
        }
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> io::Result<Option<Asked>> {
        match self.lines.next()? {
            Some(line) => Ok(Some(lines::decode(&line)?)),
            None => Ok(None),
        }
    }

    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.lines.descriptor()
    }

    pub(crate) fn answer(&mut self, number: u64, result: Result<Answer, String>) {
        self.say(&Said::Answer { number, result });
    }

    /// Puts a line behind those that wait.
    pub(crate) fn say(&mut self, said: &Said) {
        match serde_json::to_writer(&mut self.unsent, said) {
            Ok(()) => self.unsent.push(b'\n'),
            Err(error) => tracing::error!(%error, "cannot be said"),
        }
    }

    /// Sends what can be sent; false when the agent asks and asks and does not read. What one that is
    /// gone has asked for before is still to be heard: when that was all, [`Agent::receive`] tells.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.unsent.clear(),
            }
        }
        self.unsent.len() <= UNREAD_BYTES
    }

    /// Sends what is left, waiting for a moment.
    pub(crate) fn last_words(&mut self) {
        let patient = self.socket.set_nonblocking(false);
        let sent = patient
            .and_then(|()| self.socket.set_write_timeout(Some(LAST_WORDS)))
            .and_then(|()| self.socket.write_all(&self.unsent));
        if let Err(error) = sent {
            tracing::debug!(%error, "the agent did not hear the last words");
        }
    }
}
