//! Keeping a guest's pages here for its return, and using what was kept when it arrived.

use drover_types::{Bytes, VmName, with_sources};

use super::Link;
use super::connect::Opening;
use crate::checkpoints::Growing;
use crate::facts::memory;
use crate::limits::{CHECKPOINT_WAITING_LEAST, CHECKPOINT_WAITING_PART};
use crate::migration::carrier::Carrier;

/// What one is to be made of.
pub struct Checkpoint {
    vm: VmName,
    memory: Bytes,
    /// The size of a page, or why none can be made.
    page_bytes: Result<u32, &'static str>,
}

impl Checkpoint {
    /// Nothing, where none is wanted.
    pub fn wanted(link: &Link, opening: &Opening) -> Option<Self> {
        let memory = opening.kept?;
        let reduction = opening.offer.reduction;
        let page_bytes = match (reduction, &opening.keys) {
            (None, _) => Err("no bytes are reduced, so that nobody looks for pages"),
            (_, None) => Err("lanes are not encrypted, over which none is used either"),
            (Some(terms), Some(_)) => Ok(terms.page_bytes),
        };
        link.context.checkpoints.is_on().then(|| Self {
            vm: opening.migration.vm.clone(),
            memory,
            page_bytes,
        })
    }

    /// Has the relay store what passes, before QEMU begins. Without it the guest moves all the same.
    pub async fn begin(self, link: &Link, carrier: &Carrier) {
        let begun = tokio::task::block_in_place(|| {
            let page_bytes = self.page_bytes.map_err(str::to_owned)?;
            let checkpoints = &link.context.checkpoints;
            let begun = checkpoints.begin(&self.vm, self.memory, page_bytes);
            let (growing, file, mut stored) = begun.map_err(|error| with_sources(&error))?;
            let (waiting, less) = waiting(link);
            stored.waiting_bytes = waiting.0;
            carrier.relay.add_stored(&file, stored)?;
            Ok::<_, String>((growing, less))
        });
        match begun {
            Ok((growing, less)) => {
                link.keeps(growing).await;
                if let Some(what) = less {
                    link.fallback(what).await;
                }
            }
            Err(why) => {
                let here = &link.context.config.host;
                let what = format!("no checkpoint of it is kept on {here}: {why}");
                link.fallback(what).await;
            }
        }
    }
}

/// Keeps one whose guest has left, once its relay has written what waited for that, and gives up any other. Nobody waits for the disk; an
/// agent that ends does for a while.
pub fn end(link: &Link, growing: Growing, carrier: Option<Carrier>, has_left: bool) {
    link.context.checkpoints.defer(move || {
        if !has_left {
            return;
        }
        if let Some(carrier) = carrier {
            carrier.relay.wait_until_gone();
        }
        if let Err(error) = growing.keep() {
            tracing::error!(%error, "a checkpoint was not kept");
        }
    });
}

/// What pages may take while they wait to be stored, and where that is less than they were given, why.
fn waiting(link: &Link) -> (Bytes, Option<String>) {
    let given = link.context.config.checkpoints.memory;
    let available = memory().map(|memory| memory.available);
    room_to_wait(given, available.ok())
}

fn room_to_wait(given: Bytes, available: Option<Bytes>) -> (Bytes, Option<String>) {
    let Some(available) = available else {
        return (given, None);
    };
    let part = Bytes(available.0 / CHECKPOINT_WAITING_PART).max(CHECKPOINT_WAITING_LEAST);
    let less = (part < given).then(|| {
        format!(
            "pages that wait to be stored for its return take {part} of memory at most, and not the {given} of `checkpoints.memory`: \
             this host has {available} to give, of which a quarter is used"
        )
    });
    (given.min(part), less)
}

/// Comparing a guest's pages with how they were when it arrived here.
pub struct Compares {
    vm: VmName,
}

impl Compares {
    /// Where the destination takes what changed of pages that it has stored.
    pub fn wanted(opening: &Opening) -> Option<Self> {
        let terms = opening.offer.reduction?;
        terms.stored_changes.then(|| Self {
            vm: opening.migration.vm.clone(),
        })
    }

    /// Has the relay compare, before QEMU begins. Without it pages that changed cross as they are.
    pub async fn begin(self, link: &Link, carrier: &Carrier) {
        let begun = tokio::task::block_in_place(|| {
            let found = link.context.checkpoints.baseline(&self.vm);
            let Some((file, baseline)) = found.map_err(|error| with_sources(&error))? else {
                return Ok(());
            };
            carrier.relay.add_baseline(&file, baseline)
        });
        if let Err(why) = begun {
            let here = &link.context.config.host;
            let what =
                format!("what changed since it arrived on {here} crosses as whole pages: {why}");
            link.fallback(what).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_host_with_little_memory_less_is_taken_for_pages_that_wait_and_that_is_told() {
        let mib = |count: u64| Bytes(count << 20);
        assert_eq!(room_to_wait(mib(512), Some(mib(4096))), (mib(512), None));
        assert_eq!(room_to_wait(mib(512), None), (mib(512), None));
        let (taken, told) = room_to_wait(mib(512), Some(mib(800)));
        assert_eq!(taken, mib(200));
        let told = told.unwrap();
        assert!(
            told.contains("200 MiB") && told.contains("512 MiB"),
            "{told}"
        );
        assert_eq!(
            room_to_wait(mib(512), Some(mib(8))).0,
            CHECKPOINT_WAITING_LEAST
        );
    }
}
