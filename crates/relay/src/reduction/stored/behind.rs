//! What becomes of pages that are stored and recorded, as it can be asked for also behind their relay.

use std::sync::Arc;

use super::background::{Counts, Standing};
use super::{Filling, Recording, StoredPages};

/// The counts of both. It holds nothing else of a relay, and keeps none of its threads from ending.
#[derive(Debug, Clone)]
pub struct Behind {
    filling: Option<Arc<Counts>>,
    recording: Option<Arc<Counts>>,
}

impl Behind {
    pub(crate) fn new(filling: Option<&Filling>, recording: Option<&Recording>) -> Self {
        Self {
            filling: filling.map(Filling::counts),
            recording: recording.map(Recording::counts),
        }
    }

    /// Whether pages are stored or recorded.
    pub(crate) const fn is_any(&self) -> bool {
        self.filling.is_some() || self.recording.is_some()
    }

    /// Has a report say how they stand now.
    pub(crate) fn report(&self, to: &mut StoredPages) {
        self.put(to, |standing| standing);
    }

    /// The same where nobody writes any more: what waits still is left out.
    pub fn report_end(&self, to: &mut StoredPages) {
        self.put(to, Standing::ended);
    }

    fn put(&self, to: &mut StoredPages, seen: impl Fn(Standing) -> Standing) {
        let standing = |counts: &Option<Arc<Counts>>| {
            let counts = counts.as_ref();
            counts.map(|counts| seen(counts.standing()))
        };
        to.waiting = 0;
        if let Some(filling) = standing(&self.filling) {
            to.added = filling.written;
            to.waiting += filling.waiting;
            to.left_out = filling.left_out;
            to.trouble = to.trouble.take().or(filling.trouble);
        }
        if let Some(recording) = standing(&self.recording) {
            to.recorded = recording.written;
            to.waiting += recording.waiting;
            to.unrecorded = recording.left_out;
            to.trouble = to.trouble.take().or(recording.trouble);
        }
    }
}
