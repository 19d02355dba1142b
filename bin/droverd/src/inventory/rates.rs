//! How fast guests write to their memory, sampled gently: one guest at a time, each once a minute, and none
//! that is about to move.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_hypervisor::ProcessId;
use drover_types::{ByteRate, VmName};
use tokio::time::{Instant, sleep};

use crate::agent::Context;
use crate::limits::{SAMPLE_AGAIN, SAMPLE_LOOK};

/// What was sampled last of each guest that runs here.
#[derive(Debug, Default)]
pub struct Rates(Mutex<BTreeMap<VmName, Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    process: ProcessId,
    at: Instant,
    rate: Option<ByteRate>,
}

impl Rates {
    /// That of a guest, if one was sampled.
    pub fn of(&self, name: &VmName) -> Option<ByteRate> {
        self.now().get(name)?.rate
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<VmName, Sample>> {
        // Every change is one store.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of these guests has its turn, if any: one that was never sampled, or longest ago. Forgets those
    /// that are not among them.
    fn next(&self, guests: &[(VmName, ProcessId)], at: Instant) -> Option<usize> {
        let mut samples = self.now();
        samples.retain(|name, sample| guests.contains(&(name.clone(), sample.process)));
        let last = |which: &usize| samples.get(&guests[*which].0).map(|sample| sample.at);
        let due = |which: &usize| last(which).is_none_or(|last| at - last >= SAMPLE_AGAIN);
        (0..guests.len()).filter(due).min_by_key(last)
    }

    fn keep(&self, (name, process): (VmName, ProcessId), at: Instant, rate: Option<ByteRate>) {
        self.now().insert(name, Sample { process, at, rate });
    }
}

/// Samples for as long as the agent runs, unless that is switched off.
pub async fn run(context: Arc<Context>) {
    if !context.config.migration.sample_dirty_rate {
        return;
    }
    let rates = &context.inventory.rates;
    loop {
        let at = Instant::now();
        let guests = context.registry.sampled();
        let names: Vec<_> = guests
            .iter()
            .map(|guest| (guest.name.clone(), guest.process))
            .collect();
        if let Some(turn) = rates.next(&names, at) {
            let rate = guests[turn].machine.dirty_rate().await;
            let rate = rate.unwrap_or_else(|error| {
                tracing::debug!(vm = %guests[turn].name, %error, "dirty rate not sampled");
                None
            });
            rates.keep(names[turn].clone(), at, rate);
        }
        sleep(SAMPLE_LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn guest(name: &str, pid: u32) -> (VmName, ProcessId) {
        (name.parse().unwrap(), ProcessId::of(pid).unwrap())
    }

    #[test]
    fn each_guest_has_its_turn_once_a_minute_and_a_new_process_is_a_new_guest() {
        let rates = Rates::default();
        let own = std::process::id();
        let guests = [guest("db", own), guest("web", own)];
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(rates.next(&guests, start), Some(0));
        rates.keep(guests[0].clone(), start, Some(ByteRate(7)));
        assert_eq!(rates.next(&guests, after(2)), Some(1));
        rates.keep(guests[1].clone(), after(2), None);
        assert_eq!(rates.next(&guests, after(59)), None);
        assert_eq!(rates.next(&guests, after(60)), Some(0));
        assert_eq!(rates.next(&guests, after(90)), Some(0), "longest ago");
        assert_eq!(rates.of(&guests[0].0), Some(ByteRate(7)));
        let again = [guest("db", 1)];
        assert_eq!(rates.next(&again, after(3)), Some(0));
        assert_eq!(rates.of(&guests[0].0), None, "what ran before is forgotten");
    }
}
