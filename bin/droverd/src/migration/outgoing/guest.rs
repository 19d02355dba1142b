//! What is found out about a guest while it is moved, so that its end can be foretold. Whatever is not found is
//! not reckoned with.

use std::sync::Arc;
use std::time::Instant;

use drover_hypervisor::MachineError;
use drover_hypervisor::limits::DIRTY_SAMPLES;

use super::{Message, Outgoing};
use crate::limits::{SAMPLE_UNDER_WAY, SOON};
use crate::registry::guest_memory;

impl Outgoing {
    /// Looks at its memory, beside the preparations.
    pub(super) fn look_at_memory(&self) {
        let held = self.reservation.as_ref();
        let Some(pid) = held.and_then(|held| held.pid()) else {
            return;
        };
        let link = self.link.clone();
        tokio::spawn(async move {
            let looked = tokio::task::spawn_blocking(move || guest_memory(pid)).await;
            if let Ok(Some(whole)) = looked {
                link.tell(Message::Memory(whole)).await;
            }
        });
    }

    /// Samples how much it dirties now: what was sampled before may be a minute old.
    pub(super) fn look_at_writes(&self) {
        let Some(machine) = self.machine.as_ref().map(Arc::clone) else {
            return;
        };
        let link = self.link.clone();
        if !link.context.config.migration.sample_dirty_rate {
            return;
        }
        tokio::spawn(async move {
            let begun = Instant::now();
            for time in DIRTY_SAMPLES {
                let sampled = loop {
                    match machine.dirtied(time).await {
                        // The sample of the inventory may be under way, of which QEMU has one at a time.
                        Err(MachineError::Refused { .. }) if begun.elapsed() < SAMPLE_UNDER_WAY => {
                            tokio::time::sleep(SOON).await;
                        }
                        sampled => break sampled,
                    }
                };
                match sampled {
                    Ok(Some(dirtied)) => link.tell(Message::Dirtied(time, dirtied)).await,
                    Ok(None) => {}
                    Err(error) => return tracing::debug!(%error, "dirty rate not sampled"),
                }
            }
        });
    }
}
