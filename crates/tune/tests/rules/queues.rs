//! Interrupts and queues: which of them can be moved, and which the kernel keeps.

use drover_tune::facts::{Coalescing, Core, Fact::Known, Host};
use drover_tune::{Report, Severity, Step, examine};

use crate::hosts::{cpus, healthy, names, value};

#[test]
fn interrupts_that_the_kernel_spreads_by_itself_are_skipped_and_others_are_moved() {
    let mut host = healthy("a", 1);
    let of = value(&mut host.nics[0].interrupts);
    for far in &mut of[..2] {
        (far.cpus, far.effective) = (cpus("4-7"), cpus("4"));
        far.fixed = true;
    }
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    let skipped: Vec<_> = report.skipped.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(skipped, ["nic-interrupts"]);
    let why = &report.skipped[0].because;
    assert!(why.contains("has 2 of its 4 interrupts"), "{why}");

    value(&mut host.nics[0].interrupts)[0].fixed = false;
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["nic-interrupts"]);
    let found = &report.findings[0].found;
    let read = "1 of its 4 interrupts are taken by processors of another node (21 where its own is 10), beside 1 that the kernel lets nobody move";
    assert_eq!(found.read, read);
    let steps = &found.change.as_ref().unwrap().steps;
    let step = Step::File {
        path: "proc/irq/60/smp_affinity_list".into(),
        from: "4-7".into(),
        to: "0-3".into(),
    };
    assert_eq!(*steps, [step]);
}

/// As the kernel has it where numa_node is -1.
fn near_no_node_that_is_told(host: &mut Host) {
    value(&mut host.nics[0].pci).near = Some(cpus("0-7"));
}

fn skipped(report: &Report) -> Vec<&str> {
    let skipped = report.skipped.iter();
    skipped.map(|one| one.rule.as_str()).collect()
}

#[test]
fn of_a_slot_whose_node_is_not_told_what_depends_on_it_is_skipped_and_all_else_is_looked_at() {
    let mut host = healthy("a", 1);
    near_no_node_that_is_told(&mut host);
    // Its queues are enough for its rate, and hand on nothing, whatever is near.
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(skipped(&report), ["nic-interrupts", "nic-crowded"]);
    for one in &report.skipped {
        assert!(one.because.contains("numa_node"), "{}", one.because);
    }
    // A host of one node has nothing far, and all of its processors near.
    value(&mut host.processors.nodes).truncate(1);
    assert_eq!(examine(&[host], &[]).skipped, []);
}

/// Fewer queues than its rate takes, whose packets the kernel hands on, and one processor for all interrupts.
fn by_one(host: &mut Host) {
    let nic = &mut host.nics[0];
    value(&mut nic.channels).combined = 2;
    for interrupt in value(&mut nic.interrupts) {
        (interrupt.cpus, interrupt.effective) = (cpus("1"), cpus("1"));
    }
    let steering = value(&mut nic.steering);
    steering.receive = [("rx-0".to_owned(), cpus("0-3"))].into();
}

#[test]
fn of_a_slot_whose_node_is_not_told_neither_queues_nor_steering_nor_crowds_are_found() {
    let mut host = healthy("a", 1);
    by_one(&mut host);
    let found = names(&examine(std::slice::from_ref(&host), &[])).len();
    assert_eq!(found, 3);
    near_no_node_that_is_told(&mut host);
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    let all = [
        "nic-queues",
        "nic-interrupts",
        "nic-crowded",
        "nic-steering",
    ];
    assert_eq!(skipped(&report), all);
    // Nor where the slot is not known at all.
    value(&mut host.nics[0].pci).near = None;
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(skipped(&report), all);
    assert!(report.skipped[0].because.contains("does not tell"));
}

#[test]
fn how_far_interrupts_are_is_not_said_where_the_kernel_does_not_tell() {
    let mut host = healthy("a", 1);
    for node in value(&mut host.processors.nodes) {
        node.distances.clear();
    }
    value(&mut host.nics[0].interrupts)[0].effective = cpus("5");
    let found = &examine(&[host], &[]).findings[0].found;
    let read = "1 of its 4 interrupts are taken by processors of another node";
    assert_eq!(
        (found.severity, found.read.as_str()),
        (Severity::Warning, read)
    );
}

#[test]
fn where_irqbalance_runs_interrupts_are_left_to_people() {
    let mut host = healthy("a", 1);
    value(&mut host.nics[0].interrupts)[0].cpus = cpus("4-7");
    value(&mut host.nics[0].interrupts)[0].effective = cpus("");
    *value(&mut host.irqbalance) = true;
    let found = &examine(&[host], &[]).findings[0].found;
    let by_hand = found.by_hand.as_deref().unwrap();
    assert!(found.change.is_none());
    assert_eq!(
        by_hand,
        "irqbalance puts them where it likes: add --banirq=60 to IRQBALANCE_ARGS (/etc/default/irqbalance, or /etc/sysconfig/irqbalance), \
         then: systemctl restart irqbalance; echo 0-3 > /proc/irq/60/smp_affinity_list. Numbers stay until the driver is loaded anew"
    );
}

#[test]
fn interrupts_of_one_processor_are_set_apart_one_for_each_core_near_it() {
    let mut host = healthy("a", 1);
    let of = value(&mut host.nics[0].interrupts);
    for interrupt in of.iter_mut() {
        (interrupt.cpus, interrupt.effective) = (cpus("0-3"), cpus("1"));
    }
    of[0].fixed = true;
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), ["nic-crowded"]);
    let found = &report.findings[0].found;
    let read = "the interrupts of its 4 queues are taken by CPUs 1 alone";
    assert_eq!(found.read, read);
    let steps = found.change.as_ref().unwrap().steps.iter();
    let steps: Vec<String> = steps.map(ToString::to_string).collect();
    let to = |irq: u32, cpu: u32| format!("echo {cpu} > /proc/irq/{irq}/smp_affinity_list");
    // One may not be moved, and stays on its core.
    assert_eq!(steps, [to(61, 0), to(62, 2), to(63, 3)]);

    for interrupt in value(&mut host.nics[0].interrupts) {
        interrupt.fixed = true;
    }
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    // Three of four processors are no crowd.
    let of = value(&mut host.nics[0].interrupts);
    of[3].effective = cpus("3");
    of[2].effective = cpus("2");
    let report = examine(&[host], &[]);
    assert_eq!((names(&report), report.skipped.len()), (Vec::new(), 0));
}

#[test]
fn masks_of_queues_for_sending_go_where_some_have_none() {
    let mut host = healthy("a", 1);
    let send = &mut value(&mut host.nics[0].steering).send;
    send.retain(|queue, _| queue == "tx-1");
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), ["nic-xps"]);
    let found = &report.findings[0].found;
    assert_eq!(found.read, "CPUs 1 send by 1 of its 4 queues alone");
    let step = &found.change.as_ref().unwrap().steps[0];
    let path = "/sys/class/net/ens1f0/queues/tx-1/xps_cpus";
    assert_eq!(step.to_string(), format!("echo 0 > {path}"));
    let undo = format!("echo 00000002 > {path}");
    assert_eq!(step.undo().to_string(), undo);
    value(&mut host.nics[0].steering).send.clear();
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn processors_that_are_kept_free_get_no_interrupts_and_their_adapters_no_finding() {
    let mut host = healthy("a", 1);
    // As pinned guests and tuned's profiles for them have it.
    host.processors.housekeeping = Known(cpus("0,4"));
    for interrupt in value(&mut host.nics[0].interrupts) {
        (interrupt.cpus, interrupt.effective) = (cpus("0"), cpus("0"));
    }
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    // Far ones come to those that are left near it.
    let interrupt = &mut value(&mut host.nics[0].interrupts)[1];
    (interrupt.cpus, interrupt.effective) = (cpus("4"), cpus("4"));
    let report = examine(std::slice::from_ref(&host), &[]);
    assert_eq!(names(&report), ["nic-interrupts"]);
    let step = &report.findings[0].found.change.as_ref().unwrap().steps[0];
    assert_eq!(step.to_string(), "echo 0 > /proc/irq/61/smp_affinity_list");
    host.processors.housekeeping = Known(cpus("4-7"));
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn several_crowded_adapters_do_not_crowd_the_same_cores_again() {
    let mut host = healthy("a", 1);
    let all: Vec<u32> = (0..16).collect();
    let list = cpus("0-15");
    host.processors.online = Known(list.clone());
    host.processors.housekeeping = Known(list.clone());
    let core = |cpu: &u32| {
        (
            *cpu,
            Core {
                package: 0,
                core: *cpu,
            },
        )
    };
    host.processors.cores = Known(all.iter().map(core).collect());
    value(&mut host.processors.nodes).truncate(1);
    let mut number = 60;
    for nic in &mut host.nics {
        value(&mut nic.pci).near = Some(list.clone());
        for interrupt in value(&mut nic.interrupts) {
            interrupt.number = number;
            number += 1;
            (interrupt.cpus, interrupt.effective) = (list.clone(), cpus("0"));
        }
    }
    let report = examine(&[host], &[]);
    let crowded = report
        .findings
        .iter()
        .filter(|one| one.rule == "nic-crowded");
    let steps = crowded.flat_map(|one| one.found.change.as_ref().unwrap().steps.clone());
    let to: Vec<String> = steps
        .map(|step| match step {
            Step::File { to, .. } => to,
            Step::Nic { .. } => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(to, ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn interrupts_that_wait_for_a_while_are_right_however_that_is_told_and_what_is_not_told_is_skipped()
{
    let told = |micros, packets| {
        let mut host = healthy("a", 1);
        *value(&mut host.nics[0].coalescing) = Coalescing {
            adaptive_receive: Some(false),
            receive_micros: micros,
            receive_packets: packets,
        };
        let told = crate::layers::told("nic-coalescing", &[host]);
        told.into_iter().next().map(|(_, said)| said)
    };
    for (micros, packets) in [(50, None), (8, Some(128)), (0, Some(32)), (500, Some(0))] {
        assert_eq!(told(Some(micros), packets), None, "{micros} {packets:?}");
    }
    for (micros, packets, read) in [
        (0, Some(1), "adaptive-rx off, rx-usecs 0, rx-frames 1"),
        (3, Some(128), "adaptive-rx off, rx-usecs 3, rx-frames 128"),
        (501, Some(32), "adaptive-rx off, rx-usecs 501, rx-frames 32"),
    ] {
        assert_eq!(told(Some(micros), packets).as_deref(), Some(read));
    }
    let untold = "its driver does not tell how long interrupts wait";
    assert_eq!(told(None, None).as_deref(), Some(untold));
}

#[test]
fn what_an_adapter_may_do_badly_is_turned_on_by_people_with_one_command() {
    let mut host = healthy("a", 1);
    let active = &mut value(&mut host.nics[0].features).active;
    active.retain(|name| !name.starts_with("tx-"));
    let found = &examine(&[host], &[]).findings[0].found;
    assert_eq!(
        found.by_hand.as_deref(),
        Some(
            "if the adapter is known to do it well: ethtool -K ens1f0 tx-checksum-ip-generic on tx-generic-segmentation on \
             tx-scatter-gather on tx-tcp-segmentation on"
        )
    );
}
