//! A disk of a guest moves to another file of its host, while the guest runs: what is done next, by what is seen.
//!
//! ```text
//!   Making ─▶ Copying ── is the same ──▶ Pivoting: suspend, complete, resume ──▶ End
//!                └────── cancelled ────▶ GivingUp ─────────────────────────────▶ End
//! ```
//! The hypervisor goes on by itself, whoever asked. So nothing is decided by what was asked for, but by the stage that was written down and
//! by a look at the guest: whoever finds the stage goes on.
//!
//! # Invariant
//! The disk becomes the new file while the guest stands still ([`Step::Complete`]), so that both files are the same until it runs again, and
//! whichever its definition names is right; and it runs once that names what the disk is. The new file is given up ([`End::Kept`]) only where the disk is seen to be the old one. A guest that was stopped for
//! this runs again before there is an end.

use serde::{Deserialize, Serialize};

use crate::cause::Reason;

/// How far it is, as it was written down before anything was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "stage")]
pub enum Stage {
    /// The new file is made. The hypervisor was not asked for anything.
    Making,
    /// The hypervisor was, or is about to be, asked to copy.
    Copying,
    /// The disk is about to become the new file.
    Pivoting {
        /// The guest ran before, and is to run again.
        resumes: bool,
    },
    /// The copy is about to be given up.
    GivingUp {
        /// As above.
        resumes: bool,
    },
}

/// Which file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSeen {
    /// The one that the disk had.
    Old,
    /// The one that it moves to.
    New,
    /// Neither of them.
    Other,
}

/// What is seen of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopySeen {
    /// There is none to the new file.
    None,
    /// It is not the same yet.
    Copies,
    /// It is the same, but for what the guest writes at the moment.
    Same,
    /// It was told to end, either way.
    Ending,
}

/// What is seen of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// It runs.
    Runs,
    /// It stands still.
    Still,
    /// It has no hypervisor.
    Gone,
}

/// A look at all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The guest.
    pub guest: Stands,
    /// What the disk is now; of no meaning where the guest is gone.
    pub disk: FileSeen,
    /// The copy.
    pub copy: CopySeen,
    /// What the disk will be when the guest is started next; none where it has no definition.
    pub defined: Option<FileSeen>,
}

/// What came in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Somebody wants the disk to stay.
    pub cancelled: bool,
    /// What was to take a moment has taken too long: that the guest stands still, or that its definition names what its disk has become.
    pub late: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Wait,
    /// Write this down, and look again.
    Go(Stage),
    /// Have the guest stand still.
    Suspend,
    /// Have the disk become the new file.
    Complete,
    /// Have the guest run.
    Resume,
    /// Have the copy end as nothing.
    GiveUp,
    /// It is over.
    End(End),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The disk is the new file.
    Moved,
    /// The disk is the old one, and the new file is nobody's.
    Kept(Reason),
    /// Which of them it is cannot be told: both are left.
    Unknown(Reason),
}

/// What is to be done at this stage about what is seen.
#[must_use]
pub fn next(stage: Stage, seen: Seen, wishes: Wishes) -> Step {
    if stage == Stage::Making {
        let why = "the agent ended before anything was copied";
        return Step::End(End::Kept(Reason::from(why)));
    }
    if seen.guest == Stands::Gone {
        return Step::End(without_guest(seen.defined));
    }
    let is_written = seen.disk != FileSeen::New || seen.defined != Some(FileSeen::Old);
    if seen.copy == CopySeen::None && !is_written && !wishes.late {
        return Step::Wait;
    }
    match (stage, seen.copy) {
        (Stage::Making | Stage::Copying, CopySeen::Copies | CopySeen::Same) if wishes.cancelled => {
            Step::Go(Stage::GivingUp { resumes: false })
        }
        (Stage::Making | Stage::Copying, CopySeen::Same) => pivots(seen.guest),
        (Stage::Making | Stage::Copying, CopySeen::Copies | CopySeen::Ending) => Step::Wait,
        (Stage::Making | Stage::Copying, CopySeen::None) => Step::End(by_disk(seen.disk)),
        (Stage::Pivoting { resumes }, copy) => pivot(resumes, copy, seen, wishes),
        (Stage::GivingUp { resumes: true }, _) if seen.guest == Stands::Still => Step::Resume,
        (Stage::GivingUp { .. }, CopySeen::Copies | CopySeen::Same) => Step::GiveUp,
        (Stage::GivingUp { .. }, CopySeen::Ending) => Step::Wait,
        (Stage::GivingUp { .. }, CopySeen::None) => Step::End(by_disk(seen.disk)),
    }
}

fn pivots(guest: Stands) -> Step {
    let resumes = guest == Stands::Runs;
    Step::Go(Stage::Pivoting { resumes })
}

fn pivot(resumes: bool, copy: CopySeen, seen: Seen, wishes: Wishes) -> Step {
    let is_still = seen.guest == Stands::Still;
    match copy {
        // It was not heard for too long, or refused each time.
        CopySeen::Copies | CopySeen::Same if wishes.late => Step::Go(Stage::GivingUp { resumes }),
        CopySeen::Copies => Step::Wait,
        CopySeen::Same if is_still => Step::Complete,
        CopySeen::Same if resumes => Step::Suspend,
        // Somebody has it run that stood still before.
        CopySeen::Same => pivots(seen.guest),
        // What is not written yet is written while the guest runs, as it would be without us.
        CopySeen::Ending if is_still && resumes && wishes.late => Step::Resume,
        CopySeen::Ending => Step::Wait,
        CopySeen::None if is_still && resumes => Step::Resume,
        CopySeen::None => Step::End(by_disk(seen.disk)),
    }
}

/// Of a guest that is in memory, without a copy.
fn by_disk(disk: FileSeen) -> End {
    match disk {
        FileSeen::New => End::Moved,
        FileSeen::Old => End::Kept(Reason::from(
            "the copy ended before the disk became the new file",
        )),
        FileSeen::Other => End::Unknown(Reason::from("the disk is another file by now")),
    }
}

fn without_guest(defined: Option<FileSeen>) -> End {
    match defined {
        Some(FileSeen::New) => End::Moved,
        Some(FileSeen::Old) => End::Kept(Reason::from(
            "the guest ended before the disk became the new file",
        )),
        Some(FileSeen::Other) | None => End::Unknown(Reason::from(
            "the guest ended, and no definition of it names either file",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 6] = [
        Stage::Making,
        Stage::Copying,
        Stage::Pivoting { resumes: true },
        Stage::Pivoting { resumes: false },
        Stage::GivingUp { resumes: true },
        Stage::GivingUp { resumes: false },
    ];
    const GUESTS: [Stands; 3] = [Stands::Runs, Stands::Still, Stands::Gone];
    const FILES: [FileSeen; 3] = [FileSeen::Old, FileSeen::New, FileSeen::Other];
    const COPIES: [CopySeen; 4] = [
        CopySeen::None,
        CopySeen::Copies,
        CopySeen::Same,
        CopySeen::Ending,
    ];

    /// Everything that can be seen, with every wish.
    fn all() -> impl Iterator<Item = (Stage, Seen, Wishes)> {
        let defined = FILES.map(Some).into_iter().chain([None]);
        let wishes = [(false, false), (false, true), (true, false), (true, true)];
        STAGES.into_iter().flat_map(move |stage| {
            let defined = defined.clone();
            GUESTS.into_iter().flat_map(move |guest| {
                let defined = defined.clone();
                FILES.into_iter().flat_map(move |disk| {
                    let defined = defined.clone();
                    COPIES.into_iter().flat_map(move |copy| {
                        defined.clone().flat_map(move |defined| {
                            wishes.map(move |(cancelled, late)| {
                                let seen = Seen {
                                    guest,
                                    disk,
                                    copy,
                                    defined,
                                };
                                (stage, seen, Wishes { cancelled, late })
                            })
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn the_disk_becomes_the_new_file_only_while_its_guest_stands_still() {
        for (stage, seen, wishes) in all() {
            if next(stage, seen, wishes) == Step::Complete {
                assert!(matches!(stage, Stage::Pivoting { .. }), "{stage:?}");
                assert_eq!((seen.guest, seen.copy), (Stands::Still, CopySeen::Same));
            }
        }
    }

    #[test]
    fn the_new_file_is_given_up_only_where_the_disk_is_the_old_one_and_nothing_is_copied() {
        for (stage, seen, wishes) in all() {
            let is_old = match seen.guest {
                Stands::Gone => seen.defined == Some(FileSeen::Old),
                _ => seen.disk == FileSeen::Old && seen.copy == CopySeen::None,
            };
            let is_new = match seen.guest {
                Stands::Gone => seen.defined == Some(FileSeen::New),
                _ => seen.disk == FileSeen::New && seen.copy == CopySeen::None,
            };
            match next(stage, seen, wishes) {
                Step::End(End::Kept(_)) => assert!(is_old || stage == Stage::Making, "{seen:?}"),
                Step::End(End::Moved) => assert!(is_new, "{seen:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn nothing_is_over_while_a_guest_stands_still_that_was_stopped_for_it() {
        for (stage, seen, wishes) in all() {
            let (Stage::Pivoting { resumes } | Stage::GivingUp { resumes }) = stage else {
                continue;
            };
            let step = next(stage, seen, wishes);
            if resumes && seen.guest == Stands::Still {
                assert!(!matches!(step, Step::End(_)), "{seen:?}");
            }
            // And one that stood still before is not run.
            assert!(resumes || step != Step::Resume, "{seen:?}");
        }
    }

    #[test]
    fn a_guest_is_stopped_only_for_a_copy_that_is_the_same_and_run_when_that_takes_too_long() {
        let stage = Stage::Pivoting { resumes: true };
        let seen = |guest, copy| Seen {
            guest,
            disk: FileSeen::Old,
            copy,
            defined: Some(FileSeen::Old),
        };
        for (stage, seen, wishes) in all() {
            if next(stage, seen, wishes) == Step::Suspend {
                assert_eq!((seen.guest, seen.copy), (Stands::Runs, CopySeen::Same));
                assert!(!wishes.late);
            }
        }
        let late = Wishes {
            late: true,
            cancelled: false,
        };
        let ends = seen(Stands::Still, CopySeen::Ending);
        assert_eq!(next(stage, ends, Wishes::default()), Step::Wait);
        assert_eq!(next(stage, ends, late), Step::Resume);
        let refused = seen(Stands::Still, CopySeen::Same);
        let gives_up = Stage::GivingUp { resumes: true };
        assert_eq!(next(stage, refused, late), Step::Go(gives_up));
        assert_eq!(next(gives_up, refused, late), Step::Resume);
        let runs = seen(Stands::Runs, CopySeen::Same);
        assert_eq!(next(gives_up, runs, late), Step::GiveUp);
        let stood = Stage::Pivoting { resumes: false };
        let again = Step::Go(stage);
        assert_eq!(
            next(stood, runs, Wishes::default()),
            again,
            "somebody ran it"
        );
    }

    /// All of a guest, its hypervisor and its files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct World {
        stage: Stage,
        seen: Seen,
        /// Which of the files have all that the guest wrote.
        old_is_whole: bool,
        new_is_whole: bool,
    }

    impl World {
        /// What may happen by itself.
        fn happens(self) -> Vec<Self> {
            let mut all = Vec::new();
            let seen = self.seen;
            let mut with = |seen: Seen| {
                let mut next = Self { seen, ..self };
                if next.seen.guest == Stands::Runs {
                    // It writes.
                    next.old_is_whole &= seen.disk == FileSeen::Old;
                    next.new_is_whole &= seen.disk == FileSeen::New;
                }
                all.push(next);
            };
            let copy = |copy| Seen { copy, ..seen };
            match seen.copy {
                _ if seen.guest == Stands::Gone => {}
                CopySeen::Copies => {
                    with(copy(CopySeen::Same));
                    with(copy(CopySeen::None));
                }
                CopySeen::Same => with(copy(CopySeen::None)),
                // Given up; what becomes of one that completes is below.
                CopySeen::Ending => with(copy(CopySeen::None)),
                CopySeen::None if seen.disk == FileSeen::New => {
                    let defined = Some(FileSeen::New);
                    with(Seen { defined, ..seen });
                }
                CopySeen::None => {}
            }
            if seen.copy == CopySeen::Ending && matches!(self.stage, Stage::Pivoting { .. }) {
                let becomes = Seen {
                    disk: FileSeen::New,
                    copy: CopySeen::None,
                    ..seen
                };
                let new_is_whole = true;
                all.push(Self {
                    seen: becomes,
                    new_is_whole,
                    ..self
                });
            }
            let guest = Stands::Gone;
            all.push(Self {
                seen: Seen { guest, ..seen },
                ..self
            });
            all
        }

        /// What the agent does; none when it is over.
        fn acts(self, wishes: Wishes) -> Option<Self> {
            let seen = self.seen;
            let seen = match next(self.stage, seen, wishes) {
                Step::End(_) => return None,
                Step::Wait => seen,
                Step::Go(stage) => return Some(Self { stage, ..self }),
                Step::Suspend => Seen {
                    guest: Stands::Still,
                    ..seen
                },
                Step::Resume => Seen {
                    guest: Stands::Runs,
                    ..seen
                },
                Step::Complete | Step::GiveUp => Seen {
                    copy: CopySeen::Ending,
                    ..seen
                },
            };
            let mut next = Self { seen, ..self };
            if seen.guest == Stands::Runs {
                next.old_is_whole &= seen.disk == FileSeen::Old;
                next.new_is_whole &= seen.disk == FileSeen::New;
            }
            Some(next)
        }
    }

    #[test]
    fn the_file_that_a_definition_names_is_whole_whatever_dies_whenever() {
        let begun = World {
            stage: Stage::Copying,
            seen: Seen {
                guest: Stands::Runs,
                disk: FileSeen::Old,
                copy: CopySeen::Copies,
                defined: Some(FileSeen::Old),
            },
            old_is_whole: true,
            new_is_whole: false,
        };
        let (mut known, mut open, mut ends) = (vec![begun], vec![begun], 0);
        while let Some(world) = open.pop() {
            let mut nexts = world.happens();
            for cancelled in [false, true] {
                let wishes = Wishes {
                    cancelled,
                    late: false,
                };
                match world.acts(wishes) {
                    Some(next) => nexts.push(next),
                    None => ends += 1,
                }
            }
            for next in nexts {
                let is_whole = match next.seen.defined {
                    Some(FileSeen::Old) => next.old_is_whole,
                    Some(FileSeen::New) => next.new_is_whole,
                    _ => false,
                };
                assert!(is_whole, "{world:?}\n{next:?}");
                if !known.contains(&next) {
                    known.push(next);
                    open.push(next);
                }
            }
        }
        assert!(ends > 3 && known.len() > 20, "{} {ends}", known.len());
    }
}
