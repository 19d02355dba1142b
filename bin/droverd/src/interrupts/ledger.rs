//! Which interrupts were moved, where they were, and for which migrations. Values only.
//!
//! ```text
//!  a device's interrupts ─▶ far: what is to be moved ─▶ hold: written down, for this migration too
//!                                     release: for one migration less ─▶ owed: what goes back
//! ```

use std::collections::{BTreeMap, BTreeSet};

use drover_host::Adapter;
use drover_tune::facts::Interrupt;
use drover_types::{CpuSet, MigrationId};
use serde::{Deserialize, Serialize};

/// One side of a migration: a host can be both in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Which migration.
    pub migration: MigrationId,
    /// The guest leaves this host.
    pub leaves: bool,
}

/// All that was moved and was not given back, since that start of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Which start of the host: another one has forgotten who may take which interrupt.
    pub boot: String,
    devices: BTreeMap<String, Held>,
}

/// Interrupts of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    near: CpuSet,
    holders: BTreeSet<Holder>,
    /// Who could take them before.
    moved: BTreeMap<u32, CpuSet>,
}

/// An interrupt that was moved, or was to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    /// Its device, by its path from the root.
    pub device: String,
    /// It.
    pub number: u32,
    /// Who could take it.
    pub before: CpuSet,
    /// What was written instead.
    pub written: CpuSet,
}

/// What is to be done with one that no migration holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Back {
    /// It goes back.
    Write,
    /// Nothing: it is as it was, or there is no such interrupt any more.
    Nothing,
    /// It stays: somebody else has moved it there.
    Leave(CpuSet),
}

impl Ledger {
    /// Nothing was moved.
    pub fn new(boot: String) -> Self {
        Self {
            boot,
            devices: BTreeMap::new(),
        }
    }

    /// Interrupts that are to be moved: those taken by a processor that is not near, and that were not moved already.
    pub fn far<'a>(&self, adapter: &'a Adapter) -> impl Iterator<Item = &'a Interrupt> {
        let held = self.devices.get(&adapter.device);
        let known: BTreeSet<u32> = held
            .into_iter()
            .flat_map(|held| held.moved.keys().copied())
            .collect();
        let near = held.map_or_else(|| adapter.near.clone(), |held| held.near.clone());
        adapter.interrupts.iter().filter(move |interrupt| {
            let taken_by = interrupt.taken_by();
            !known.contains(&interrupt.number) && taken_by.and(&near) != *taken_by
        })
    }

    /// Writes down that these are moved for a migration; those that are to be moved now. Of a device that has no such
    /// interrupt nothing is written.
    pub fn hold(&mut self, holder: Holder, adapter: &Adapter) -> Vec<u32> {
        let far: Vec<(u32, CpuSet)> = self
            .far(adapter)
            .map(|interrupt| (interrupt.number, interrupt.cpus.clone()))
            .collect();
        if far.is_empty() && !self.devices.contains_key(&adapter.device) {
            return Vec::new();
        }
        let new = || Held {
            near: adapter.near.clone(),
            holders: BTreeSet::new(),
            moved: BTreeMap::new(),
        };
        let held = self
            .devices
            .entry(adapter.device.clone())
            .or_insert_with(new);
        held.holders.insert(holder);
        let numbers = far.iter().map(|(number, _)| *number).collect();
        held.moved.extend(far);
        numbers
    }

    /// Has a migration hold what is moved of a device already; whether that is news.
    pub fn join(&mut self, holder: Holder, device: &str) -> bool {
        let held = self.devices.get_mut(device);
        held.is_some_and(|held| held.holders.insert(holder))
    }

    /// Where a device's interrupts are moved to, and how many are.
    pub fn moved(&self, device: &str) -> Option<(&CpuSet, usize)> {
        let held = self.devices.get(device)?;
        Some((&held.near, held.moved.len()))
    }

    /// One was not moved, or is given back.
    pub fn forget(&mut self, device: &str, number: u32) {
        if let Some(held) = self.devices.get_mut(device) {
            held.moved.remove(&number);
            if held.moved.is_empty() {
                self.devices.remove(device);
            }
        }
    }

    /// That migration holds nothing any more; whether it did.
    pub fn release(&mut self, holder: Holder) -> bool {
        let mut any = false;
        for held in self.devices.values_mut() {
            any |= held.holders.remove(&holder);
        }
        any
    }

    /// No migration but these holds anything any more.
    pub fn keep_only(&mut self, under_way: &BTreeSet<Holder>) {
        for held in self.devices.values_mut() {
            held.holders.retain(|holder| under_way.contains(holder));
        }
    }

    /// What no migration holds.
    pub fn owed(&self) -> Vec<Owed> {
        self.all(|held| held.holders.is_empty())
    }

    /// What one holds.
    pub fn held(&self) -> Vec<Owed> {
        self.all(|held| !held.holders.is_empty())
    }

    fn all(&self, which: fn(&Held) -> bool) -> Vec<Owed> {
        let devices = self.devices.iter().filter(|(_, held)| which(held));
        let each = devices.flat_map(|(device, held)| {
            held.moved.iter().map(|(number, before)| Owed {
                device: device.clone(),
                number: *number,
                before: before.clone(),
                written: held.near.clone(),
            })
        });
        each.collect()
    }

    /// Whether nothing was moved.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

impl Owed {
    /// What is to be done, given who may take it now; none where there is no such interrupt any more.
    pub fn back(&self, now: Option<CpuSet>) -> Back {
        match now {
            Some(now) if now == self.written => Back::Write,
            // Its move was not done, or it was given back by an agent that died then.
            Some(now) if now == self.before => Back::Nothing,
            Some(now) => Back::Leave(now),
            None => Back::Nothing,
        }
    }
}
