//! What was seen of moves that are under way, and what lines were seen to carry by it.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_types::{ByteRate, Bytes, HostName};

use crate::answers::{Look, Phase};
use crate::limits::{LEAD_MS, SETTLE, WORTH_PERCENT};

/// What was seen of a move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its source has taken the order.
    pub known: bool,
    /// Its source was asked, and had not.
    pub(crate) unknown: bool,
    /// Bytes sent so far, still to send, and in all.
    pub bytes: [Bytes; 3],
    /// What all lanes carry per second.
    pub rate: ByteRate,
    /// Since when bulk has been carried.
    pub(crate) bulk_since: Option<Duration>,
    /// By its own estimate.
    pub(crate) left_ms: Option<u64>,
    /// Since when its source says that it has arrived; it is no longer copied.
    pub(crate) complete_since: Option<Duration>,
    /// It is past the point at which it can be called back, or is being called back already.
    pub(crate) goes_its_way: bool,
    /// Since when it is neither copied nor over: what ends it is not the run's to do.
    pub(crate) ending_since: Option<Duration>,
    /// Since when who is to be asked has not answered.
    pub(crate) silent_since: Option<Duration>,
}

impl Seen {
    /// Whether the guest has arrived, by its source's word.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete_since.is_some()
    }

    pub(crate) fn look(&mut self, look: &Look, elapsed: Duration) {
        self.known = true;
        self.unknown = false;
        self.silent_since = None;
        self.bytes = look.bytes;
        self.rate = look.rate;
        self.left_ms = look.left_ms;
        if look.phase == Phase::Transferring && look.rate.0 > 0 {
            self.bulk_since.get_or_insert(elapsed);
        }
        match look.phase {
            Phase::HandingOff | Phase::CallingBack => {
                self.goes_its_way = true;
                self.ending_since.get_or_insert(elapsed);
            }
            // An agent that was started again may have forgotten that it was called back.
            Phase::Preparing | Phase::Transferring => {
                self.goes_its_way = false;
                self.ending_since = None;
            }
            Phase::Completed | Phase::Cancelled | Phase::Failed { .. } => {}
        }
    }

    /// Its lines are about to be free.
    pub(crate) fn is_nearly_over(&self) -> bool {
        let last = self.left_ms.is_some_and(|left| left <= LEAD_MS);
        self.is_complete() || self.goes_its_way || (self.bulk_since.is_some() && last)
    }

    /// Its rate says what the lines carry.
    pub(crate) fn has_settled(&self, elapsed: Duration) -> bool {
        self.bulk_since
            .is_some_and(|since| elapsed.saturating_sub(since) >= SETTLE)
    }
}

/// An end of moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Source,
    Destination,
}

/// The most that a host was seen to carry with so many moves at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(BTreeMap<(HostName, End, usize), ByteRate>);

impl Measured {
    pub(crate) fn note(&mut self, host: &HostName, end: End, at_once: usize, rate: ByteRate) {
        let best = self.0.entry((host.clone(), end, at_once)).or_default();
        *best = (*best).max(rate);
    }

    /// Whether one more than so many at once is known to carry hardly more in all.
    pub(crate) fn is_one_more_in_vain(&self, host: &HostName, end: End, at_once: usize) -> bool {
        let of = |count| self.0.get(&(host.clone(), end, count));
        match (of(at_once), of(at_once + 1)) {
            (Some(without), Some(with)) => {
                let percent = |rate: &ByteRate| u128::from(rate.0) * 100;
                percent(with) < u128::from(without.0) * u128::from(WORTH_PERCENT)
            }
            _ => false,
        }
    }
}
