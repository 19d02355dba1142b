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
    /// As much is to cross, for less.
    Cheaper,
}

impl Promise {
    /// The least that keeps it, of what crossed before.
    const fn least(self) -> f64 {
        match self {
            Self::Faster => FASTER,
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

#[derive(Debug)]
struct Trial {
    of: Broken,
    began: Duration,
    /// QEMU's bytes in a second with which it is good.
    wanted: f64,
    /// Bytes since it has settled, and in which time.
    crossed: f64,
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
    /// QEMU's bytes in a second while nothing is tried.
    goodput: Option<f64>,
}

impl Trials {
    pub(super) fn begin(&mut self, now: Duration, before: Way, tried: Way, promise: Promise) {
        self.now = Some(Trial {
            of: Broken {
                before,
                tried,
                promise,
            },
            began: now,
            wanted: self.goodput.unwrap_or_default() * promise.least(),
            crossed: 0.0,
            lasted: Duration::ZERO,
        });
    }

    /// Takes in how many of QEMU's bytes crossed in a second, for so long.
    pub(super) fn seen(&mut self, now: Duration, lasted: Duration, goodput: f64) -> Outcome {
        let Some(trial) = &mut self.now else {
            self.goodput = Some(followed(self.goodput, goodput));
            return Outcome::None;
        };
        // What was packed before it is still on its way at first.
        if now.saturating_sub(trial.began) <= TRIAL_SETTLES {
            return Outcome::GoesOn;
        }
        trial.crossed += goodput * lasted.as_secs_f64();
        trial.lasted += lasted;
        if trial.lasted < TRIAL_LASTS {
            return Outcome::GoesOn;
        }
        let goodput = trial.crossed / trial.lasted.as_secs_f64();
        let (of, broken) = (trial.of, goodput < trial.wanted);
        self.now = None;
        if broken {
            return Outcome::Broken(of);
        }
        if self
            .goodput
            .is_some_and(|before| goodput > before * ANOTHER_LINE)
        {
            // Much is another, so that what was barred may do, too.
            self.barred.clear();
        }
        self.goodput = Some(goodput);
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
fn followed(before: Option<f64>, goodput: f64) -> f64 {
    let alike = |before: &f64| goodput < before * ANOTHER_LINE && *before < goodput * ANOTHER_LINE;
    before
        .filter(alike)
        .map_or(goodput, |before| f64::midpoint(before, goodput))
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
        let stays = |promise, goodput| {
            let mut trials = Trials::default();
            trials.seen(TICK, TICK, 100.0);
            let (before, tried) = (PAGES, LZ4);
            trials.begin(TICK, before, tried, promise);
            let mut outcomes = (2..10).map(|tick| trials.seen(TICK * tick, TICK, goodput));
            let over = outcomes.find(|outcome| *outcome != Outcome::GoesOn);
            let broken = Broken {
                before,
                tried,
                promise,
            };
            assert!([Outcome::None, Outcome::Broken(broken)].contains(&over.unwrap()));
            over == Some(Outcome::None)
        };
        assert!(stays(Promise::Cheaper, 99.0) && !stays(Promise::Cheaper, 90.0));
        assert!(stays(Promise::Faster, 110.0) && !stays(Promise::Faster, 100.0));
    }
}
