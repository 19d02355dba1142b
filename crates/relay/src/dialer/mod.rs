//! Keeps the lanes of a session: dials those that are lost again, and those of paths that join.
//!
//! Owns a thread that waits for what is due, and one thread for each lane being dialled; what is
//! dialled and when is decided in [`plan`]. The accepting side has no dialer.

mod plan;
mod segments;

pub use plan::{PathReport, PathState};

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use drover_session::LaneId;
use drover_types::{Path, PathEnd, PathId};

use crate::handshake::{NotOpened, Opened, Order};
use crate::limits::LANE_LOOK;
use crate::open_lane;
use crate::pool::lock;
use crate::report::Event;
use crate::shared::{Shared, spawn};
use plan::{Answer, Change, Dial, Plan};

pub(crate) use plan::Use;

struct State {
    plan: Plan,
    stopped: bool,
}

/// Dials for one session until it is stopped.
pub(crate) struct Dialer {
    order: Order,
    state: Mutex<State>,
    /// Something may be due.
    wake: Condvar,
    shared: Weak<Shared>,
}

impl Dialer {
    /// Keeps `order.lanes_per_path` lanes on each of the order's paths; `opened` are those that
    /// the session has already.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        order: Order,
        opened: &Opened,
    ) -> io::Result<Arc<Self>> {
        let now = shared.now();
        let attempted = opened.lanes.len() + opened.failures.len();
        let fewest = order.lanes_per_path.max(1);
        let bounds = fewest..=order.lanes_most.max(fewest);
        let mut plan = Plan::new(bounds, attempted as LaneId);
        for path in &order.paths {
            plan.add_path(now, path.clone());
        }
        for failure in &opened.failures {
            plan.not_opened(failure.path, &failure.reason, failure.silent);
        }
        for (lane, _) in &opened.lanes {
            plan.opened(now, lane.lane, lane.path);
        }
        let dialer = Arc::new(Self {
            order,
            state: Mutex::new(State {
                plan,
                stopped: false,
            }),
            wake: Condvar::new(),
            shared: Arc::downgrade(shared),
        });
        let running = dialer.clone();
        spawn("dial", move || running.run())?;
        if lock(&dialer.state).plan.tries() {
            let counting = dialer.clone();
            spawn("count", move || counting.count())?;
        }
        Ok(dialer)
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.wake.notify_all();
    }

    pub(crate) fn report(&self) -> Vec<PathReport> {
        lock(&self.state).plan.report()
    }

    /// A lane of the session is gone.
    pub(crate) fn lost(&self, lane: LaneId, used: Use, reason: &str) {
        self.with_plan(|plan, now| plan.lost(now, lane, used, reason));
    }

    pub(crate) fn add_path(&self, path: Path) {
        self.with_plan(|plan, now| plan.add_path(now, path));
    }

    pub(crate) fn link_lost(&self, path: PathId, reason: &str) {
        self.with_plan(|plan, _| plan.link_lost(path, reason));
    }

    pub(crate) fn link_back(&self, path: PathId, source: PathEnd) {
        self.with_plan(|plan, now| plan.link_back(now, path, source));
    }

    fn with_plan(&self, change: impl FnOnce(&mut Plan, Duration)) {
        if let Some(shared) = self.shared.upgrade() {
            change(&mut lock(&self.state).plan, shared.now());
            self.wake.notify_all();
        }
    }

    fn run(self: &Arc<Self>) {
        loop {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let mut state = lock(&self.state);
            if state.stopped {
                return;
            }
            let now = shared.now();
            while let Some(dial) = state.plan.next(now) {
                self.dial(&mut state, now, dial);
            }
            let (spare, changes) = (state.plan.make_room(now), state.plan.changes());
            if spare.is_empty() && changes.is_empty() {
                drop(shared);
                self.wait(state, now);
                continue;
            }
            let events = events(&state.plan, changes);
            drop(state);
            events.into_iter().for_each(|event| shared.tell(event));
            spare.into_iter().for_each(|lane| shared.retire(lane));
        }
    }

    /// Looks at what each path carries, and finds out how many lanes it should have.
    fn count(&self) {
        loop {
            std::thread::sleep(LANE_LOOK);
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let carried = shared.carried();
            let mut state = lock(&self.state);
            if state.stopped {
                return;
            }
            let now = shared.now();
            let all: u64 = carried.values().map(|(bytes, _)| bytes).sum();
            let looks = carried.into_iter();
            let spare = looks.filter_map(|(path, (bytes, busy))| {
                state.plan.look(now, path, [bytes, all - bytes], busy)
            });
            let spare: Vec<LaneId> = spare.collect();
            drop(state);
            self.wake.notify_all();
            for lane in spare {
                shared.retire(lane);
            }
        }
    }

    /// A lane was closed because its path can do without it.
    pub(crate) fn retired(&self, lane: LaneId) {
        self.with_plan(|plan, _| plan.retired(lane));
    }

    /// Waits until something is due or has changed.
    fn wait(&self, state: std::sync::MutexGuard<'_, State>, now: Duration) {
        match state.plan.deadline() {
            Some(at) => {
                let pause = at.saturating_sub(now);
                let waited = self.wake.wait_timeout(state, pause);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            None => drop(
                self.wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            ),
        }
    }

    fn dial(self: &Arc<Self>, state: &mut State, now: Duration, dial: Dial) {
        let (dialler, work) = (self.clone(), dial.clone());
        let started = spawn("dial-lane", move || {
            let answer = dialler.attempt(&work);
            dialler.with_plan(|plan, now| plan.answered(now, &work, answer));
        });
        if let Err(error) = started {
            let reason = format!("no thread could be started to dial: {error}");
            state.plan.answered(now, &dial, Answer::Unreachable(reason));
        }
    }

    fn attempt(&self, dial: &Dial) -> Answer {
        let mut plan = self.order.plan(dial.lane, &dial.path);
        plan.target.segment = dial.segment;
        plan.target.patience = dial.patience;
        match open_lane(&self.order, &plan) {
            Ok(lane) => {
                let Some(shared) = self.shared.upgrade() else {
                    return Answer::TurnedAway("the session is over".into());
                };
                match shared.add_lane(plan.lane, plan.path, lane) {
                    Ok(()) => Answer::Up,
                    Err(refused) => Answer::TurnedAway(refused.to_string()),
                }
            }
            Err(NotOpened::Unreachable(reason)) => Answer::Unreachable(reason),
            Err(NotOpened::Silent(reason)) => Answer::Silent(reason),
            Err(NotOpened::TurnedAway(reason)) => Answer::TurnedAway(reason),
        }
    }
}

fn events(plan: &Plan, changes: Vec<Change>) -> Vec<Event> {
    let report = plan.report();
    let cause = |path: PathId| {
        let found = report.iter().find(|report| report.path == path);
        found
            .and_then(|report| report.cause.clone())
            .unwrap_or_default()
    };
    let event = |change| match change {
        Change::Lost(path) => Event::PathLost {
            path,
            reason: cause(path),
        },
        Change::Back(path, lasted) => Event::PathBack { path, lasted },
        Change::Narrowed(path, segment) => Event::PathNarrowed { path, segment },
        Change::GivenUp(path) => Event::PathGivenUp {
            path,
            reason: cause(path),
        },
    };
    changes.into_iter().map(event).collect()
}
