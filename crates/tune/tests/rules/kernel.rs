//! Settings of the kernel that packets go by, and what is counted of them.

use drover_tune::examine;
use drover_tune::facts::{Fact::Known, Host};

use crate::hosts::{gbit, healthy, names, set, value};

/// The steps of the only finding, and what people are to do.
fn found(host: &Host) -> (Vec<String>, Option<String>) {
    let report = examine(std::slice::from_ref(host), &[]);
    let [finding] = &report.findings[..] else {
        panic!("{report:#?}");
    };
    let change = finding.found.change.as_ref();
    let steps = change.map(|change| change.steps.iter().map(ToString::to_string).collect());
    (steps.unwrap_or_default(), finding.found.by_hand.clone())
}

#[test]
fn a_backlog_holds_a_millisecond_of_the_line_and_one_that_does_is_for_people() {
    let mut host = healthy("a", 1);
    value(&mut host.softnet).dropped = 1000;
    // 25 Gbit/s are 2084 packets in 1 ms.
    let set_to = "sysctl -w net.core.netdev_max_backlog=4096".to_owned();
    assert_eq!(found(&host), (vec![set_to], None));
    set(&mut host, "net.core.netdev_max_backlog", "4096");
    let (steps, by_hand) = found(&host);
    assert!(steps.is_empty() && by_hand.unwrap().contains("softnet_stat"));
    // A few a day, or of very many, are nothing.
    value(&mut host.softnet).dropped = 99;
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        <[&str; 0]>::default()
    );
    value(&mut host.softnet).dropped = 1000;
    value(&mut host.nics[0].counters).received = 1_000_000_000;
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn a_few_more_places_are_no_change() {
    let mut host = healthy("a", 1);
    for nic in &mut host.nics {
        value(&mut nic.link).speed = Some(gbit(10));
    }
    value(&mut host.softnet).dropped = 1000;
    let report = examine(&[host], &[]);
    let found = report.findings.iter().find(|one| one.rule == "net-backlog");
    // 1024 in place of 1000.
    let found = &found.unwrap().found;
    assert!(
        found.change.is_none() && found.by_hand.is_some(),
        "{found:#?}"
    );
}

#[test]
fn a_budget_is_raised_where_adapters_drop_packets_and_once() {
    let mut host = healthy("a", 1);
    value(&mut host.softnet).squeezed = 100_000;
    set(&mut host, "net.core.netdev_budget_usecs", "8000");
    // Turns that end before all is taken harm nobody by themselves.
    let none = <[&str; 0]>::default();
    assert_eq!(names(&examine(std::slice::from_ref(&host), &[])), none);
    for nic in &mut host.nics {
        value(&mut nic.counters).receive_missed = 60;
    }
    let set_to = "sysctl -w net.core.netdev_budget=600".to_owned();
    assert_eq!(found(&host), (vec![set_to], None));
    set(&mut host, "net.core.netdev_budget", "600");
    assert_eq!(names(&examine(&[host], &[])), none);
}

#[test]
fn an_algorithm_that_yields_is_set_to_one_that_the_kernel_has() {
    let mut host = healthy("a", 1);
    set(&mut host, "net.ipv4.tcp_congestion_control", "vegas");
    let set_to = "sysctl -w net.ipv4.tcp_congestion_control=cubic".to_owned();
    assert_eq!(found(&host), (vec![set_to], None));
    let all = "net.ipv4.tcp_available_congestion_control";
    set(&mut host, all, "reno vegas");
    let (steps, by_hand) = found(&host);
    assert!(steps.is_empty() && by_hand.unwrap().starts_with("modprobe tcp_cubic"));
    for fair in ["cubic", "bbr", "dctcp", "reno"] {
        set(&mut host, "net.ipv4.tcp_congestion_control", fair);
        let report = examine(std::slice::from_ref(&host), &[]);
        assert_eq!(names(&report), <[&str; 0]>::default(), "{fair}");
    }
}

#[test]
fn one_queue_needs_no_discipline_for_each() {
    let mut host = healthy("a", 1);
    host.nics[0].qdisc = Known("fq_codel".into());
    let channels = value(&mut host.nics[0].channels);
    (channels.combined, channels.combined_most) = (1, 1);
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn what_somebody_set_up_at_the_root_is_not_to_be_thrown_away() {
    let mut host = healthy("a", 1);
    host.nics[0].qdisc = Known("prio".into());
    let (_, by_hand) = found(&host);
    let by_hand = by_hand.unwrap();
    assert!(by_hand.starts_with("tc -s qdisc show") && !by_hand.contains("replace"));
    host.nics[0].qdisc = Known("fq".into());
    let (_, by_hand) = found(&host);
    assert!(by_hand.unwrap().contains("default_qdisc=fq"));
}
