//! Facts, policies and requests that contradict themselves or exceed a bound.

use drover_plan::invalid::Invalid;
use drover_plan::inventory::Inventory;
use drover_plan::policy::{ClusterPolicy, Headroom, Spread};
use drover_plan::request::Avoid;
use drover_plan::{Refusal, Request};
use drover_types::Bytes;

use crate::build::{GIB, apart, drain, host, host_name, loose, vm, vm_name};
use crate::refusals::{refused, two};

fn invalid(inventory: &Inventory, policy: &ClusterPolicy, request: &Request) -> Invalid {
    match refused(inventory, policy, request) {
        Refusal::Invalid { what } => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn facts_and_policies_that_make_no_sense_are_refused_with_what_and_where() {
    type Change = fn(&mut Inventory, &mut ClusterPolicy);
    let changes: [(Change, &str); 13] = [
        (
            |facts, _| facts.hosts.push(host("h1", 1)),
            "two hosts are named h1",
        ),
        (
            |facts, _| facts.vms.push(vm("web", "h2", 1)),
            "two VMs are named web, on h1 and h2",
        ),
        (
            |facts, _| facts.vms.push(vm("x", "h9", 1)),
            "x is said to be on or to move to h9",
        ),
        (
            |facts, _| facts.vms[0].moving_to = Some(host_name("h1")),
            "moving from h1 to h1",
        ),
        (
            |facts, _| facts.hosts[0].bandwidth.0 = 0,
            "the bandwidth (bit/s) of host h1 is 0",
        ),
        (
            |facts, _| facts.hosts[0].memory_for_host = Bytes(u64::MAX),
            "h1 keeps 16777216 TiB",
        ),
        (
            |facts, _| facts.vms[0].memory_used = Bytes(9 * GIB),
            "the memory of VM web",
        ),
        (
            |facts, _| facts.vms[0].vcpus = 0,
            "the number of CPUs of VM web is 0",
        ),
        (
            |facts, _| facts.vms[0].policy.priority = 101,
            "the priority of VM web is 101",
        ),
        (
            |facts, _| facts.vms[0] = apart(apart(facts.vms[0].clone(), "g"), "g"),
            "web names a group twice",
        ),
        (
            |_, policy| policy.headroom = Headroom::Percent { percent: 101 },
            "headroom (percent) of the policy is 101",
        ),
        (
            |_, policy| policy.spread = Spread::Require,
            "failure_domain names no label",
        ),
        (
            |_, policy| policy.inbound = 0,
            "migrations at once of the policy is 0",
        ),
    ];
    for (change, words) in changes {
        let (mut facts, mut policy) = (two(), loose());
        change(&mut facts, &mut policy);
        let found = invalid(&facts, &policy, &drain(&["h1"])).to_string();
        assert!(found.contains(words), "{found}");
    }
    assert_eq!(invalid(&two(), &loose(), &drain(&[])), Invalid::NoHosts);
    let moves = Request::Rebalance {
        min_gain: 1,
        most_moves: 1_000_000,
        avoid: Avoid::new(),
        with_disks: false,
    };
    assert!(
        invalid(&two(), &loose(), &moves)
            .to_string()
            .contains("1 to 1000 make sense")
    );
}

#[test]
fn more_failed_moves_than_an_inventory_can_have_are_refused_with_their_number() {
    let names = |count: usize, letter: char| (0..count).map(move |i| format!("{letter}{i}"));
    let hosts: std::collections::BTreeSet<_> =
        names(1_000, 'h').map(|name| host_name(&name)).collect();
    let vms = names(101, 'v').map(|name| (vm_name(&name), hosts.clone()));
    let request = Request::Drain {
        hosts: [host_name("h1")].into(),
        avoid: vms.collect(),
        with_disks: false,
    };
    let found = invalid(&two(), &loose(), &request);
    assert!(
        found
            .to_string()
            .contains("101000 hosts that VMs avoid of the request, at most 100000"),
        "{found}"
    );
}

#[test]
fn more_hosts_and_vms_than_are_planned_with_are_refused() {
    let many = drover_plan::limits::HOSTS + 1;
    let hosts = (0..many)
        .map(|index| host(&format!("h{index}"), 32))
        .collect();
    let facts = Inventory {
        hosts,
        vms: Vec::new(),
    };
    assert!(
        matches!(invalid(&facts, &loose(), &drain(&["h1"])), Invalid::TooMany { found, .. } if found == many)
    );
    let many = drover_plan::limits::VMS + 1;
    let vms = (0..many)
        .map(|index| vm(&format!("v{index}"), "h1", 1))
        .collect();
    let facts = Inventory {
        hosts: vec![host("h1", 1)],
        vms,
    };
    assert!(
        matches!(invalid(&facts, &loose(), &drain(&["h1"])), Invalid::TooMany { found, .. } if found == many)
    );
}
