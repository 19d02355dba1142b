//! How much guests write to their memory in a time, sampled gently: one guest at a time, each once a minute, and none
//! that is about to move.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_hypervisor::ProcessId;
use drover_hypervisor::limits::DIRTY_SAMPLES;
use drover_types::{ByteRate, Bytes, VmName};
use tokio::time::{Instant, sleep};

use crate::agent::Context;
use crate::limits::{SAMPLE_AGAIN, SAMPLE_LOOK, SAMPLE_SOON};
use crate::registry::Sampled;

/// What was sampled last of each guest that runs here.
#[derive(Debug, Default)]
pub struct Rates(Mutex<BTreeMap<VmName, Sample>>);

#[derive(Debug, Clone)]
struct Sample {
    process: ProcessId,
    at: Instant,
    /// In which time how much.
    dirtied: Vec<(Duration, Bytes)>,
}

impl Sample {
    /// What it keeps writing to is known from two times only.
    fn good_for(&self) -> Duration {
        match self.dirtied.len() {
            1 => SAMPLE_SOON,
            _ => SAMPLE_AGAIN,
        }
    }
}

impl Rates {
    /// Of a guest, if it was sampled: in which time how much, the shortest first.
    pub fn dirtied(&self, name: &VmName) -> Vec<(Duration, Bytes)> {
        let samples = self.now();
        let sample = samples.get(name);
        sample.map_or_else(Vec::new, |sample| sample.dirtied.clone())
    }

    /// How fast it writes to pages, and how much it keeps writing to where that is less than it would be at this
    /// rate.
    pub fn of(&self, name: &VmName) -> (Option<ByteRate>, Option<Bytes>) {
        let dirtied = self.dirtied(name);
        let (Some((short, few)), Some((_, many))) = (dirtied.first(), dirtied.last()) else {
            return (None, None);
        };
        let again = dirtied.len() > 1 && many.0 < few.0.saturating_mul(2);
        (Some(ByteRate::of(*few, *short)), again.then_some(*many))
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
        let of = |which: &usize| samples.get(&guests[*which].0);
        let last = |which: &usize| of(which).map(|sample| sample.at);
        let due =
            |which: &usize| of(which).is_none_or(|sample| at - sample.at >= sample.good_for());
        (0..guests.len()).filter(due).min_by_key(last)
    }

    /// What a guest is sampled for that has its turn: at first for the shortest time only. It boots, and what it keeps
    /// writing to is another thing a minute later.
    fn times(&self, name: &VmName) -> &'static [Duration] {
        let first = !self.now().contains_key(name);
        if first {
            &DIRTY_SAMPLES[..1]
        } else {
            &DIRTY_SAMPLES
        }
    }

    fn keep(
        &self,
        (name, process): (VmName, ProcessId),
        at: Instant,
        dirtied: Vec<(Duration, Bytes)>,
    ) {
        let sample = Sample {
            process,
            at,
            dirtied,
        };
        self.now().insert(name, sample);
    }
}

/// Samples for as long as the agent runs, unless that is switched off.
pub async fn run(context: Arc<Context>) {
    if !context.config.migration.sample_dirty_rate {
        return;
    }
    let rates = &context.inventory.rates;
    loop {
        // Before the first one as well: what an agent before has begun in a QEMU is then seen by that.
        sleep(SAMPLE_LOOK).await;
        let at = Instant::now();
        let guests = context.registry.sampled();
        let names: Vec<_> = guests
            .iter()
            .map(|guest| (guest.name.clone(), guest.process))
            .collect();
        if let Some(turn) = rates.next(&names, at) {
            let times = rates.times(&names[turn].0);
            let dirtied = sampled(&context, &guests[turn], times).await;
            rates.keep(names[turn].clone(), at, dirtied);
        }
    }
}

/// Gives way to whoever is about to change the guest: a migration samples it anew.
async fn sampled(context: &Context, guest: &Sampled, times: &[Duration]) -> Vec<(Duration, Bytes)> {
    let mut all = Vec::new();
    for time in times.iter().copied() {
        if context.registry.is_reserved(&guest.name) {
            break;
        }
        match guest.machine.dirtied(time).await {
            Ok(dirtied) => all.extend(dirtied.map(|bytes| (time, bytes))),
            Err(error) => {
                tracing::debug!(vm = %guest.name, %error, "dirty rate not sampled");
                return all;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirtied(points: &[(u64, u64)]) -> Vec<(Duration, Bytes)> {
        let point = |(time, bytes): &(u64, u64)| (Duration::from_secs(*time), Bytes(*bytes));
        points.iter().map(point).collect()
    }

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
        assert_eq!(rates.times(&guests[0].0).len(), 1, "it boots");
        rates.keep(guests[0].clone(), start, dirtied(&[(1, 7), (4, 9)]));
        assert_eq!(rates.next(&guests, after(2)), Some(1));
        rates.keep(guests[1].clone(), after(2), Vec::new());
        assert_eq!(rates.next(&guests, after(59)), None);
        assert_eq!(rates.next(&guests, after(60)), Some(0));
        assert_eq!(rates.times(&guests[0].0), DIRTY_SAMPLES);
        assert_eq!(rates.next(&guests, after(90)), Some(0), "longest ago");
        let known = (Some(ByteRate(7)), Some(Bytes(9)));
        assert_eq!(rates.of(&guests[0].0), known);
        assert_eq!(rates.of(&guests[1].0), (None, None));
        let again = [guest("db", 1)];
        assert_eq!(rates.next(&again, after(3)), Some(0));
        assert_eq!(
            rates.of(&guests[0].0),
            (None, None),
            "what ran before is forgotten"
        );
    }

    #[test]
    fn a_guest_that_was_sampled_for_one_time_only_has_its_turn_again_soon() {
        let rates = Rates::default();
        let guests = [guest("db", std::process::id())];
        let start = Instant::now();
        rates.keep(guests[0].clone(), start, dirtied(&[(1, 7)]));
        assert_eq!(rates.next(&guests, start + Duration::from_secs(4)), None);
        assert_eq!(rates.next(&guests, start + SAMPLE_SOON), Some(0));
        assert_eq!(rates.times(&guests[0].0), DIRTY_SAMPLES);
    }

    #[test]
    fn a_guest_that_writes_ever_more_has_no_working_set_that_is_known() {
        let rates = Rates::default();
        let guest = guest("db", std::process::id());
        for (sampled, working_set) in [
            ([(1, 7), (4, 14)], None),
            ([(1, 7), (4, 13)], Some(Bytes(13))),
        ] {
            rates.keep(guest.clone(), Instant::now(), dirtied(&sampled));
            assert_eq!(rates.of(&guest.0), (Some(ByteRate(7)), working_set));
        }
        rates.keep(guest.clone(), Instant::now(), dirtied(&[(1, 7)]));
        assert_eq!(rates.of(&guest.0), (Some(ByteRate(7)), None));
    }
}
