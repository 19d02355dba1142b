//! What an agent tells of its guests to those who look for what costs them. On a real QEMU, with a real interface of the host.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::path::Path;

use drover_tune::facts::{Definition, Guest, Host, Kind};
use drover_tune::{Report, Severity, examine};
use support::{Place, has_qemu};

const TUN: &str = "/dev/net/tun";

/// Whether QEMU can make an interface; says so when it cannot.
fn has_tun() -> bool {
    let there = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(TUN)
        .is_ok()
        && rustix::process::geteuid().is_root();
    if !there {
        eprintln!("skipped, because {TUN} cannot be opened, or by another user than root");
    }
    there
}

fn define(place: &Place, name: &str, tap: &str) {
    let text = format!(
        r#"name = "{name}"
memory = "64MiB"
vcpus = 4
machine = "q35,accel=tcg"
args = [
    "-nodefaults", "-cpu", "max",
    "-object", "secret,id=s0,data=hunter2",
    "-netdev", "tap,id=net0,ifname={tap},script=no,downscript=no",
    "-device", "virtio-net-pci,netdev=net0,mac=52:54:00:12:34:56,host_mtu=9000",
    "-netdev", "hubport,id=net1,hubid=0", "-device", "e1000,netdev=net1",
]
"#
    );
    fs::write(place.path("vms").join(format!("{name}.toml")), text).unwrap();
}

fn guest(host: &Host) -> &Guest {
    let guests = host.guests.get().unwrap();
    assert_eq!(guests.len(), 1);
    &guests[0]
}

fn findings(report: &Report) -> Vec<(&str, Severity)> {
    let findings = report
        .findings
        .iter()
        .filter(|finding| finding.rule.starts_with("guest-"));
    findings
        .map(|finding| (finding.rule.as_str(), finding.found.severity))
        .collect()
}

#[tokio::test]
async fn a_guest_is_told_with_its_cards_its_process_and_what_is_to_be_changed_in_its_definition() {
    if !has_qemu() || !has_tun() {
        return;
    }
    let place = Place::new();
    let tap = format!("drt{}", std::process::id() % 100_000);
    define(&place, "web1", &tap);
    let agent = place.start().await;

    let stopped = agent.client.facts().await.unwrap().facts;
    assert_eq!(guest(&stopped).seen.get().unwrap_err(), "it does not run");
    let offers = stopped.offers.get().unwrap();
    assert!(
        offers
            .emulated
            .as_ref()
            .is_some_and(|offer| offer.models.contains("max")),
        "{offers:?}"
    );

    agent.start_vm("web1").await;
    let told = agent.client.facts().await.unwrap().facts;
    assert!(
        !serde_json::to_string(&told).unwrap().contains("hunter2"),
        "a secret is told to nobody"
    );
    let web1 = guest(&told);
    assert_eq!((web1.name.as_str(), web1.vcpus), ("web1", 4));
    let Definition::Own(own) = &web1.definition else {
        unreachable!("{web1:?}");
    };
    assert_eq!(Path::new(&own.file), place.path("vms/web1.toml"));
    let seen = web1.seen.get().unwrap();
    assert_eq!(seen.accelerated.get(), Ok(&false));
    assert_eq!(seen.vhost.get(), Ok(&0));
    assert_eq!(seen.taps.get().unwrap(), &[tap.clone()].into());
    assert!(seen.pages.get().unwrap().touched.0 > 0);
    let [card] = &seen.cards.get().unwrap()[..] else {
        unreachable!("{seen:?}");
    };
    assert_eq!(
        (card.netdev.as_str(), card.mac.as_str()),
        ("net0", "52:54:00:12:34:56")
    );
    assert_eq!((card.multiqueue, card.offered_mtu), (false, Some(9000)));
    assert_eq!(
        card.guest_mtu.get().unwrap_err(),
        "no guest agent is in its definition"
    );
    assert_eq!(
        told.nic(&tap).map(|nic| (nic.kind, nic.mtu)),
        Some((Kind::Virtual, 1500))
    );

    let report = examine(std::slice::from_ref(&told), &[]);
    let expected = [
        ("guest-mtu", Severity::Critical),
        ("guest-vhost", Severity::Notice),
        ("guest-queues", Severity::Notice),
    ];
    assert_eq!(findings(&report), expected, "{report:#?}");
    // What is said of it can be done, and then nothing is found.
    let mut text = fs::read_to_string(&own.file).unwrap();
    let findings_of = report
        .findings
        .iter()
        .filter(|finding| finding.rule == "guest-mtu");
    for line in findings_of.flat_map(|finding| &finding.found.lines) {
        let (from, to) = (line.from.as_ref().unwrap(), line.to.as_ref().unwrap());
        assert!(text.contains(from), "{from} stands in {text}");
        text = text.replace(from, to);
    }
    assert!(text.contains("host_mtu=1500"), "{text}");

    // Another host whose QEMU lacks what the guest has.
    let mut other = told.clone();
    other.name = "b".into();
    other.guests = drover_tune::facts::Fact::Known(Vec::new());
    if let drover_tune::facts::Fact::Known(offers) = &mut other.offers {
        offers.emulated.as_mut().unwrap().features.remove("avx2");
    }
    let report = examine(&[told, other], &[]);
    let cpu = report
        .findings
        .iter()
        .find(|finding| finding.rule == "guest-cpu")
        .unwrap();
    assert_eq!(cpu.found.read, "max: b lacks avx2");
}
