//! Moves that are looked at once more before they begin.

use drover_plan::inventory::{HostState, Inventory, Vm};
use drover_plan::refusal::NoPlace;
use drover_plan::{ClusterPolicy, Progress, Request, check_move};

use crate::build::{
    apart, drain, host, host_name, inventory, loose, pinned, together, vm, vm_name, word,
};

/// Whether `web` may be moved from the first to the second of three hosts.
fn may(facts: &Inventory, others: &[(&str, &str, Progress)]) -> Result<(), NoPlace> {
    may_with(&loose(), facts, others)
}

fn may_with(
    policy: &ClusterPolicy,
    facts: &Inventory,
    others: &[(&str, &str, Progress)],
) -> Result<(), NoPlace> {
    let request: Request = drain(&["h1"]);
    let others = others.iter();
    let round = others
        .map(|(name, to, how)| (vm_name(name), (host_name(to), *how)))
        .collect();
    let way = (&vm_name("web"), &host_name("h1"), &host_name("h2"));
    check_move(facts, policy, &request, way, &round)
}

fn three<const V: usize>(vms: [Vm; V]) -> Inventory {
    inventory([host("h1", 32), host("h2", 32), host("h3", 32)], vms)
}

#[test]
fn what_holds_still_may_begin_and_room_is_not_looked_at() {
    assert_eq!(may(&three([vm("web", "h1", 8)]), &[]), Ok(()));
    let full = three([vm("web", "h1", 8), vm("big", "h2", 32)]);
    assert_eq!(may(&full, &[]), Ok(()));
}

#[test]
fn a_host_that_was_cordoned_since_and_a_pin_that_was_written_since_keep_a_guest() {
    let mut cordoned = three([vm("web", "h1", 8)]);
    cordoned.hosts[1].state = HostState::Cordoned;
    assert_eq!(may(&cordoned, &[]), Err(NoPlace::Cordoned));
    let kept = three([pinned(vm("web", "h1", 8), &["h1"])]);
    let vm = vm_name("web");
    assert_eq!(may(&kept, &[]), Err(NoPlace::Pinned { vm }));
}

#[test]
fn a_guest_that_came_since_keeps_others_of_its_group_away_and_one_that_leaves_does_not() {
    let web = || apart(vm("web", "h1", 8), "web");
    let facts = three([web(), apart(vm("web-2", "h2", 8), "web")]);
    let apart_from = NoPlace::Apart {
        group: word("web"),
        with: vm_name("web-2"),
    };
    assert_eq!(may(&facts, &[]), Err(apart_from.clone()));
    for how in [Progress::Waits, Progress::Begun] {
        assert_eq!(may(&facts, &[("web-2", "h3", how)]), Ok(()));
    }
    let failed = [("web-2", "h3", Progress::Failed)];
    assert_eq!(may(&facts, &failed), Err(apart_from));
}

#[test]
fn guests_that_belong_together_arrive_one_after_the_other() {
    let both = [vm("web", "h1", 8), vm("db", "h1", 8)];
    let facts = three(both.map(|vm| together(vm, "shop")));
    assert_eq!(may(&facts, &[]), Ok(()));
    for how in [Progress::Waits, Progress::Begun, Progress::Failed] {
        assert_eq!(may(&facts, &[("db", "h2", how)]), Ok(()));
    }
}

#[test]
fn none_of_those_that_belong_together_begins_where_one_that_is_to_follow_may_not() {
    let db = pinned(vm("db", "h1", 8), &["h1"]);
    let all = [vm("web", "h1", 8), vm("cache", "h1", 8), db];
    let [web, cache, db] = all;
    let facts = three([
        together(web, "shop"),
        together(together(cache, "shop"), "store"),
        together(db, "store"),
    ]);
    let waits = ("cache", "h2", Progress::Waits);
    let kept = Err(NoPlace::Pinned { vm: vm_name("db") });
    assert_eq!(may(&facts, &[waits, ("db", "h2", Progress::Waits)]), kept);
    // It was kept back before.
    assert_eq!(may(&facts, &[waits, ("db", "h2", Progress::Failed)]), kept);
    // What has gone cannot be called back.
    assert_eq!(may(&facts, &[waits, ("db", "h2", Progress::Begun)]), Ok(()));
    // Of those that go elsewhere the plan has not made a company.
    assert_eq!(may(&facts, &[waits, ("db", "h3", Progress::Waits)]), Ok(()));
}

#[test]
fn nothing_is_said_of_what_is_not_known() {
    let mut silent = three([vm("web", "h1", 8)]);
    silent.hosts[1].state = HostState::Unreachable;
    assert_eq!(may(&silent, &[]), Ok(()));
    let mut cordoned = three([vm("web", "h3", 8)]);
    cordoned.hosts[1].state = HostState::Cordoned;
    assert_eq!(may(&cordoned, &[]), Ok(()));
    let mut moving = three([vm("web", "h1", 8)]);
    moving.hosts[1].state = HostState::Cordoned;
    moving.vms[0].moving_to = Some(host_name("h2"));
    assert_eq!(may(&moving, &[]), Ok(()));
}
