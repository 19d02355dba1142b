//! What members said last, for when one of them does not answer any more.
//!
//! # Invariant
//! A guest is on one host at most. What a host that answers says of itself and its guests replaces whatever was known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_plan::inventory::{Host, HostState, Inventory, Vm};
use drover_types::{HostName, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A host as it was when it answered last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostThen {
    /// When.
    pub at: Timestamp,
    /// What it said.
    pub host: Host,
}

/// What members said last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub hosts: BTreeMap<HostName, HostThen>,
    pub vms: BTreeMap<VmName, Vm>,
}

/// The same, shared by all who ask the members.
#[derive(Debug, Default)]
pub struct LastSaid(Mutex<Said>);

impl LastSaid {
    pub fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// Takes what the members in this inventory have said just now. Of the others those stay that were `not_heard`:
    /// all else is no member any more.
    pub fn learn(&mut self, inventory: &Inventory, not_heard: &BTreeSet<HostName>, at: Timestamp) {
        self.hosts.retain(|name, _| not_heard.contains(name));
        self.vms.retain(|_, vm| not_heard.contains(&vm.host));
        for host in inventory.hosts.iter().cloned() {
            self.hosts.insert(host.name.clone(), HostThen { at, host });
        }
        for vm in inventory.vms.iter().cloned() {
            self.vms.insert(vm.name.clone(), vm);
        }
    }

    /// Takes what somebody else has heard, of hosts that were not heard of here since.
    pub fn hear(&mut self, other: Self) {
        let mut newer = BTreeSet::new();
        for (name, then) in other.hosts {
            let known = self.hosts.get(&name);
            if known.is_none_or(|known| known.at < then.at) {
                newer.insert(name.clone());
                self.hosts.insert(name, then);
            }
        }
        self.vms.retain(|_, vm| !newer.contains(&vm.host));
        for (name, vm) in other.vms {
            if newer.contains(&vm.host) {
                self.vms.entry(name).or_insert(vm);
            }
        }
    }

    /// Adds a host that does not answer, and its guests, as they were when it did; since when that is, in seconds.
    /// None of a host that was never heard of. A guest that another host has now is that one's.
    pub fn add(&self, name: &HostName, inventory: &mut Inventory, now: Timestamp) -> Option<u64> {
        let then = self.hosts.get(name)?;
        let age = now.duration_since(then.at).as_secs();
        let age = u64::try_from(age).unwrap_or_default();
        inventory.hosts.push(Host {
            state: HostState::Unreachable,
            facts_age_seconds: age,
            ..then.host.clone()
        });
        let known: BTreeSet<&VmName> = inventory.vms.iter().map(|vm| &vm.name).collect();
        let on_it = self.vms.values().filter(|vm| vm.host == *name);
        let missing = on_it.filter(|vm| !known.contains(&vm.name));
        let silent = |vm: &Vm| Vm {
            moving_to: None,
            blockers: vec![format!("{name} does not tell what is so now").into()],
            ..vm.clone()
        };
        let missing: Vec<Vm> = missing.map(silent).collect();
        inventory.vms.extend(missing);
        Some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::{guest, view};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    /// Each of these hosts with its guests.
    fn inventory(hosts: &[(&str, &[&str])]) -> Inventory {
        let mut all = Inventory::default();
        for (host, vms) in hosts {
            all.hosts.push(view(host, &[]).host);
            all.vms.extend(vms.iter().map(|vm| Vm {
                name: vm.parse().unwrap(),
                ..guest(host, None)
            }));
        }
        all
    }

    fn places(inventory: &Inventory) -> Vec<(&str, &str)> {
        let vms = inventory.vms.iter();
        vms.map(|vm| (vm.name.as_str(), vm.host.as_str())).collect()
    }

    #[test]
    fn a_silent_host_is_there_as_it_was_and_can_be_asked_for_nothing() {
        let mut said = Said::default();
        said.learn(
            &inventory(&[("a", &["web"]), ("b", &["db"])]),
            &[].into(),
            at(100),
        );
        let mut now = inventory(&[("a", &["web"])]);
        said.learn(&now, &[name("b")].into(), at(160));
        assert_eq!(said.add(&name("b"), &mut now, at(160)), Some(60));
        let [_, b] = &now.hosts[..] else {
            panic!("{now:?}");
        };
        assert_eq!(b.state, HostState::Unreachable);
        assert_eq!(b.facts_age_seconds, 60);
        assert_eq!(places(&now), [("web", "a"), ("db", "b")]);
        assert_eq!(
            now.vms[1].blockers[0].as_str(),
            "b does not tell what is so now"
        );
        assert_eq!(said.add(&name("c"), &mut now, at(160)), None);
    }

    #[test]
    fn a_guest_that_runs_elsewhere_by_now_is_no_longer_the_silent_hosts() {
        let mut said = Said::default();
        let before = inventory(&[("a", &[]), ("b", &["db"])]);
        said.learn(&before, &[].into(), at(100));
        let mut now = inventory(&[("a", &["db"])]);
        said.learn(&now, &[name("b")].into(), at(160));
        said.add(&name("b"), &mut now, at(160)).unwrap();
        assert_eq!(places(&now), [("db", "a")]);
    }

    #[test]
    fn a_host_that_is_no_member_any_more_is_forgotten_with_its_guests() {
        let mut said = Said::default();
        let before = inventory(&[("a", &["web"]), ("b", &["db"])]);
        said.learn(&before, &[].into(), at(100));
        let after = inventory(&[("a", &["web"])]);
        said.learn(&after, &[].into(), at(160));
        let mut only = Said::default();
        only.learn(&after, &[].into(), at(160));
        assert_eq!(said, only);
    }

    #[test]
    fn of_two_who_have_heard_a_host_the_later_counts() {
        let of = |vm, second| {
            let mut said = Said::default();
            said.learn(&inventory(&[("b", &[vm])]), &[].into(), at(second));
            said
        };
        let (old, new) = (of("db", 100), of("web", 160));
        for (mut here, other) in [(old.clone(), new.clone()), (new.clone(), old)] {
            here.hear(other);
            assert_eq!(here, new);
        }
    }
}
