//! What people are told once of many pairs.

use drover_tune::facts::{Crossing, Fact::Known, Host};
use drover_tune::{Document, Report, examine};

use crate::document::path;
use crate::hosts::{gbit, healthy, link, names, value};

/// Hosts `h01` and so on, those of them with these numbers spoiled.
fn hosts(count: u8, spoiled: impl Fn(u8) -> bool, spoil: fn(&mut Host)) -> Vec<Host> {
    let one = |number| {
        let mut host = healthy(&format!("h{number:02}"), number);
        if spoiled(number) {
            spoil(&mut host);
        }
        host
    };
    (1..=count).map(one).collect()
}

fn smaller(host: &mut Host) {
    host.nics[0].mtu = 8000;
}

fn told(report: &Report) -> Vec<(String, String)> {
    let folded = report.folded().into_iter();
    let told = folded.map(|told| (told.subject(), told.read()));
    told.collect()
}

fn of(subject: &str, read: &str) -> (String, String) {
    (subject.to_owned(), read.to_owned())
}

#[test]
fn one_host_of_sixteen_is_told_once_and_from_its_end_and_all_findings_stay() {
    let report = examine(&hosts(16, |number| number == 7, smaller), &[]);
    assert_eq!(names(&report), ["pair-mtu"; 15]);
    let expected = of("h07 ens1f0 and 15 others", "8000 bytes, and 9000 of ens1f0");
    assert_eq!(told(&report), [expected]);
    // The last one is no pair's first.
    let report = examine(&hosts(16, |number| number == 16, smaller), &[]);
    let expected = of(
        "h16 ens1f0 and 15 others",
        "h01: 9000 bytes, and 8000 of ens1f0",
    );
    assert_eq!(told(&report), [expected]);
}

#[test]
fn of_two_halves_none_is_blamed_nor_is_one_of_several_odd_ones() {
    let report = examine(&hosts(16, |number| number > 8, smaller), &[]);
    assert_eq!(told(&report).len(), 64);
    let report = examine(&hosts(16, |number| number > 14, smaller), &[]);
    assert_eq!(told(&report).len(), 28);
}

#[test]
fn fewer_than_three_findings_are_told_one_by_one() {
    let report = examine(&hosts(3, |number| number == 2, smaller), &[]);
    assert_eq!(
        told(&report),
        [
            of("h01 and h02 ens1f0", "9000 bytes, and 8000 of ens1f0"),
            of("h02 and h03 ens1f0", "8000 bytes, and 9000 of ens1f0"),
        ]
    );
    let report = examine(&hosts(4, |number| number == 2, smaller), &[]);
    assert_eq!(told(&report).len(), 1);
}

#[test]
fn what_is_odd_in_two_ways_is_told_once_for_each_and_interfaces_by_themselves() {
    let report = examine(
        &hosts(
            5,
            |number| number == 2,
            |host| {
                for nic in &mut host.nics {
                    nic.mtu = 8000;
                }
                value(&mut host.offers).version = Some("7.2.0".into());
            },
        ),
        &[],
    );
    let subjects: Vec<String> = told(&report).into_iter().map(|(about, _)| about).collect();
    let expected = [
        "h02 ens1f0 and 4 others",
        "h02 ens1f1 and 4 others",
        "h02 and 4 others",
    ];
    assert_eq!(subjects, expected);
}

#[test]
fn findings_about_one_host_are_told_one_by_one() {
    let report = examine(
        &hosts(4, |_| true, |host| link(host).speed = Some(gbit(10))),
        &[],
    );
    assert_eq!(told(&report).len(), report.findings.len());
}

#[test]
fn an_end_of_paths_is_told_once_for_both_directions() {
    let hosts = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    let pairs = hosts
        .iter()
        .flat_map(|near| hosts.iter().map(move |far| (*near, *far)));
    let paths = pairs.filter(|(near, far)| near != far).map(|(near, far)| {
        let mut path = path(near, far);
        if far.0 == "d" {
            path.there = Known(Crossing {
                size: 1500,
                vanish: true,
            });
        }
        path
    });
    let paths: Vec<_> = paths.collect();
    let report = examine(&[], &paths);
    assert_eq!(report.findings.len(), 3);
    let subjects: Vec<String> = told(&report).into_iter().map(|(about, _)| about).collect();
    assert_eq!(subjects, ["d ens1f0 and 3 others"]);
}

#[test]
fn a_document_names_the_others() {
    let hosts = hosts(4, |number| number == 2, smaller);
    let report = examine(&hosts, &[]);
    let document = Document {
        hosts: &hosts,
        report: &report,
        paths: None,
        missing: &[],
        at: "now",
        version: "1",
    };
    let markdown = document.markdown();
    for part in ["h02 ens1f0 and 3 others: pair-mtu", "h01, h03, h04"] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
}
