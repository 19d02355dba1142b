//! Disks that are copied with a guest: when its memory may begin to move, and when it may be let go.
//!
//! ```text
//!   Copying ── all are the same ──▶ Memory ── its guest stopped, all ended as the same ──▶ Ended
//! ```
//! The stage is known beside what is seen: a look at the hypervisor alone does not tell whether a copy ended because it was told to, nor
//! whether a migration that failed is an earlier one. The first two are written down before they are acted upon.
//!
//! # Invariant
//! The hypervisor goes on past the switchover only when every copy was ended as the same, by [`Step::End`], with the guest stopped. So a
//! destination that has all of the memory has all of the disks.

use serde::{Deserialize, Serialize};

use crate::cause::Reason;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Disks are copied, and nothing else is.
    Copying,
    /// The hypervisor was, or is about to be, told to migrate.
    Memory,
    /// All copies were ended as the same, and are about to be let go. Whoever did not see it gives up.
    Ended,
}

/// What is seen of one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorSeen {
    /// There is none.
    Absent,
    /// It is not yet the same.
    Copies,
    /// It is the same, but for what the guest writes at the moment.
    Ready,
    /// It ended as the same.
    Ended,
    /// It failed.
    Failed(Reason),
}

/// What is seen of the migration of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySeen {
    /// There is none.
    NotBegun,
    /// It goes on.
    UnderWay,
    /// It waits at the switchover, the guest stopped.
    Waits,
    /// It has ended, however.
    Over,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Wait,
    /// Write [`Stage::Memory`] down, then tell the hypervisor to migrate.
    BeginMemory,
    /// End these copies, which are ready.
    End(Vec<usize>),
    /// Go on to [`Stage::Ended`].
    AllEnded,
    /// Let all copies go, then have the hypervisor go on.
    SwitchOver,
    /// Give all of it up, for what this copy did, by its number, or for memory's migration.
    GiveUp(Option<usize>, Reason),
    /// Memory's migration is over.
    Over,
}

/// What is to be done at this stage about what is seen: each copy, by its number, and the migration of memory.
#[must_use]
pub fn next(stage: Stage, mirrors: &[MirrorSeen], memory: MemorySeen) -> Step {
    let give_up = |(number, reason)| Step::GiveUp(Some(number), reason);
    match (stage, memory) {
        (Stage::Copying, _) => match broken(mirrors, false) {
            Some(broken) => give_up(broken),
            None if mirrors.iter().all(|seen| *seen == MirrorSeen::Ready) => Step::BeginMemory,
            None => Step::Wait,
        },
        (_, MemorySeen::Over) => Step::Over,
        (_, MemorySeen::NotBegun) => {
            let reason = "its memory's migration was not begun, or is not known any more";
            Step::GiveUp(None, Reason::from(reason))
        }
        (Stage::Ended, MemorySeen::UnderWay) => Step::Wait,
        (Stage::Ended, MemorySeen::Waits) => Step::SwitchOver,
        (Stage::Memory, MemorySeen::UnderWay) => broken(mirrors, false).map_or(Step::Wait, give_up),
        (Stage::Memory, MemorySeen::Waits) => match broken(mirrors, true) {
            Some(broken) => give_up(broken),
            None => end(mirrors),
        },
    }
}

fn end(mirrors: &[MirrorSeen]) -> Step {
    let numbered = mirrors.iter().enumerate();
    let ready = numbered.filter(|(_, seen)| **seen == MirrorSeen::Ready);
    let ready: Vec<_> = ready.map(|(number, _)| number).collect();
    if !ready.is_empty() {
        return Step::End(ready);
    }
    match mirrors.iter().all(|seen| *seen == MirrorSeen::Ended) {
        true => Step::AllEnded,
        false => Step::Wait,
    }
}

/// By which copy all come to nothing, if they do, and what it did. One that has ended is of use only once the guest stands still.
fn broken(mirrors: &[MirrorSeen], stopped: bool) -> Option<(usize, Reason)> {
    mirrors.iter().enumerate().find_map(|(number, seen)| {
        let words = match seen {
            MirrorSeen::Copies | MirrorSeen::Ready => return None,
            MirrorSeen::Ended if stopped => return None,
            MirrorSeen::Ended => "was ended by somebody else".to_owned(),
            MirrorSeen::Absent => "is not there any more".to_owned(),
            MirrorSeen::Failed(reason) => format!("failed: {reason}"),
        };
        Some((number, words.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: [MemorySeen; 4] = [
        MemorySeen::NotBegun,
        MemorySeen::UnderWay,
        MemorySeen::Waits,
        MemorySeen::Over,
    ];

    fn all() -> [MirrorSeen; 5] {
        [
            MirrorSeen::Absent,
            MirrorSeen::Copies,
            MirrorSeen::Ready,
            MirrorSeen::Ended,
            MirrorSeen::Failed("no space".into()),
        ]
    }

    #[test]
    fn memory_begins_once_every_disk_is_the_same() {
        use MirrorSeen::{Copies, Ready};
        for memory in MEMORY {
            // Of an earlier migration, whatever is seen.
            let step = |mirrors: &[_]| next(Stage::Copying, mirrors, memory);
            assert_eq!(step(&[Ready, Copies]), Step::Wait);
            assert_eq!(step(&[Ready, Ready]), Step::BeginMemory);
        }
    }

    #[test]
    fn copies_are_ended_only_while_the_guest_stands_still_and_it_goes_only_when_all_have() {
        use MirrorSeen::{Copies, Ended, Ready};
        let waits = |mirrors: &[_]| next(Stage::Memory, mirrors, MemorySeen::Waits);
        assert_eq!(waits(&[Ready, Ended, Ready]), Step::End(vec![0, 2]));
        assert_eq!(waits(&[Ended, Copies]), Step::Wait);
        assert_eq!(waits(&[Ended, Ended]), Step::AllEnded);
        let goes = |mirrors: &[_]| next(Stage::Memory, mirrors, MemorySeen::UnderWay);
        assert_eq!(goes(&[Ready, Ready]), Step::Wait);
        assert!(matches!(goes(&[Ready, Ended]), Step::GiveUp(..)));
    }

    #[test]
    fn nothing_is_let_go_before_all_copies_are_known_to_have_ended_as_the_same() {
        for first in all() {
            for second in all() {
                for memory in MEMORY {
                    for stage in [Stage::Copying, Stage::Memory] {
                        let mirrors = [first.clone(), second.clone()];
                        let step = next(stage, &mirrors, memory);
                        assert_ne!(step, Step::SwitchOver);
                        if step == Step::AllEnded {
                            assert_eq!(mirrors, [MirrorSeen::Ended, MirrorSeen::Ended]);
                            assert_eq!(memory, MemorySeen::Waits);
                        }
                    }
                }
            }
        }
        let ended = |memory| next(Stage::Ended, &[MirrorSeen::Absent], memory);
        assert_eq!(ended(MemorySeen::Waits), Step::SwitchOver);
        assert_eq!(ended(MemorySeen::UnderWay), Step::Wait);
        assert_eq!(ended(MemorySeen::Over), Step::Over);
    }

    #[test]
    fn a_copy_that_failed_is_told_of_by_its_number() {
        let failed = [MirrorSeen::Ready, MirrorSeen::Failed("no space".into())];
        for stage in [Stage::Copying, Stage::Memory] {
            let Step::GiveUp(Some(1), why) = next(stage, &failed, MemorySeen::UnderWay) else {
                panic!("{stage:?}");
            };
            assert_eq!(why.to_string(), "failed: no space");
        }
        let lost = next(Stage::Memory, &[MirrorSeen::Ready], MemorySeen::NotBegun);
        assert!(matches!(lost, Step::GiveUp(None, _)));
    }
}
