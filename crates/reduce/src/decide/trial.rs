//! Ways that are tried, as what is foretold of them may be wrong.

use std::time::Duration;

use crate::decide::{Slowest, Times, Way, slowest};
use crate::limits::{
    ANOTHER_LINE, AS_FAST, BARRED_FOR, BARRED_FOR_MOST, CONDITIONS_FOLLOW, FASTER,
    OTHER_CONDITIONS, TRIAL_LASTS, TRIAL_SETTLES,
};

/// Why a way is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// More is to cross.
    Faster,
    /// As much is to cross, for less of processors or of the lines.
    Cheaper,
    /// More is to cross, though what is there already is passed, too.
    Leap,
}

impl Promise {
    /// The least that keeps it, of what crossed before.
    const fn least(self) -> f64 {
        match self {
            Self::Faster | Self::Leap => FASTER,
            Self::Cheaper => AS_FAST,
        }
    }
}

/// What became of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// None is under way any more.
    None,
    /// It takes longer.
    GoesOn,
    /// It is over, and as much crossed as was wanted.
    Kept(Tested),
    /// It did not keep its promise.
    Broken(Tested),
}

/// What a trial is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tested {
    /// The way that was used before.
    pub(super) before: Way,
    /// The way that was tried.
    pub(super) tried: Way,
    /// What it promised.
    pub(super) promise: Promise,
    /// The lines were waited for, over the whole of it: its last look alone may be one in which the destination was busy.
    pub(super) by_lines: bool,
}

/// Bytes, or bytes in a second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Crossed {
    /// QEMU's.
    pub(super) raw: f64,
    /// On the lines.
    pub(super) wire: f64,
}

#[derive(Debug)]
struct Trial {
    of: Tested,
    began: Duration,
    /// In a second, with which it is good: of one or the other.
    wanted: Crossed,
    /// Since it has settled, and in which time.
    crossed: Crossed,
    lasted: Duration,
    /// Where the threads' time went meanwhile.
    times: Times,
}

/// Under what bytes cross.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Conditions {
    /// The way in use: another one has other conditions, by itself.
    pub(super) way: Way,
    /// What the lines carry in a second, where they are waited for.
    pub(super) line: Option<f64>,
    /// How much longer work takes than processors need for it.
    pub(super) slowed: f64,
}

impl Conditions {
    /// These and the newest ones, which differ from one moment to the next.
    fn followed_by(self, newest: Self) -> Self {
        if self.way != newest.way {
            return newest;
        }
        let follow = |old: f64, newest: f64| old + (newest - old) * CONDITIONS_FOLLOW;
        let line = match (self.line, newest.line) {
            (Some(old), Some(newest)) => Some(follow(old, newest)),
            (old, newest) => newest.or(old),
        };
        Self {
            line,
            slowed: follow(self.slowed, newest.slowed),
            ..newest
        }
    }

    /// Whether what was found under these may be otherwise under those.
    fn are_others_than(self, those: Self) -> bool {
        let differ =
            |one: f64, other: f64| one > other * OTHER_CONDITIONS || other > one * OTHER_CONDITIONS;
        let lines = self.line.zip(those.line);
        self.way == those.way
            && (differ(self.slowed, those.slowed)
                || lines.is_some_and(|(one, other)| differ(one, other)))
    }
}

#[derive(Debug)]
struct Barred {
    way: Way,
    until: Duration,
    lasts: Duration,
    /// Before it was tried.
    under: Option<Conditions>,
}

#[derive(Debug, Default)]
pub(super) struct Trials {
    now: Option<Trial>,
    /// A way each.
    barred: Vec<Barred>,
    /// In a second, while nothing is tried.
    usual: Option<Crossed>,
    /// While nothing is tried.
    conditions: Option<Conditions>,
}

impl Trials {
    /// `fewer` is how many bytes the lines get that way, for one that they get now, where they are what is waited for. Then the trial goes by
    /// their bytes: QEMU's depend on which pages come, and the lines carry the same unless the way is too slow for them.
    pub(super) fn begin(
        &mut self,
        now: Duration,
        before: Way,
        tried: Way,
        promise: Promise,
        fewer: Option<f64>,
    ) {
        let usual = self.usual.unwrap_or_default();
        let wanted = match fewer {
            Some(fewer) => Crossed {
                raw: f64::INFINITY,
                wire: usual.wire * promise.least() * fewer,
            },
            None => Crossed {
                raw: usual.raw * promise.least(),
                wire: f64::INFINITY,
            },
        };
        self.now = Some(Trial {
            of: Tested {
                before,
                tried,
                promise,
                by_lines: false,
            },
            began: now,
            wanted,
            crossed: Crossed::default(),
            lasted: Duration::ZERO,
            times: Times::default(),
        });
    }

    /// Takes in under what bytes cross: what was found while that was otherwise is forgotten, after the least time that anything is barred
    /// for, as conditions may come and go.
    pub(super) fn cross_under(&mut self, now: Duration, newest: Conditions) {
        // A trial has others, which are its own.
        if self.now.is_some() {
            return;
        }
        let before = self.conditions;
        let conditions = before.map_or(newest, |before| before.followed_by(newest));
        self.conditions = Some(conditions);
        let others = |barred: &Barred| {
            let under = barred.under;
            under.is_some_and(|under| under.are_others_than(conditions))
        };
        let may_go = |barred: &Barred| now + barred.lasts >= barred.until + BARRED_FOR;
        self.barred
            .retain(|barred| !may_go(barred) || !others(barred));
    }

    /// Takes in what crossed in a second, for so long, and where the time of the threads went.
    pub(super) fn seen(
        &mut self,
        now: Duration,
        lasted: Duration,
        crossed: Crossed,
        times: Times,
    ) -> Outcome {
        let Some(trial) = &mut self.now else {
            self.usual = Some(match self.usual {
                None => crossed,
                Some(before) => Crossed {
                    raw: followed(before.raw, crossed.raw),
                    wire: followed(before.wire, crossed.wire),
                },
            });
            return Outcome::None;
        };
        // What was packed before it is still on its way at first.
        if now.saturating_sub(trial.began) <= TRIAL_SETTLES {
            return Outcome::GoesOn;
        }
        trial.crossed.raw += crossed.raw * lasted.as_secs_f64();
        trial.crossed.wire += crossed.wire * lasted.as_secs_f64();
        trial.lasted += lasted;
        trial.times += times;
        if trial.lasted < TRIAL_LASTS {
            return Outcome::GoesOn;
        }
        let seconds = trial.lasted.as_secs_f64();
        let crossed = Crossed {
            raw: trial.crossed.raw / seconds,
            wire: trial.crossed.wire / seconds,
        };
        let by_lines = slowest(&trial.times) == Slowest::Lines;
        let of = Tested {
            by_lines,
            ..trial.of
        };
        let wanted = trial.wanted;
        self.now = None;
        if crossed.raw < wanted.raw && crossed.wire < wanted.wire {
            return Outcome::Broken(of);
        }
        let before = self.usual.map(|before| before.raw);
        if before.is_some_and(|before| crossed.raw > before * ANOTHER_LINE) {
            // Much is another, so that what was barred may do, too.
            self.barred.clear();
        }
        self.usual = Some(crossed);
        Outcome::Kept(of)
    }

    /// It is not to be tried for a while, longer each time until conditions are others.
    pub(super) fn bar(&mut self, now: Duration, way: Way) {
        let under = self.conditions;
        match self.barred.iter_mut().find(|barred| barred.way == way) {
            Some(barred) => {
                barred.lasts = (barred.lasts * 2).min(BARRED_FOR_MOST);
                barred.until = now + barred.lasts;
                barred.under = under;
            }
            None => self.barred.push(Barred {
                way,
                until: now + BARRED_FOR,
                lasts: BARRED_FOR,
                under,
            }),
        }
    }

    /// Whether it was tried to no avail a short while ago.
    pub(super) fn is_barred(&self, now: Duration, way: Way) -> bool {
        let barred = self.barred.iter().find(|barred| barred.way == way);
        barred.is_some_and(|barred| now < barred.until)
    }

    /// What was found is of no use any more, as everything is another. What was just tried is not judged.
    pub(super) fn forget(&mut self) -> Option<Tested> {
        std::mem::take(self).now.map(|trial| trial.of)
    }
}

/// The mean of the last ones, unless the newest is quite another.
fn followed(before: f64, newest: f64) -> f64 {
    if newest < before * ANOTHER_LINE && before < newest * ANOTHER_LINE {
        f64::midpoint(before, newest)
    } else {
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;

    const PAGES: Way = Way::with(Codec::None);
    const LZ4: Way = Way::with(Codec::Lz4);
    const TICK: Duration = Duration::from_millis(50);

    #[test]
    fn what_is_barred_is_barred_longer_each_time() {
        let mut trials = Trials::default();
        trials.bar(TICK, LZ4);
        assert!(trials.is_barred(TICK, LZ4) && !trials.is_barred(TICK, PAGES));
        let then = TICK + BARRED_FOR;
        assert!(!trials.is_barred(then, LZ4));
        trials.bar(then, LZ4);
        assert!(trials.is_barred(then + BARRED_FOR, LZ4));
        assert_eq!(trials.forget(), None);
        assert!(!trials.is_barred(then, LZ4));
        trials.begin(then, PAGES, LZ4, Promise::Faster, None);
        let unjudged = trials.forget().map(|of| (of.before, of.tried));
        assert_eq!(unjudged, Some((PAGES, LZ4)));
    }

    #[test]
    fn what_is_barred_is_tried_again_where_lines_or_processors_carry_a_third_more_or_less() {
        let under = |line: f64, slowed: f64| Conditions {
            way: PAGES,
            line: Some(line),
            slowed,
        };
        let stays = |then: Conditions| {
            let mut trials = Trials::default();
            trials.cross_under(TICK, under(100.0, 3.0));
            trials.begin(TICK, PAGES, LZ4, Promise::Faster, None);
            // What the trial makes of processors is no news.
            trials.cross_under(TICK, under(100.0, 9.0));
            (0..2).for_each(|_| trials.bar(TICK, LZ4));
            trials.now = None;
            let mut now = TICK;
            while now < TICK + BARRED_FOR {
                trials.cross_under(now, then);
                assert!(trials.is_barred(now, LZ4), "{now:?}");
                now += TICK;
            }
            trials.cross_under(now, then);
            trials.is_barred(now, LZ4)
        };
        assert!(stays(under(100.0, 3.0)) && stays(under(125.0, 2.5)));
        for (line, slowed) in [(150.0, 3.0), (70.0, 3.0), (100.0, 4.5), (100.0, 2.0)] {
            assert!(!stays(under(line, slowed)), "{line} {slowed}");
        }
        // Another way has others, and so have lines that are not waited for.
        let of_another = Conditions {
            way: Way::Off,
            ..under(300.0, 9.0)
        };
        let free = Conditions {
            line: None,
            ..under(100.0, 3.0)
        };
        assert!(stays(of_another) && stays(free));
    }

    #[test]
    fn what_is_cheaper_has_to_be_as_fast_and_what_costs_more_faster() {
        let stays = |promise, fewer, raw, wire| {
            let mut trials = Trials::default();
            let usual = Crossed {
                raw: 100.0,
                wire: 80.0,
            };
            let times = Times::default();
            trials.seen(TICK, TICK, usual, times);
            let (before, tried) = (PAGES, LZ4);
            trials.begin(TICK, before, tried, promise, fewer);
            let now = Crossed { raw, wire };
            let mut outcomes = (2..10).map(|tick| trials.seen(TICK * tick, TICK, now, times));
            let over = outcomes.find(|outcome| *outcome != Outcome::GoesOn);
            let of = Tested {
                before,
                tried,
                promise,
                by_lines: false,
            };
            assert!([Outcome::Kept(of), Outcome::Broken(of)].contains(&over.unwrap()));
            over == Some(Outcome::Kept(of))
        };
        assert!(stays(Promise::Cheaper, None, 99.0, 0.0));
        assert!(!stays(Promise::Cheaper, None, 90.0, 80.0));
        assert!(stays(Promise::Faster, None, 110.0, 0.0));
        assert!(!stays(Promise::Faster, None, 100.0, 80.0));
        // Half of the bytes for as many of QEMU's, whichever pages come: the lines are to be as full, but for a little.
        assert!(stays(Promise::Faster, Some(0.5), 60.0, 42.0));
        assert!(!stays(Promise::Faster, Some(0.5), 160.0, 40.0));
    }

    #[test]
    fn a_trial_was_by_lines_where_these_were_waited_for_over_the_whole_of_it() {
        let waited = |lines: u32, destination: u32| Times {
            for_lines: TICK * lines,
            for_destination: TICK * destination,
            carrying: TICK,
            ..Times::default()
        };
        let by_lines = |looks: [Times; 3]| {
            let mut trials = Trials::default();
            let crossed = Crossed::default();
            trials.seen(TICK, TICK, crossed, Times::default());
            trials.begin(TICK, PAGES, LZ4, Promise::Faster, Some(0.5));
            // The first one does not count: what was packed before is still on its way.
            let first = trials.seen(TICK + TRIAL_SETTLES, TRIAL_SETTLES, crossed, looks[0]);
            assert_eq!(first, Outcome::GoesOn);
            trials.seen(TICK * 3, TICK, crossed, looks[1]);
            match trials.seen(TICK * 4, TICK, crossed, looks[2]) {
                Outcome::Kept(of) | Outcome::Broken(of) => of.by_lines,
                other => panic!("{other:?}"),
            }
        };
        let (lines, destination, nobody) = (waited(6, 0), waited(2, 3), waited(0, 0));
        assert!(by_lines([nobody, lines, lines]));
        assert!(by_lines([destination, lines, destination]));
        assert!(by_lines([nobody, nobody, lines]));
        assert!(!by_lines([lines, destination, destination]));
        assert!(!by_lines([lines, waited(0, 9), lines]));
        assert!(!by_lines([lines, nobody, nobody]));
    }
}
