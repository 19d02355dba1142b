//! Each refusal, and what it says.

use drover_plan::inventory::{HostState, Inventory, VmState};
use drover_plan::plan::Then;
use drover_plan::policy::{CannotMove, ClusterPolicy, Headroom, KeepLosses, LossOf, Spread};
use drover_plan::refusal::{NoPlace, Scarce, Unmovable};
use drover_plan::{Refusal, Request, Text, plan};
use drover_types::Bytes;

use crate::build::{
    GIB, apart, drain, host, host_name, in_rack, inventory, loose, or_else, pinned, resume,
    together, vm, vm_name, word,
};

pub fn refused(inventory: &Inventory, policy: &ClusterPolicy, request: &Request) -> Refusal {
    plan(inventory, policy, request).unwrap_err()
}

pub fn two() -> Inventory {
    inventory([host("h1", 32), host("h2", 32)], [vm("web", "h1", 8)])
}

#[test]
fn hosts_that_are_not_there_do_not_answer_or_were_not_asked_lately_are_refused_by_name() {
    let unknown = refused(&two(), &loose(), &drain(&["h9"]));
    assert_eq!(
        unknown,
        Refusal::UnknownHost {
            host: host_name("h9")
        }
    );
    let mut facts = two();
    facts.hosts[0].state = HostState::Unreachable;
    let silent = Refusal::Unreachable {
        host: host_name("h1"),
    };
    assert_eq!(refused(&facts, &loose(), &drain(&["h1"])), silent);
    assert_eq!(refused(&facts, &loose(), &resume("h1", &[])), silent);
    let mut facts = two();
    facts.hosts[0].facts_age_seconds = 61;
    let old = Refusal::OldFacts {
        host: host_name("h1"),
        age_seconds: 61,
        limit_seconds: 60,
    };
    assert_eq!(refused(&facts, &loose(), &drain(&["h1"])), old);
}

#[test]
fn draining_the_last_two_hosts_is_refused_with_numbers() {
    let refusal = refused(&two(), &loose(), &drain(&["h1", "h2"]));
    let expected = Refusal::NoHostLeft {
        guests: 1,
        memory: Bytes(8 * GIB),
        closed: vec![],
    };
    assert_eq!(refusal, expected);
    assert!(
        refusal
            .to_string()
            .contains("1 guest with 8 GiB (none is there beside those to be drained)"),
        "{refusal}"
    );
}

#[test]
fn two_operators_cannot_drain_two_hosts_into_each_other() {
    let mut facts = two();
    facts.vms.push(vm("db", "h2", 8));
    plan(&facts, &loose(), &drain(&["h1"])).unwrap();
    // The first drain has cordoned its host by the time that the second is asked for.
    facts.hosts[0].state = HostState::Cordoned;
    let refusal = refused(&facts, &loose(), &drain(&["h2"]));
    assert!(
        matches!(refusal, Refusal::NoHostLeft { guests: 1, .. }),
        "{refusal:?}"
    );
    let words = refusal.to_string();
    assert!(
        words.contains("with 8 GiB (h1: is cordoned): drain"),
        "{words}"
    );
}

#[test]
fn a_guest_that_is_on_its_way_to_a_host_has_to_arrive_before_that_is_drained() {
    let mut facts = two();
    facts.vms[0].moving_to = Some(host_name("h2"));
    let refusal = refused(&facts, &loose(), &drain(&["h2"]));
    let arriving = Refusal::Arriving {
        vm: vm_name("web"),
        host: host_name("h2"),
    };
    assert_eq!(refusal, arriving);
}

/// The reasons why `web` on h1 cannot move, by host.
fn reasons(inventory: &Inventory, policy: &ClusterPolicy) -> Vec<(NoPlace, Vec<String>)> {
    let Refusal::Blocked { unmoved, .. } = refused(inventory, policy, &drain(&["h1"])) else {
        panic!("not blocked");
    };
    let web = unmoved
        .into_iter()
        .find(|guest| guest.vm.as_str() == "web")
        .unwrap();
    assert!(web.blocks());
    let Unmovable::NoHost { hosts } = web.why else {
        panic!("{:?}", web.why)
    };
    let named = hosts.into_iter().map(|hosts| {
        assert_eq!(hosts.count, hosts.hosts.len());
        (
            hosts.reason,
            hosts.hosts.iter().map(ToString::to_string).collect(),
        )
    });
    named.collect()
}

fn reason(inventory: &Inventory, policy: &ClusterPolicy) -> NoPlace {
    let mut reasons = reasons(inventory, policy);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0).0
}

#[test]
fn each_host_that_was_considered_says_why_it_has_no_place() {
    let mut facts = inventory(
        [
            host("h1", 32),
            host("h2", 4),
            host("h3", 6),
            host("h4", 32),
            host("h5", 32),
            host("h6", 32),
            host("h7", 32),
        ],
        [
            apart(vm("web", "h1", 8), "web"),
            apart(vm("web-2", "h4", 1), "web"),
        ],
    );
    facts.hosts[4].state = HostState::Cordoned;
    facts.hosts[5].facts_age_seconds = 3600;
    facts.hosts[6].state = HostState::Unreachable;
    let reasons = reasons(&facts, &loose());
    let memory = NoPlace::Memory {
        wanted: Bytes(8 * GIB),
        free: Bytes(6 * GIB),
    };
    let apart = NoPlace::Apart {
        group: word("web"),
        with: vm_name("web-2"),
    };
    let old = NoPlace::OldFacts {
        age_seconds: 3600,
        limit_seconds: 60,
    };
    let expected = [
        (memory, vec!["h2", "h3"]),
        (apart, vec!["h4"]),
        (old, vec!["h6"]),
        (NoPlace::Cordoned, vec!["h5"]),
        (NoPlace::Unreachable, vec!["h7"]),
    ];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for ((reason, hosts), (expected, names)) in reasons.iter().zip(&expected) {
        assert_eq!(
            (reason, hosts.iter().map(String::as_str).collect::<Vec<_>>()),
            (expected, names.clone())
        );
    }
}

#[test]
fn a_processor_that_cannot_run_a_guest_says_what_it_lacks() {
    let mut facts = two();
    facts.hosts[1].cpu.models.clear();
    let model = word("x86-64-v3");
    assert_eq!(reason(&facts, &loose()), NoPlace::CpuModel { model });
    let mut facts = two();
    facts.hosts[1].cpu.features = [word("sse4.2")].into();
    let missing = vec![word("avx2")];
    assert_eq!(reason(&facts, &loose()), NoPlace::CpuFeatures { missing });
    let mut facts = two();
    facts.vms[0].cpu = drover_plan::inventory::GuestCpu::Passthrough;
    facts.hosts[1].cpu.model = word("EPYC-Rome");
    let other = NoPlace::CpuPassthrough {
        here: word("EPYC-Milan"),
        there: word("EPYC-Rome"),
    };
    assert_eq!(reason(&facts, &loose()), other);
}

#[test]
fn a_guest_does_not_move_to_an_older_qemu_unless_that_is_allowed() {
    let mut facts = two();
    facts.hosts[1].qemu = "7.2.22".parse().unwrap();
    let older = NoPlace::OlderQemu {
        here: "10.0.2".parse().unwrap(),
        there: "7.2.22".parse().unwrap(),
    };
    assert_eq!(reason(&facts, &loose()), older);
    let allowed = ClusterPolicy {
        allow_older_qemu: true,
        ..loose()
    };
    assert_eq!(
        plan(&facts, &allowed, &drain(&["h1"])).unwrap().steps.len(),
        1
    );
}

#[test]
fn pins_companions_cpus_and_failure_domains_are_reasons() {
    let facts = inventory(
        [host("h1", 32), host("h2", 32)],
        [pinned(vm("web", "h1", 8), &["h1"])],
    );
    assert_eq!(
        reason(&facts, &loose()),
        NoPlace::Pinned { vm: vm_name("web") }
    );

    let facts = inventory(
        [host("h1", 32), host("h2", 32), host("h3", 8)],
        [
            together(vm("web", "h1", 8), "shop"),
            together(vm("db", "h3", 8), "shop"),
        ],
    );
    let there = reasons(&facts, &loose());
    assert!(
        matches!(
            &there[..],
            [(NoPlace::Memory { .. }, _), (NoPlace::Together { .. }, _)]
        ),
        "{there:?}"
    );

    let mut facts = two();
    facts.vms[0].vcpus = 65;
    let vcpus = NoPlace::Vcpus {
        wanted: 65,
        free: 64,
    };
    assert_eq!(reason(&facts, &loose()), vcpus);

    let facts = inventory(
        [
            host("h1", 32),
            in_rack(host("h2", 32), "r1"),
            in_rack(host("h3", 32), "r1"),
        ],
        [
            apart(vm("web", "h1", 8), "web"),
            apart(vm("web-2", "h3", 8), "web"),
        ],
    );
    let racks = ClusterPolicy {
        failure_domain: Some(word("rack")),
        spread: Spread::Require,
        ..loose()
    };
    let there = reasons(&facts, &racks);
    assert!(
        matches!(
            &there[..],
            [(NoPlace::Apart { .. }, _), (NoPlace::SameDomain { .. }, _)]
        ),
        "{there:?}"
    );
}

#[test]
fn a_guest_whose_room_another_took_is_told_so() {
    let mut facts = inventory(
        [host("h1", 32), host("h2", 10)],
        [vm("big", "h1", 9), vm("web", "h1", 8)],
    );
    facts.vms[0].policy.priority = 1;
    let taken = reason(&facts, &loose());
    let (by, of) = (1, Scarce::Memory);
    assert_eq!(taken, NoPlace::Taken { by, of });
    let words = "has room for it alone, its memory is taken by 1 guest of this plan";
    assert_eq!(taken.to_string(), words);

    // Memory for both, and half of the virtual processors that both have.
    let vcpus = facts.hosts[1].cpus * loose().vcpus_percent / 100;
    facts.hosts[0].cpus *= 2;
    facts.hosts[1].memory = Bytes(32 * GIB);
    for vm in &mut facts.vms {
        vm.vcpus = vcpus;
    }
    let (by, of) = (1, Scarce::Vcpus);
    assert_eq!(reason(&facts, &loose()), NoPlace::Taken { by, of });
}

#[test]
fn what_a_hypervisor_cannot_migrate_follows_its_policy() {
    for (policy, then) in [
        (CannotMove::Skip, Then::RunsOn),
        (CannotMove::StopAndStart, Then::Stopped),
    ] {
        let mut facts = two();
        facts.vms[0] = or_else(facts.vms[0].clone(), policy);
        facts.vms[0].blockers = vec![Text::from("VFIO device 0000:3b:00.0".to_owned())];
        let plan = plan(&facts, &loose(), &drain(&["h1"])).unwrap();
        assert_eq!(plan.unmoved[0].then, then);
        assert_eq!(plan.steps.len(), 0);
        for policy in [CannotMove::Block, CannotMove::Suspend] {
            facts.vms[0] = or_else(facts.vms[0].clone(), policy);
            let refusal = refused(&facts, &loose(), &drain(&["h1"]));
            assert!(matches!(refusal, Refusal::Blocked { .. }), "{refusal:?}");
            let said = format!("{refusal:?}").contains("nor suspend it");
            assert_eq!(said, policy == CannotMove::Suspend);
        }
    }
}

#[test]
fn a_stopped_guest_needs_no_place_and_stays() {
    let mut facts = two();
    facts.vms[0].state = VmState::Stopped;
    facts.hosts[1].memory = Bytes(GIB);
    let plan = plan(&facts, &loose(), &drain(&["h1"])).unwrap();
    assert_eq!((plan.steps.len(), plan.stays.len()), (0, 1));
}

#[test]
fn a_drain_that_leaves_the_cluster_unable_to_lose_a_host_is_refused_with_the_guests() {
    let facts = inventory(
        [host("h1", 32), host("h2", 32), host("h3", 32)],
        [
            vm("web", "h1", 16),
            vm("db", "h2", 16),
            vm("mail", "h3", 16),
        ],
    );
    let one = ClusterPolicy {
        headroom: Headroom::Percent { percent: 0 },
        ..ClusterPolicy::default()
    };
    let refusal = refused(&facts, &one, &drain(&["h1"]));
    let Refusal::LossesNotKept {
        lost,
        guests,
        held_before,
        ..
    } = &refusal
    else {
        panic!("{refusal:?}");
    };
    assert_eq!((lost.len(), guests.len(), *held_before), (1, 1, true));
    assert!(refusal.to_string().contains("16 GiB"), "{refusal}");
    assert_eq!(
        plan(&facts, &loose(), &drain(&["h1"])).unwrap().steps.len(),
        1
    );
}

#[test]
fn more_losses_than_can_be_tried_are_refused() {
    let hosts = (0..200)
        .map(|index| host(&format!("h{index}"), 32))
        .collect();
    let facts = Inventory {
        hosts,
        vms: Vec::new(),
    };
    let three = ClusterPolicy {
        keep: KeepLosses {
            losses: 3,
            of: LossOf::Host,
        },
        ..loose()
    };
    let refusal = refused(&facts, &three, &drain(&["h1"]));
    assert_eq!(
        refusal,
        Refusal::TooManyLosses {
            sets: 1_313_400,
            losses: 3
        }
    );
}

fn text(words: &str) -> Text {
    Text::from(words.to_owned())
}

#[test]
fn a_host_that_lacks_what_a_guest_needs_does_not_take_it_and_says_how_that_shows() {
    let mut facts = two();
    facts.vms[0].needs = [text("network \"lan\""), text("pool \"images\"")].into();
    // What nobody looked for, and what others need, keeps none away.
    let others = (text("network \"dmz\""), text("is not there"));
    facts.hosts[1].lacks = [others].into();
    let made = plan(&facts, &loose(), &drain(&["h1"])).unwrap();
    assert_eq!(made.steps.len(), 1);
    let shows = text("libvirt's network \"lan\" is not active");
    facts.hosts[1]
        .lacks
        .insert(text("network \"lan\""), shows.clone());
    let lacks = NoPlace::Lacks { what: vec![shows] };
    assert_eq!(reason(&facts, &loose()), lacks);
    assert_eq!(lacks.to_string(), "libvirt's network \"lan\" is not active");
}

#[test]
fn a_guest_that_no_host_can_take_stays_and_says_why_of_each_and_the_others_move() {
    let mut facts = inventory(
        [host("h1", 32), host("h2", 32), host("h3", 32)],
        [vm("5f2c", "h1", 4), vm("web", "h1", 8)],
    );
    facts.vms[0].called = Some(text("libvirt's \"db\""));
    facts.vms[0].policy.cannot_move = CannotMove::Skip;
    facts.vms[0].needs = [text("network"), text("libvirt")].into();
    facts.hosts[1].lacks = [(text("network"), text("has no network"))].into();
    facts.hosts[2].lacks = [(text("libvirt"), text("has no libvirt"))].into();
    let one = ClusterPolicy {
        keep: KeepLosses {
            losses: 1,
            of: LossOf::Host,
        },
        ..loose()
    };
    let made = plan(&facts, &one, &drain(&["h1"])).unwrap();
    let moved: Vec<_> = made.steps.iter().map(|step| step.vm.as_str()).collect();
    assert_eq!(moved, ["web"]);
    assert_eq!(made.unmoved[0].then, Then::RunsOn);
    // Its host's loss is its own: nobody could have it.
    assert_eq!(made.afterwards.losses.bound_to_their_host, 1);
    let words = drover_plan::text::plan(&made);
    for said in [
        "  5f2c (libvirt's \"db\") on h1, 4 GiB: runs on there",
        "    h2: has no network\n",
        "    h3: has no libvirt\n",
    ] {
        assert!(words.contains(said), "no {said:?} in {words}");
    }
}

#[test]
fn a_refusal_says_what_people_call_the_guests_that_keep_from_a_plan() {
    let mut facts = two();
    facts.vms[0].called = Some(text("libvirt's \"db\""));
    facts.vms[0].needs = [text("network")].into();
    facts.hosts[1].lacks = [(text("network"), text("has no network"))].into();
    let refused = plan(&facts, &loose(), &drain(&["h1"])).unwrap_err();
    let words = drover_plan::text::refusal(&refused, &facts);
    assert!(words.contains("(libvirt's \"db\") on h1"), "{words}");
}
