//! Drains of hosts from which guests are on their way already.

use drover_plan::inventory::Inventory;
use drover_plan::plan::Staying;
use drover_plan::policy::{ClusterPolicy, KeepLosses, LossOf, Spread};
use drover_plan::{Plan, plan};
use drover_types::Bytes;

use crate::build::{
    GIB, apart, drain, host, host_name, in_rack, inventory, loose, together, vm, word,
};

/// `web` is on its way from h1 to h2, and `db` is to leave h1, too.
fn two_of_three() -> Inventory {
    let mut facts = inventory(
        [host("h1", 32), host("h2", 32), host("h3", 32)],
        [vm("web", "h1", 8), vm("db", "h1", 8)],
    );
    facts.vms[0].moving_to = Some(host_name("h2"));
    facts
}

fn any_host_may_be_lost() -> ClusterPolicy {
    ClusterPolicy {
        keep: KeepLosses {
            losses: 1,
            of: LossOf::Host,
        },
        ..loose()
    }
}

/// Where `db` goes, `web` being told to be on its way.
fn goes_to(plan: &Plan) -> &str {
    let to = host_name("h2");
    assert_eq!(plan.stays.len(), 1);
    assert_eq!(plan.stays[0].why, Staying::Moving { to });
    assert!(plan.unmoved.is_empty(), "{:?}", plan.unmoved);
    let [step] = &plan.steps[..] else {
        panic!("{:?}", plan.steps);
    };
    assert_eq!(step.vm.as_str(), "db");
    step.to.as_str()
}

#[test]
fn a_guest_that_is_on_its_way_takes_room_on_both_hosts_and_is_not_planned() {
    let mut facts = two_of_three();
    facts.hosts[1].memory = Bytes(12 * GIB);
    let plan = plan(&facts, &loose(), &drain(&["h1"])).unwrap();
    assert_eq!(goes_to(&plan), "h3");
    let free: Vec<Bytes> = {
        let hosts = plan.afterwards.hosts.iter();
        hosts.map(|host| host.memory_free).collect()
    };
    assert_eq!(free, [24, 4, 24].map(|gib| Bytes(gib * GIB)));
}

#[test]
fn a_guest_follows_one_that_it_belongs_together_with_and_that_is_on_its_way() {
    let mut facts = two_of_three();
    for vm in &mut facts.vms {
        *vm = together(vm.clone(), "shop");
    }
    let plan = plan(&facts, &any_host_may_be_lost(), &drain(&["h1"])).unwrap();
    assert_eq!(goes_to(&plan), "h2");
    assert!(plan.afterwards.losses.kept);
}

#[test]
fn a_guest_is_kept_apart_from_where_another_is_on_its_way_to_and_not_from_where_it_leaves() {
    let mut facts = two_of_three();
    for vm in &mut facts.vms {
        *vm = apart(vm.clone(), "shop");
    }
    for (host, rack) in facts.hosts.iter_mut().zip(["r1", "r2", "r1"]) {
        *host = in_rack(host.clone(), rack);
    }
    for spread in [Spread::Ignore, Spread::Prefer, Spread::Require] {
        let policy = ClusterPolicy {
            failure_domain: Some(word("rack")),
            spread,
            ..loose()
        };
        let plan = plan(&facts, &policy, &drain(&["h1"])).unwrap();
        assert_eq!(goes_to(&plan), "h3", "{spread:?}");
    }
}
