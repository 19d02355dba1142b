//! Who waits for disks: one thread for those who want an answer, and two for what nobody waits for, of which one lets go of large files. So
//! a disk that hangs has three threads at the most, whatever is asked of it meanwhile. A fourth waits for who writes files.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::NoCheckpoint;
use crate::limits::{CHECKPOINTS_ASKED, CHECKPOINTS_DEFERRED};

/// What is to be done.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// A thread that does what is asked, one after the other. It ends with this, or when its disk answers.
#[derive(Debug)]
pub(super) struct DiskThread {
    /// With how many there were so far.
    asked: Mutex<(u64, SyncSender<Work>)>,
    /// The last one that nobody waits for any more.
    given_up: AtomicU64,
    done: Arc<AtomicU64>,
}

impl DiskThread {
    /// # Errors
    /// No thread could be started.
    pub(super) fn start() -> io::Result<Self> {
        let (asked, all) = sync_channel(CHECKPOINTS_ASKED);
        let done = Arc::<AtomicU64>::default();
        let own = done.clone();
        thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || work_off(&all, &own))?;
        Ok(Self {
            asked: Mutex::new((0, asked)),
            given_up: AtomicU64::new(0),
            done,
        })
    }

    /// What comes of it. Where that takes too long it is done all the same, and dropped; until then nobody else waits at all.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce() -> Result<T, NoCheckpoint> + Send + 'static,
    ) -> Result<T, NoCheckpoint> {
        // Without room: it is taken, or comes back to who gives it.
        let (answer, answered) = sync_channel(0);
        let number = self.add(Box::new(move || drop(answer.send(work()))))?;
        answered.recv_timeout(patience).unwrap_or_else(|_| {
            self.given_up.fetch_max(number, Ordering::AcqRel);
            Err(NoCheckpoint::Stalled(patience))
        })
    }

    fn add(&self, work: Work) -> Result<u64, NoCheckpoint> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.given_up.load(Ordering::Acquire) > self.done.load(Ordering::Acquire) {
            return Err(NoCheckpoint::Hangs);
        }
        asked.1.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) => NoCheckpoint::Busy(CHECKPOINTS_ASKED),
            // It outlives whatever it is asked.
            TrySendError::Disconnected(_) => NoCheckpoint::Hangs,
        })?;
        asked.0 += 1;
        Ok(asked.0)
    }
}

fn work_off(all: &Receiver<Work>, done: &AtomicU64) {
    while let Ok(work) = all.recv() {
        carry_out(work);
        done.fetch_add(1, Ordering::AcqRel);
    }
}

/// A mistake in one of them is no reason for others not to be done.
fn carry_out(work: Work) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("work on a file of checkpoints has failed by a mistake of this program");
    }
}

/// What nobody waits for, and the thread that does it, one after the other. It ends with this, once all of it is done.
#[derive(Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    at_work: bool,
    is_over: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Queue {
    /// With a thread of this name.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || own.work_off())?;
        Ok(Self(shared))
    }

    /// Has it done after all that waits.
    ///
    /// # Errors
    /// It comes back: [`CHECKPOINTS_DEFERRED`] wait already.
    pub(super) fn add(&self, work: impl FnOnce() + Send + 'static) -> Result<(), Work> {
        let work = Box::new(work);
        let mut state = self.0.lock();
        if state.waiting.len() == CHECKPOINTS_DEFERRED {
            return Err(work);
        }
        state.waiting.push_back(work);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Waits until all of it is done, or for so long; whether it is.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        self.wait_while(patience, || true)
    }

    /// Waits while this is true and something is not done, or for so long; whether neither is so any more. It is looked at each time that
    /// one of it is done, and waits for nothing.
    pub(super) fn wait_while(&self, patience: Duration, is_needed: impl Fn() -> bool) -> bool {
        let waits = |state: &mut State| {
            let is_busy = state.at_work || !state.waiting.is_empty();
            is_busy && is_needed()
        };
        let changed = &self.0.changed;
        let waited = changed.wait_timeout_while(self.0.lock(), patience, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !waits(&mut state)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn work_off(&self) {
        while let Some(work) = self.next() {
            carry_out(work);
        }
    }

    /// The next one, as soon as there is one; none when there will be none any more.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        state.at_work = false;
        self.changed.notify_all();
        let idle = |state: &mut State| state.waiting.is_empty() && !state.is_over;
        let waited = self.changed.wait_while(state, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let next = state.waiting.pop_front();
        state.at_work = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn while_a_disk_hangs_nobody_else_waits_for_it_and_afterwards_all_goes_on() {
        let thread = DiskThread::start().unwrap();
        let (end, hangs) = channel::<()>();
        let late = thread.ask(Duration::ZERO, move || {
            let _ = hangs.recv();
            Ok(())
        });
        assert!(matches!(late, Err(NoCheckpoint::Stalled(_))));
        // However many: none of them is even taken.
        for _ in 0..10 * CHECKPOINTS_ASKED {
            let refused = thread.ask(Duration::MAX, || Ok(()));
            assert!(matches!(refused, Err(NoCheckpoint::Hangs)));
        }
        drop(end);
        let until = Instant::now() + Duration::from_secs(20);
        while thread.ask(Duration::from_secs(20), || Ok(())).is_err() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        let mistaken = thread.ask::<()>(Duration::from_secs(20), || panic!("a mistake"));
        assert!(mistaken.is_err());
        while thread.ask(Duration::from_secs(20), || Ok(7)).is_err() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }

    #[test]
    fn what_nobody_waits_for_is_done_in_order_by_one_and_what_is_too_much_comes_back() {
        let queue = Queue::start("tested").unwrap();
        let (begin, begun) = channel();
        let (end, hangs) = channel::<()>();
        let added = queue.add(move || {
            begin.send(()).unwrap();
            let _ = hangs.recv();
        });
        assert!(added.is_ok());
        begun.recv().unwrap();
        let (tell, told) = channel();
        for number in 0..CHECKPOINTS_DEFERRED + 3 {
            let tell = tell.clone();
            let added = queue.add(move || tell.send(number).unwrap());
            assert_eq!(added.is_ok(), number < CHECKPOINTS_DEFERRED);
        }
        assert!(!queue.wait(Duration::ZERO));
        drop(end);
        assert!(queue.wait(Duration::from_secs(20)));
        let done: Vec<_> = told.try_iter().collect();
        assert!(done.into_iter().eq(0..CHECKPOINTS_DEFERRED));
        assert!(queue.add(|| panic!("a mistake")).is_ok());
        assert!(queue.add(move || tell.send(7).unwrap()).is_ok());
        assert!(queue.wait(Duration::from_secs(20)));
        assert_eq!(told.try_recv(), Ok(7));
    }
}
