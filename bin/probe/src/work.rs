//! The guest's work: rewriting the working set at its rate, and verifying all the time.
//!
//! One thread does both, page by page, so that no page is verified half rewritten.

use std::time::{Duration, Instant};

use crate::arena::{Arena, Bad, Damage};
use crate::report::{Line, Verified};
use crate::settings::{PAGE, Rate, Settings};

/// Pages done before the clock is looked at again: some 0.3 ms of an emulated CPU.
const BATCH: u64 = 64;

/// Sleep when nothing is due. At 64 MiB/s 16 pages come due in this time.
const IDLE: Duration = Duration::from_millis(1);

/// Bad pages told one by one.
const TOLD: u64 = 8;

/// What the work has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pages rewritten.
    pub rewrites: u64,
    /// Pages verified.
    pub verified: u64,
    /// Complete passes over all pages.
    pub passes: u64,
    /// Bad pages found.
    pub bad: u64,
}

/// The work, one step at a time.
pub struct Work {
    arena: Arena,
    rewrite: Pace,
    verify: Pace,
    cursor: usize,
    asked: Option<Asked>,
    progress: Progress,
}

struct Asked {
    request: u64,
    since: Instant,
    bad_before: u64,
}

impl Work {
    /// Work on filled pages.
    pub fn new(arena: Arena, settings: &Settings, now: Instant) -> Self {
        let verify = Pace::new(Rate::Bytes(settings.verify), now);
        let rewrite = Pace::new(settings.rewrite, now);
        Self {
            arena,
            rewrite,
            verify,
            cursor: 0,
            asked: None,
            progress: Progress::default(),
        }
    }

    /// What was done so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Begins a full pass at full speed, anew if one is under way.
    pub fn ask(&mut self, request: u64, now: Instant) {
        self.cursor = 0;
        self.asked = Some(Asked {
            request,
            since: now,
            bad_before: self.progress.bad,
        });
    }

    /// Does what is due, a batch at most, and says how long nothing will be.
    pub fn step(&mut self, now: Instant, say: &mut impl FnMut(Line)) -> Duration {
        let rewrites = self.rewrite.due(now);
        for _ in 0..rewrites {
            self.arena.rewrite();
        }
        self.progress.rewrites = self.arena.rewrites();
        let verifies = if self.asked.is_some() {
            BATCH
        } else {
            self.verify.due(now)
        };
        for _ in 0..verifies {
            self.verify_next(now, say);
        }
        if rewrites + verifies == 0 {
            IDLE
        } else {
            Duration::ZERO
        }
    }

    fn verify_next(&mut self, now: Instant, say: &mut impl FnMut(Line)) {
        if let Err(bad) = self.arena.verify(self.cursor) {
            self.progress.bad += 1;
            if self.progress.bad <= TOLD {
                say(tell(&bad));
            }
        }
        self.progress.verified += 1;
        self.cursor += 1;
        if self.cursor >= self.arena.page_count() {
            self.cursor = 0;
            self.progress.passes += 1;
            if let Some(asked) = self.asked.take() {
                say(Line::Verified(Verified {
                    request: asked.request,
                    pages: self.arena.page_count() as u64,
                    bad: self.progress.bad - asked.bad_before,
                    us: micros(now.saturating_duration_since(asked.since)),
                }));
            }
        }
    }
}

fn tell(bad: &Bad) -> Line {
    let damage = match bad.damage {
        Damage::Checksum => "checksum",
        Damage::Generation => "generation",
    };
    Line::Bad {
        page: bad.page as u64,
        class: bad.class.name().to_owned(),
        damage: damage.to_owned(),
    }
}

/// Whole microseconds; 580,000 years fit.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Pages that come due with time.
struct Pace {
    rate: Rate,
    since: Instant,
    done: u64,
}

impl Pace {
    fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            since: now,
            done: 0,
        }
    }

    /// Pages due now, a batch at most; they count as done.
    fn due(&mut self, now: Instant) -> u64 {
        let Rate::Bytes(rate) = self.rate else {
            return BATCH;
        };
        let elapsed = micros(now.saturating_duration_since(self.since));
        let total = u128::from(rate) * u128::from(elapsed) / 1_000_000 / PAGE as u128;
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let due = total.saturating_sub(self.done);
        if due > 1024 * BATCH {
            // Far behind: it cannot keep this rate. What was missed stays missed.
            self.done = total - BATCH;
            return BATCH;
        }
        let batch = due.min(BATCH);
        self.done += batch;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Source;

    fn work(settings: &Settings, start: Instant) -> Work {
        let source = Source::new(
            1,
            (settings.mix.clone(), 0),
            settings.working_set,
            Vec::new(),
        );
        let mut arena = Arena::new(source, settings.pages, settings.working_set, settings.touch);
        (0..settings.pages).for_each(|page| arena.fill(page));
        Work::new(arena, settings, start)
    }

    fn run(work: &mut Work, start: Instant, millis: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        for ms in 0..=millis {
            while work.step(start + Duration::from_millis(ms), &mut |line| {
                lines.push(line)
            }) == Duration::ZERO
            {
                if ms == millis && lines.iter().any(|l| matches!(l, Line::Verified(_))) {
                    break;
                }
            }
        }
        lines
    }

    #[test]
    fn the_working_set_is_rewritten_and_verified_at_their_rates() {
        let settings = Settings {
            pages: 300,
            working_set: 50,
            rewrite: Rate::Bytes(PAGE as u64 * 1000),
            verify: PAGE as u64 * 500,
            ..Settings::default()
        };
        let start = Instant::now();
        let mut work = work(&settings, start);
        run(&mut work, start, 2000);
        let progress = work.progress();
        assert_eq!((progress.rewrites, progress.verified), (2000, 1000));
        assert_eq!((progress.passes, progress.bad), (3, 0));
    }

    #[test]
    fn a_pass_that_is_asked_for_covers_every_page_from_the_first() {
        let settings = Settings {
            pages: 300,
            rewrite: Rate::Max,
            verify: 0,
            ..Settings::default()
        };
        let start = Instant::now();
        let mut work = work(&settings, start);
        work.ask(4, start);
        let mut lines = Vec::new();
        for _ in 0..300 / BATCH + 1 {
            work.step(start, &mut |line| lines.push(line));
        }
        let expected = Verified {
            request: 4,
            pages: 300,
            bad: 0,
            us: 0,
        };
        assert_eq!(lines, [Line::Verified(expected)]);
    }
}
