use std::sync::Arc;

use super::*;
use crate::libvirt::tests::{domain, lost, seen, untold};
use crate::planning::tests::{Answer, guest, merge, view};
use drover_api::InventoryView;
use drover_plan::inventory::GuestCpu;
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

fn fit() -> Fit {
    Fit {
        blockers: Vec::new(),
        notes: Vec::new(),
        needs: Vec::new(),
        cpu: GuestCpu::Passthrough,
    }
}

/// All of these domains can move.
fn known<'a>(seen: &Seen, own: &'a HostName, guests: &'a BTreeSet<VmName>) -> Known<'a> {
    let told = seen.domains.iter().flat_map(|domains| &domains.told);
    Known {
        own,
        guests,
        ways: BTreeMap::new(),
        fits: told.map(|domain| (domain.uuid, fit())).collect(),
        wished: Convergence::default(),
    }
}

fn of(seen: &Seen) -> OfLibvirt {
    let (host, none) = (host(), BTreeSet::new());
    collect(seen, &known(seen, &host, &none), |_| Some(Bytes(GIB)))
}

#[test]
fn domains_in_memory_take_room_and_others_are_only_counted() {
    let found = of(&seen(vec![
        domain("web", DomainState::Running),
        domain("Käfer 1", DomainState::Paused),
        domain("off", DomainState::ShutOff),
    ]));
    let names: Vec<_> = found.vms.iter().map(|vm| vm.name.as_str()).collect();
    // `domain` gives ids by the length of names.
    let expected = [
        "00000000-0000-0000-0000-000000000003",
        "00000000-0000-0000-0000-000000000008",
    ];
    assert_eq!(names, expected);
    let called = found.vms[1].called.as_ref().unwrap();
    assert_eq!(called.as_str(), "libvirt's \"Käfer 1\"");
    assert!(found.vms.iter().all(|vm| vm.blockers.is_empty()));
    let views: Vec<_> = found.domains.iter().map(|view| view.vm.as_str()).collect();
    assert_eq!(views, expected);
    let states: Vec<_> = found.vms.iter().map(|vm| vm.state).collect();
    assert_eq!(states, [VmState::Running, VmState::Paused]);
    let web = &found.vms[0];
    assert_eq!((web.memory, web.memory_used), (Bytes(4 * GIB), Bytes(GIB)));
    assert_eq!(found.resident, Bytes(2 * GIB));
    assert_eq!(
        found.notes,
        ["domains of libvirt's that are shut off here and stay: 1"]
    );
}

#[test]
fn a_domain_whose_process_is_not_found_is_planned_with_and_named() {
    let seen = seen(vec![domain("web", DomainState::Running)]);
    let (host, none) = (host(), BTreeSet::new());
    let found = collect(&seen, &known(&seen, &host, &none), |_| None);
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
fn a_drain_moves_domains_as_guests_and_says_which_stay_and_why() {
    let seen = seen(vec![
        domain("db", DomainState::Running),
        domain("tied", DomainState::Running),
    ]);
    let (host, none) = (host(), BTreeSet::new());
    let mut known = known(&seen, &host, &none);
    // By the length of its name.
    let tied = known.fits.get_mut(&Uuid::from_u128(4)).unwrap();
    tied.blockers.push("it has the TPM of its host".to_owned());
    let mut vms = collect(&seen, &known, |_| Some(Bytes(GIB))).vms;
    vms.push(guest("a", None));
    let hosts = ["a", "b"].map(|host| view(host, &[]).host).to_vec();
    let inventory = Inventory { hosts, vms };
    let request: Request = serde_json::from_str(r#"{"kind":"drain","hosts":["a"]}"#).unwrap();
    let planned = plan(&inventory, &one_may_go(), &request);
    let planned =
        planned.unwrap_or_else(|refusal| panic!("{}", text::refusal(&refusal, &inventory)));
    let mut moved: Vec<_> = planned.steps.iter().map(|step| step.vm.as_str()).collect();
    moved.sort_unstable();
    assert_eq!(moved, ["00000000-0000-0000-0000-000000000002", "web"]);
    let words = text::plan(&planned);
    for said in [
        "(libvirt's \"db\")",
        "(libvirt's \"tied\") on a",
        "the TPM of its host",
        "runs on there",
    ] {
        assert!(words.contains(said), "no {said:?} in {words}");
    }
}

#[test]
fn a_domain_of_which_nothing_is_known_stays_and_one_that_moves_is_at_both_ends() {
    let seen = seen(vec![domain("web", DomainState::Running)]);
    let (host, none) = (host(), BTreeSet::new());
    let mut known = known(&seen, &host, &none);
    known.fits.clear();
    let of = |known: &Known<'_>| collect(&seen, known, |_| None).vms.remove(0);
    let blockers = of(&known).blockers;
    assert!(blockers[0].as_str().contains("not known"), "{blockers:?}");
    let (source, destination): (HostName, HostName) = ("b".parse().unwrap(), host.clone());
    let way = DomainWay {
        source: source.clone(),
        destination: destination.clone(),
    };
    known.ways.insert(Uuid::from_u128(3), way);
    let arrives = of(&known);
    assert_eq!(
        (arrives.host, arrives.moving_to),
        (source, Some(destination))
    );
    assert!(arrives.blockers.is_empty());
}

#[test]
fn whoever_knows_no_domains_is_told_of_guests_that_stay() {
    let found = of(&seen(vec![domain("web", DomainState::Running)]));
    let staying = found.staying(&host());
    assert_eq!(staying.domains, []);
    let vm = &staying.vms[0];
    let name = "libvirt.00000000000000000000000000000003.ca978112";
    assert_eq!((vm.name.as_str(), &vm.called), (name, &None));
    let [why] = &vm.blockers[..] else {
        panic!("{vm:?}");
    };
    assert!(why.as_str().contains("domain \"web\""), "{why}");
    // What such an agent reads has no word that it does not know.
    let json = serde_json::to_value(vm).unwrap();
    assert!(json.get("called").is_none() && json.get("needs").is_none());
}

#[test]
fn a_domain_whose_id_is_a_guests_name_is_not_ordered_by_it() {
    let seen = seen(vec![domain("web", DomainState::Running)]);
    let (host, guests) = (host(), [name_by_id(Uuid::from_u128(3)).unwrap()].into());
    let vm = collect(&seen, &known(&seen, &host, &guests), |_| None)
        .vms
        .remove(0);
    assert_eq!(
        vm.name.as_str(),
        "libvirt.00000000000000000000000000000003.ca978112"
    );
    assert!(vm.blockers[0].as_str().contains("its id for a name"));
}

#[test]
fn a_domain_of_which_libvirt_does_not_tell_stays_where_its_process_runs_and_is_noted_elsewhere() {
    let hangs = Seen {
        domains: Some(Arc::new(untold("web", 3))),
        ..seen(Vec::new())
    };
    let (host, none) = (host(), BTreeSet::new());
    let of = |memory| collect(&hangs, &known(&hangs, &host, &none), |_| memory);
    let runs = of(Some(Bytes(GIB)));
    let [vm] = &runs.vms[..] else {
        panic!("{runs:?}");
    };
    assert_eq!(
        (vm.name.as_str(), vm.memory_used),
        ("00000000-0000-0000-0000-000000000003", Bytes(GIB))
    );
    assert!(
        vm.blockers[0].as_str().contains("does not tell of it"),
        "{vm:?}"
    );
    assert_eq!(runs.resident, Bytes(GIB));
    let silent = of(None);
    assert!(silent.vms.is_empty() && silent.notes[0].contains("is not counted"));
}

#[test]
fn a_domain_with_the_name_of_a_guest_on_another_host_stays() {
    let there = |host: &str| {
        let named = seen(vec![domain("web", DomainState::Running)]);
        let (own, none) = ("a".parse().unwrap(), BTreeSet::new());
        let found = collect(&named, &known(&named, &own, &none), |_| None);
        let told = InventoryView {
            domains: found.domains,
            ..view("a", &found.vms)
        };
        let other = view(host, &[guest(host, None)]);
        let answers = [("a", told), (host, other)].map(|(host, told)| Answer {
            host: host.parse().unwrap(),
            told: Ok(told),
            age_seconds: 0,
        });
        let vms = merge(answers.into(), Digest::default()).inventory.vms;
        vms.into_iter().find(|vm| vm.called.is_some()).unwrap()
    };
    let why = there("b").blockers.remove(0);
    assert!(
        why.as_str().starts_with("b has a guest of Drover's"),
        "{why}"
    );
}

#[test]
fn postcopy_is_not_foretold_of_a_domain() {
    let seen = seen(vec![domain("web", DomainState::Running)]);
    let (host, none) = (host(), BTreeSet::new());
    let mut known = known(&seen, &host, &none);
    let wished = r#"{"deadline_s": 60, "at_deadline": "postcopy"}"#;
    known.wished = serde_json::from_str(wished).unwrap();
    let vm = collect(&seen, &known, |_| None).vms.remove(0);
    assert_eq!(vm.deadline.unwrap().then, AtDeadline::GiveUp);
    assert_eq!(vm.downtime_limit_ms, 300);
}

#[test]
fn a_domain_that_libvirt_moves_between_hosts_with_long_names_makes_no_plan_impossible() {
    let names = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(62)));
    let answers = names.clone().map(|name| {
        let host = name.parse().unwrap();
        let moving = seen(vec![domain(&"y".repeat(62), DomainState::Running)]);
        let none = BTreeSet::new();
        let found = collect(&moving, &known(&moving, &host, &none), |_| Some(Bytes(GIB)));
        let told = InventoryView {
            domains: found.domains,
            ..view(&name, &found.vms)
        };
        Answer {
            told: Ok(told),
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
