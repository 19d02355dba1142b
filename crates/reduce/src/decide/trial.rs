//! Ways that are tried, as what is foretold of them may be wrong.

use std::time::Duration;

use crate::decide::Way;
use crate::limits::{
    ANOTHER_LINE, AS_FAST, BARRED_FOR, BARRED_FOR_MOST, FASTER, TRIAL_LASTS, TRIAL_SETTLES,
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
    /// It did not keep its promise.
    Broken(Broken),
}

/// A trial in which a way did not keep its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    /// The way that was used before.
    pub(super) before: Way,
    /// The way that was tried.
    pub(super) tried: Way,
    /// What it promised.
    pub(super) promise: Promise,
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
    of: Broken,
    began: Duration,
    /// In a second, with which it is good: of one or the other.
    wanted: Crossed,
    /// Since it has settled, and in which time.
    crossed: Crossed,
    lasted: Duration,
}

#[derive(Debug)]
struct Barred {
    way: Way,
    until: Duration,
    lasts: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Trials {
    now: Option<Trial>,
    /// A way each.
    barred: Vec<Barred>,
    /// In a second, while nothing is tried.
    usual: Option<Crossed>,
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
            of: Broken {
                before,
                tried,
                promise,
            },
            began: now,
            wanted,
            crossed: Crossed::default(),
            lasted: Duration::ZERO,
        });
    }

    /// Takes in what crossed in a second, for so long.
    pub(super) fn seen(&mut self, now: Duration, lasted: Duration, crossed: Crossed) -> Outcome {
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
        if trial.lasted < TRIAL_LASTS {
            return Outcome::GoesOn;
        }
        let seconds = trial.lasted.as_secs_f64();
        let crossed = Crossed {
            raw: trial.crossed.raw / seconds,
            wire: trial.crossed.wire / seconds,
        };
        let (of, wanted) = (trial.of, trial.wanted);
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
        Outcome::None
    }

    /// It is not to be tried for a while, longer each time.
    pub(super) fn bar(&mut self, now: Duration, way: Way) {
        match self.barred.iter_mut().find(|barred| barred.way == way) {
            Some(barred) => {
                barred.lasts = (barred.lasts * 2).min(BARRED_FOR_MOST);
                barred.until = now + barred.lasts;
            }
            None => self.barred.push(Barred {
                way,
                until: now + BARRED_FOR,
                lasts: BARRED_FOR,
            }),
        }
    }

    /// Whether it was tried to no avail a short while ago.
    pub(super) fn is_barred(&self, now: Duration, way: Way) -> bool {
        let barred = self.barred.iter().find(|barred| barred.way == way);
        barred.is_some_and(|barred| now < barred.until)
    }

    /// What was found is of no use any more, as everything is another.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
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
        trials.forget();
        assert!(!trials.is_barred(then, LZ4));
    }

    #[test]
    fn what_is_cheaper_has_to_be_as_fast_and_what_costs_more_faster() {
        let stays = |promise, fewer, raw, wire| {
            let mut trials = Trials::default();
            let usual = Crossed {
                raw: 100.0,
                wire: 80.0,
            };
            trials.seen(TICK, TICK, usual);
            let (before, tried) = (PAGES, LZ4);
            trials.begin(TICK, before, tried, promise, fewer);
            let now = Crossed { raw, wire };
            let mut outcomes = (2..10).map(|tick| trials.seen(TICK * tick, TICK, now));
            let over = outcomes.find(|outcome| *outcome != Outcome::GoesOn);
            let broken = Broken {
                before,
                tried,
                promise,
            };
            assert!([Outcome::None, Outcome::Broken(broken)].contains(&over.unwrap()));
            over == Some(Outcome::None)
        };
        assert!(stays(Promise::Cheaper, None, 99.0, 0.0));
        assert!(!stays(Promise::Cheaper, None, 90.0, 80.0));
        assert!(stays(Promise::Faster, None, 110.0, 0.0));
        assert!(!stays(Promise::Faster, None, 100.0, 80.0));
        // Half of the bytes for as many of QEMU's, whichever pages come: the lines are to be as full, but for a little.
        assert!(stays(Promise::Faster, Some(0.5), 60.0, 42.0));
        assert!(!stays(Promise::Faster, Some(0.5), 160.0, 40.0));
    }
}
