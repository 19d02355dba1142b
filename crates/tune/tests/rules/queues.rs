//! Interrupts and queues: which of them can be moved, and which the kernel keeps.

use drover_tune::{Step, examine};

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
    assert!(why.contains("spreads 2 of its 4 interrupts"), "{why}");

    value(&mut host.nics[0].interrupts)[0].fixed = false;
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["nic-interrupts"]);
    let found = &report.findings[0].found;
    let read = "1 of its 4 interrupts are taken by processors of another node, beside 1 that the kernel lets nobody move";
    assert_eq!(found.read, read);
    let steps = &found.change.as_ref().unwrap().steps;
    let step = Step::File {
        path: "proc/irq/60/smp_affinity_list".into(),
        from: "4-7".into(),
        to: "0-3".into(),
    };
    assert_eq!(*steps, [step]);
}

#[test]
fn where_irqbalance_runs_interrupts_are_left_to_people() {
    let mut host = healthy("a", 1);
    value(&mut host.nics[0].interrupts)[0].cpus = cpus("4-7");
    value(&mut host.nics[0].interrupts)[0].effective = cpus("");
    *value(&mut host.irqbalance) = true;
    let found = &examine(&[host], &[]).findings[0].found;
    let by_hand = found.by_hand.as_deref().unwrap();
    assert!(found.change.is_none() && by_hand.contains("IRQBALANCE_ARGS"));
}
