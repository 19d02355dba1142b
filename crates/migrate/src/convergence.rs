//! Bringing a migration to its end: the stop that is aimed at, and what is done at the deadline.
//!
//! The guest is slowed down by the hypervisor itself, which is told so when it begins. What is left to do
//! meanwhile is decided here from looks at it, and from nothing else: an agent that is started again in the
//! middle goes on with the next look.

use std::time::Duration;

use drover_types::{AtDeadline, Convergence};

use crate::downtime::{DowntimeAim, RoundSeen};
use crate::limits::DOWNTIME_MOST;

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Tell the hypervisor this downtime limit.
    AimAt(Duration),
    /// The deadline has passed: the guest stands still for the rest, so tell the hypervisor this downtime limit.
    StopAndCopy(Duration),
    /// The deadline has passed: the guest goes on at the destination, and the rest follows it.
    Postcopy,
    /// The deadline has passed: the guest stays.
    GiveUp,
}

/// Looks at one migration and says what is to be done.
#[derive(Debug, Clone)]
pub struct Converging {
    aim: DowntimeAim,
    deadline: Option<(Duration, AtDeadline)>,
    /// The hypervisor did not take this limit when it was told; and by now it was told again.
    not_taken: Option<(Duration, bool)>,
}

impl Converging {
    /// For a migration that is to be brought to its end so.
    #[must_use]
    pub fn new(wished: &Convergence) -> Self {
        Self {
            aim: DowntimeAim::new(wished.downtime_limit()),
            deadline: wished.deadline(),
            not_taken: None,
        }
    }

    /// The downtime limit that the hypervisor begins with.
    #[must_use]
    pub fn aim(&self) -> Duration {
        self.aim.aim()
    }

    /// The hypervisor did not take a limit: it is told again at the next look. Whether that is the first time.
    pub fn not_taken(&mut self, limit: Duration) -> bool {
        let first = self.not_taken.is_none_or(|(known, _)| known != limit);
        self.not_taken = Some((limit, false));
        first
    }

    /// Takes a look in, so long after the hypervisor began to copy. The deadline is told of once.
    pub fn look(&mut self, copied_for: Duration, seen: RoundSeen) -> Option<Step> {
        if let Some((_, then)) = self.deadline.take_if(|(after, _)| copied_for >= *after) {
            return Some(match then {
                AtDeadline::GiveUp => Step::GiveUp,
                AtDeadline::Postcopy => Step::Postcopy,
                AtDeadline::StopAndCopy => {
                    self.aim = DowntimeAim::new(DOWNTIME_MOST).whole();
                    Step::StopAndCopy(DOWNTIME_MOST)
                }
            });
        }
        let next = self.aim.look(seen);
        next.or_else(|| self.again()).map(Step::AimAt)
    }

    /// What was not taken, once for each time that it was not; unless something else is aimed at by now.
    fn again(&mut self) -> Option<Duration> {
        let aim = self.aim.aim();
        let (limit, told) = self.not_taken.as_mut().filter(|(limit, _)| *limit == aim)?;
        (!std::mem::replace(told, true)).then_some(*limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_types::{ByteRate, Bytes};

    fn by_a_minute(then: AtDeadline) -> Converging {
        Converging::new(&Convergence {
            deadline_s: Some(60.try_into().unwrap()),
            at_deadline: Some(then),
            ..Convergence::default()
        })
    }

    /// Round 9 of a guest that writes as fast as is carried.
    const BUSY: RoundSeen = RoundSeen {
        round: 9,
        remaining: Bytes(100 << 20),
        dirty_rate: ByteRate(100 << 20),
        rate: ByteRate(100 << 20),
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn without_a_deadline_only_the_stop_is_aimed_at() {
        let mut converging = Converging::new(&Convergence::default());
        let limit = Duration::from_millis(300);
        assert_eq!(converging.look(seconds(5), BUSY), Some(Step::AimAt(limit)));
        assert_eq!(converging.look(seconds(1 << 30), BUSY), None);
    }

    #[test]
    fn at_its_deadline_a_migration_is_given_up_once() {
        let mut converging = by_a_minute(AtDeadline::GiveUp);
        let _ = converging.look(seconds(1), BUSY);
        assert_eq!(converging.look(Duration::from_millis(59_999), BUSY), None);
        assert_eq!(converging.look(seconds(60), BUSY), Some(Step::GiveUp));
        assert_eq!(converging.look(seconds(61), BUSY), None);
    }

    #[test]
    fn at_its_deadline_a_guest_goes_on_by_postcopy_once() {
        let mut converging = by_a_minute(AtDeadline::Postcopy);
        let _ = converging.look(seconds(1), BUSY);
        assert_eq!(converging.look(seconds(60), BUSY), Some(Step::Postcopy));
        assert_eq!(converging.look(seconds(61), BUSY), None);
    }

    #[test]
    fn a_limit_that_was_not_taken_is_told_again_and_complained_about_once() {
        let mut converging = by_a_minute(AtDeadline::StopAndCopy);
        let _ = converging.look(seconds(60), BUSY);
        assert!(converging.not_taken(DOWNTIME_MOST));
        let again = Some(Step::AimAt(DOWNTIME_MOST));
        assert_eq!(converging.look(seconds(61), BUSY), again);
        assert_eq!(converging.look(seconds(62), BUSY), None, "no answer yet");
        assert!(!converging.not_taken(DOWNTIME_MOST));
        assert_eq!(converging.look(seconds(63), BUSY), again);
        let earlier = Duration::from_millis(20);
        assert!(converging.not_taken(earlier));
        assert_eq!(converging.look(seconds(64), BUSY), None, "aimed at no more");
    }

    #[test]
    fn after_stop_and_copy_no_shorter_stop_is_aimed_at_any_more() {
        let mut converging = by_a_minute(AtDeadline::StopAndCopy);
        let stop = Some(Step::StopAndCopy(DOWNTIME_MOST));
        assert_eq!(converging.look(seconds(60), BUSY), stop);
        for round in 10..20 {
            let seen = RoundSeen { round, ..BUSY };
            assert_eq!(converging.look(seconds(60 + round), seen), None);
        }
    }
}
