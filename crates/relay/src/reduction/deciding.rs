//! What is done next, and what came of it: the clock around the controller.

use std::time::{Duration, Instant};

use drover_reduce::decide::{Controller, Seen, Slowest, Times, Tried, Verdict, Way};
use drover_reduce::limits::{DECIDED_EVERY, SAMPLED_EVERY, SAMPLED_EVERY_MOST};
use drover_reduce::{Choice, Codec, Counts, OfCodecs, PackingTook};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Who decides what is done to a channel's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Always this.
    Always(Way),
    /// What is found to be fastest.
    Fastest,
}

/// What was decided so far, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// What is done now.
    pub way: Way,
    /// What holds everything up.
    pub slowest: Option<Slowest>,
    /// How often that was changed.
    pub changes: u64,
    /// How often it was looked at what happens, 50 ms apart at the least.
    #[serde(default)]
    pub looks: u64,
    /// What is thought of each way.
    pub verdicts: Vec<Verdict>,
}

/// What is to be done to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) way: Way,
    /// Codecs are to be tried out on it.
    pub(super) sample: bool,
}

/// What was done to a chunk.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) counts: Counts,
    /// What it went through, where it was described.
    pub(super) packed: Option<(Choice, PackingTook)>,
    pub(super) times: Times,
    pub(super) tried: Vec<Tried>,
    /// It was to be a sample, and there is not yet enough for one.
    pub(super) gathers: bool,
}

/// Of one session.
#[derive(Debug)]
pub(super) struct Deciding {
    policy: Policy,
    controller: Controller,
    counts: Counts,
    codecs: OfCodecs,
    times: Times,
    /// When it was last decided, and what had come of everything by then; not before the first chunk: a session is there long before
    /// QEMU sends.
    decided: Option<(Instant, Counts, Times)>,
    /// Since then.
    since: OfCodecs,
    sampled: Option<Instant>,
    /// From one sample to the next: twice as long each time while bytes are passed.
    sampled_every: Duration,
}

impl Deciding {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            controller: Controller::default(),
            counts: Counts::default(),
            codecs: OfCodecs::default(),
            times: Times::default(),
            decided: None,
            since: OfCodecs::default(),
            sampled: None,
            sampled_every: SAMPLED_EVERY,
        }
    }

    /// The guest comes back to a host that has most of it. To be said before anything is decided.
    pub(super) fn comes_back(&mut self) {
        self.controller = Controller::of_a_return();
    }

    pub(super) fn next(&mut self, now: Instant) -> Order {
        if let Policy::Always(way) = self.policy {
            return Order { way, sample: false };
        }
        let passes = self.controller.way() == Way::Off;
        if !passes {
            self.sampled_every = SAMPLED_EVERY;
        }
        let due = |at: Instant| now.saturating_duration_since(at) >= self.sampled_every;
        let sample = self.sampled.is_none_or(due);
        let way = match self.controller.way() {
            // What codecs would get is known only of a chunk that is described.
            Way::Off if sample => Way::with(Codec::None),
            way => way,
        };
        if sample {
            self.sampled = Some(now);
        }
        if sample && passes {
            self.sampled_every = (self.sampled_every * 2).min(SAMPLED_EVERY_MOST);
        }
        Order { way, sample }
    }

    pub(super) fn done(&mut self, now: Instant, done: &Done) {
        self.counts += done.counts;
        if let Some((choice, took)) = done.packed {
            self.codecs.add(choice, &done.counts, took);
        }
        self.times += done.times;
        if matches!(self.policy, Policy::Always(_)) {
            return;
        }
        if let Some((choice, took)) = done.packed {
            self.since.add(choice, &done.counts, took);
        }
        for tried in &done.tried {
            self.controller.tried(tried);
        }
        // What is passed is not described for more.
        if done.gathers && self.controller.way() != Way::Off {
            self.sampled = None;
        }
        let Some((at, counts, times)) = self.decided else {
            self.decided = Some((now, self.counts, self.times));
            self.since = OfCodecs::default();
            return;
        };
        let lasted = now.saturating_duration_since(at);
        if lasted >= DECIDED_EVERY {
            self.controller.seen(&Seen {
                lasted,
                counts: self.counts - counts,
                codecs: std::mem::take(&mut self.since),
                times: self.times - times,
            });
            self.decided = Some((now, self.counts, self.times));
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn codecs(&self) -> OfCodecs {
        self.codecs.clone()
    }

    pub(super) const fn times(&self) -> Times {
        self.times
    }

    /// Nothing where it was decided by somebody else.
    pub(super) fn decided(&self) -> Option<Decided> {
        matches!(self.policy, Policy::Fastest).then(|| Decided {
            way: self.controller.way(),
            slowest: self.controller.slowest(),
            changes: self.controller.changes(),
            looks: self.controller.looks(),
            verdicts: self.controller.verdicts().collect(),
        })
    }
}

/// Tells how long it was from one word to the next, and what a thread took of processors meanwhile.
#[derive(Debug)]
pub(super) struct Stopwatch {
    at: Instant,
    worked: Duration,
}

/// From one word to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lap {
    /// As a clock sees it.
    pub(super) lasted: Duration,
    /// Of processors.
    pub(super) worked: Duration,
}

impl Stopwatch {
    pub(super) fn started() -> Self {
        Self {
            at: Instant::now(),
            worked: worked(),
        }
    }

    /// Since it was last asked, of the thread that asks.
    pub(super) fn lap(&mut self) -> Lap {
        let (at, all) = (Instant::now(), worked());
        let lasted = at.saturating_duration_since(std::mem::replace(&mut self.at, at));
        let worked = all.saturating_sub(std::mem::replace(&mut self.worked, all));
        Lap {
            lasted,
            worked: worked.min(lasted),
        }
    }
}

impl Lap {
    /// In it a chunk was packed, which took codecs so long. The rest is its checksum and its frame: what every chunk takes that is described,
    /// however little of it is left for a codec.
    pub(super) fn packed(self, took: PackingTook, times: &mut Times) {
        let codecs = (took.ordinary + took.dense).min(self.worked);
        times.packing += codecs;
        times.describing += self.worked - codecs;
        times.for_processors += self.lasted - self.worked;
    }
}

/// What this thread took of processors so far.
pub(super) fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use drover_reduce::Section;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_is_passed_is_described_now_and_then_for_codecs_to_be_tried() {
        let mut deciding = Deciding::new(Policy::Fastest);
        let mut now = Instant::now();
        let passes = |deciding: &Deciding| deciding.controller.way() == Way::Off;
        // Nothing but describing holds it up, by which nothing becomes fewer.
        let bytes = 64 << 10;
        let slow = Done {
            counts: Counts {
                raw: bytes,
                wire: bytes,
                ordinary_section: Section {
                    bytes,
                    packed: bytes,
                },
                ..Counts::default()
            },
            times: Times {
                describing: ms(9),
                carrying: ms(1),
                ..Times::default()
            },
            ..Done::default()
        };
        let until = now + ms(60_000);
        while !passes(&deciding) {
            assert!(now < until, "{:?}", deciding.decided());
            deciding.next(now);
            now += ms(10);
            deciding.done(now, &slow);
        }
        let ordered: Vec<Order> = (0..200)
            .map(|_| {
                now += ms(10);
                deciding.next(now)
            })
            .collect();
        let samples = ordered.iter().enumerate().filter(|(_, order)| order.sample);
        let samples: Vec<usize> = samples.map(|(at, _)| at).collect();
        let apart: Vec<usize> = samples.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(apart, [20, 40, 40, 40, 40], "{samples:?}");
        for order in &ordered {
            let way = match order.sample {
                true => Way::with(Codec::None),
                false => Way::Off,
            };
            assert_eq!(order.way, way);
        }
    }

    #[test]
    fn what_a_chunk_takes_beside_its_codecs_is_not_theirs() {
        let lap = Lap {
            lasted: ms(10),
            worked: ms(8),
        };
        let took = PackingTook {
            ordinary: ms(2),
            dense: ms(1),
        };
        let mut times = Times::default();
        lap.packed(took, &mut times);
        let expected = Times {
            packing: ms(3),
            describing: ms(5),
            for_processors: ms(2),
            ..Times::default()
        };
        assert_eq!(times, expected);
        assert_eq!(times.all(), lap.lasted);
        // Clocks that are read one after the other may differ.
        let took = PackingTook {
            ordinary: ms(9),
            ..took
        };
        lap.packed(took, &mut times);
        assert_eq!(times.all(), ms(20));
    }
}
