//! The size of a path's TCP segments, made smaller where large packets vanish.
//!
//! A path can lose every large packet and pass every small one, for one where a switch in the
//! middle has a smaller MTU than both ends and says nothing (RFC 2923, section 2.1). Then
//! connections come about, and no chunk ever gets through.

use std::time::Duration;

use crate::limits::{LOST_IN_A_ROW, SEGMENT_BYTES};

/// What follows from one more lane on which nothing got through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Same,
    /// Segments of this size from now on.
    To(u16),
    /// None of the sizes helps.
    GivenUp,
}

/// What is known of a path's segments.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// How many sizes were found too large.
    too_large: usize,
    /// Lanes in a row, each opened after the end of the last, on which nothing got through.
    in_a_row: u32,
    /// When the last of these ended: one that was opened before tells nothing new.
    counted_at: Option<Duration>,
}

impl Segments {
    /// The size to dial with; `None` for the interface's own.
    pub(crate) fn size(&self) -> Option<u16> {
        match self.too_large {
            0 => None,
            count if count <= SEGMENT_BYTES.len() => Some(SEGMENT_BYTES[count - 1]),
            _ => None,
        }
    }

    pub(crate) fn given_up(&self) -> bool {
        self.too_large > SEGMENT_BYTES.len()
    }

    /// A lane carried something.
    pub(crate) fn carried(&mut self) {
        self.in_a_row = 0;
        if self.given_up() {
            self.too_large = 0;
        }
    }

    /// A lane that was opened at `since` ended without anything having got through.
    pub(crate) fn lane_stalled(&mut self, since: Duration, now: Duration) -> Step {
        if self.counted_at.is_some_and(|at| since < at) {
            return Step::Same;
        }
        self.counted_at = Some(now);
        self.count()
    }

    /// A connection dialled with this size got no answer to its greeting.
    pub(crate) fn stalled(&mut self, size: Option<u16>) -> Step {
        if size == self.size() {
            self.count()
        } else {
            Step::Same
        }
    }

    fn count(&mut self) -> Step {
        if self.given_up() {
            return Step::Same;
        }
        self.in_a_row += 1;
        if self.in_a_row < LOST_IN_A_ROW {
            return Step::Same;
        }
        self.in_a_row = 0;
        self.too_large += 1;
        match self.size() {
            Some(size) => Step::To(size),
            None => Step::GivenUp,
        }
    }

    /// For the operator; `None` where there is nothing to say.
    pub(crate) fn in_words(&self) -> Option<String> {
        if self.given_up() {
            let smallest = SEGMENT_BYTES[SEGMENT_BYTES.len() - 1];
            return Some(format!(
                "connections come about, but nothing gets through on them, with segments of \
                 {smallest} bytes either"
            ));
        }
        self.size().map(|size| {
            format!(
                "large packets vanish on this path (its MTU is smaller than that of the \
                 interfaces): used with segments of {size} bytes"
            )
        })
    }
}
