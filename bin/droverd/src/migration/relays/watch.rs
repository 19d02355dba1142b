//! What is heard of a relay's process, and its end.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use drover_carrier::{Counters, Heard, Place, Posted, Told};
use drover_relay::{BrokenBy, Event};

use super::{News, remove};
use crate::limits::{RELAY_END_AGAIN, RELAY_ENDED};

/// What speaks against pages that this host has stored, for which a relay that had them may have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A chunk could not be used, perhaps for a page to which it refers.
    Chunk,
    /// Its process has ended unasked, perhaps by what it read; or it does not answer, or nothing is known of it.
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
    is_let_go: AtomicBool,
    over: Mutex<Over>,
    changed: Condvar,
}

/// How far it is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Over {
    /// It is heard of.
    #[default]
    No,
    /// Nothing more is heard of it, and what that means is known.
    Silent,
    /// Its process has ended.
    Gone,
}

/// What a process was told of its end.
#[derive(Debug, Default)]
enum Closing {
    /// Nothing: it is to carry on.
    #[default]
    No,
    /// To end, if that could be said. One that dies before it has heard that dies unasked.
    Asked(Option<Posted>),
    /// To end, or that nothing more is to reach QEMU, and it has answered; or it was killed. Its end is no news, whatever it is.
    Settled,
}

impl Closing {
    /// Looks whether it has answered by now: whether its end is no news.
    fn is_settled(&mut self) -> bool {
        if let Self::Asked(Some(told)) = self
            && told.is_answered()
        {
            *self = Self::Settled;
        }
        matches!(self, Self::Settled)
    }
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
        *lock(&self.closing) = Closing::Settled;
    }

    /// It does not answer that nothing more reaches QEMU, and is about to be killed. One that has heard that it is to end may do as it
    /// likes.
    pub(super) fn unanswered(&self) {
        let mut closing = lock(&self.closing);
        if !closing.is_settled() {
            self.doubted(Doubt::Died);
        }
        *closing = Closing::Settled;
    }

    /// It was told to end, and asked for something behind that: where it has answered neither it hangs, perhaps by what it read.
    pub(super) fn settle(&self) {
        if !lock(&self.closing).is_settled() {
            self.doubted(Doubt::Died);
        }
    }

    /// Nobody asks any more what became of it.
    pub(super) fn let_go(&self) {
        self.is_let_go.store(true, Ordering::Release);
    }

    /// Waits until it is so far, for so long; whether it is.
    pub(super) fn wait_until(&self, far: Over, patience: Duration) -> bool {
        let changed = &self.changed;
        let waited = changed.wait_timeout_while(lock(&self.over), patience, |over| *over < far);
        let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *over >= far
    }

    fn is(&self, over: Over) {
        *lock(&self.over) = over;
        self.changed.notify_all();
    }

    /// The connection to it has ended: how long its process may take to do so, and whether nobody wanted it to.
    fn ended(&self) -> (Duration, bool) {
        // Who lets go of it does not hear the answer. Letting go of one that is to carry on ends it.
        let is_let_go = self.is_let_go.load(Ordering::Acquire);
        let mut closing = lock(&self.closing);
        let (patience, is_wanted) = if matches!(*closing, Closing::No) {
            (Duration::ZERO, is_let_go)
        } else if closing.is_settled() || is_let_go {
            (RELAY_ENDED, true)
        } else {
            (Duration::ZERO, false)
        };
        drop(closing);
        if !is_wanted {
            self.doubted(Doubt::Died);
        }
        self.is(Over::Silent);
        (patience, !is_wanted)
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
                self.known.is(Over::Gone);
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
