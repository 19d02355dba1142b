//! Work on one direction of one socket: in order, by one thread at a time.
//!
//! Every direction has a thread of its own, which may wait for the socket. But to wake a thread
//! costs more than to do what it would do, so a thread that brings work tries to do it by itself
//! first, as far as it goes without waiting. Who works holds the tool; there is one.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::pool::lock;

#[derive(Debug)]
pub(crate) struct Turns<Tool, Job> {
    state: Mutex<State<Tool, Job>>,
    called: Condvar,
}

#[derive(Debug)]
struct State<Tool, Job> {
    /// Absent while somebody works.
    tool: Option<Tool>,
    jobs: VecDeque<Job>,
    /// The thread of its own sleeps, and nobody has called it since.
    sleeps: bool,
    closed: bool,
}

impl<Tool, Job> Turns<Tool, Job> {
    pub(crate) fn new(tool: Tool) -> Arc<Self> {
        let state = State {
            tool: Some(tool),
            jobs: VecDeque::new(),
            sleeps: false,
            closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            called: Condvar::new(),
        })
    }

    /// Takes the tool, and the first job; `None` when somebody else is at work, or nothing to do.
    pub(crate) fn begin(&self) -> Option<(Tool, Job)> {
        let mut state = lock(&self.state);
        if state.jobs.is_empty() {
            return None;
        }
        let tool = state.tool.take()?;
        Some((tool, state.jobs.pop_front()?))
    }

    /// The next job for who has the tool, which is laid down when there is none.
    pub(crate) fn next(&self, tool: Tool) -> Option<(Tool, Job)> {
        let mut state = lock(&self.state);
        if let Some(job) = state.jobs.pop_front() {
            return Some((tool, job));
        }
        state.tool = Some(tool);
        if state.closed {
            self.call_locked(state);
        }
        None
    }

    /// Lays the tool down, for the thread of its own to go on with this job.
    pub(crate) fn leave(&self, tool: Tool, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_front(job);
        state.tool = Some(tool);
        self.call_locked(state);
    }

    /// Calls the thread of its own.
    pub(crate) fn call(&self) {
        self.call_locked(lock(&self.state));
    }

    fn call_locked(&self, mut state: std::sync::MutexGuard<'_, State<Tool, Job>>) {
        if std::mem::take(&mut state.sleeps) {
            drop(state);
            self.called.notify_one();
        }
    }

    /// For the thread of its own: waits for a job that nobody does; `None` when none will come.
    pub(crate) fn wait(&self) -> Option<(Tool, Job)> {
        let mut state = lock(&self.state);
        loop {
            if state.tool.is_some() {
                if let Some(job) = state.jobs.pop_front() {
                    return Some((state.tool.take()?, job));
                }
                if state.closed {
                    return None;
                }
            }
            state.sleeps = true;
            state = self
                .called
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.sleeps = false;
        }
    }
}

/// Who brings the work. When it is gone, the thread of its own ends.
#[derive(Debug)]
pub(crate) struct Bringer<Tool, Job>(Arc<Turns<Tool, Job>>);

impl<Tool, Job> Bringer<Tool, Job> {
    pub(crate) fn new(turns: Arc<Turns<Tool, Job>>) -> Self {
        Self(turns)
    }

    /// Brings a job; returned is where somebody has to begin, or be called, as nobody is at work.
    #[must_use]
    pub(crate) fn bring(&self, job: Job) -> Option<Arc<Turns<Tool, Job>>> {
        let mut state = lock(&self.0.state);
        state.jobs.push_back(job);
        state.tool.is_some().then(|| self.0.clone())
    }
}

impl<Tool, Job> Drop for Bringer<Tool, Job> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        self.0.call_locked(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn turns() -> (Arc<Turns<(), u32>>, Bringer<(), u32>) {
        let turns = Turns::new(());
        (turns.clone(), Bringer::new(turns))
    }

    #[test]
    fn one_works_at_a_time_and_in_order() {
        let (turns, bringer) = turns();
        assert!(turns.begin().is_none());
        assert!(bringer.bring(1).is_some());
        let ((), first) = turns.begin().unwrap();
        // Who is at work will see it.
        assert!(bringer.bring(2).is_none());
        assert!(turns.begin().is_none());
        let ((), second) = turns.next(()).unwrap();
        assert_eq!((first, second), (1, 2));
        assert!(turns.next(()).is_none());
        assert!(bringer.bring(3).is_some());
    }

    #[test]
    fn what_is_left_is_done_first_by_the_thread_of_its_own() {
        let (turns, bringer) = turns();
        let (tell, told) = channel();
        let own = turns.clone();
        let thread = thread::spawn(move || {
            while let Some(((), job)) = own.wait() {
                tell.send(job).unwrap();
                let mut more = own.next(());
                while let Some(((), job)) = more {
                    tell.send(job).unwrap();
                    more = own.next(());
                }
            }
        });
        let begun = loop {
            let _ = bringer.bring(1);
            if let Some(((), job)) = turns.begin() {
                break job;
            }
        };
        let _ = bringer.bring(2);
        turns.leave((), begun);
        drop(bringer);
        thread.join().unwrap();
        let done: Vec<u32> = told.iter().collect();
        assert!(done.ends_with(&[1, 2]), "{done:?}");
    }

    #[test]
    fn the_thread_of_its_own_ends_only_when_nobody_works_any_more() {
        let (turns, bringer) = turns();
        let _ = bringer.bring(1);
        let ((), job) = turns.begin().unwrap();
        drop(bringer);
        let own = turns.clone();
        let thread = thread::spawn(move || own.wait().map(|((), job)| job));
        turns.leave((), job);
        assert_eq!(thread.join().unwrap(), Some(1));
        assert!(turns.next(()).is_none() && turns.wait().is_none());
    }
}
