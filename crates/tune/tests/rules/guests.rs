//! Guests with nothing wrong, and what can be wrong with one.

use std::collections::BTreeMap;

use drover_tune::arguments::arguments;
use drover_tune::facts::{
    Card, Definition, Fact, Fact::Known, Guest, Host, HugePages, Kind, Memory, Nic, Offer, Offers,
    Own, Pages, Seen,
};
use drover_tune::{Finding, Severity, examine};
use drover_types::Bytes;

use crate::cases::Spoil;
use crate::hosts::{self, on_top, value, words};

const GIB: u64 = 1 << 30;

const ARGS: &[&str] = &[
    "-accel",
    "kvm",
    "-cpu",
    "EPYC-Milan,+avx",
    "-netdev",
    "tap,id=net0,ifname=tap0,script=no,vhost=on,queues=4",
    "-device",
    "virtio-net-pci,netdev=net0,mq=on,host_mtu=9000",
    "-object",
    "memory-backend-memfd,id=ram,size=8G,hugetlb=on,prealloc=on,prealloc-threads=4",
];

pub fn given(args: &[&str]) -> Vec<drover_tune::facts::Argument> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    arguments(&args)
}

/// It has four processors, 8 GiB, and one card on a bridge with large packets.
pub fn guest(host: &str) -> Guest {
    let card = Card {
        netdev: "net0".into(),
        mac: "52:54:00:12:34:56".into(),
        multiqueue: true,
        offered_mtu: Some(9000),
        guest_mtu: Known(9000),
    };
    Guest {
        name: format!("web-{host}"),
        vcpus: 4,
        memory: Bytes(8 * GIB),
        definition: Definition::Own(Own {
            file: format!("/etc/drover/vms/web-{host}.toml"),
            machine: Some("q35".into()),
            arguments: given(ARGS),
            page_sizes: BTreeMap::new(),
        }),
        seen: Known(Seen {
            accelerated: Known(true),
            cards: Known(vec![card]),
            vhost: Known(4),
            taps: Known(["tap0".to_owned()].into()),
            pages: Known(Pages {
                touched: Bytes(8 * GIB),
                joined: Bytes(0),
                huge: Bytes(8 * GIB),
            }),
            lockable: Known(None),
        }),
    }
}

pub fn memory() -> Memory {
    let pages = HugePages {
        total: 8192,
        free: 4096,
        reserved: 0,
    };
    Memory {
        joins: Known("madvise".into()),
        joins_shared: Known("advise".into()),
        huge: Known([(2 << 20, pages)].into()),
    }
}

pub fn offers() -> Offers {
    let hardware = Offer {
        models: words(&["EPYC", "EPYC-Milan", "host", "max", "qemu64"]),
        features: words(&["avx", "avx2", "sse4.1"]),
        lacking: [("EPYC-Genoa".to_owned(), words(&["avx512f"]))].into(),
    };
    Offers {
        processor: "AMD EPYC 7543".into(),
        version: Some("10.0.2".into()),
        emulated: Some(hardware.clone()),
        hardware: Some(hardware),
    }
}

/// A host with a guest, and a bridge for it.
pub fn healthy(name: &str, number: u8) -> Host {
    let mut host = hosts::healthy(name, number);
    let tap = on_top("tap0", Kind::Virtual, &[]);
    let bridge = on_top("br0", Kind::Bridge, &["ens1f0", "tap0"]);
    host.nics.extend([tap, bridge]);
    host.guests = Known(vec![guest(name)]);
    host
}

/// That host with a guest that is as it should be but for this.
pub fn guest_on(host: &mut Host, spoil: impl Fn(&mut Guest)) {
    if host.guests.known().is_none_or(Vec::is_empty) {
        host.guests = Known(vec![guest("a")]);
    }
    spoil(first(host));
}

fn first(host: &mut Host) -> &mut Guest {
    &mut value(&mut host.guests)[0]
}

/// Its definition, which is Drover's.
pub fn own(guest: &mut Guest) -> &mut Own {
    match &mut guest.definition {
        Definition::Own(own) => own,
        Definition::Libvirt(_) => panic!("{} is libvirt's", guest.name),
    }
}

fn seen(host: &mut Host) -> &mut Seen {
    value(&mut first(host).seen)
}

fn card(host: &mut Host) -> &mut Card {
    &mut value(&mut seen(host).cards)[0]
}

fn rewrite(host: &mut Host, from: &str, to: &str) {
    for argument in &mut own(first(host)).arguments {
        argument.value = argument.value.take().map(|value| value.replace(from, to));
    }
}

pub fn nic<'h>(host: &'h mut Host, name: &str) -> &'h mut Nic {
    host.nics.iter_mut().find(|nic| nic.name == name).unwrap()
}

/// What can be wrong with a guest where no other host is looked at.
pub const GUESTS: &[(&str, Severity, Spoil)] = &[
    ("guest-queues", Severity::Notice, |host| {
        rewrite(host, ",queues=4", "");
        value(&mut host.guests)[0].vcpus = 16;
        seen(host).vhost = Known(1);
    }),
    ("guest-queues", Severity::Notice, |host| {
        card(host).multiqueue = false;
    }),
    ("guest-vhost", Severity::Notice, |host| {
        rewrite(host, ",vhost=on", "");
    }),
    ("guest-vhost", Severity::Warning, |host| {
        seen(host).vhost = Known(0);
    }),
    ("guest-mtu", Severity::Critical, |host| {
        nic(host, "tap0").mtu = 1500;
    }),
    ("guest-mtu", Severity::Critical, |host| {
        card(host).guest_mtu = Known(9100);
        card(host).offered_mtu = None;
    }),
    ("guest-mtu", Severity::Notice, |host| {
        card(host).guest_mtu = Known(1500);
    }),
    ("guest-pages", Severity::Notice, |host| {
        host.memory.joins = Known("never".into());
        own(first(host))
            .arguments
            .retain(|argument| argument.option != "-object");
    }),
    ("guest-pages", Severity::Notice, |host| {
        host.memory.joins_shared = Known("never".into());
        rewrite(host, ",hugetlb=on", "");
    }),
    ("guest-pages", Severity::Notice, |host| {
        own(first(host))
            .arguments
            .retain(|argument| argument.option != "-object");
        value(&mut seen(host).pages).huge = Bytes(0);
    }),
    ("guest-locked", Severity::Notice, |host| {
        seen(host).lockable = Known(Some(Bytes(8 << 20)));
    }),
    ("guest-prealloc", Severity::Notice, |host| {
        first(host).memory = Bytes(64 * GIB);
        rewrite(host, "size=8G", "size=64G");
        rewrite(host, "prealloc-threads=4", "prealloc-threads=1");
    }),
];

/// What is wrong with another host for the guest of the first one.
pub const ELSEWHERE: &[(&str, Severity, Spoil)] = &[
    ("guest-cpu", Severity::Critical, |host| {
        let hardware = value(&mut host.offers).hardware.as_mut().unwrap();
        hardware.models.remove("EPYC-Milan");
        hardware
            .lacking
            .insert("EPYC-Milan".into(), words(&["pku", "vaes"]));
    }),
    ("guest-cpu", Severity::Critical, |host| {
        value(&mut host.offers)
            .hardware
            .as_mut()
            .unwrap()
            .features
            .remove("avx");
    }),
    ("guest-cpu", Severity::Critical, |host| {
        value(&mut host.offers).hardware = None;
    }),
    ("guest-huge-pages", Severity::Critical, |host| {
        value(&mut host.memory.huge)
            .get_mut(&(2 << 20))
            .unwrap()
            .free = 4095;
    }),
    ("guest-mtu", Severity::Warning, |host| {
        nic(host, "br0").mtu = 8000;
    }),
];

#[test]
fn guests_with_nothing_wrong_are_right_by_every_rule_that_asks_about_them() {
    let report = examine(&[healthy("a", 1), healthy("b", 2)], &[]);
    let of_guests = |rule: &str| rule.starts_with("guest-");
    assert!(
        !report
            .findings
            .iter()
            .any(|finding| of_guests(&finding.rule))
    );
    assert!(
        !report
            .skipped
            .iter()
            .any(|skipped| of_guests(&skipped.rule))
    );
    let right = report.right.iter().filter(|right| of_guests(&right.rule));
    assert_eq!(right.count(), 2 * 8);
}

#[test]
fn each_rule_about_guests_finds_the_one_thing_that_it_is_for_and_no_other_does() {
    for (rule, severity, spoil) in GUESTS {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        let found = guest_findings(&[host]);
        let [only] = &found[..] else {
            panic!("{rule}: {found:#?}");
        };
        assert_eq!(
            (only.rule.as_str(), only.found.severity),
            (*rule, *severity),
            "{only:#?}"
        );
        assert!(only.found.by_hand.is_some(), "{rule}");
    }
}

pub fn guest_findings(hosts: &[Host]) -> Vec<Finding> {
    let findings = examine(hosts, &[]).findings.into_iter();
    findings
        .filter(|finding| finding.rule.starts_with("guest-"))
        .collect()
}

#[test]
fn each_rule_about_other_hosts_finds_what_keeps_a_guest_from_them() {
    for (rule, severity, spoil) in ELSEWHERE {
        let (mut host, mut other) = (healthy("a", 1), healthy("b", 2));
        value(&mut other.guests).clear();
        spoil(&mut other);
        let found = guest_findings(&[host.clone(), other.clone()]);
        let [only] = &found[..] else {
            panic!("{rule}: {found:#?}");
        };
        assert_eq!(
            (only.rule.as_str(), only.found.severity),
            (*rule, *severity),
            "{only:#?}"
        );
        assert!(
            only.found.read.contains('b') && only.subject.to_string().starts_with("a guest web-a"),
            "{only:#?}"
        );
        // A third host that can have it makes it less grave.
        let found = guest_findings(&[host.clone(), other.clone(), healthy("c", 3)]);
        let of_first = found
            .iter()
            .find(|finding| finding.subject.host == "a")
            .unwrap();
        assert_eq!(of_first.found.severity, Severity::Warning, "{rule}");
        // A guest that is not there is no matter.
        value(&mut host.guests).clear();
        assert_eq!(guest_findings(&[host, other]), []);
    }
}

#[test]
fn a_guest_with_all_of_its_hosts_processor_is_given_a_model_that_all_have() {
    let (mut host, mut other) = (healthy("a", 1), healthy("b", 2));
    rewrite(
        &mut host,
        "EPYC-Milan,+avx",
        "host,migratable=on,-sse4.1,+avx2,hv-relaxed",
    );
    value(&mut other.guests).clear();
    value(&mut other.offers).hardware = Some(Offer {
        models: words(&["EPYC", "host"]),
        features: words(&["avx"]),
        lacking: BTreeMap::new(),
    });
    let found = guest_findings(&[host.clone(), other.clone()]);
    assert_eq!(found[0].found.read, "host: b lacks avx2");
    let diff = "- \"-cpu\", \"host,migratable=on,-sse4.1,+avx2,hv-relaxed\"\n+ \"-cpu\", \"EPYC,-sse4.1,hv-relaxed\"";
    assert_eq!(found[0].found.lines[0].to_string(), diff);
    // The same features, and another processor: plans keep it where it is.
    value(&mut other.offers).hardware = value(&mut host.offers).hardware.clone();
    assert_eq!(guest_findings(&[host.clone(), other.clone()]), []);
    value(&mut other.offers).processor = "AMD EPYC 7713".into();
    let found = guest_findings(&[host.clone(), other]);
    assert_eq!(
        found[0].found.read,
        "host: b has another processor, AMD EPYC 7713"
    );
    let alone = examine(&[host], &[]);
    let skipped = alone
        .skipped
        .iter()
        .find(|skipped| skipped.rule == "guest-cpu")
        .unwrap();
    assert!(skipped.because.contains("no other host"), "{skipped:?}");
}

fn lines_of(rule: &str, spoil: Spoil) -> Vec<String> {
    let mut host = healthy("a", 1);
    spoil(&mut host);
    let found = guest_findings(&[host]);
    assert_eq!(found[0].rule, rule, "{found:#?}");
    found[0]
        .found
        .lines
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn what_is_to_be_changed_in_a_definition_is_told_to_the_letter() {
    let queues = lines_of("guest-queues", |host| {
        first(host).vcpus = 16;
        rewrite(host, ",vhost=on,queues=4", ",vhost=on");
        rewrite(host, "mq=on,", "vectors=4,");
        first(host).seen = Fact::unknown("it does not run");
    });
    assert_eq!(
        queues,
        [
            "- \"-netdev\", \"tap,id=net0,ifname=tap0,script=no,vhost=on\"\n+ \"-netdev\", \"tap,id=net0,ifname=tap0,script=no,vhost=on,queues=8\"",
            "- \"-device\", \"virtio-net-pci,netdev=net0,vectors=4,host_mtu=9000\"\n+ \"-device\", \"virtio-net-pci,netdev=net0,host_mtu=9000,mq=on,vectors=18\"",
        ]
    );
    let both = lines_of("guest-queues", |host| {
        own(first(host)).arguments = given(&[
            "-nic",
            "tap,id=n,vhost=on,model=virtio-net-pci,mac=52:54:00:00:00:01,br=a\"b",
        ]);
        first(host).seen = Fact::unknown("it does not run");
    });
    assert_eq!(
        both,
        [
            "- \"-nic\", \"tap,id=n,vhost=on,model=virtio-net-pci,mac=52:54:00:00:00:01,br=a\\\"b\"",
            "+ \"-netdev\", \"tap,vhost=on,br=a\\\"b,id=n,queues=4\"",
            "+ \"-device\", \"virtio-net-pci,netdev=n,mac=52:54:00:00:00:01,mq=on\"",
        ]
    );
    let mtu = lines_of("guest-mtu", |host| {
        nic(host, "ens1f0").mtu = 1500;
        nic(host, "br0").mtu = 1500;
        card(host).guest_mtu = Fact::unknown("its definition has no agent in it");
    });
    assert_eq!(mtu.len(), 1);
    assert!(mtu[0].ends_with("mq=on,host_mtu=1500\""), "{mtu:?}");
}

#[test]
fn what_is_not_known_of_a_guest_is_skipped_and_of_a_host_without_an_agent_once() {
    let mut host = healthy("a", 1);
    host.guests = Fact::unknown("no agent was asked");
    let report = examine(&[host], &[]);
    let rules = report
        .skipped
        .iter()
        .filter(|skipped| skipped.rule.starts_with("guest-"));
    assert_eq!(rules.clone().count(), 8);
    assert!(
        rules
            .clone()
            .all(|skipped| skipped.because == "no agent was asked")
    );

    let mut host = healthy("a", 1);
    first(&mut host).seen = Fact::unknown("it does not run");
    rewrite(&mut host, ",host_mtu=9000", "");
    host.nics.retain(|nic| nic.name != "tap0");
    assert_eq!(guest_findings(std::slice::from_ref(&host)), []);
    let report = examine(&[host], &[]);
    let mtu = report
        .skipped
        .iter()
        .find(|skipped| skipped.rule == "guest-mtu")
        .unwrap();
    assert_eq!(
        mtu.because,
        "tap0 is not there while the guest does not run"
    );
    assert_eq!(mtu.subject.to_string(), "a guest web-a net0");
}

#[test]
fn what_is_written_as_json_is_skipped_and_not_taken_for_right() {
    for (args, rule, why) in [
        (
            ["-netdev", r#"{"type":"tap","id":"n"}"#],
            "guest-vhost",
            "its -netdev is written as JSON",
        ),
        (
            ["-object", r#"{"qom-type":"memory-backend-ram","id":"m"}"#],
            "guest-pages",
            "its memory is written as JSON",
        ),
    ] {
        let mut host = healthy("a", 1);
        own(first(&mut host)).arguments = given(&args);
        let report = examine(&[host], &[]);
        let mut skipped = report.skipped.iter();
        let skipped = skipped.find(|skipped| skipped.rule == rule).unwrap();
        assert_eq!(skipped.because, why);
    }
}
