//! What people are told once of many pairs.

use drover_tune::facts::{Crossing, Fact::Known, Host, Path};
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
    let expected = of(
        "h07 ens1f0 and 15 others",
        "h07 ens1f0 has 8000 bytes, h08 ens1f0 9000",
    );
    assert_eq!(told(&report), [expected]);
    // The last one is no pair's first.
    let report = examine(&hosts(16, |number| number == 16, smaller), &[]);
    let expected = of(
        "h16 ens1f0 and 15 others",
        "h01 ens1f0 has 9000 bytes, h16 ens1f0 8000",
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
            of(
                "h01 and h02 ens1f0",
                "h01 ens1f0 has 9000 bytes, h02 ens1f0 8000"
            ),
            of(
                "h02 and h03 ens1f0",
                "h02 ens1f0 has 8000 bytes, h03 ens1f0 9000"
            ),
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

/// A path by which nothing larger than 1500 bytes crosses.
fn narrow(mut path: Path) -> Path {
    path.there = Known(Crossing {
        size: 1500,
        vanish: true,
    });
    path
}

fn subjects(paths: &[Path]) -> Vec<String> {
    let told = told(&examine(&[], paths)).into_iter();
    told.map(|(about, _)| about).collect()
}

#[test]
fn an_end_of_paths_is_told_once_for_both_directions() {
    let hosts = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    let pairs = hosts
        .iter()
        .flat_map(|near| hosts.iter().map(move |far| (*near, *far)));
    let paths = pairs.filter(|(near, far)| near != far).map(|(near, far)| {
        let path = path(near, far);
        if far.0 == "d" { narrow(path) } else { path }
    });
    let paths: Vec<_> = paths.collect();
    assert_eq!(examine(&[], &paths).findings.len(), 3);
    assert_eq!(subjects(&paths), ["d ens1f0 and 3 others"]);
}

#[test]
fn an_end_is_blamed_only_where_each_that_it_is_found_with_was_compared_without_it() {
    let (a, b, c, d, odd) = (("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5));
    let found = [a, b, c, d].map(|near| narrow(path(near, odd)));
    // Whether nothing large leaves c and d at all, nobody has looked.
    let some = [&found[..], &[path(a, b)]].concat();
    assert_eq!(subjects(&some).len(), 4);
    let each = [&some[..], &[path(c, d)]].concat();
    assert_eq!(subjects(&each), ["e ens1f0 and 4 others"]);
}

#[test]
fn of_two_hosts_none_is_blamed_by_however_many_interfaces() {
    let (a, b, c) = (("a", 1), ("b", 2), ("c", 3));
    let by = |nic: &str, far| {
        let mut path = path(b, far);
        path.near.nic = nic.into();
        path.route = Known(nic.into());
        path.arrivals = Known([nic.to_owned()].into());
        path
    };
    let nics = ["ens1f0", "ens1f1", "ens1f2"];
    let found = nics.map(|nic| narrow(by(nic, a)));
    let right = nics.map(|nic| by(nic, c));
    let paths = [&found[..], &right[..], &[path(a, c)]].concat();
    assert_eq!(subjects(&paths).len(), 3);
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
