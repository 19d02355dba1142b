//! What grows of a guest's pages while it moves: its checkpoint where it leaves, its baseline where it arrives.

use drover_api::CheckpointKind;
use drover_relay::StoredPages;
use drover_types::Bytes;

use super::carrier::Carrier;
use crate::checkpoints::{Checkpoints, Growing};
use crate::facts::memory;
use crate::limits::RELAY_ENDED;

/// Bytes of its pages that may wait to be written, where the guest itself will take so much of the host's memory; and where they are fewer
/// than configured, why.
pub fn room(growing: &mut Growing, guest: Bytes) -> (u64, Option<String>) {
    let left = |available: Bytes| Bytes(available.0.saturating_sub(guest.0));
    let available = memory().ok().map(|memory| left(memory.available));
    growing.waiting_room(available)
}

/// Keeps it, once its relay has written what waits for that, or gives it up. Nobody waits for the disk; an agent that ends does for a while.
pub fn end(
    checkpoints: &Checkpoints,
    mut growing: Growing,
    carrier: Option<Carrier>,
    is_wanted: bool,
) {
    if !is_wanted {
        return checkpoints.defer(move || drop(growing));
    }
    let (vm, kind) = growing.of().clone();
    let of = vm.clone();
    // Before others are waited for.
    let shown = carrier.as_ref().map(stored).unwrap_or_default();
    let writes = move || {
        let Some(carrier) = carrier else { return 0 };
        if !carrier.relay.wait_until_gone() {
            let (pid, seconds) = (carrier.relay.pid(), RELAY_ENDED.as_secs());
            tracing::warn!(
                %vm, pid, seconds,
                "its relay has not ended so long after it was told to: what is not written of the {kind} crosses again"
            );
        }
        let last = stored(&carrier);
        let (left_out, behind) = left_out(kind, &shown, &last);
        if behind > 0 {
            let (waited, why) = (shown.waiting, last.trouble.as_deref());
            let why = why.unwrap_or("they were not written by then");
            tracing::warn!(
                %vm, pages = behind, waited, why,
                "pages that waited when it had moved were left out of its {kind}, and cross again"
            );
        }
        left_out
    };
    checkpoints.defer_behind(writes, move |left_out| {
        growing.lacks(left_out);
        if let Err(error) = growing.keep() {
            tracing::error!(vm = %of, %error, "its {kind} is not kept: its pages cross again");
        }
    });
}

/// What its relay told last of pages that are kept.
fn stored(carrier: &Carrier) -> StoredPages {
    let counters = carrier.relay.counters();
    counters
        .and_then(|counters| counters.relay.stored)
        .unwrap_or_default()
}

/// Pages that were left out in all, and those of them that were not when the migration was over. What a relay still had to write when it was
/// last heard of counts: it has died. Of a baseline that is all that waited, pages to be shared among them, as it does not tell these apart.
fn left_out(kind: CheckpointKind, shown: &StoredPages, last: &StoredPages) -> (u64, u64) {
    let of = |stored: &StoredPages| match kind {
        CheckpointKind::Checkpoint => stored.left_out,
        CheckpointKind::Baseline => stored.unrecorded,
    };
    let all = of(last) + last.waiting;
    (all, all.saturating_sub(of(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_and_was_not_kept_is_told_apart_from_what_was_left_out_before() {
        let shown = StoredPages {
            waiting: 50,
            left_out: 7,
            unrecorded: 9,
            ..StoredPages::default()
        };
        let told = |left_out, unrecorded| StoredPages {
            left_out,
            unrecorded,
            ..StoredPages::default()
        };
        let checkpoint = CheckpointKind::Checkpoint;
        assert_eq!(left_out(checkpoint, &shown, &told(7, 0)), (7, 0));
        assert_eq!(left_out(checkpoint, &shown, &told(27, 0)), (27, 20));
        let baseline = CheckpointKind::Baseline;
        assert_eq!(left_out(baseline, &shown, &told(99, 12)), (12, 3));
        // Nothing more was heard of it.
        assert_eq!(left_out(checkpoint, &shown, &shown), (57, 50));
    }
}
