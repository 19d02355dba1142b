//! Guests that move with disks that only their host has.

use drover_plan::inventory::{CopyDeadline, Disks, Inventory, Vm};
use drover_plan::plan::Format;
use drover_plan::policy::CannotMove;
use drover_plan::precopy::Convergence;
use drover_plan::refusal::{NoPlace, Unmovable};
use drover_plan::{NotThisPlan, Plan, Request, Text, plan, text};
use drover_types::{AtDeadline, Bytes};

use crate::build::{GIB, drain, host, inventory, loose, or_else, resume, vm, vm_name};

/// Where disks are made.
const FOLDER: &str = "/images";

fn folder() -> Text {
    Text::from(FOLDER.to_owned())
}

fn with_disks(mut request: Request) -> Request {
    match &mut request {
        Request::Drain { with_disks, .. }
        | Request::Resume { with_disks, .. }
        | Request::Rebalance { with_disks, .. } => *with_disks = true,
    }
    request
}

/// It has 2 GiB of memory, and has written to so much of its disks.
fn local(name: &str, size: u64, allocated: u64) -> Vm {
    Vm {
        disks: Some(Disks {
            size: Bytes(size * GIB),
            allocated: Bytes(allocated * GIB),
        }),
        ..or_else(vm(name, "a", 2), CannotMove::Skip)
    }
}

/// Host a is left for b or c, on whose file systems so much is free.
fn facts<const V: usize>(vms: [Vm; V], free: [u64; 2]) -> Inventory {
    let mut facts = inventory([host("a", 64), host("b", 64), host("c", 64)], vms);
    for (host, free) in facts.hosts[1..].iter_mut().zip(free) {
        host.disks.free = [(folder(), Bytes(free * GIB))].into();
        for vm in &facts.vms {
            let size = vm.disks.unwrap().size;
            let wanted = [(folder(), size)].into();
            host.disks.wanted.insert(vm.name.clone(), wanted);
        }
    }
    facts
}

fn planned(facts: &Inventory) -> Plan {
    plan(facts, &loose(), &with_disks(drain(&["a"]))).unwrap()
}

fn places(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter();
    let mut places: Vec<_> = steps
        .map(|step| (step.vm.as_str(), step.to.as_str()))
        .collect();
    places.sort_unstable();
    places
}

#[test]
fn what_disks_take_of_line_and_time_is_told_beside_memory_and_counts() {
    let facts = facts([local("web", 100, 40)], [200, 10]);
    let plan = planned(&facts);
    assert_eq!(
        (plan.format, places(&plan)),
        (Format::Third, vec![("web", "b")])
    );
    let [step] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    let disks = step.disks.unwrap();
    assert!(disks.ms.least < disks.ms.expected && disks.ms.expected < disks.ms.most);
    // 40 GiB at 10 Gbit/s are 34.4 s.
    assert!(disks.ms.expected >= 34_000, "{disks:?}");
    assert!(step.forecast.ms.expected > disks.ms.expected);
    assert!(step.forecast.bytes.expected >= 42 * GIB && step.forecast.bytes.most >= 102 * GIB);
    assert!(plan.expected.bytes.expected >= 42 * GIB);
    let words = text::plan(&plan);
    for said in [
        "Drain a with local disks: 1 guest moves",
        "Disks of 1 guest are copied, of 100 GiB with 40 GiB written to",
        "with its disks of 100 GiB, of which 40 GiB are written to",
    ] {
        assert!(words.contains(said), "no {said:?} in {words}");
    }
}

#[test]
fn disks_of_all_guests_of_a_plan_find_room_on_one_file_system_together_or_stay_with_both_numbers() {
    let guests = || [local("db", 60, 1), local("web", 60, 1)];
    let spread = facts(guests(), [100, 100]);
    let plan = planned(&spread);
    let mut hosts: Vec<_> = places(&plan).iter().map(|(_, host)| *host).collect();
    hosts.sort_unstable();
    assert_eq!(
        hosts,
        ["b", "c"],
        "100 GiB are room for one of them on each"
    );

    let tight = facts(guests(), [100, 10]);
    let plan = planned(&tight);
    assert_eq!(plan.steps.len(), 1);
    let [left] = &plan.unmoved[..] else {
        panic!("{plan:?}")
    };
    let Unmovable::NoHost { hosts } = &left.why else {
        panic!("{left:?}")
    };
    let reasons: Vec<_> = hosts.iter().map(|hosts| &hosts.reason).collect();
    let short = |free: u64| NoPlace::Disks {
        folder: folder(),
        wanted: Bytes(60 * GIB),
        free: Bytes(free * GIB),
    };
    assert_eq!(reasons, [&short(40)], "the nearest of both");
    let words = text::plan(&plan);
    let said = "40 GiB left in /images for disks that may come to 60 GiB";
    assert!(words.contains(said), "{words}");
}

#[test]
fn a_host_at_which_a_guest_left_its_disks_needs_room_for_what_is_more() {
    let mut facts = facts([local("web", 60, 60)], [0, 0]);
    facts.vms[0].host = "b".parse().unwrap();
    facts.hosts[0].disks.free = [(folder(), Bytes(GIB))].into();
    facts.hosts[0].disks.wanted = [(vm_name("web"), [(folder(), Bytes(GIB))].into())].into();
    let home = with_disks(resume("a", &["web"]));
    let back = plan(&facts, &loose(), &home).unwrap();
    assert_eq!(places(&back), [("web", "a")]);
    facts.hosts[0].disks.free = [(folder(), Bytes(GIB - 1))].into();
    let back = plan(&facts, &loose(), &home).unwrap();
    assert_eq!((back.steps.len(), back.unmoved.len()), (0, 1));
}

#[test]
fn a_plan_is_outdated_by_a_file_system_that_filled_up_and_not_by_what_a_guest_has_written() {
    let mut facts = facts([local("web", 60, 1)], [100, 10]);
    let plan = planned(&facts);
    facts.vms[0].disks.as_mut().unwrap().allocated = Bytes(2 * GIB);
    facts.hosts[1].disks.free = [(folder(), Bytes(61 * GIB))].into();
    assert_eq!(plan.verify(&facts, &loose()), Ok(()));
    facts.hosts[1].disks.free = [(folder(), Bytes(58 * GIB))].into();
    let refused = plan.verify(&facts, &loose()).unwrap_err();
    let NotThisPlan::NoDiskRoom { lacking, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(*lacking, Bytes(2 * GIB));
    let words = refused.to_string();
    assert!(
        words.ends_with("plan again to drain a with local disks"),
        "{words}"
    );
}

#[test]
fn a_deadline_counts_the_time_for_disks() {
    let until = |seconds: i64| {
        let mut guest = local("web", 100, 40);
        guest.deadline = Some(CopyDeadline {
            seconds: seconds.try_into().unwrap(),
            then: AtDeadline::GiveUp,
        });
        let plan = planned(&facts([guest], [200, 10]));
        plan.steps[0].forecast.convergence
    };
    assert_eq!(until(300), Convergence::ByItself);
    assert_eq!(until(30), Convergence::GivenUp, "34 s are for disks");
}

#[test]
fn a_plan_without_the_word_is_written_as_before() {
    let mut facts = facts([local("web", 60, 1)], [100, 100]);
    facts.vms[0].disks = None;
    let plan = plan(&facts, &loose(), &drain(&["a"])).unwrap();
    assert_eq!(plan.format, Format::First);
    let written = serde_json::to_string(&plan).unwrap();
    assert!(!written.contains("disks"), "{written}");
}
