//! Work that somebody has to begin.

use std::sync::Arc;

use drover_session::Input;

use crate::channel::{self, Writes};
use crate::lane::{self, Sends};
use crate::shared::Shared;

/// Jobs were brought where nobody is at work.
#[derive(Debug)]
pub(crate) enum Errand {
    Send(Arc<Sends>),
    Write(Arc<Writes>),
}

/// The errands that came of one step.
#[derive(Debug, Default)]
#[must_use = "nobody else begins this work"]
pub(crate) struct Errands(Vec<Errand>);

impl Extend<Errand> for Errands {
    fn extend<T: IntoIterator<Item = Errand>>(&mut self, more: T) {
        self.0.extend(more);
    }
}

impl IntoIterator for Errands {
    type Item = Errand;
    type IntoIter = std::vec::IntoIter<Errand>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Errands {
    /// Does what can be done without waiting, and what comes of it.
    pub(crate) fn run(mut self, shared: &Arc<Shared>) {
        while let Some(errand) = self.0.pop() {
            match errand {
                Errand::Send(sends) => lane::help(shared, &sends, &mut self),
                Errand::Write(writes) => channel::help(shared, &writes, &mut self),
            }
        }
    }

    /// Calls the threads whose work it is.
    pub(crate) fn call(self) {
        for errand in self.0 {
            match errand {
                Errand::Send(sends) => sends.call(),
                Errand::Write(writes) => writes.call(),
            }
        }
    }
}

impl Shared {
    /// As [`Shared::step`], for who has no time for errands.
    pub(crate) fn step_or_end(self: &Arc<Self>, input: Input) {
        self.step(input).call();
    }

    /// As [`Shared::step`], and runs the errands.
    pub(crate) fn step_and_help(self: &Arc<Self>, input: Input) {
        self.step(input).run(self);
    }
}
