//! Guests and domains without what they are called.

use drover_tune::Severity;
use drover_tune::facts::{Fact, Fact::Known, Host};

use crate::domains::{MAC, SOURCE, domain, host_with, running, xml};
use crate::guests::{self, guest_findings};
use crate::hosts::value;

/// What is said of all guests of these hosts: rule, severity, what was read.
fn said(hosts: &[Host]) -> Vec<(String, Severity, String)> {
    let found = guest_findings(hosts).into_iter();
    let mut said: Vec<_> = found
        .map(|one| (one.rule, one.found.severity, one.found.read))
        .collect();
    said.sort();
    said
}

#[test]
fn without_its_name_the_same_is_found_of_a_guest_and_nothing_tells_what_it_was_called() {
    let secret = "payroll";
    let mut domain_with_names = running(&xml(&[
        (
            SOURCE,
            "<source bridge='br0' network='payroll' portgroup='payroll'/>",
        ),
        (
            "</devices>",
            "<channel type='unix'><target type='guestfwd' address='payroll' name='org.qemu.guest_agent.0'/></channel>\
             <interface type='direct'><mac address='52:54:00:12:34:56'/><source dev='enx525400123456'/>\
             <target dev='enx525400123456'/><model type='e1000e'/></interface></devices>",
        ),
        ("fallback='forbid'", "fallback='forbid' vendor_id='payroll'"),
        (" queues='4'", ""),
    ]));
    domain_with_names.name = secret.into();
    domain(&mut domain_with_names).uri = Some("qemu+ssh://payroll/system".into());
    let mut own = guests::guest("a");
    own.name = secret.into();
    guests::own(&mut own).file = "/etc/drover/vms/payroll.toml".into();
    guests::own(&mut own).arguments = guests::given(&[
        "-cpu",
        "EPYC-Milan,+avx,model-id=payroll,hv-vendor-id=payroll",
        "-netdev",
        "tap,id=payroll,ifname=tap0,script=/payroll,queues=2",
        "-netdev",
        "tap,id=other,ifname=enx525400123456,br=enx525400123456",
        "-device",
        "virtio-net-pci,netdev=payroll,mac=52:54:00:12:34:56,mq=on,host_mtu=9000,serial=payroll",
        "-object",
        "memory-backend-file,id=payroll,size=8G,mem-path=/payroll",
        "-chardev",
        "socket,id=qga,path=/payroll,server=on",
    ]);
    guests::own(&mut own).page_sizes = [("/payroll".to_owned(), 2 << 20)].into();
    let seen = value(&mut own.seen);
    value(&mut seen.taps).insert("enx525400123456".into());
    value(&mut seen.cards)[0].netdev = secret.into();
    value(&mut seen.cards)[0].guest_mtu = Fact::unknown("payroll does not answer");

    let mut host = host_with(domain_with_names);
    host.guests = Known(vec![own]);
    let mut nameless = host.clone();
    for told in [&mut nameless.guests, &mut nameless.domains] {
        let made = value(told).iter().map(|guest| guest.nameless(7)).collect();
        *told = Known(made);
    }
    let told = serde_json::to_string(&(&nameless.guests, &nameless.domains)).unwrap();
    for word in [secret, MAC, "enx525400123456"] {
        assert!(!told.contains(word), "{told}");
    }
    let mut there = guests::healthy("b", 2);
    value(&mut there.guests).clear();
    value(&mut there.memory.huge).clear();
    let found = said(&[host, there.clone()]);
    assert!(found.len() > 4, "{found:#?}");
    assert_eq!(said(&[nameless, there]), found);
}
