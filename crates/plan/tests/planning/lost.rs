//! What a cluster can still lose: guests that are started anew where their host is lost.

use std::collections::BTreeSet;

use drover_plan::inventory::{GuestCpu, HostState};
use drover_plan::policy::{ClusterPolicy, KeepLosses, LossOf, Membership, Strength};
use drover_plan::{Request, plan};

use crate::build::{drain, host, inventory, loose, pinned, resume, together, vm, word};

/// Any one host can be lost.
fn one() -> ClusterPolicy {
    ClusterPolicy {
        keep: KeepLosses {
            losses: 1,
            of: LossOf::Host,
        },
        ..loose()
    }
}

#[test]
fn guests_of_a_newer_qemu_are_started_on_an_older_one_where_their_host_is_lost() {
    let mut facts = inventory(
        [host("new", 16), host("b", 16), host("c", 16)],
        [vm("web", "new", 4), vm("db", "b", 4)],
    );
    facts.hosts[0].qemu = "10.1.0".parse().unwrap();
    let plan = plan(&facts, &one(), &drain(&["b"])).unwrap();
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn a_guest_with_the_processor_of_its_host_is_started_with_that_of_another() {
    let mut facts = inventory(
        [host("odd", 16), host("b", 16), host("c", 16)],
        [vm("web", "odd", 4), vm("db", "b", 4)],
    );
    facts.hosts[0].cpu.model = word("EPYC-Genoa");
    facts.vms[0].cpu = GuestCpu::Passthrough;
    let plan = plan(&facts, &one(), &drain(&["b"])).unwrap();
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn nobody_has_to_be_with_a_guest_that_is_lost_with_its_host() {
    let facts = inventory(
        [host("a", 16), host("b", 16), host("c", 16)],
        [
            together(pinned(vm("dongle", "a", 1), &["a"]), "shop"),
            together(vm("web", "a", 4), "shop"),
            vm("db", "b", 4),
        ],
    );
    let plan = plan(&facts, &one(), &drain(&["b"])).unwrap();
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn places_are_found_where_the_first_host_with_room_for_each_leaves_none_for_the_last() {
    let vms = [4, 4, 3, 3, 3, 3].into_iter().zip('a'..);
    let mut facts = inventory(
        [host("full", 24), host("b", 10), host("c", 10), host("d", 1)],
        [],
    );
    facts
        .vms
        .extend(vms.map(|(gib, name)| vm(&name.to_string(), "full", gib)));
    let plan = plan(&facts, &one(), &drain(&["d"])).unwrap();
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn evenness_is_no_reason_to_bring_together_what_wishes_to_be_apart() {
    let mut facts = inventory(
        [host("a", 64), host("b", 64)],
        [vm("one", "a", 8), vm("two", "b", 1), vm("big", "a", 32)],
    );
    let wish = Membership {
        group: word("dns"),
        strength: Strength::Soft,
    };
    for vm in &mut facts.vms[..2] {
        vm.policy.apart.push(wish.clone());
    }
    let request = Request::Rebalance {
        min_gain: 1,
        most_moves: 10,
        avoid: Default::default(),
        with_disks: false,
    };
    let plan = plan(&facts, &loose(), &request).unwrap();
    let moved: Vec<_> = plan.steps.iter().map(|step| step.vm.as_str()).collect();
    assert_eq!(moved, ["big"]);
}

#[test]
fn a_guest_that_cannot_come_home_without_a_loss_too_many_keeps_nobody_else_away() {
    let mut facts = inventory(
        [
            host("h1", 96),
            host("h2", 64),
            host("h3", 64),
            host("h4", 64),
        ],
        [
            vm("stayed", "h1", 40),
            vm("s1", "h2", 2),
            vm("s2", "h2", 2),
            vm("s3", "h2", 2),
            vm("large", "h3", 40),
            vm("other", "h4", 30),
        ],
    );
    facts.hosts[2].state = HostState::Cordoned;
    let homes = ["s1", "s2", "s3", "large"];
    let plan = plan(&facts, &one(), &resume("h1", &homes)).unwrap();
    let home: BTreeSet<_> = plan.steps.iter().map(|step| step.vm.as_str()).collect();
    assert_eq!(home, ["s1", "s2", "s3"].into());
    let left: Vec<_> = plan.unmoved.iter().map(|guest| guest.vm.as_str()).collect();
    assert_eq!(left, ["large"]);
}
