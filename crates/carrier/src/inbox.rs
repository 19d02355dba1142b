//! How the process' other threads reach the one that speaks with the agent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use drover_relay::Event;
use rustix::event::{EventfdFlags, eventfd};

use crate::protocol::Answer;

/// What another thread has to say.
#[derive(Debug)]
pub(crate) enum News {
    /// The relay tells something.
    Event(Event),
    /// A request was carried out.
    Answer {
        /// Of which connection.
        connection: u64,
        /// The request's number.
        number: u64,
        result: Result<Answer, String>,
    },
    /// Every thread of the relay has ended, and its sockets are closed.
    RelayGone,
}

/// What waits to be taken, and a descriptor that is readable when something does.
#[derive(Debug)]
pub(crate) struct Inbox {
    news: Mutex<VecDeque<News>>,
    wake: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            news: Mutex::default(),
            wake,
        }))
    }

    pub(crate) fn push(&self, news: News) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(news);
        // A counter that is full is readable, which is all that is wanted.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn take(&self) -> VecDeque<News> {
        // Nothing was counted if there is nothing: the queue says the same.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
