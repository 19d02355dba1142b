//! The guest's work: rewriting the working set at its rate, and verifying all the time.
//!
//! One thread does both, page by page, so that no page is verified half rewritten. What is held
//! beside the pages changes a little at a steady rate, and is verified, piece by piece, in passes
//! that were asked for.

use std::time::{Duration, Instant};

use crate::arena::{Arena, Bad};
use crate::held::{Held, pages};
use crate::pace::{BATCH, IDLE, Pace, micros};
use crate::report::{Line, Verified};
use crate::settings::{PAGE, Rate, Settings};

/// Bad pages told one by one.
pub const TOLD: u64 = 8;

/// Changes a second of what is held beside the pages: the light use of a store that nobody is
/// busy with. At 1.5 KiB a document they are 30 KiB a second.
const CHANGES: u64 = 20;

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
    held: Option<Box<dyn Held>>,
    rewrite: Pace,
    verify: Pace,
    change: Pace,
    /// The page that is verified next; in a pass that was asked for, the pieces of what is held
    /// follow the last page.
    cursor: usize,
    asked: Option<Asked>,
    progress: Progress,
}

struct Asked {
    request: u64,
    since: Instant,
    bad_before: u64,
    pages: u64,
}

impl Work {
    /// Work on filled pages, and on what is held beside them.
    pub fn new(
        arena: Arena,
        held: Option<Box<dyn Held>>,
        settings: &Settings,
        now: Instant,
    ) -> Self {
        let verify = Pace::new(Rate::Bytes(settings.verify), now);
        let rewrite = Pace::new(settings.rewrite, now);
        let change = Pace::new(Rate::Bytes(CHANGES * PAGE as u64), now);
        Self {
            arena,
            held,
            rewrite,
            verify,
            change,
            cursor: 0,
            asked: None,
            progress: Progress::default(),
        }
    }

    /// What was done so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// All pages: those of the arena, and those of what is held.
    pub fn page_count(&self) -> u64 {
        let held = self.held.as_deref().map_or(0, pages);
        self.arena.page_count() as u64 + held
    }

    /// Begins a full pass at full speed, anew if one is under way.
    pub fn ask(&mut self, request: u64, now: Instant) {
        self.cursor = 0;
        self.asked = Some(Asked {
            request,
            since: now,
            bad_before: self.progress.bad,
            pages: 0,
        });
    }

    /// Does what is due, a batch at most, and says how long nothing will be.
    pub fn step(&mut self, now: Instant, say: &mut impl FnMut(Line)) -> Duration {
        let rewrites = self.rewrite.due(now);
        for _ in 0..rewrites {
            self.arena.rewrite();
        }
        self.progress.rewrites = self.arena.rewrites();
        let changes = self.change_held(now);
        let verifies = if self.asked.is_some() {
            BATCH
        } else {
            self.verify.due(now)
        };
        let mut left = verifies;
        while left > 0 {
            left = left.saturating_sub(self.verify_next(now, say));
        }
        if rewrites + verifies + changes == 0 {
            IDLE
        } else {
            Duration::ZERO
        }
    }

    fn change_held(&mut self, now: Instant) -> u64 {
        let Some(held) = &mut self.held else { return 0 };
        let changes = self.change.due(now);
        for _ in 0..changes {
            held.change();
        }
        changes
    }

    /// Verifies the next page, or the next piece of what is held; how many pages that were.
    fn verify_next(&mut self, now: Instant, say: &mut impl FnMut(Line)) -> u64 {
        let piece = self.cursor.checked_sub(self.arena.page_count());
        let (pages, bad) = match (piece, &mut self.held) {
            (Some(piece), Some(held)) => (held.pages(piece), held.verify(piece)),
            _ => {
                let bad = self.arena.verify(self.cursor).err();
                (1, bad.iter().map(tell).collect())
            }
        };
        for line in bad {
            self.progress.bad += 1;
            if self.progress.bad <= TOLD {
                say(line);
            }
        }
        self.progress.verified += pages;
        self.cursor += 1;
        if let Some(asked) = &mut self.asked {
            asked.pages += pages;
        }
        if self.cursor >= self.end() {
            self.cursor = 0;
            self.progress.passes += 1;
            self.answer(now, say);
        }
        pages.max(1)
    }

    /// Where a pass ends.
    fn end(&self) -> usize {
        let held = self.held.as_ref().filter(|_| self.asked.is_some());
        self.arena.page_count() + held.map_or(0, |held| held.pieces())
    }

    fn answer(&mut self, now: Instant, say: &mut impl FnMut(Line)) {
        if let Some(asked) = self.asked.take() {
            say(Line::Verified(Verified {
                request: asked.request,
                pages: asked.pages,
                bad: self.progress.bad - asked.bad_before,
                us: micros(now.saturating_duration_since(asked.since)),
            }));
        }
    }
}

fn tell(bad: &Bad) -> Line {
    Line::Bad {
        page: bad.page as u64,
        class: bad.class.name().to_owned(),
        damage: bad.damage.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Source;

    fn work(settings: &Settings, start: Instant) -> Work {
        work_with(None, settings, start)
    }

    fn work_with(held: Option<Box<dyn Held>>, settings: &Settings, start: Instant) -> Work {
        let source = Source::new(
            1,
            (settings.mix.clone(), 0),
            settings.working_set,
            Vec::new(),
        );
        let mut arena = Arena::new(source, settings.pages, settings.working_set, settings.touch);
        (0..settings.pages).for_each(|page| arena.fill(page));
        Work::new(arena, held, settings, start)
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

    /// Three pieces of ten pages, of which the last is bad.
    #[derive(Default)]
    struct Three(std::rc::Rc<std::cell::Cell<u64>>);

    impl Held for Three {
        fn pieces(&self) -> usize {
            3
        }
        fn pages(&self, _: usize) -> u64 {
            10
        }
        fn verify(&mut self, piece: usize) -> Vec<Line> {
            let bad = Line::Bad {
                page: 2,
                class: "file".to_owned(),
                damage: "checksum".to_owned(),
            };
            (piece == 2).then_some(bad).into_iter().collect()
        }
        fn change(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn what_is_held_changes_lightly_and_is_verified_only_when_it_is_asked_for() {
        let settings = Settings {
            pages: 300,
            working_set: 0,
            verify: PAGE as u64 * 1000,
            ..Settings::default()
        };
        let (start, three) = (Instant::now(), Three::default());
        let changes = std::rc::Rc::clone(&three.0);
        let mut work = work_with(Some(Box::new(three)), &settings, start);
        assert_eq!(work.page_count(), 330);
        run(&mut work, start, 2000);
        let progress = work.progress();
        assert_eq!((changes.get(), progress.passes, progress.bad), (40, 6, 0));
        let later = start + Duration::from_millis(2000);
        work.ask(1, later);
        let mut lines = Vec::new();
        while !matches!(lines.last(), Some(Line::Verified(_))) {
            work.step(later, &mut |line| lines.push(line));
        }
        let expected = Verified {
            request: 1,
            pages: 330,
            bad: 1,
            us: 0,
        };
        assert_eq!(lines[1..], [Line::Verified(expected)]);
    }
}
