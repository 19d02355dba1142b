//! What grows of a guest's pages while it moves: its checkpoint where it leaves, its baseline where it arrives.

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
pub fn end(checkpoints: &Checkpoints, growing: Growing, carrier: Option<Carrier>, is_wanted: bool) {
    if !is_wanted {
        return checkpoints.defer(move || drop(growing));
    }
    let (vm, kind) = growing.of().clone();
    let of = vm.clone();
    let writes = move || {
        if let Some(carrier) = carrier
            && !carrier.relay.wait_until_gone()
        {
            let (pid, seconds) = (carrier.relay.pid(), RELAY_ENDED.as_secs());
            tracing::warn!(
                %vm, pid, seconds,
                "its relay has not ended so long after it was told to: what is not written of the {kind} crosses again"
            );
        }
    };
    checkpoints.defer_behind(writes, move || {
        if let Err(error) = growing.keep() {
            tracing::error!(vm = %of, %error, "its {kind} is not kept: its pages cross again");
        }
    });
}
