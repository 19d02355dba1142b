//! What is heard of a relay's process, and its end.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use drover_carrier::limits::ANSWER;
use drover_carrier::{Counters, Heard, Place, Posted, Told};
use drover_relay::{BrokenBy, Event};

use super::{News, remove};
use crate::limits::{RELAY_END_AGAIN, RELAY_ENDED};

/// What speaks against pages that this host has stored, for which a relay that had them may have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A chunk could not be used, perhaps for a page to which it refers.
    Chunk,
    /// Its process has ended unasked, perhaps by what it read; or nothing is known of it.
    Died,
}

/// What was heard of a process, and said to it of its end.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Its process, once it has said so.
    pub(super) pid: OnceLock<u32>,
    counters: Mutex<Option<Counters>>,
    doubt: OnceLock<Doubt>,
    closing: Mutex<Closing>,
    /// Nobody has a handle of it any more.
    left: AtomicBool,
    /// Nothing more is heard of it, and what that means is known.
    gone: Mutex<bool>,
    is_gone: Condvar,
}

/// What a process was told of its end.
#[derive(Debug, Default)]
enum Closing {
    /// Nothing: it is to carry on.
    #[default]
    No,
    /// To end, if that could be said. One that dies before it has heard that dies unasked.
    Asked(Option<Posted>),
    /// That nothing more is to reach QEMU, which it has answered. Its end is no news, whatever it is.
    Cut,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    pub(super) fn counters(&self) -> Option<Counters> {
        lock(&self.counters).clone()
    }

    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt.get().copied()
    }

    /// The first counts.
    fn doubted(&self, doubt: Doubt) {
        self.doubt.get_or_init(|| doubt);
    }

    /// Has it told to end, once.
    pub(super) fn close(&self, tell: impl FnOnce() -> Option<Posted>) {
        let mut closing = lock(&self.closing);
        if matches!(*closing, Closing::No) {
            *closing = Closing::Asked(tell());
        }
    }

    /// It has answered that nothing more reaches QEMU.
    pub(super) fn cut(&self) {
        *lock(&self.closing) = Closing::Cut;
    }

    /// Nobody asks any more what became of it.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Waits until it is known what the end of the connection to it means, for as long as an answer may take.
    pub(super) fn wait_until_gone(&self) {
        let gone = lock(&self.gone);
        drop(self.is_gone.wait_timeout_while(gone, ANSWER, |gone| !*gone));
    }

    /// The connection to it has ended: how long its process may take to do so, and whether nobody wanted it to.
    fn ended(&self) -> (Duration, bool) {
        let (patience, unasked) = match &mut *lock(&self.closing) {
            Closing::No => (Duration::ZERO, true),
            Closing::Asked(told) => {
                let is_heard = told.as_mut().is_some_and(Posted::is_answered);
                // Who lets go of it does not hear the answer.
                (RELAY_ENDED, !is_heard && !self.left.load(Ordering::Acquire))
            }
            Closing::Cut => (RELAY_ENDED, false),
        };
        if unasked {
            self.doubted(Doubt::Died);
        }
        *lock(&self.gone) = true;
        self.is_gone.notify_all();
        (patience, unasked)
    }
}

/// Listens to one process, and sees to its end.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) place: Place,
    /// Where it is ours to reap.
    pub(super) child: Arc<Mutex<Option<Child>>>,
    pub(super) known: Arc<Known>,
}

impl Watch {
    pub(super) fn heard(&self, heard: Heard, hear: &impl Fn(News)) {
        match heard {
            Heard::Report(counters) => *lock(&self.known.counters) = Some(*counters),
            Heard::Event(_, Told::Relay(event)) => {
                if let Event::ChannelBroke { by, .. } = &event
                    && *by == BrokenBy::Chunk
                {
                    self.known.doubted(Doubt::Chunk);
                }
                hear(News::Event(event));
            }
            // It ends after that, or has been told so by its state.
            Heard::Event(_, Told::Alone { .. }) => {}
            Heard::Gone => {
                let (patience, unasked) = self.known.ended();
                self.end(patience);
                if unasked {
                    let directory = self.place.directory().display();
                    tracing::warn!(pid = self.known.pid.get(), %directory, "a relay's process has ended unasked");
                    hear(News::Died("the relay's process ended unasked".to_owned()));
                }
            }
        }
    }

    pub(super) fn end(&self, patience: Duration) {
        end_own(&self.place, self.known.pid.get().copied(), patience);
        let mut child = lock(&self.child);
        if let Some(mut child) = child.take()
            // It has ended, or has not even begun.
            && let Err(error) = child.kill().and_then(|()| child.wait())
        {
            tracing::warn!(%error, "the relay's process was not reaped");
        }
    }
}

/// The same for one process, unless another one has its place by now.
pub(super) fn end_own(place: &Place, pid: Option<u32>, patience: Duration) {
    let record = place.record();
    let other = matches!((record, pid), (Ok(Some(record)), Some(pid)) if record.pid != pid);
    if !other {
        end(place, patience);
    }
}

/// Ends a process if it does not by itself, and removes its files. Returns when nothing of it can
/// reach QEMU any more.
pub(super) fn end(place: &Place, patience: Duration) {
    match place.record() {
        Ok(Some(record)) => {
            while let Err(error) = record.end(patience) {
                tracing::error!(pid = record.pid, %error, "a relay's process does not end");
                std::thread::sleep(RELAY_END_AGAIN);
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the record of a relay's process is unreadable"),
    }
    remove(place);
}

#[cfg(test)]
mod tests;
