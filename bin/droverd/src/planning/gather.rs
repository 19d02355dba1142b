//! One inventory from the answers of all members, which were given at different moments.
//!
//! # Invariant
//! Who is left out, or planned with as it was, is named in a note. A guest that two hosts tell of because it is on its way
//! is there once; any other is there twice, and the plan is refused.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::{DomainView, InventoryView};
use drover_plan::inventory::{Vm, VmState};
use drover_plan::limits::BLOCKERS;
use drover_plan::{Digest, Inventory};
use drover_types::{HostName, VmName};
use jiff::Timestamp;
use uuid::Uuid;

use super::last_said::Said;
use crate::inventory::name_on;
use crate::limits::HOST_NOTES;

/// What a member said of itself, or why it did not.
pub struct Answer {
    pub host: HostName,
    pub told: Result<InventoryView, String>,
    /// Seconds since it answered.
    pub age_seconds: u64,
}

/// What is planned with.
#[derive(Debug, Default)]
pub struct Gathered {
    pub inventory: Inventory,
    /// What was assumed, and what is missing.
    pub notes: Vec<String>,
    /// Domains of libvirt's that one host has, and what they need.
    pub domains: Vec<DomainView>,
    /// Hosts that are planned with as they were at the most, and why.
    pub left_out: BTreeMap<HostName, LeftOut>,
}

/// Why nothing new is known of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub why: String,
    /// It has answered, and would answer so again.
    pub answered: bool,
}

impl Gathered {
    /// Members of which nothing new is known: that have not answered, or not so that it can be used.
    pub fn not_heard(&self) -> BTreeSet<HostName> {
        self.left_out.keys().cloned().collect()
    }

    /// Puts those that have not answered into the inventory as they were when they did.
    pub fn complete(&mut self, said: &Said, now: Timestamp) {
        for (host, left) in &self.left_out {
            let why = &left.why;
            let age = if left.answered {
                None
            } else {
                said.add(host, &mut self.inventory, now)
            };
            self.notes.push(match age {
                Some(age) => {
                    format!(
                        "{host} counts with what it said {age} s ago, and takes no guest: {why}"
                    )
                }
                None => format!("{host} is left out, with its guests: {why}"),
            });
        }
    }
}

/// A guest, and who told of it.
type Report = (HostName, Vm);

/// Joins what the members said to a host with this policy.
pub fn merge(answers: Vec<Answer>, policy: Digest) -> Gathered {
    let mut gathered = Gathered::default();
    let mut reports: BTreeMap<VmName, Vec<Report>> = BTreeMap::new();
    let mut domains: BTreeMap<VmName, DomainView> = BTreeMap::new();
    for Answer {
        host,
        told,
        age_seconds,
    } in answers
    {
        let answered = told.is_ok();
        let mut view = match told.and_then(|view| usable(&host, view)) {
            Ok(view) => view,
            Err(why) => {
                gathered.left_out.insert(host, LeftOut { why, answered });
                continue;
            }
        };
        if view.policy.is_some_and(|other| other != policy) {
            let note = format!(
                "{host} has another [policy] in its droverd.toml: plans and runs keep that of the host that makes them"
            );
            gathered.notes.push(note);
        }
        let notes = view.notes.iter().take(HOST_NOTES);
        let notes = notes.map(|note| format!("{host}: {note}"));
        gathered.notes.extend(notes);
        view.host.facts_age_seconds = view.host.facts_age_seconds.max(age_seconds);
        gathered.inventory.hosts.push(view.host);
        // Of one that moves both ends tell, and its source of what it needs, if any.
        for domain in view.domains {
            let known = domains
                .entry(domain.vm.clone())
                .or_insert_with(|| domain.clone());
            if known.needs.is_empty() {
                *known = domain;
            }
        }
        for vm in view.vms {
            let of_it = reports.entry(vm.name.clone()).or_default();
            of_it.push((host.clone(), vm));
        }
    }
    let hosts = gathered.inventory.hosts.iter();
    let known: BTreeSet<_> = hosts.map(|host| host.name.clone()).collect();
    for (name, reports) in reports {
        let domain = domains.remove(&name);
        let vms = settle(reports);
        let vms = match &domain {
            Some(domain) if vms.len() > 1 => apart(vms, domain),
            _ => vms,
        };
        let vms: Vec<Vm> = vms.into_iter().map(|vm| within(vm, &known)).collect();
        if let Some(domain) = domain.filter(|_| vms.len() == 1) {
            gathered.domains.push(domain);
        }
        gathered.inventory.vms.extend(vms);
    }
    keep_namesakes(&mut gathered);
    gathered
}

/// A domain with the name of one of Drover's guests in memory on another host stays: agents take them for the same until a person has
/// looked.
fn keep_namesakes(gathered: &mut Gathered) {
    let vms = gathered.inventory.vms.iter();
    let own = vms.filter(|vm| vm.called.is_none() && vm.state != VmState::Stopped);
    let own: BTreeMap<String, HostName> = own
        .map(|vm| (vm.name.to_string(), vm.host.clone()))
        .collect();
    let names = gathered.domains.iter();
    let names: BTreeMap<&VmName, &str> = names
        .map(|domain| (&domain.vm, domain.name.as_str()))
        .collect();
    for vm in &mut gathered.inventory.vms {
        let name = names.get(&vm.name);
        if let Some((name, there)) = name.and_then(|name| Some((name, own.get(*name)?)))
            && *there != vm.host
        {
            let why = format!(
                "{there} has a guest of Drover's that is called {name:?}, too, and may be the same one: rename one of the two"
            );
            vm.blockers.insert(0, why.into());
            vm.blockers.truncate(BLOCKERS);
        }
    }
}

/// A domain that several hosts have in memory, and no agent moves: libvirt does, or somebody has to look which of them it is. It
/// stays, and takes room on each.
fn apart(vms: Vec<Vm>, domain: &DomainView) -> Vec<Vm> {
    let hosts: Vec<_> = vms.iter().map(|vm| vm.host.to_string()).collect();
    let why = format!(
        "{} have the domain of this id in memory: it is being moved by another hand, or which of them is the domain is not known",
        hosts.join(" and ")
    );
    let uuid = domain.uuid.parse::<Uuid>();
    let apart = vms.into_iter().map(|mut vm| {
        let name = uuid.as_ref().ok().and_then(|uuid| name_on(*uuid, &vm.host));
        vm.name = name.unwrap_or(vm.name);
        vm.blockers.insert(0, why.clone().into());
        vm.blockers.truncate(BLOCKERS);
        vm
    });
    apart.collect()
}

/// An answer that can be planned with: of that host, of its own guests, with a line.
fn usable(host: &HostName, view: InventoryView) -> Result<InventoryView, String> {
    if view.host.name != *host {
        return Err(format!("it answers in the name of {}", view.host.name));
    }
    if view.host.bandwidth.0 == 0 {
        return Err("it has no interface that may carry guests, see `[networks]`".to_owned());
    }
    let foreign = |vm: &&Vm| vm.host != *host && vm.moving_to.as_ref() != Some(host);
    match view.vms.iter().find(foreign) {
        Some(vm) => Err(format!("it tells of {}, which is not its own", vm.name)),
        None => Ok(view),
    }
}

/// Whatever both ends of a migration told of a guest, one after the other, made one.
fn settle(reports: Vec<Report>) -> Vec<Vm> {
    let mut by_host: BTreeMap<HostName, Vec<Report>> = BTreeMap::new();
    for (by, vm) in reports {
        by_host.entry(vm.host.clone()).or_default().push((by, vm));
    }
    // The host that has it knows most of it; the other end may have known first that it is coming.
    let mut vms = Vec::new();
    for (host, reports) in by_host {
        let goes = reports.iter().find_map(|(_, vm)| vm.moving_to.clone());
        let (own, others): (Vec<_>, Vec<_>) = reports.into_iter().partition(|(by, _)| *by == host);
        vms.extend(own.into_iter().chain(others).next().map(|(_, vm)| Vm {
            moving_to: goes,
            ..vm
        }));
    }
    // Where it has arrived counts, not where it was said to come from.
    let at: BTreeSet<_> = vms.iter().map(|vm| vm.host.clone()).collect();
    vms.retain(|vm| vm.moving_to.as_ref().is_none_or(|to| !at.contains(to)));
    vms
}

/// A guest on its way from or to a host of which nothing new is known stays where it is known to take room.
fn within(mut vm: Vm, known: &BTreeSet<HostName>) -> Vm {
    let Some(to) = vm.moving_to.take() else {
        return vm;
    };
    let problem = if !known.contains(&vm.host) {
        let from = std::mem::replace(&mut vm.host, to);
        format!("it is on its way from {from}, which did not tell of it")
    } else if known.contains(&to) {
        vm.moving_to = Some(to);
        return vm;
    } else {
        format!("it is on its way to {to}, which did not tell of it")
    };
    vm.blockers.insert(0, problem.into());
    vm.blockers.truncate(BLOCKERS);
    vm
}

#[cfg(test)]
pub mod tests {
    use super::*;
    pub use super::{Answer, merge};

    #[test]
    fn a_member_whose_answer_is_of_no_use_is_not_forgotten() {
        let mut lineless = view("b", &[]);
        lineless.host.bandwidth.0 = 0;
        let answers = [("a", view("a", &[])), ("b", lineless)];
        let answers = answers.map(|(host, view)| Answer {
            host: host.parse().unwrap(),
            told: Ok(view),
            age_seconds: 0,
        });
        let gathered = merge(answers.into(), Digest::default());
        assert_eq!(gathered.not_heard(), ["b".parse().unwrap()].into());
    }

    use drover_plan::ClusterPolicy;
    use serde_json::json;

    pub fn view(host: &str, vms: &[Vm]) -> InventoryView {
        let host = json!({
            "name": host, "state": "ready", "facts_age_seconds": 0, "memory": 1_u64 << 36,
            "memory_for_host": 0, "cpus": 8, "cpu": {"model": "x", "features": []},
            "bandwidth": 10_000_000_000_u64, "qemu": "10.0.2"
        });
        InventoryView {
            host: serde_json::from_value(host).unwrap(),
            vms: vms.to_vec(),
            domains: Vec::new(),
            notes: Vec::new(),
            policy: None,
        }
    }

    pub fn guest(host: &str, moving_to: Option<&str>) -> Vm {
        let vm = json!({
            "name": "web", "host": host, "moving_to": moving_to, "state": "running", "memory": 1_u64 << 30,
            "memory_used": 1 << 20, "vcpus": 1, "cpu": {"kind": "passthrough"}, "downtime_limit_ms": 300
        });
        serde_json::from_value(vm).unwrap()
    }

    fn merged(views: Vec<InventoryView>) -> Gathered {
        let answer = |view: InventoryView| Answer {
            host: view.host.name.clone(),
            told: Ok(view),
            age_seconds: 0,
        };
        merge(views.into_iter().map(answer).collect(), Digest::default())
    }

    fn ways(gathered: &Gathered) -> Vec<(&str, Option<&str>)> {
        let vms = gathered.inventory.vms.iter();
        vms.map(|vm| {
            (
                vm.host.as_str(),
                vm.moving_to.as_ref().map(HostName::as_str),
            )
        })
        .collect()
    }

    #[test]
    fn a_guest_on_its_way_is_there_once_whenever_its_hosts_were_asked() {
        let moving = || guest("a", Some("b"));
        let stays = || guest("a", None);
        let arrived = || guest("b", None);
        for (of_a, of_b, expected) in [
            (vec![moving()], vec![moving()], ("a", Some("b"))),
            (vec![stays()], vec![moving()], ("a", Some("b"))),
            (vec![moving()], vec![], ("a", Some("b"))),
            (vec![], vec![moving()], ("a", Some("b"))),
            (vec![moving()], vec![arrived()], ("b", None)),
            (vec![], vec![arrived()], ("b", None)),
        ] {
            let gathered = merged(vec![view("b", &of_b), view("a", &of_a)]);
            assert_eq!(ways(&gathered), [expected], "{of_a:?} {of_b:?}");
        }
    }

    #[test]
    fn a_guest_that_two_hosts_have_is_there_twice_for_the_plan_to_refuse() {
        let twice = merged(vec![
            view("a", &[guest("a", None)]),
            view("b", &[guest("b", None)]),
        ]);
        assert_eq!(ways(&twice), [("a", None), ("b", None)]);
    }

    #[test]
    fn who_does_not_answer_is_named_and_guests_between_stay_with_a_reason() {
        let silent = Answer {
            host: "c".parse().unwrap(),
            told: Err("no answer".to_owned()),
            age_seconds: 0,
        };
        let answer = |view: InventoryView| Answer {
            host: view.host.name.clone(),
            told: Ok(view),
            age_seconds: 3,
        };
        let arriving = Vm {
            name: "db".parse().unwrap(),
            ..guest("c", Some("b"))
        };
        let answers = vec![
            answer(view("a", &[guest("a", Some("c"))])),
            answer(view("b", &[arriving])),
            silent,
        ];
        let mut gathered = merge(answers, Digest::default());
        gathered.complete(&Said::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(
            gathered.notes,
            ["c is left out, with its guests: no answer"]
        );
        assert_eq!(ways(&gathered), [("b", None), ("a", None)]);
        for vm in &gathered.inventory.vms {
            assert!(
                vm.blockers[0]
                    .as_str()
                    .contains("c, which did not tell of it"),
                "{vm:?}"
            );
        }
        let ages = gathered
            .inventory
            .hosts
            .iter()
            .map(|host| host.facts_age_seconds);
        assert_eq!(ages.collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn a_member_that_has_another_policy_is_named() {
        let policy = ClusterPolicy {
            inbound: 7,
            ..ClusterPolicy::default()
        };
        let same = InventoryView {
            policy: Some(Digest::default()),
            ..view("a", &[])
        };
        let other = InventoryView {
            policy: Some(Digest::of_policy(&policy)),
            ..view("b", &[])
        };
        let gathered = merged(vec![same, other, view("c", &[])]);
        let [note] = &gathered.notes[..] else {
            panic!("{:?}", gathered.notes);
        };
        assert!(note.starts_with("b has another [policy]"), "{note}");
        assert_eq!(gathered.inventory.hosts.len(), 3);
    }

    #[test]
    fn an_answer_that_is_not_about_the_host_itself_is_left_out() {
        let mut no_line = view("a", &[]);
        no_line.host.bandwidth = drover_types::BitRate(0);
        let foreign = view("a", &[guest("b", None)]);
        for (view, words) in [
            (view("b", &[]), "in the name of b"),
            (no_line, "no interface"),
            (foreign, "web, which is not its own"),
        ] {
            let host: HostName = "a".parse().unwrap();
            let answer = Answer {
                host: host.clone(),
                told: Ok(view),
                age_seconds: 0,
            };
            let gathered = merge(vec![answer], Digest::default());
            assert_eq!(gathered.inventory, Inventory::default());
            let left_out = &gathered.left_out[&host];
            assert!(left_out.why.contains(words), "{gathered:?}");
            assert!(left_out.answered);
        }
    }
}
