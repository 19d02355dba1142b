//! Moves interrupts and gives them back: in which order, and what becomes of it when something fails.
//!
//! # Invariant
//! Where an interrupt was is on the disk before it is moved. What is on the disk and is not so any more changes nothing when
//! it is given back. So an agent may die between any two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use drover_host::{Adapter, AffinityError};
use drover_types::{CpuSet, with_sources};

use super::ledger::{Back, Holder, Ledger};

/// The kernel and the disk.
pub trait Hands {
    /// Keeps the ledger, whatever dies.
    ///
    /// # Errors
    /// It cannot; then the one before is kept.
    fn keep(&self, ledger: &Ledger) -> io::Result<()>;

    /// Who may take an interrupt of that device; none where it has no such interrupt.
    fn now(&self, device: &str, number: u32) -> Option<CpuSet>;

    /// Says who may take it.
    ///
    /// # Errors
    /// The kernel does not do it.
    fn set(&self, number: u32, cpus: &CpuSet) -> Result<(), AffinityError>;
}

/// Those of one device that were to be moved and were not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotMoved {
    /// So many that the kernel spreads by itself.
    pub managed: usize,
    /// Why others were not.
    pub refused: Vec<String>,
}

/// What came of giving back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// So many are where they were.
    pub count: usize,
    /// Those that are not, and why.
    pub left: Vec<String>,
}

/// Moves what is to be moved of these for a migration; by device, what was not.
///
/// # Errors
/// What was there cannot be written down, so that nothing was moved.
pub fn hold(
    ledger: &mut Ledger,
    hands: &impl Hands,
    holder: Holder,
    adapters: &[&Adapter],
) -> Result<BTreeMap<String, NotMoved>, String> {
    let before = ledger.clone();
    let mut to_move = Vec::new();
    for adapter in adapters {
        let numbers = ledger.hold(holder, adapter);
        to_move.extend(numbers.into_iter().map(|number| (&adapter.device, number)));
    }
    if *ledger != before
        && let Err(error) = hands.keep(ledger)
    {
        *ledger = before;
        return Err(format!("what was there cannot be written down: {error}"));
    }
    let mut not_moved: BTreeMap<String, NotMoved> = BTreeMap::new();
    for (device, number) in to_move {
        let near = ledger.moved(device).map(|(near, _)| near.clone());
        let set = hands.set(number, &near.unwrap_or_default());
        let Err(error) = set else { continue };
        let of_device = not_moved.entry(device.clone()).or_default();
        match error {
            AffinityError::Managed => of_device.managed += 1,
            refused @ AffinityError::Refused { .. } => {
                of_device.refused.push(with_sources(&refused));
            }
        }
        ledger.forget(device, number);
    }
    if !not_moved.is_empty() {
        keep(ledger, hands);
    }
    Ok(not_moved)
}

/// Holds what others have moved of these, for a migration for which no more is moved.
pub fn join(ledger: &mut Ledger, hands: &impl Hands, holder: Holder, adapters: &[&Adapter]) {
    let joined = adapters
        .iter()
        .map(|adapter| ledger.join(holder, &adapter.device));
    if joined.fold(false, |any, one| any | one) {
        keep(ledger, hands);
    }
}

/// Takes up what an earlier agent left: gives back what these do not go on with, and forgets what it had not come to move, so
/// that it is moved when they hold it anew.
pub fn take_up(ledger: &mut Ledger, hands: &impl Hands, under_way: &BTreeSet<Holder>) -> GivenBack {
    let before = ledger.clone();
    ledger.keep_only(under_way);
    for held in ledger.held() {
        if held.back(hands.now(&held.device, held.number)) == Back::Nothing {
            ledger.forget(&held.device, held.number);
        }
    }
    if *ledger == before && ledger.owed().is_empty() {
        return GivenBack::default();
    }
    give_back(ledger, hands)
}

/// Gives back what no migration holds, where it is still as it was written. What the kernel does not take back is tried again
/// the next time.
pub fn give_back(ledger: &mut Ledger, hands: &impl Hands) -> GivenBack {
    let mut given = GivenBack::default();
    for owed in ledger.owed() {
        let number = owed.number;
        match owed.back(hands.now(&owed.device, number)) {
            Back::Nothing => {}
            Back::Leave(now) => given.left.push(format!(
                "interrupt {number} stays on CPUs {now}, where somebody else has moved it"
            )),
            Back::Write => match hands.set(number, &owed.before) {
                Ok(()) => given.count += 1,
                Err(error) => {
                    let why = with_sources(&error);
                    let what = format!("interrupt {number} is not given back for now: {why}");
                    given.left.push(what);
                    continue;
                }
            },
        }
        ledger.forget(&owed.device, number);
    }
    keep(ledger, hands);
    given
}

/// What is on the disk instead does no harm: it is compared with what is there.
fn keep(ledger: &Ledger, hands: &impl Hands) {
    if let Err(error) = hands.keep(ledger) {
        tracing::warn!(%error, "which interrupts are moved is not written down anew");
    }
}

#[cfg(test)]
mod tests;
