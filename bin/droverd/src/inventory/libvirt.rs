//! libvirt's domains as a plan knows them: they take room, and stay where they are.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use drover_libvirt::{Domain, DomainState, Domains};
use drover_plan::inventory::{GuestCpu, Vm, VmState};
use drover_plan::limits::{CPUS, MEMORY};
use drover_plan::policy::{CannotMove, VmPolicy};
use drover_types::{Bytes, HostName, VmName, in_short};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::guests::taken;
use crate::libvirt::{Seen, is_in_memory, name};
use crate::registry::resident;

/// How much of the digest of a host's name stands in names. Only hosts that have the same domain must differ in it.
const HOST_DIGEST_BYTES: usize = 4;

/// Where what a plan must know of them stands.
#[derive(Debug, Default)]
pub struct OfLibvirt {
    /// Those in memory.
    pub vms: Vec<Vm>,
    /// What their processes have of the host's memory.
    pub resident: Bytes,
    /// What is not known of them.
    pub notes: Vec<String>,
}

/// The domains of this host's libvirt, of which these processes are known.
pub fn domains(seen: &Seen, own: &HostName, pids: &BTreeMap<Uuid, u32>) -> OfLibvirt {
    collect(seen, own, |uuid| resident(*pids.get(&uuid)?))
}

/// `memory` tells what a domain's process has touched.
fn collect(seen: &Seen, own: &HostName, memory: impl Fn(Uuid) -> Option<Bytes>) -> OfLibvirt {
    let mut found = OfLibvirt::default();
    let unknown = seen.never_told();
    let unknown = unknown.map(|why| format!("libvirt's domains here are not known: {why}"));
    found.notes.extend(unknown);
    let Some(domains) = &seen.domains else {
        return found;
    };
    let told = domains.told.iter();
    let (in_memory, off): (Vec<_>, Vec<_>) = told.partition(|domain| is_in_memory(domain.state));
    let mut unfound = Vec::new();
    for domain in in_memory {
        let touched = memory(domain.uuid);
        if touched.is_none() {
            unfound.push(name(&domain.name));
        }
        found.resident += touched.unwrap_or_default();
        found.vms.extend(vm(domain, own, touched));
    }
    // Not at each of them: a plan is made from what stands there, and must not be outdated by libvirt's words of today.
    let old = seen.problem().filter(|_| seen.count() > 0);
    found.notes.extend(old.map(|why| {
        let said = seen.said_last();
        format!("libvirt {said} what is planned with of its domains here, and has not told of them since: {why}")
    }));
    if !unfound.is_empty() {
        let (count, names) = (unfound.len(), in_short(unfound.join(", ")));
        found.notes.push(format!(
            "what {count} of libvirt's domains have of the host's memory is counted as its own, too, since their processes were not \
             found: {names}"
        ));
    }
    found.notes.extend(untold(domains));
    if !off.is_empty() {
        let count = off.len();
        let note = format!("domains of libvirt's that are shut off here and stay: {count}");
        found.notes.push(note);
    }
    found
}

fn untold(domains: &Domains) -> impl Iterator<Item = String> {
    domains.untold.iter().map(|domain| {
        let (name, why) = (name(&domain.name), &domain.why);
        format!("libvirt does not tell of its domain {name:?}, which is not counted: {why}")
    })
}

/// None of one that has no name for plans, which does not happen.
fn vm(domain: &Domain, own: &HostName, touched: Option<Bytes>) -> Option<Vm> {
    let most = Bytes(MEMORY);
    let given = domain.memory.min(most);
    let all = taken(given, touched.unwrap_or_default()).min(most);
    let shown = name(&domain.name);
    let blocker = format!(
        "it is libvirt's domain {shown:?}, which the agent does not move yet: `virsh migrate` does"
    );
    Some(Vm {
        name: name_in_plans(domain, own)?,
        called: None,
        host: own.clone(),
        moving_to: None,
        state: match domain.state {
            DomainState::Paused | DomainState::Crashed => VmState::Paused,
            _ => VmState::Running,
        },
        memory: all,
        memory_used: touched.unwrap_or(given).min(given),
        vcpus: u32::from(domain.vcpus).clamp(1, CPUS),
        cpu: GuestCpu::Passthrough,
        needs: [].into(),
        dirty_rate: None,
        working_set: None,
        downtime_limit_ms: 0,
        throttle_most: None,
        deadline: None,
        blockers: vec![blocker.into()],
        // The others of its host are moved all the same, and what stays is told.
        policy: VmPolicy {
            cannot_move: CannotMove::Skip,
            ..VmPolicy::default()
        },
    })
}

/// A name that nothing else in the cluster has, of 49 characters: its id, and the beginning of a digest of its host's name. A guest of
/// an agent's may be called as the domain is, and while libvirt moves one two hosts have it.
fn name_in_plans(domain: &Domain, own: &HostName) -> Option<VmName> {
    let host = HEXLOWER.encode(&Sha256::digest(own.as_str())[..HOST_DIGEST_BYTES]);
    let name = format!("libvirt.{}.{host}", domain.uuid.simple());
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::tests::{domain, lost, seen};
    use crate::planning::tests::{Answer, guest, merge, view};
    use drover_plan::{ClusterPolicy, Digest, Inventory, Request, plan, text};

    const GIB: u64 = 1 << 30;

    fn host() -> HostName {
        "a".parse().unwrap()
    }

    /// With which a cluster of two may lose one.
    fn one_may_go() -> ClusterPolicy {
        ClusterPolicy {
            keep: serde_json::from_str(r#"{"losses":0,"of":"host"}"#).unwrap(),
            ..ClusterPolicy::default()
        }
    }

    fn of(seen: &Seen) -> OfLibvirt {
        collect(seen, &host(), |_| Some(Bytes(GIB)))
    }

    #[test]
    fn domains_in_memory_take_room_and_others_are_only_counted() {
        let found = of(&seen(vec![
            domain("web", DomainState::Running),
            domain("Käfer 1", DomainState::Paused),
            domain("off", DomainState::ShutOff),
        ]));
        let names: Vec<_> = found.vms.iter().map(|vm| vm.name.as_str()).collect();
        // `domain` gives ids by the length of names; the digest is that of "a".
        let expected = [
            "libvirt.00000000000000000000000000000003.ca978112",
            "libvirt.00000000000000000000000000000008.ca978112",
        ];
        assert_eq!(names, expected);
        let states: Vec<_> = found.vms.iter().map(|vm| vm.state).collect();
        assert_eq!(states, [VmState::Running, VmState::Paused]);
        let web = &found.vms[0];
        assert_eq!((web.memory, web.memory_used), (Bytes(4 * GIB), Bytes(GIB)));
        assert_eq!(found.resident, Bytes(2 * GIB));
        assert!(found.vms[1].blockers[0].as_str().contains("Käfer 1"));
        assert_eq!(
            found.notes,
            ["domains of libvirt's that are shut off here and stay: 1"]
        );
    }

    #[test]
    fn a_domain_whose_process_is_not_found_is_planned_with_and_named() {
        let seen = seen(vec![domain("web", DomainState::Running)]);
        let found = domains(&seen, &host(), &BTreeMap::new());
        assert_eq!((found.vms.len(), found.resident), (1, Bytes(0)));
        assert_eq!(found.vms[0].memory_used, Bytes(4 * GIB));
        let [note] = &found.notes[..] else {
            panic!("{:?}", found.notes);
        };
        assert!(note.ends_with("not found: web"), "{note}");
    }

    #[test]
    fn numbers_that_make_no_sense_make_no_plan_impossible() {
        let mut odd = domain(&"x".repeat(250), DomainState::Running);
        (odd.memory, odd.vcpus) = (Bytes(u64::MAX), 0);
        let found = of(&seen(vec![odd]));
        let vm = &found.vms[0];
        assert!(vm.name.as_str().starts_with("libvirt."), "{}", vm.name);
        assert_eq!((vm.memory, vm.vcpus), (Bytes(MEMORY), 1));
    }

    #[test]
    fn what_is_not_known_of_libvirt_is_noted_and_makes_no_plan_another_one() {
        let never = Seen::looking("qemu:///system");
        assert!(of(&never).notes[0].contains("being looked for"));
        let never = Seen {
            contact: lost(),
            ..never
        };
        assert!(of(&never).notes[0].contains("no socket"));
        let told = || seen(vec![domain("web", DomainState::Running)]);
        let then = of(&Seen {
            contact: lost(),
            ..told()
        });
        let [note] = &then.notes[..] else {
            panic!("{:?}", then.notes);
        };
        assert!(note.ends_with("no socket"), "{note}");
        assert_eq!(then.vms, of(&told()).vms, "the same plan as before");
        assert!(of(&Seen::off()).notes.is_empty());
    }

    #[test]
    fn a_drain_says_which_domains_stay_and_why_and_moves_the_others() {
        let domains = of(&seen(vec![domain("db", DomainState::Running)]));
        let mut vms = domains.vms;
        vms.push(guest("a", None));
        let hosts = ["a", "b"].map(|host| view(host, &[]).host).to_vec();
        let inventory = Inventory { hosts, vms };
        let request: Request = serde_json::from_str(r#"{"kind":"drain","hosts":["a"]}"#).unwrap();
        let planned = plan(&inventory, &one_may_go(), &request);
        let planned =
            planned.unwrap_or_else(|refusal| panic!("{}", text::refusal(&refusal, &inventory)));
        let moved: Vec<_> = planned.steps.iter().map(|step| step.vm.as_str()).collect();
        assert_eq!(moved, ["web"]);
        let words = text::plan(&planned);
        assert!(words.contains("libvirt's domain \"db\""), "{words}");
        assert!(words.contains("runs on there"), "{words}");
        assert!(words.contains("`virsh migrate` does"), "{words}");
    }

    #[test]
    fn a_domain_that_libvirt_moves_between_hosts_with_long_names_makes_no_plan_impossible() {
        let names = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(62)));
        let answers = names.clone().map(|name| {
            let host = name.parse().unwrap();
            let moving = seen(vec![domain(&"y".repeat(62), DomainState::Running)]);
            let found = collect(&moving, &host, |_| Some(Bytes(GIB)));
            Answer {
                told: Ok(view(&name, &found.vms)),
                age_seconds: 0,
                host,
            }
        });
        let gathered = merge(answers.into(), Digest::default());
        assert_eq!(gathered.inventory.vms.len(), 2);
        let request = format!(r#"{{"kind":"drain","hosts":["{}"]}}"#, names[0]);
        let request: Request = serde_json::from_str(&request).unwrap();
        let planned = plan(&gathered.inventory, &one_may_go(), &request);
        let planned = planned
            .unwrap_or_else(|refusal| panic!("{}", text::refusal(&refusal, &gathered.inventory)));
        assert!(planned.steps.is_empty(), "{planned:?}");
    }
}
