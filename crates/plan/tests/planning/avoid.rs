//! Guests of which a move failed a moment ago are not sent there again, and not stopped for it.

use std::collections::BTreeMap;

use drover_plan::inventory::{HostState, Inventory};
use drover_plan::plan::Then;
use drover_plan::policy::{CannotMove, ClusterPolicy, KeepLosses, LossOf};
use drover_plan::refusal::{NoPlace, Unmovable};
use drover_plan::request::Avoid;
use drover_plan::{Plan, Request, plan};
use drover_types::Bytes;

use crate::build::{
    GIB, apart, avoiding, drain, drain_avoiding, host, inventory, loose, or_else, pinned, resume,
    together, vm, vm_name,
};

const EACH: [CannotMove; 4] = [
    CannotMove::Block,
    CannotMove::Skip,
    CannotMove::Suspend,
    CannotMove::StopAndStart,
];

/// Two guests on the first of three hosts; there is more room on the second than on the third.
fn three() -> Inventory {
    inventory(
        [host("h1", 32), host("h2", 32), host("h3", 24)],
        [vm("web", "h1", 8), vm("db", "h1", 8)],
    )
}

fn planned(facts: &Inventory, request: &Request) -> Plan {
    plan(facts, &loose(), request).unwrap()
}

fn moves(plan: &Plan) -> BTreeMap<&str, &str> {
    let steps = plan.steps.iter();
    steps
        .map(|step| (step.vm.as_str(), step.to.as_str()))
        .collect()
}

/// What happens to each guest that cannot move.
fn left(plan: &Plan) -> BTreeMap<&str, Then> {
    let unmoved = plan.unmoved.iter();
    unmoved
        .map(|guest| (guest.vm.as_str(), guest.then))
        .collect()
}

fn reasons(plan: &Plan, vm: &str) -> Vec<NoPlace> {
    let mut unmoved = plan.unmoved.iter();
    let guest = unmoved.find(|guest| guest.vm.as_str() == vm).unwrap();
    match &guest.why {
        Unmovable::NoHost { hosts } => hosts.iter().map(|hosts| hosts.reason.clone()).collect(),
        why @ Unmovable::Blockers { .. } => panic!("{why:?}"),
    }
}

fn failed(vm: &str) -> NoPlace {
    NoPlace::MoveFailed { vm: vm_name(vm) }
}

#[test]
fn a_guest_goes_elsewhere_after_a_move_of_it_failed() {
    let facts = three();
    assert_eq!(
        moves(&planned(&facts, &drain(&["h1"]))),
        [("db", "h2"), ("web", "h3")].into()
    );
    let request = drain_avoiding(&["h1"], &[("web", &["h3"])]);
    assert_eq!(
        moves(&planned(&facts, &request)),
        [("db", "h3"), ("web", "h2")].into()
    );
}

#[test]
fn a_guest_that_no_host_is_left_for_after_failures_runs_on_whatever_its_policy_wants() {
    for policy in EACH {
        let mut facts = three();
        facts.vms[0] = or_else(facts.vms[0].clone(), policy);
        let request = drain_avoiding(&["h1"], &[("web", &["h2", "h3"])]);
        let plan = planned(&facts, &request);
        assert_eq!(moves(&plan), [("db", "h2")].into());
        assert_eq!(left(&plan), [("web", Then::RunsOn)].into());
        assert_eq!(reasons(&plan, "web"), [failed("web")]);
    }
}

#[test]
fn a_guest_is_not_stopped_where_the_host_that_its_move_failed_to_closed_since() {
    let mut facts = three();
    facts.hosts[1].state = HostState::Unreachable;
    facts.hosts[2].memory = Bytes(8 * GIB);
    facts.vms[0] = or_else(facts.vms[0].clone(), CannotMove::StopAndStart);
    let request = drain_avoiding(&["h1"], &[("web", &["h2"])]);
    let plan = planned(&facts, &request);
    assert_eq!(moves(&plan), [("db", "h3")].into());
    assert_eq!(left(&plan), [("web", Then::RunsOn)].into());
}

#[test]
fn the_last_place_is_for_a_guest_of_which_no_move_failed() {
    let mut facts = three();
    facts.hosts[1].memory = Bytes(8 * GIB);
    facts.hosts[2].memory = Bytes(8 * GIB);
    facts.vms[0].policy.priority = 100;
    facts.vms[1] = or_else(facts.vms[1].clone(), CannotMove::Suspend);
    assert_eq!(planned(&facts, &drain(&["h1"])).steps.len(), 2);
    let plan = planned(&facts, &drain_avoiding(&["h1"], &[("web", &["h2"])]));
    assert_eq!(plan.steps.len(), 2, "each has a place still");
    facts.hosts[1].memory = Bytes(GIB);
    let plan = planned(&facts, &drain_avoiding(&["h1"], &[("web", &["h2"])]));
    assert_eq!(moves(&plan), [("db", "h3")].into());
    assert_eq!(left(&plan), [("web", Then::RunsOn)].into());
}

#[test]
fn guests_that_belong_together_run_on_together_when_the_move_of_one_failed() {
    let mut facts = three();
    for vm in &mut facts.vms {
        *vm = together(or_else(vm.clone(), CannotMove::Suspend), "shop");
    }
    let request = drain_avoiding(&["h1"], &[("web", &["h2", "h3"])]);
    let plan = planned(&facts, &request);
    assert_eq!(
        left(&plan),
        [("db", Then::RunsOn), ("web", Then::RunsOn)].into()
    );
    assert_eq!(reasons(&plan, "db"), [failed("web")]);
}

#[test]
fn a_guest_that_cannot_move_for_other_reasons_is_dealt_with_as_its_policy_wants() {
    let mut facts = three();
    let bound = or_else(pinned(vm("dongle", "h1", 1), &["h1"]), CannotMove::Suspend);
    facts.vms.push(bound);
    let request = drain_avoiding(&["h1"], &[("web", &["h2", "h3"])]);
    let left_there = planned(&facts, &request);
    assert_eq!(
        left(&left_there),
        [("dongle", Then::Suspended), ("web", Then::RunsOn)].into()
    );
}

#[test]
fn a_guest_does_not_come_home_where_that_failed() {
    let mut facts = three();
    facts.hosts[0].state = HostState::Cordoned;
    facts.vms[0].host = facts.hosts[1].name.clone();
    facts.vms[1].host = facts.hosts[2].name.clone();
    let mut request = resume("h1", &["web", "db"]);
    assert_eq!(planned(&facts, &request).steps.len(), 2);
    if let Request::Resume { avoid, .. } = &mut request {
        *avoid = avoiding(&[("web", &["h1"])]);
    }
    let plan = planned(&facts, &request);
    assert_eq!(moves(&plan), [("db", "h1")].into());
    assert_eq!(left(&plan), [("web", Then::NotHome)].into());
    assert_eq!(reasons(&plan, "web"), [failed("web")]);
}

#[test]
fn a_rebalancing_does_not_try_again_what_failed() {
    let facts = inventory(
        [host("h1", 64), host("h2", 64)],
        [vm("web", "h1", 16), vm("db", "h1", 16)],
    );
    let rebalance = |avoid: Avoid| Request::Rebalance {
        min_gain: 1,
        most_moves: 10,
        avoid,
        with_disks: false,
    };
    let first = planned(&facts, &rebalance(Avoid::new()));
    let [step] = &first.steps[..] else {
        panic!("{first:?}");
    };
    let (one, other) = match step.vm.as_str() {
        "web" => ("web", "db"),
        _ => ("db", "web"),
    };
    let second = planned(&facts, &rebalance(avoiding(&[(one, &["h2"])])));
    assert_eq!(moves(&second), [(other, "h2")].into());
    let both = avoiding(&[("web", &["h2"]), ("db", &["h2"])]);
    assert!(planned(&facts, &rebalance(both)).steps.is_empty());
}

#[test]
fn a_guest_that_is_not_moved_to_a_host_may_still_be_started_there_after_a_loss() {
    let mut facts = three();
    facts.vms[0].host = facts.hosts[1].name.clone();
    facts.hosts[2].memory = Bytes(8 * GIB);
    let policy = ClusterPolicy {
        keep: KeepLosses {
            losses: 1,
            of: LossOf::Host,
        },
        ..loose()
    };
    facts.vms.truncate(1);
    let request = drain_avoiding(&["h1"], &[("web", &["h3"])]);
    let plan = plan(&facts, &policy, &request).unwrap();
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn what_is_avoided_belongs_to_the_digest_and_nothing_avoided_is_not_written() {
    let facts = three();
    let nothing = planned(&facts, &drain_avoiding(&["h1"], &[]));
    let other = planned(&facts, &drain_avoiding(&["h1"], &[("web", &["h9"])]));
    assert_ne!(nothing.inputs, other.inputs);
    let written = serde_json::to_string(&nothing.request).unwrap();
    assert_eq!(written, r#"{"kind":"drain","hosts":["h1"]}"#);
    let read: Request = serde_json::from_str(&written).unwrap();
    assert_eq!(read, nothing.request);
}

#[test]
fn guests_and_hosts_that_are_gone_may_be_avoided() {
    let facts = three();
    let gone = drain_avoiding(&["h1"], &[("gone", &["h2"]), ("web", &["h9"])]);
    assert_eq!(planned(&facts, &gone).steps.len(), 2);
}

#[test]
fn a_companion_that_stays_since_its_move_failed_stops_nobody() {
    let mut facts = three();
    facts.vms[0] = apart(facts.vms[0].clone(), "spread");
    facts.vms[1] = apart(or_else(facts.vms[1].clone(), CannotMove::Suspend), "spread");
    for host in &mut facts.hosts {
        *host = crate::build::in_rack(host.clone(), "r1");
    }
    let spread = ClusterPolicy {
        failure_domain: Some(crate::build::word("rack")),
        spread: drover_plan::policy::Spread::Require,
        ..loose()
    };
    let request = drain_avoiding(&["h1"], &[("web", &["h2", "h3"])]);
    let plan = plan(&facts, &spread, &request).unwrap();
    assert_eq!(
        left(&plan),
        [("db", Then::RunsOn), ("web", Then::RunsOn)].into()
    );
}
