//! Which lanes to dial, when, and with which segments. Pure: time comes in, decisions come out.
//!
//! ```text
//!            lost                     no answer
//!   Up ─────────────▶ Dialling ◀──────────────┐
//!    ▲                │   │ one lane at once, │
//!    │ all others     │   └─ then after a pause
//!    └── answered ────┘
//!   any ── link lost ──▶ NoLink ── link back ──▶ Dialling, at once
//!   Dialling ── large packets vanish in every size of segment ──▶ GivenUp, tried rarely
//! ```
//!
//! A path without a lane is dialled with one lane; when that is up, the others follow at once. So a
//! dead path costs one connection attempt at a time, and a living one is whole again within two
//! round trips.
//!
//! # Invariant
//! No count of errors gives a path up: it is dialled as long as the session runs.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use drover_session::{LaneCount, LaneId, PathSeen};
use drover_types::{Path, PathEnd, PathId};
use serde::{Deserialize, Serialize};

use super::segments::{Segments, Step};
use crate::limits::{
    GIVEN_UP_PAUSE, LOST_WITHOUT_USE, QUICK_ATTEMPTS, QUICK_PATIENCE, REDIAL_PATIENCE,
    REDIAL_PAUSES,
};

/// The time since the session began.
pub(crate) type Time = Duration;

/// One lane to dial now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dial {
    pub(crate) lane: LaneId,
    pub(crate) path: Path,
    pub(crate) segment: Option<u16>,
    /// How long to wait for a connection.
    pub(crate) patience: Duration,
}

/// What came of a dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lane is in the session.
    Up,
    /// No connection; the peer never heard of the lane's number.
    Unreachable(String),
    /// A connection, and silence on it.
    Silent(String),
    /// A connection, and a refusal.
    TurnedAway(String),
}

/// How a lane was used until it was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Payload was given to it.
    pub(crate) tried: bool,
    /// Payload of either side came through.
    pub(crate) carried: bool,
    /// None did, and small frames came meanwhile.
    pub(crate) small_only: bool,
}

/// What a path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathState {
    /// Lanes carry chunks on it.
    Up,
    /// Every lane was lost or none came up yet; it is dialled.
    Dialling,
    /// The interface at this end is down, gone, or without its address.
    NoLink,
    /// Nothing gets through on it but small packets; it is tried rarely.
    GivenUp,
}

/// A path as the dialer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// What it does.
    pub state: PathState,
    /// Why it is not up, or is not used in full.
    pub cause: Option<String>,
    /// Attempts since it was last up.
    pub attempts: u32,
    /// Segment size in use in place of the interface's, where large packets vanish.
    pub segment: Option<u16>,
}

/// What changed for a whole path, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its last lane is gone.
    Lost(PathId),
    /// It has a lane again, after this time.
    Back(PathId, Duration),
    /// Large packets vanish: this segment size from now on.
    Narrowed(PathId, u16),
    /// Large packets vanish whatever the size of segments.
    GivenUp(PathId),
}

#[derive(Debug)]
struct Dialled {
    path: Path,
    count: LaneCount,
    up: u16,
    under_way: u16,
    /// Not before this.
    due: Time,
    /// Attempts that came to nothing since something was carried.
    failures: u32,
    /// Since when there has been no lane.
    down_since: Option<Time>,
    /// Why it is not to be dialled at all.
    no_link: Option<String>,
    last: Option<String>,
    segments: Segments,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    path: PathId,
    since: Time,
}

/// The decisions of one session's dialer.
#[derive(Debug)]
pub(crate) struct Plan {
    bounds: RangeInclusive<u16>,
    paths: BTreeMap<PathId, Dialled>,
    open: BTreeMap<LaneId, Open>,
    /// Lanes that were lost before their dial was answered.
    lost_early: BTreeMap<LaneId, (Use, String)>,
    dialling: BTreeSet<LaneId>,
    /// Lanes that the session was told it can do without.
    retiring: BTreeSet<LaneId>,
    /// Not before this is room asked for again.
    room_due: Time,
    next_lane: LaneId,
    /// Numbers of which the peer never heard.
    unused: Vec<LaneId>,
    changes: Vec<Change>,
}

impl Plan {
    /// Each path begins with the fewest lanes of `bounds`; numbers from `next_lane` on are free.
    pub(crate) fn new(bounds: RangeInclusive<u16>, next_lane: LaneId) -> Self {
        Self {
            bounds,
            paths: BTreeMap::new(),
            open: BTreeMap::new(),
            lost_early: BTreeMap::new(),
            dialling: BTreeSet::new(),
            retiring: BTreeSet::new(),
            room_due: Time::ZERO,
            next_lane,
            unused: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// A path to keep lanes on, from now on.
    pub(crate) fn add_path(&mut self, now: Time, path: Path) {
        let dialled = Dialled {
            count: LaneCount::new(self.bounds.clone()),
            up: 0,
            under_way: 0,
            due: now,
            failures: 0,
            down_since: Some(now),
            no_link: None,
            last: None,
            segments: Segments::default(),
            path,
        };
        self.paths.entry(dialled.path.id).or_insert(dialled);
    }

    /// A lane could not be opened before the dialer began: it is dialled again at once. Such lanes of
    /// one path were tried together, and silence counts once.
    pub(crate) fn not_opened(&mut self, path: PathId, reason: &str, silent: bool) {
        if let Some(dialled) = self.paths.get_mut(&path)
            && dialled.last.replace(reason.to_owned()).is_none()
            && silent
        {
            dialled.segments.stalled(None);
        }
    }

    /// A lane that was opened before the dialer began.
    pub(crate) fn opened(&mut self, now: Time, lane: LaneId, path: PathId) {
        if let Some(dialled) = self.paths.get_mut(&path) {
            dialled.up += 1;
            dialled.down_since = None;
            self.open.insert(lane, Open { path, since: now });
        }
    }

    /// The next lane to dial now.
    pub(crate) fn next(&mut self, now: Time) -> Option<Dial> {
        if self.is_full() {
            return None;
        }
        let most = self.most();
        let ready = |dialled: &&mut Dialled| dialled.wants(most) && dialled.due <= now;
        // The path with the fewest lanes first, so that every one gets its first before others get
        // their last.
        let dialled = self
            .paths
            .values_mut()
            .filter(ready)
            .min_by_key(|p| p.up + p.under_way)?;
        let lane = match self.unused.pop() {
            Some(lane) => lane,
            None => {
                let lane = self.next_lane;
                // A lane each millisecond uses them up in 49 days, and by then both ends have
                // forgotten the first.
                self.next_lane = lane.wrapping_add(1);
                lane
            }
        };
        dialled.under_way += 1;
        self.dialling.insert(lane);
        Some(Dial {
            lane,
            path: dialled.path.clone(),
            segment: dialled.segments.size(),
            patience: match dialled.failures {
                0..QUICK_ATTEMPTS => QUICK_PATIENCE,
                _ => REDIAL_PATIENCE,
            },
        })
    }

    /// When [`Plan::next`] may have something to dial, or [`Plan::make_room`] a lane to retire.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.is_full() {
            return self.waits_for_room().then_some(self.room_due);
        }
        let most = self.most();
        let waiting = self.paths.values().filter(|p| p.wants(most));
        waiting.map(|p| p.due).min()
    }

    /// Whether numbers of lanes are tried out at all.
    pub(crate) fn tries(&self) -> bool {
        self.bounds.start() < self.bounds.end()
    }

    /// A look at what a path and all others have carried: a lane that it can do without, if there is
    /// one.
    pub(crate) fn look(
        &mut self,
        now: Time,
        path: PathId,
        [bytes, others]: [u64; 2],
        busy: bool,
    ) -> Option<LaneId> {
        let dialled = self.paths.get_mut(&path)?;
        let lanes = dialled.up;
        let seen = PathSeen {
            lanes,
            bytes,
            others,
            busy,
        };
        let wanted = dialled.count.look(now, seen);
        let mut own = self.open.iter().filter(|(_, open)| open.path == path);
        let leaves = own.clone().any(|(lane, _)| self.retiring.contains(lane));
        let (lane, _) = own.next_back().filter(|_| lanes > wanted && !leaves)?;
        self.retiring.insert(*lane);
        Some(*lane)
    }

    /// A lane was retired.
    pub(crate) fn retired(&mut self, lane: LaneId) {
        self.retiring.remove(&lane);
        let open = self.open.remove(&lane);
        if let Some(dialled) = open.and_then(|open| self.paths.get_mut(&open.path)) {
            dialled.up -= 1;
        }
    }

    /// What came of a dial.
    pub(crate) fn answered(&mut self, now: Time, dial: &Dial, answer: Answer) {
        self.dialling.remove(&dial.lane);
        let Some(dialled) = self.paths.get_mut(&dial.path.id) else {
            return;
        };
        dialled.under_way -= 1;
        match answer {
            Answer::Up => {
                let (path, since) = (dial.path.id, now);
                self.open.insert(dial.lane, Open { path, since });
                dialled.up += 1;
                dialled.due = now;
                if let Some(since) = dialled.down_since.take() {
                    let lasted = now.saturating_sub(since);
                    self.changes.push(Change::Back(path, lasted));
                }
                if let Some((used, reason)) = self.lost_early.remove(&dial.lane) {
                    self.lost(now, dial.lane, used, &reason);
                }
            }
            Answer::Unreachable(reason) => {
                self.unused.push(dial.lane);
                dialled.failed(now, reason);
            }
            Answer::TurnedAway(reason) => dialled.failed(now, reason),
            Answer::Silent(reason) => {
                dialled.failed(now, reason);
                let step = dialled.segments.stalled(dial.segment);
                self.narrowed(now, dial.path.id, step);
            }
        }
    }

    /// A lane is gone, whatever the reason.
    pub(crate) fn lost(&mut self, now: Time, lane: LaneId, used: Use, reason: &str) {
        let Some(Open { path, since }) = self.open.remove(&lane) else {
            if self.dialling.contains(&lane) {
                self.lost_early.insert(lane, (used, reason.to_owned()));
            }
            return;
        };
        let Some(dialled) = self.paths.get_mut(&path) else {
            return;
        };
        dialled.up -= 1;
        self.retiring.remove(&lane);
        dialled.last = Some(reason.to_owned());
        if used.carried {
            dialled.failures = 0;
            dialled.due = now;
            dialled.segments.carried();
        } else {
            dialled.failed(now, reason.to_owned());
        }
        if dialled.up == 0 && dialled.down_since.is_none() {
            dialled.down_since = Some(now);
            self.changes.push(Change::Lost(path));
        }
        // A path that was cut just after the lane was opened lets small packets through as little.
        let stalled = used.tried && !used.carried && used.small_only;
        let for_long = now.saturating_sub(since) >= LOST_WITHOUT_USE;
        if stalled && for_long && dialled.no_link.is_none() {
            let step = dialled.segments.lane_stalled(since, now);
            self.narrowed(now, path, step);
        }
    }

    fn narrowed(&mut self, now: Time, path: PathId, step: Step) {
        let Some(dialled) = self.paths.get_mut(&path) else {
            return;
        };
        match step {
            Step::Same => {}
            Step::To(segment) => {
                dialled.due = now;
                self.changes.push(Change::Narrowed(path, segment));
            }
            Step::GivenUp => {
                dialled.due = now + GIVEN_UP_PAUSE;
                self.changes.push(Change::GivenUp(path));
            }
        }
    }

    /// The interface at this end carries nothing; why.
    pub(crate) fn link_lost(&mut self, path: PathId, reason: &str) {
        if let Some(dialled) = self.paths.get_mut(&path) {
            dialled.no_link = Some(reason.to_owned());
        }
    }

    /// The interface at this end is there, by this name and address: dial at once.
    pub(crate) fn link_back(&mut self, now: Time, path: PathId, source: PathEnd) {
        if let Some(dialled) = self.paths.get_mut(&path) {
            dialled.path.source = source;
            dialled.no_link = None;
            dialled.failures = 0;
            dialled.due = now;
            // It may be another cable, or another network.
            dialled.segments = Segments::default();
        }
    }

    /// What changed for paths since this was last asked.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Every path, by its number.
    pub(crate) fn report(&self) -> Vec<PathReport> {
        self.paths.values().map(Dialled::report).collect()
    }
}

impl Dialled {
    fn wants(&self, most: u16) -> bool {
        // With none up, one is dialled to find out.
        let wanted = if self.up == 0 { 1 } else { self.count.wanted() };
        self.no_link.is_none() && self.up + self.under_way < wanted.min(most)
    }

    /// Without a lane, and none is to be expected soon.
    fn is_dead(&self) -> bool {
        let failed = self.failures >= QUICK_ATTEMPTS || self.segments.given_up();
        self.up == 0 && (self.no_link.is_some() || failed)
    }

    fn failed(&mut self, now: Time, reason: String) {
        self.last = Some(reason);
        if self.due > now {
            return; // lanes that fail together fail once
        }
        let longest = REDIAL_PAUSES.len() - 1;
        let pause = if self.segments.given_up() {
            GIVEN_UP_PAUSE
        } else {
            REDIAL_PAUSES[(self.failures as usize).min(longest)]
        };
        self.failures = self.failures.saturating_add(1);
        self.due = now + pause;
    }

    fn report(&self) -> PathReport {
        let (state, cause) = match &self.no_link {
            Some(reason) => (PathState::NoLink, Some(reason.clone())),
            None if self.up > 0 => (PathState::Up, self.segments.in_words()),
            None if self.segments.given_up() => (PathState::GivenUp, self.segments.in_words()),
            None => (PathState::Dialling, self.last.clone()),
        };
        PathReport {
            path: self.path.id,
            state,
            cause,
            attempts: if self.up > 0 { 0 } else { self.failures },
            segment: self.segments.size(),
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
