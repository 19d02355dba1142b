//! Which way pays: the one with which the slowest stage is as fast as it can be.
//!
//! ```text
//!   QEMU ──▶ carry, describe ──▶ pack ──▶ lines        what crosses in a second, in QEMU's bytes, is the least of
//!    as fast        cost of a byte         rate         QEMU's, threads ÷ cost, rate ÷ ratio
//!    as it is   └── of each of the threads ──┘
//! ```
//! Ratios and costs are tried out on samples of what really crosses ([`Tried`]), and corrected by what the way in use
//! really makes and takes. All work takes longer by what it waits for processors, so those that others need are slow ones. What the lines
//! carry is known where they are what everybody waits for, and believed to be more some time after ([`line`]). So a way that
//! promises more is a guess, and is tried: where less crosses than before, it is taken back, and not tried again for a
//! while ([`trial`]).
//!
//! Of ways that are as fast the one that takes the least of processors is used: guests have a use for them. But what
//! the destination has is only passed to it where that is faster, and where a codec takes next to nothing, as little is left for it,
//! it is used: others have a use for the lines.

mod line;
mod model;
mod trial;

use std::ops::{AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::codec::{Codec, Level};
use crate::codecs::OfCodecs;
use crate::counts::Counts;
use crate::limits::{
    ABOUT_AS_FAST, FASTER, FIRST_LOOK, LASTING, LEAP, LITTLE_MORE, LITTLE_MORE_STAYS, MUCH_LESS,
    MUCH_LESS_STAYS, PACKED_LEAP, PACKED_LEAP_LEFT, RETURN_ABOUT_AS_FAST, RETURN_KEEPS,
    RETURN_LEAPS_FROM, RETURN_SETTLES, WORTH_A_CHANGE,
};

use line::Line;
use model::Model;
use trial::{Conditions, Crossed, Outcome, Promise, Tested, Trials};

/// What is done to the bytes of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// They are carried as they are.
    Off,
    /// They are described, and what is left goes through a codec.
    On {
        /// The codec.
        codec: Codec,
        /// Dense pages go through it, too.
        dense: bool,
    },
}

impl Way {
    /// Described, with ordinary pages through this codec.
    #[must_use]
    pub const fn with(codec: Codec) -> Self {
        Self::On {
            codec,
            dense: false,
        }
    }
}

/// A sample that went through one codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// What the sample is.
    pub class: Class,
    /// The codec.
    pub codec: Codec,
    /// Bytes of it.
    pub bytes: u64,
    /// What the codec made of them.
    pub packed: u64,
    /// What that took of a processor's time.
    pub took: Duration,
}

/// Where the time of the threads went that read channels, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Waited for the lines.
    pub for_lines: Duration,
    /// Waited for the destination, which had most of what was on its way.
    pub for_destination: Duration,
    /// Waited for QEMU, and took its bytes.
    pub for_qemu: Duration,
    /// Waited for a processor, or for each other, with work to do.
    pub for_processors: Duration,
    /// Described, with the checksum and the frame, of a processor's time, as all that follows.
    pub describing: Duration,
    /// What codecs took.
    pub packing: Duration,
    /// Tried out what other ways make of samples.
    pub trying: Duration,
    /// Handed on, and all else.
    pub carrying: Duration,
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.for_lines += other.for_lines;
        self.for_destination += other.for_destination;
        self.for_qemu += other.for_qemu;
        self.for_processors += other.for_processors;
        self.describing += other.describing;
        self.packing += other.packing;
        self.trying += other.trying;
        self.carrying += other.carrying;
    }
}

impl Sub for Times {
    type Output = Self;

    /// What was added since `other`.
    fn sub(self, other: Self) -> Self {
        Self {
            for_lines: self.for_lines.saturating_sub(other.for_lines),
            for_destination: self.for_destination.saturating_sub(other.for_destination),
            for_qemu: self.for_qemu.saturating_sub(other.for_qemu),
            for_processors: self.for_processors.saturating_sub(other.for_processors),
            describing: self.describing.saturating_sub(other.describing),
            packing: self.packing.saturating_sub(other.packing),
            trying: self.trying.saturating_sub(other.trying),
            carrying: self.carrying.saturating_sub(other.carrying),
        }
    }
}

impl Times {
    /// All of it.
    #[must_use]
    pub fn all(&self) -> Duration {
        let others = self.for_lines + self.for_destination + self.for_qemu;
        others + self.for_processors + self.working()
    }

    /// What it took of processors.
    fn working(&self) -> Duration {
        self.describing + self.packing + self.trying + self.carrying
    }

    /// How much longer that took, as others need the processors.
    fn slowed(&self) -> f64 {
        let working = self.working().as_secs_f64();
        let waited = self.for_processors.as_secs_f64();
        if working > 0.0 {
            1.0 + waited / working
        } else {
            1.0
        }
    }
}

/// What happened in some time, over all channels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// In this time.
    pub lasted: Duration,
    /// What became of the bytes.
    pub counts: Counts,
    /// What each codec made of its part: right after a change, chunks of the way before are among them.
    pub codecs: OfCodecs,
    /// Where the time went of the threads that had any.
    pub times: Times,
}

/// What holds everything up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slowest {
    /// The lines.
    Lines,
    /// The destination.
    Destination,
    /// The source's QEMU.
    Qemu,
    /// Processors.
    Processors,
}

/// What is thought of one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The way.
    pub way: Way,
    /// It is in use.
    pub used: bool,
    /// Bytes on the lines for one of QEMU.
    pub ratio: f64,
    /// QEMU's bytes that the threads would get done in a second.
    pub processed: f64,
    /// QEMU's bytes that would cross in a second.
    pub goodput: f64,
    /// It was tried, fewer crossed, and it is not tried again for now.
    pub slower: bool,
}

/// The codecs that are chosen from, the quickest first.
pub const CODECS: [Codec; 7] = [
    Codec::None,
    Codec::Lz4,
    Codec::Zstd(Level::QUICKEST),
    Codec::Zstd(Level::QUICK),
    Codec::Zstd(Level::USUAL),
    Codec::Zstd(Level::THOROUGH),
    Codec::Zstd(Level::SLOWEST),
];

/// All ways, those that take less of processors first.
fn ways() -> impl Iterator<Item = Way> {
    let on = CODECS.into_iter().flat_map(|codec| {
        let through: &[bool] = match codec {
            Codec::None => &[false],
            _ => &[false, true],
        };
        through.iter().map(move |dense| Way::On {
            codec,
            dense: *dense,
        })
    });
    std::iter::once(Way::Off).chain(on)
}

/// QEMU's bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Returned {
    all: u64,
    /// What the destination did not have.
    left: u64,
    /// What codecs made of that.
    packed: u64,
}

/// Decides for one session.
#[derive(Debug)]
pub struct Controller {
    model: Model,
    line: Line,
    trials: Trials,
    way: Way,
    now: Duration,
    slowest: Option<Slowest>,
    /// It was the lines at the look before, too.
    short_of_lines: bool,
    changes: u64,
    looks: u64,
    /// Another way is wanted since then.
    wanted_since: Option<Duration>,
    /// What is there is passed because that was found to be faster.
    leapt: bool,
    /// Of a guest that comes back: how much of it has come, and how much of that the destination did not have.
    returned: Option<Returned>,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            model: Model::default(),
            line: Line::default(),
            trials: Trials::default(),
            // Describing costs little, and nothing is known without it.
            way: Way::with(Codec::None),
            now: Duration::ZERO,
            slowest: None,
            short_of_lines: false,
            changes: 0,
            looks: 0,
            wanted_since: None,
            leapt: false,
            returned: None,
        }
    }
}

impl Controller {
    /// For a guest whose destination has most of it: what is left crosses through a codec until more is known, as it is little, and
    /// whether it would be quicker to pass all of it is not tried for long.
    #[must_use]
    pub fn of_a_return() -> Self {
        Self {
            way: Way::with(Codec::Zstd(Level::USUAL)),
            returned: Some(Returned::default()),
            ..Self::default()
        }
    }

    /// What is to be done.
    #[must_use]
    pub const fn way(&self) -> Way {
        self.way
    }

    /// What holds everything up, as it was last seen.
    #[must_use]
    pub const fn slowest(&self) -> Option<Slowest> {
        self.slowest
    }

    /// How often the way was changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// How often it was looked at what happened, [`DECIDED_EVERY`](crate::limits::DECIDED_EVERY) apart at the least.
    #[must_use]
    pub const fn looks(&self) -> u64 {
        self.looks
    }

    /// Takes in what codecs made of a sample.
    pub fn tried(&mut self, tried: &Tried) {
        self.model.tried(tried);
    }

    /// Takes in what happened, and decides anew.
    pub fn seen(&mut self, seen: &Seen) {
        if seen.lasted.is_zero() || seen.counts.raw == 0 {
            return;
        }
        self.now += seen.lasted;
        self.looks += 1;
        let slowest = slowest(&seen.times);
        let before = self.slowest.replace(slowest);
        self.short_of_lines = [before, self.slowest] == [Some(Slowest::Lines); 2];
        self.model.seen(seen, slowest, self.way);
        if let Some(returned) = &mut self.returned {
            // Of what was passed nobody knows.
            let counts = &seen.counts;
            returned.all += counts.raw.saturating_sub(counts.passed);
            let sections = [counts.ordinary_section, counts.dense_section];
            returned.left += sections.iter().map(|of| of.bytes).sum::<u64>();
            returned.packed += sections.iter().map(|of| of.packed).sum::<u64>();
        }
        let in_a_second = |bytes: u64| bytes as f64 / seen.lasted.as_secs_f64();
        let carried = in_a_second(seen.counts.wire);
        let way = self.way;
        if self.line.seen(self.now, carried, slowest, way) {
            self.lines_are_others();
        }
        let crossed = Crossed {
            raw: in_a_second(seen.counts.raw),
            wire: carried,
        };
        let conditions = Conditions {
            way,
            line: (slowest == Slowest::Lines).then_some(carried),
            slowed: seen.times.slowed(),
        };
        self.trials.cross_under(self.now, conditions);
        match self.trials.seen(self.now, seen.lasted, crossed, seen.times) {
            Outcome::GoesOn => {}
            Outcome::Kept(of) if self.is_worth(of) => self.decide(slowest),
            Outcome::Kept(of) | Outcome::Broken(of) => self.take_back(of),
            Outcome::None if self.now < FIRST_LOOK => {}
            Outcome::None if self.keeps_its_codec() && slowest != Slowest::Lines => {
                self.wanted_since = None;
            }
            Outcome::None => self.decide(slowest),
        }
    }

    /// A trial that is under way says nothing any more. The way that is tried stays for as long as none is better by what is known of the
    /// lines as they are now, which is looked at at once. But what the destination has is passed only where that was found to be faster.
    fn lines_are_others(&mut self) {
        let unjudged = self.trials.forget();
        if let Some(of) = unjudged.filter(|of| of.promise == Promise::Leap) {
            self.change(of.before);
        }
    }

    fn decide(&mut self, slowest: Slowest) {
        let best = self.best();
        if !self.may_stay() {
            return self.change(best);
        }
        let (now, then) = (self.goodput(self.way), self.goodput(best));
        // Lines that nobody limits are waited for now and then, when a receiver does not get its turn: processors are not spent for that.
        let dearer = self.model.cost(best) > self.model.cost(self.way);
        let faster = then > now * WORTH_A_CHANGE && (self.short_of_lines || !dearer);
        let cheaper = self.model.cost(best) * WORTH_A_CHANGE < self.model.cost(self.way);
        // What is there already is passed for time, and not for processors alone, which is seen once it is tried.
        let leap = best == Way::Off && self.is_leap();
        // Lines that were never waited for may carry anything, and are tried. Of others what they were seen to carry counts: that they
        // may carry more is tried for time, which may be gained, and not for processors alone.
        let proven = self.model.goodput(best, self.line.proven()) * ABOUT_AS_FAST >= now;
        let carried = proven || !self.line.was_waited_for();
        let little_more = self.model.cost(best) <= self.model.cost(self.way) * LITTLE_MORE;
        let much_less = self.model.ratio(best) * MUCH_LESS < self.model.ratio(self.way);
        let thriftier = little_more && much_less;
        let wanted = (cheaper || faster && leap) && carried || thriftier;
        let lasting = self.lasts(wanted);
        if best != self.way && (faster && !leap || lasting) {
            let promise = match (leap, faster && !cheaper) {
                (true, _) => Promise::Leap,
                (false, true) => Promise::Faster,
                (false, false) => Promise::Cheaper,
            };
            let fewer = self.model.ratio(best) / self.model.ratio(self.way);
            let fewer = (slowest == Slowest::Lines).then_some(fewer.min(1.0));
            self.trials.begin(self.now, self.way, best, promise, fewer);
            self.change(best);
            self.leapt = leap;
        }
    }

    /// Whether another way was wanted for a while. Pages come in turns: some that shrink to nearly nothing, which the
    /// destination is busy with, then others that the lines are busy with, and would get too much of. And at first nothing is
    /// known of what the destination has.
    fn lasts(&mut self, is_wanted: bool) -> bool {
        let since = self.wanted_since.filter(|_| is_wanted);
        self.wanted_since = is_wanted.then(|| since.unwrap_or(self.now));
        since.is_some_and(|since| self.now - since >= LASTING)
    }

    /// Whether what it promised is still expected of a way, once it is known what it made of the bytes: a trial that goes by those of the
    /// lines does not see that. What QEMU gave or the destination took at the last look alone does not count: it bounds both ways alike,
    /// so that a good one would look like no gain in a moment in which QEMU had little. Nor does it count that lines which were not waited for
    /// at that look may carry more than they were seen to.
    fn is_worth(&self, of: Tested) -> bool {
        let over_lines = |way| self.model.over(way, self.line.proven());
        let by_lines = of.by_lines && of.promise == Promise::Faster;
        !by_lines || over_lines(of.tried) > over_lines(of.before) * FASTER
    }

    /// Bars what would not keep its promise either.
    fn take_back(&mut self, of: Tested) {
        let Tested {
            before,
            tried,
            promise,
            by_lines,
        } = of;
        let least = match (promise, by_lines) {
            // Fewer bytes are no use: who is behind the lines holds everything up.
            (Promise::Faster, true) => self.model.cost(before) * WORTH_A_CHANGE,
            (Promise::Faster, false) => self.model.cost(tried),
            (Promise::Cheaper | Promise::Leap, _) => f64::INFINITY,
        };
        self.trials.bar(self.now, tried);
        let others = ways().filter(|way| ![before, tried].contains(way));
        for way in others.filter(|way| self.model.cost(*way) >= least) {
            self.trials.bar(self.now, way);
        }
        self.change(before);
        self.leapt = before == Way::Off;
    }

    fn change(&mut self, way: Way) {
        self.wanted_since = None;
        self.leapt = false;
        self.way = way;
        self.changes += 1;
    }

    fn goodput(&self, way: Way) -> f64 {
        self.model.goodput(way, self.line.rate())
    }

    /// Whether the destination has so much that to pass it would be many times the bytes.
    fn is_leap(&self) -> bool {
        self.model.ratio(Way::with(Codec::None)) * LEAP < 1.0
    }

    /// Whether it comes back, has not come for that long, and the destination had most of what has come, or a third of what packs well:
    /// what comes just now, such as pages that are written over and over, need not be what it has.
    fn is_little_left(&self, within: Duration) -> bool {
        let is_leap = |of: Returned| {
            let all = of.all as f64;
            let (left, packed) = (of.left as f64, of.packed as f64);
            let packs = left * PACKED_LEAP_LEFT < all && packed * PACKED_LEAP < all;
            left * LEAP < all || packs
        };
        self.now < within && self.returned.is_some_and(is_leap)
    }

    /// It comes in pieces that differ: what has changed here, what the destination has there, and at first it has not told what it has.
    fn keeps_its_codec(&self) -> bool {
        let begins = self.returned.is_some() && self.now < RETURN_SETTLES;
        self.changes == 0 && (begins || self.is_little_left(RETURN_KEEPS))
    }

    /// Passing goes on, unless it is seen only now that the destination has what is passed: then it has to be tried as such.
    fn may_stay(&self) -> bool {
        self.way != Way::Off || self.leapt || !self.is_leap()
    }

    fn may_be_used(&self, way: Way) -> bool {
        let too_early = way == Way::Off && self.is_little_left(RETURN_LEAPS_FROM);
        self.model.knows(way) && !too_early && !self.trials.is_barred(self.now, way)
    }

    /// Of the ways that are about as fast as the fastest, the one that takes least of processors; or little more, for much less on
    /// the lines.
    fn best(&self) -> Way {
        let usable = |way: &Way| {
            if *way == self.way {
                self.may_stay()
            } else {
                self.may_be_used(*way)
            }
        };
        let known: Vec<(Way, f64)> = ways()
            .filter(usable)
            .map(|way| (way, self.goodput(way)))
            .collect();
        let most = known
            .iter()
            .map(|(_, goodput)| *goodput)
            .fold(0.0, f64::max);
        let as_fast = |about: f64| {
            let as_fast = known
                .iter()
                .filter(move |(_, goodput)| goodput * about >= most);
            as_fast.map(|(way, _)| *way)
        };
        let cost = |way: Way| self.model.cost(way);
        let least = as_fast(ABOUT_AS_FAST).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let Some(least) = least else {
            return self.way;
        };
        let ratio = |way: Way| self.model.ratio(way);
        let about = if self.is_little_left(Duration::MAX) {
            RETURN_ABOUT_AS_FAST
        } else {
            ABOUT_AS_FAST
        };
        let thrifty = as_fast(about).filter(|way| {
            let (more, less) = if *way == self.way {
                (LITTLE_MORE_STAYS, MUCH_LESS_STAYS)
            } else {
                (LITTLE_MORE, MUCH_LESS)
            };
            cost(*way) <= cost(least) * more && ratio(*way) * less < ratio(least)
        });
        let thrifty = thrifty.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        thrifty.unwrap_or(least)
    }

    /// What is thought of each way of which anything is known.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        ways()
            .filter(|way| self.model.knows(*way))
            .map(|way| Verdict {
                way,
                used: way == self.way,
                ratio: self.model.ratio(way),
                processed: self.model.processed(way),
                goodput: self.goodput(way),
                slower: self.trials.is_barred(self.now, way),
            })
    }
}

/// Where threads wait a quarter of their time for the lines, those are never out of work; and so the destination.
fn slowest(times: &Times) -> Slowest {
    let all = times.all();
    let behind = times.for_lines + times.for_destination;
    if behind * 4 > all {
        if times.for_lines >= times.for_destination {
            Slowest::Lines
        } else {
            Slowest::Destination
        }
    } else if times.for_qemu * 2 > all {
        Slowest::Qemu
    } else {
        Slowest::Processors
    }
}
