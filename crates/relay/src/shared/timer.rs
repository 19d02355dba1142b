//! The relay's clock: it calls the session when that wants to be called again.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use drover_session::Input;

use super::{Core, Shared};

impl Shared {
    /// Deadlines come and go with every chunk; the timer's thread is woken only where it would
    /// oversleep one, and looks for itself when it is awake.
    pub(super) fn wait_until(&self, core: &mut Core, deadline: Option<Duration>) {
        core.deadline = deadline;
        let oversleeps = |until| deadline.is_some_and(|deadline| deadline < until);
        if core.timer_sleeps.is_some_and(oversleeps) {
            core.timer_sleeps = None; // once is enough
            self.timer.notify_one();
        }
    }

    pub(crate) fn run_timer(self: &Arc<Self>) {
        let mut core = self.lock();
        while !core.terminated {
            let now = self.now();
            if core.close_at.is_some_and(|at| at <= now) {
                drop(core);
                return self.terminate();
            }
            if core.goodput.next_at() <= now {
                let stats = core.session.stats(now);
                let carried = stats.confirmed_bytes().max(stats.written_bytes());
                core.goodput.note(now, carried);
            }
            if core.deadline.is_some_and(|at| at <= now) {
                core.deadline = None;
                drop(core);
                self.step_or_end(Input::Tick);
                core = self.lock();
                continue;
            }
            let others = [core.close_at, core.deadline].into_iter().flatten();
            let next = others.fold(core.goodput.next_at(), Duration::min);
            core.timer_sleeps = Some(next);
            let waited = self.timer.wait_timeout(core, next.saturating_sub(now));
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
            core.timer_sleeps = None;
        }
    }
}
