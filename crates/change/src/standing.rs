//! Where a journal says that a plan is, and what is next. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::in_short;

use crate::order::PathTo;
use crate::record::{Outcome, Record};
use crate::sizes::PathSizes;

/// What a plan is in the middle of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was done.
    New,
    /// Steps are done.
    Applying,
    /// They are taken back by themselves.
    RollingBack {
        /// Why.
        why: String,
    },
    /// They are taken back as somebody wanted.
    Undoing,
    /// The host was restarted meanwhile: it is looked at what is there.
    Restarted,
    /// It is over.
    Ended(Outcome),
}

/// A step that was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub step: usize,
    /// What is there, or why that is not known.
    pub found: String,
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How many steps there are.
    steps: usize,
    /// How many files are written after them.
    files: usize,
    /// What it is in the middle of.
    pub phase: Phase,
    /// The boot id under which it began.
    pub boot: Option<String>,
    /// Paths that worked before.
    pub paths: Vec<PathTo>,
    /// Those of them by which the other host's agent opened a connection to this one before.
    pub opened: Vec<PathTo>,
    /// Of which it did not, or that is not known, and why.
    pub unopened: Vec<String>,
    /// Interfaces that had a carrier before.
    pub carriers: Vec<String>,
    /// Paths that migrations take, with the largest packets that crossed them before.
    pub sizes: Vec<PathSizes>,
    /// Of which other paths that is not known, and why.
    pub untold: Vec<String>,
    /// Steps that may have been done and were not taken back; with what is there instead of what was wanted.
    touched: BTreeMap<usize, Option<String>>,
    done: usize,
    left: BTreeMap<usize, String>,
    /// Steps that were passed by, and why.
    passed: BTreeMap<usize, String>,
    /// Whether other hosts reach this one after all steps.
    is_proved: bool,
    /// Whether a file was begun with: what was set may outlive a restart.
    lasts: bool,
    /// Files that were put back, and that their readers have not been told of since.
    put_back: BTreeSet<usize>,
    /// Why that was tried and came to nothing.
    not_reread: Option<String>,
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// To look whether all is as the plan says.
    Begin,
    /// To do this step.
    Do(usize),
    /// To try whether paths work.
    Prove,
    /// To write this file.
    Write(usize),
    /// To take this step back.
    TakeBack(usize),
    /// To look what is there of this step.
    Look(usize),
    /// To have files that were put back be read again.
    Reread,
    /// To write that it is over.
    End(Outcome),
    /// Nothing.
    Nothing(Outcome),
}

/// A journal that no run can have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {at} of the journal does not follow from those before it: {record}")]
pub struct StandingError {
    /// Which, counted from 1.
    pub at: usize,
    /// What it says.
    pub record: String,
}

impl Standing {
    /// Of a plan with so many steps, and files behind them, by its journal.
    ///
    /// # Errors
    /// No run can have written it.
    pub fn of(steps: usize, files: usize, records: &[Record]) -> Result<Self, StandingError> {
        let mut standing = Self {
            steps,
            files,
            phase: Phase::New,
            boot: None,
            paths: Vec::new(),
            opened: Vec::new(),
            unopened: Vec::new(),
            carriers: Vec::new(),
            sizes: Vec::new(),
            untold: Vec::new(),
            touched: BTreeMap::new(),
            done: 0,
            left: BTreeMap::new(),
            passed: BTreeMap::new(),
            is_proved: false,
            lasts: false,
            put_back: BTreeSet::new(),
            not_reread: None,
        };
        for (at, record) in records.iter().enumerate() {
            standing.take(record).ok_or_else(|| StandingError {
                at: at + 1,
                record: format!("{record:?}"),
            })?;
        }
        Ok(standing)
    }

    /// What a record adds; `None` if it cannot be here.
    pub(crate) fn take(&mut self, record: &Record) -> Option<()> {
        match (&self.phase, record) {
            (
                Phase::New,
                Record::Began {
                    boot,
                    paths,
                    opened,
                    unopened,
                    carriers,
                    sizes,
                    untold,
                    ..
                },
            ) => {
                self.boot = Some(boot.clone());
                self.paths.clone_from(paths);
                self.opened.clone_from(opened);
                self.unopened.clone_from(unopened);
                self.carriers.clone_from(carriers);
                self.sizes.clone_from(sizes);
                self.untold.clone_from(untold);
                self.phase = Phase::Applying;
            }
            (Phase::Applying, Record::AboutTo { step })
                if *step == self.done && self.may_begin(*step) =>
            {
                self.lasts |= *step >= self.steps;
                self.touched.insert(*step, None);
            }
            (Phase::Applying, Record::Proved) if self.done == self.steps && !self.is_proved => {
                self.is_proved = true;
            }
            (Phase::Applying, Record::Done { step }) if self.touched.contains_key(step) => {
                self.done = step + 1;
            }
            (Phase::Applying, Record::PassedBy { step, why }) if *step < self.steps => {
                self.touched.remove(step)?;
                self.passed.insert(*step, why.clone());
                self.done = step + 1;
            }
            (Phase::Applying, Record::Differs { step, found }) => {
                *self.touched.get_mut(step)? = Some(found.clone());
            }
            // Also of what ended well, and could not be written to have.
            (Phase::Applying | Phase::Ended(Outcome::Applied { .. }), Record::RollBack { why }) => {
                self.phase = Phase::RollingBack { why: why.clone() };
            }
            (Phase::Ended(_), Record::UndoAsked { .. }) if self.can_be_undone() => {
                self.left.clear();
                self.not_reread = None;
                self.phase = Phase::Undoing;
            }
            (Phase::Ended(_), _) => return None,
            (_, Record::TakenUp { boot, .. }) => self.taken_up(boot),
            (
                Phase::RollingBack { .. } | Phase::Undoing | Phase::Restarted,
                Record::Undone { step },
            ) => {
                self.touched.remove(step)?;
                if *step >= self.steps {
                    self.put_back.insert(*step);
                }
            }
            (Phase::RollingBack { .. } | Phase::Undoing, Record::Reread) => self.put_back.clear(),
            (Phase::RollingBack { .. } | Phase::Undoing, Record::NotReread { why }) => {
                self.not_reread = Some(why.clone());
            }
            (
                Phase::RollingBack { .. } | Phase::Undoing | Phase::Restarted,
                Record::Left { step, found },
            ) if self.touched.contains_key(step) => {
                self.left.insert(*step, found.clone());
            }
            (_, Record::Ended { outcome, .. }) => self.phase = Phase::Ended(outcome.clone()),
            _ => return None,
        }
        Some(())
    }

    fn may_begin(&self, step: usize) -> bool {
        let is_its_turn = step < self.steps || (self.is_proved && step < self.steps + self.files);
        is_its_turn && !self.touched.contains_key(&step)
    }

    fn taken_up(&mut self, boot: &str) {
        // Files are still there, and have had set again what was set.
        if self.boot.is_some() && !self.may_be_there(boot) {
            self.left.clear();
            self.phase = Phase::Restarted;
            return;
        }
        let why = match &self.phase {
            Phase::New => "its process ended before the first step".to_owned(),
            Phase::Applying if self.is_proved => {
                "its process ended before all was written by which it lasts".to_owned()
            }
            Phase::Applying if self.done == self.steps => {
                "its process ended before it was proved that other hosts reach this one".to_owned()
            }
            Phase::Applying => format!(
                "its process ended after {} of {} steps",
                self.done, self.steps
            ),
            _ => return,
        };
        self.phase = Phase::RollingBack { why };
    }

    /// What is to be done now.
    #[must_use]
    pub fn next(&self) -> Next {
        // The newest first; those that are left alone are done with.
        let back = self.touched.keys().rev();
        let back = back.copied().find(|step| !self.left.contains_key(step));
        match (&self.phase, back) {
            (Phase::New, _) => Next::Begin,
            (Phase::Applying, _) if self.done < self.steps => Next::Do(self.done),
            (Phase::Applying, _) if !self.is_proved => Next::Prove,
            (Phase::Applying, _) if self.done < self.steps + self.files => Next::Write(self.done),
            (Phase::Applying, _) => {
                let proven = self.paths.len();
                Next::End(Outcome::Applied { proven })
            }
            (Phase::Restarted, Some(step)) => Next::Look(step),
            (Phase::Restarted, None) if self.left.is_empty() => Next::End(Outcome::GoneWithRestart),
            (Phase::Restarted, None) => {
                let why = "the host was restarted".to_owned();
                Next::End(Outcome::InDoubt { why })
            }
            (Phase::Ended(outcome), _) => Next::Nothing(outcome.clone()),
            (_, Some(step)) => Next::TakeBack(step),
            // Once, and last: whoever is slow to answer keeps no setting from being taken back.
            _ if !self.put_back.is_empty() && self.not_reread.is_none() => Next::Reread,
            (Phase::RollingBack { why }, _) => Next::End(self.back(why, |why| {
                let why = why.to_owned();
                Outcome::RolledBack { why }
            })),
            (Phase::Undoing, _) => Next::End(self.back("it was to be undone", |_| Outcome::Undone)),
        }
    }

    /// What became of it now that nothing is left to be taken back.
    fn back(&self, why: &str, whole: impl Fn(&str) -> Outcome) -> Outcome {
        match &self.not_reread {
            None if self.left.is_empty() => whole(why),
            None => Outcome::InDoubt {
                why: why.to_owned(),
            },
            Some(not_reread) => Outcome::InDoubt {
                why: in_short(format!("{why}; {not_reread}")),
            },
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether what it set may be there under this boot id: it is that of its beginning, or files were written.
    #[must_use]
    pub fn may_be_there(&self, boot: &str) -> bool {
        self.lasts || self.boot.as_deref() == Some(boot)
    }

    /// Whether something of it can be taken back, where it [may be there](Self::may_be_there).
    #[must_use]
    pub fn can_be_undone(&self) -> bool {
        matches!(
            self.phase,
            Phase::Ended(Outcome::Applied { .. } | Outcome::InDoubt { .. })
        )
    }

    /// Steps that may have been done and were not taken back, those that write files behind the others.
    pub fn touched(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.touched.keys().copied()
    }

    /// Files that were put back, and that their readers have not been told of since.
    pub(crate) fn put_back(&self) -> impl Iterator<Item = usize> {
        self.put_back.iter().copied()
    }

    /// What is there of a step if it is not what was wanted.
    pub(crate) fn differs(&self, step: usize) -> Option<&str> {
        self.touched.get(&step)?.as_deref()
    }

    /// Why a step was passed by, if it was.
    #[must_use]
    pub fn passed_by(&self, step: usize) -> Option<&str> {
        self.passed.get(&step).map(String::as_str)
    }

    /// How many steps were done, or passed by.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Whether other hosts reached this one after all steps, so that files are written.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.is_proved
    }

    /// Steps that were left alone.
    #[must_use]
    pub fn left(&self) -> Vec<Left> {
        let left = self.left.iter();
        left.map(|(step, found)| Left {
            step: *step,
            found: found.clone(),
        })
        .collect()
    }
}
