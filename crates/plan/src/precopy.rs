//! What a precopy migration carries and how long it takes, before it has begun.
//!
//! The rounds are `drover_migrate::precopy`'s; the guest has written to `memory_used`, and writes to its working set
//! at its dirty rate. The downtime is what is carried in it, and what the hand-off takes.
//!
//! The range is not one of confidence. It is what comes out when the dirty rate is half and twice
//! what was sampled, the working set half as large again, and the lines carry the least and the most
//! that was measured of them. Without a sample the guest is taken to dirty a tenth of the rate, between
//! nothing and half of it.
//!
//! Disks that are copied with the guest are carried before its memory, which a deadline counts as well: what was written to of them, and at
//! most all of them. What the guest writes to them meanwhile is not known beforehand.
//!
//! While a migration runs, `drover-migrate` says what is left from what it has seen; this is the word
//! before that.

use std::time::Duration;

use drover_migrate::limits::HAND_OFF;
use drover_migrate::precopy::{self, Precopy};
use drover_types::AtDeadline;
use serde::{Deserialize, Serialize};

use crate::inventory::{CopyDeadline, Disks, Vm, VmState};
use crate::limits::{FARTHEST, LINE_PERCENT, PREPARING};

/// A number that is not known exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// At least.
    pub least: u64,
    /// Rather.
    pub expected: u64,
    /// At most.
    pub most: u64,
}

impl Range {
    /// The longer of two, at each end.
    pub(crate) fn longer(self, other: Self) -> Self {
        Self {
            least: self.least.max(other.least),
            expected: self.expected.max(other.expected),
            most: self.most.max(other.most),
        }
    }

    fn of([expected, one, other]: [u64; 3]) -> Self {
        Self {
            least: expected.min(one).min(other),
            expected,
            most: expected.max(one).max(other),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            expected: self.expected.saturating_add(other.expected),
            most: self.most.saturating_add(other.most),
        }
    }
}

/// How a migration ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convergence {
    /// By itself.
    ByItself,
    /// With the guest slowed down.
    Throttled,
    /// Not within the downtime limit, even so.
    BeyondLimit,
    /// Not at all: it has not ended by its deadline, and is given up then.
    GivenUp,
    /// It has not ended by its deadline, and stands still from then on until the rest is there.
    StoppedForTheRest,
    /// It has not ended by its deadline: it goes on at the destination then, and its pages follow.
    ByPostcopy,
}

impl Convergence {
    fn is_at_the_deadline(self) -> bool {
        matches!(
            self,
            Self::GivenUp | Self::StoppedForTheRest | Self::ByPostcopy
        )
    }
}

/// What is expected of one migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    /// Bytes that are carried.
    pub bytes: Range,
    /// Milliseconds from the order to move until the guest runs at the destination with all of its memory.
    pub ms: Range,
    /// Milliseconds that the guest stands still.
    pub downtime_ms: Range,
    /// How it is expected to end.
    pub convergence: Convergence,
}

/// The time that a line of so many bits per second needs, in milliseconds; at most [`FARTHEST`].
pub(crate) fn millis(bytes: u64, bits_per_second: u64) -> u64 {
    let time = u128::from(bytes) * 8 * 1000 / u128::from(bits_per_second.max(1));
    u64::try_from(time).unwrap_or(u64::MAX).min(farthest())
}

fn farthest() -> u64 {
    u64::try_from(FARTHEST.as_millis()).unwrap_or(u64::MAX)
}

/// What a migration over a line of `bits_per_second` is expected to carry.
pub(crate) fn expected_bytes(vm: &Vm, bits_per_second: u64) -> u64 {
    run(&case(vm, bits_per_second, 0)).bytes
}

/// What is expected of a migration that has a line of `bits_per_second` for itself.
#[must_use]
pub fn forecast(vm: &Vm, bits_per_second: u64) -> Forecast {
    let ends = [0, 1, 2].map(|which| run(&case(vm, bits_per_second, which)));
    let range = |part: fn(&End) -> u64| Range::of([0, 1, 2].map(|which| part(&ends[which])));
    Forecast {
        bytes: range(|end| end.bytes),
        ms: range(|end| end.ms),
        downtime_ms: range(|end| end.downtime_ms),
        convergence: ends[0].convergence,
    }
}

/// What of its time is for disks that are copied with it, over a line of `bits_per_second`, in milliseconds.
pub(crate) fn disk_ms(vm: &Vm, bits_per_second: u64) -> Range {
    let ms = |which| {
        let case = case(vm, bits_per_second, which);
        millis(case.disk_bytes, case.rate.saturating_mul(8))
    };
    Range::of([0, 1, 2].map(ms))
}

/// One way it can go.
struct Case {
    /// Of disks, which are carried first.
    disk_bytes: u64,
    /// Of memory.
    bytes: u64,
    /// Bytes per second.
    rate: u64,
    /// Bytes per second.
    dirty_rate: u64,
    working_set: u64,
    limit_ms: u64,
    throttle_most: u64,
    deadline: Option<CopyDeadline>,
}

struct End {
    bytes: u64,
    ms: u64,
    downtime_ms: u64,
    convergence: Convergence,
}

/// `which` as in [`LINE_PERCENT`]: expected, worst, best.
fn case(vm: &Vm, bits_per_second: u64, which: usize) -> Case {
    let rate = u128::from(bits_per_second) * u128::from(LINE_PERCENT[which]) / 800;
    let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
    let dirty_rate = match (vm.state, vm.dirty_rate) {
        (VmState::Running, Some(sampled)) => {
            [sampled.0, sampled.0.saturating_mul(2), sampled.0 / 2][which]
        }
        (VmState::Running, None) => [rate / 10, rate / 2, 0][which],
        _ => 0,
    };
    let working_set = vm.working_set.map_or(vm.memory_used.0, |set| {
        let more = set.0.saturating_add(set.0 / 2);
        [set.0, more, set.0][which].min(vm.memory.0)
    });
    let disk_bytes = vm.disks.map_or(0, |disks| {
        let Disks { size, allocated } = disks;
        [allocated, size.max(allocated), allocated][which].0
    });
    Case {
        disk_bytes,
        bytes: vm.memory_used.0,
        rate,
        dirty_rate,
        working_set,
        limit_ms: vm.downtime_limit_ms,
        throttle_most: vm.throttle_most.map_or(0, |most| most.get().into()),
        deadline: vm.deadline,
    }
}

fn run(case: &Case) -> End {
    let precopy = Precopy {
        left: case.bytes,
        begun: Duration::ZERO,
        rate: case.rate,
        dirtied: |time: Duration| {
            let dirtied = u128::from(case.dirty_rate) * time.as_micros() / 1_000_000;
            let dirtied = u64::try_from(dirtied).unwrap_or(u64::MAX);
            dirtied.min(case.working_set)
        },
        limit: Duration::from_millis(case.limit_ms),
        throttle: [0, case.throttle_most],
    };
    let end = precopy.end();
    let stopped = end.stopped.saturating_add(HAND_OFF);
    let disks = Duration::from_millis(millis(case.disk_bytes, case.rate.saturating_mul(8)));
    let convergence = convergence(&end, disks, case.deadline);
    let (bytes, copied, downtime) = match case.deadline {
        Some(deadline) if convergence.is_at_the_deadline() => {
            let deadline = Duration::from_secs(deadline.seconds.get());
            let standing = precopy.standing(deadline.saturating_sub(disks));
            let rest = standing.left.min(case.bytes);
            let carried = Duration::from_millis(millis(rest, case.rate.saturating_mul(8)));
            let bytes = standing.bytes.saturating_add(rest);
            match convergence {
                Convergence::ByPostcopy => (bytes, deadline.saturating_add(carried), HAND_OFF),
                Convergence::GivenUp => (standing.bytes, deadline, Duration::ZERO),
                _ => (bytes, deadline, carried.saturating_add(HAND_OFF)),
            }
        }
        _ => (end.bytes, disks.saturating_add(end.before), stopped),
    };
    let bytes = bytes.saturating_add(case.disk_bytes);
    let ms = |time: Duration| u64::try_from(time.min(FARTHEST).as_millis()).unwrap_or(u64::MAX);
    End {
        bytes,
        ms: ms(PREPARING.saturating_add(copied).saturating_add(downtime)),
        downtime_ms: ms(downtime),
        convergence,
    }
}

fn convergence(end: &precopy::End, disks: Duration, deadline: Option<CopyDeadline>) -> Convergence {
    let passes = |deadline: &CopyDeadline| {
        !end.fits || disks.saturating_add(end.before) > Duration::from_secs(deadline.seconds.get())
    };
    let then = deadline.filter(passes).map(|deadline| deadline.then);
    match (then, end.throttle) {
        (Some(AtDeadline::GiveUp), _) => Convergence::GivenUp,
        (Some(AtDeadline::StopAndCopy), _) => Convergence::StoppedForTheRest,
        (Some(AtDeadline::Postcopy), _) => Convergence::ByPostcopy,
        (None, _) if !end.fits => Convergence::BeyondLimit,
        (None, 0) => Convergence::ByItself,
        (None, _) => Convergence::Throttled,
    }
}
