//! Plans as people read them, kept as text.

use drover_plan::inventory::{HostState, Inventory, VmState};
use drover_plan::policy::{
    CannotMove, ClusterPolicy, Headroom, KeepLosses, LossOf, Spread, Strength,
};
use drover_plan::request::Avoid;
use drover_plan::{Request, Text, plan, text};
use drover_types::{BitRate, ByteRate, Bytes};

use crate::build::{
    GIB, apart, drain, drain_avoiding, host, host_name, in_rack, inventory, loose, membership,
    or_else, pinned, resume, together, vm, word,
};

fn said(inventory: &Inventory, policy: &ClusterPolicy, request: &Request) -> String {
    match plan(inventory, policy, request) {
        Ok(plan) => text::plan(&plan),
        Err(refusal) => text::refusal(&refusal, inventory),
    }
}

/// Four hosts of 64 GiB, six guests on the first.
fn four() -> Inventory {
    let mut hosts = ["h1", "h2", "h3", "h4"].map(|name| host(name, 64));
    for (host, rack) in hosts.iter_mut().zip(["r1", "r1", "r2", "r2"]) {
        *host = in_rack(host.clone(), rack);
        host.memory_for_host = Bytes(4 * GIB);
    }
    let mut facts = inventory(
        hosts,
        [
            vm("db-1", "h1", 16),
            apart(vm("web-1", "h1", 4), "web"),
            vm("mail", "h1", 8),
            vm("build_7", "h1", 8),
            pinned(vm("licence.server", "h1", 2), &["h1", "h4"]),
            vm("old-stopped", "h1", 4),
            apart(vm("web-2", "h2", 4), "web"),
            vm("db-2", "h3", 16),
            vm("db-3", "h4", 8),
        ],
    );
    facts.vms[0].dirty_rate = Some(ByteRate(400 << 20));
    facts.vms[0].working_set = Some(Bytes(2 * GIB));
    facts.vms[2].memory_used = Bytes(3 * GIB);
    facts.vms[3].policy.priority = 10;
    facts.vms[3].dirty_rate = None;
    facts.vms[5].state = VmState::Stopped;
    facts
}

#[test]
fn a_host_with_six_guests() {
    insta::assert_snapshot!(said(&four(), &ClusterPolicy::default(), &drain(&["h1"])));
}

#[test]
fn two_hosts_at_once() {
    insta::assert_snapshot!(said(&four(), &loose(), &drain(&["h1", "h2"])));
}

#[test]
fn guests_that_cannot_move_and_what_then() {
    let mut facts = four();
    facts.vms[1] = or_else(pinned(facts.vms[1].clone(), &["h1"]), CannotMove::Suspend);
    facts.vms[0] = or_else(facts.vms[0].clone(), CannotMove::Skip);
    facts.vms[0].blockers = vec![Text::from(
        "0000:3b:00.0: VFIO device\ndoes not support migration".to_owned(),
    )];
    facts.vms[2] = or_else(facts.vms[2].clone(), CannotMove::StopAndStart);
    facts.vms[2].cpu = drover_plan::inventory::GuestCpu::Named {
        model: None,
        features: [word("amx-tile"), word("avx2")].into(),
    };
    insta::assert_snapshot!(said(&facts, &loose(), &drain(&["h1"])));
}

#[test]
fn a_guest_that_must_move_and_cannot() {
    let mut facts = four();
    facts.vms[0].memory = Bytes(60 * GIB);
    facts.hosts[3].state = HostState::Cordoned;
    insta::assert_snapshot!(said(&facts, &loose(), &drain(&["h1"])));
}

#[test]
fn guests_of_which_a_move_failed() {
    let mut facts = four();
    facts.vms[2] = or_else(facts.vms[2].clone(), CannotMove::StopAndStart);
    facts.hosts[2].state = HostState::Cordoned;
    let request = drain_avoiding(&["h1"], &[("db-1", &["h2"]), ("mail", &["h2", "h4"])]);
    insta::assert_snapshot!(said(&facts, &loose(), &request));
}

#[test]
fn a_cluster_that_could_lose_too_little() {
    let mut facts = four();
    facts.vms.push(vm("warehouse", "h2", 40));
    facts.vms.push(vm("reports", "h4", 36));
    insta::assert_snapshot!(said(&facts, &ClusterPolicy::default(), &drain(&["h1"])));
}

#[test]
fn racks_that_may_be_lost_and_groups_that_are_spread() {
    let racks = ClusterPolicy {
        failure_domain: Some(word("rack")),
        spread: Spread::Prefer,
        keep: KeepLosses {
            losses: 1,
            of: LossOf::FailureDomain,
        },
        ..ClusterPolicy::default()
    };
    insta::assert_snapshot!(said(&four(), &racks, &drain(&["h1"])));
}

#[test]
fn guests_that_belong_together_move_together_and_soft_wishes_are_told_when_broken() {
    let mut facts = inventory(
        [host("h1", 64), host("h2", 24), host("h3", 24)],
        [
            together(vm("app", "h1", 8), "shop"),
            together(vm("cache", "h1", 8), "shop"),
            vm("noise-1", "h1", 16),
            vm("noise-2", "h3", 4),
        ],
    );
    for vm in &mut facts.vms {
        vm.policy.apart.push(membership("quiet", Strength::Soft));
    }
    insta::assert_snapshot!(said(&facts, &loose(), &drain(&["h1"])));
}

#[test]
fn a_guest_of_another_host_makes_room() {
    let facts = inventory(
        [host("h1", 32), host("h2", 32), host("h3", 32)],
        [
            vm("large", "h1", 24),
            vm("small", "h1", 2),
            vm("middle", "h2", 12),
            vm("middle-2", "h3", 12),
        ],
    );
    let displacing = ClusterPolicy {
        allow_displacing: true,
        ..loose()
    };
    insta::assert_snapshot!(said(&facts, &displacing, &drain(&["h1"])));
    assert!(plan(&facts, &loose(), &drain(&["h1"])).is_err());
}

#[test]
fn guests_come_home_in_reverse_order() {
    let mut facts = four();
    facts.hosts[0].state = HostState::Cordoned;
    for (vm, host) in facts.vms.iter_mut().zip(["h4", "h3", "h4", "h3", "h4"]) {
        vm.host = host_name(host);
    }
    facts.vms[2].memory = Bytes(60 * GIB);
    let homes = ["build_7", "db-1", "mail", "gone", "web-1", "licence.server"];
    insta::assert_snapshot!(said(&facts, &loose(), &resume("h1", &homes)));
}

#[test]
fn a_rebalancing() {
    let facts = inventory(
        [host("h1", 64), host("h2", 64), host("h3", 64)],
        [
            vm("a", "h1", 16),
            vm("b", "h1", 16),
            vm("c", "h1", 12),
            vm("d", "h1", 4),
            vm("e", "h2", 8),
        ],
    );
    let ask = |min_gain| Request::Rebalance {
        min_gain,
        most_moves: 10,
        avoid: Avoid::new(),
        with_disks: false,
    };
    insta::assert_snapshot!(said(&facts, &loose(), &ask(500)));
    let nothing = plan(&facts, &loose(), &ask(9_000)).unwrap();
    assert!(
        nothing.steps.is_empty(),
        "nothing moves for less than was asked for"
    );
}

#[test]
fn lines_that_one_guest_cannot_fill_and_a_guest_that_writes_faster_than_they_carry() {
    let mut facts = four();
    for host in &mut facts.hosts {
        host.bandwidth = BitRate(25_000_000_000);
        host.inbound = Some(4);
    }
    facts.vms[0].dirty_rate = Some(ByteRate(4 << 30));
    facts.vms[0].working_set = None;
    let lines = ClusterPolicy {
        guest_bandwidth: Some(BitRate(10_000_000_000)),
        outbound: 4,
        headroom: Headroom::Size {
            bytes: Bytes(4 * GIB),
        },
        ..loose()
    };
    insta::assert_snapshot!(said(&facts, &lines, &drain(&["h1"])));
}

#[test]
fn nothing_to_move() {
    insta::assert_snapshot!(said(
        &inventory([host("h1", 8), host("h2", 8)], []),
        &loose(),
        &drain(&["h1"])
    ));
}
