//! Keeping a guest's pages here for its return, and using what was kept when it arrived.

use drover_types::{Bytes, VmName, with_sources};

use super::Link;
use super::connect::Opening;
use crate::migration::carrier::Carrier;
use crate::migration::kept;

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
            let (mut growing, file, mut stored) = begun.map_err(|error| with_sources(&error))?;
            let less;
            (stored.waiting_bytes, less) = kept::room(&mut growing, Bytes(0));
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
