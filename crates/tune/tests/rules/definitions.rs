//! What is told of libvirt's domains where now and next differ, or parts of them do.

use drover_tune::domain::read;
use drover_tune::facts::{Fact::Known, Guest, Host};
use drover_types::Bytes;

use crate::domains::{
    AMPLE, GIB, LIMITED, Other, XML, domain, guest, host_with, running, skipped, with_rdma, xml,
};
use crate::guests::{self, guest_findings};
use crate::hosts::{value, words};

#[test]
fn what_a_domain_may_lock_is_found_by_its_limit_alone_and_the_hand_ends_no_running_one() {
    let of = |other: &Other, spoil: fn(&mut Guest)| {
        let mut host = host_with(running(&xml(other)));
        with_rdma(&mut host);
        spoil(guest(&mut host));
        let found = guest_findings(&[host]).into_iter();
        let mut found = found.filter(|one| one.rule == "guest-locked");
        found
            .next()
            .map(|one| (one.found.read, one.found.by_hand.unwrap()))
    };
    // libvirt advises against a limit, and none is needed but by RDMA of libvirt's own.
    assert_eq!(of(&[], |_| {}), None);
    assert_eq!(of(&[AMPLE], |_| {}), None);
    let (read, by_hand) = of(&[LIMITED], |_| {}).unwrap();
    assert_eq!(read, "4 GiB of 8 GiB may be locked");
    let begin = "virsh memtune web --config --hard-limit SIZEKiB, if others";
    assert!(by_hand.starts_with(begin), "{by_hand}");
    assert!(by_hand.contains("libvirt advises to set none"), "{by_hand}");
    let (_, transient) = of(&[LIMITED], |guest| domain(guest).persistent = false).unwrap();
    assert!(
        transient.starts_with("libvirt has no definition"),
        "{transient}"
    );
}

type Spoil = fn(&mut Host);

/// What is told of a domain that runs as this, and is started next as that.
fn told(rule: &str, now: &Other, next: &Other, spoil: Spoil) -> (Vec<String>, String) {
    let mut host = host_with(running(&xml(now)));
    domain(guest(&mut host)).next = Known(read(&xml(next)).unwrap());
    spoil(&mut host);
    let mut there = guests::healthy("b", 2);
    value(&mut there.guests).clear();
    let milan = words(&["EPYC-Milan"]);
    let hardware = value(&mut there.offers).hardware.as_mut().unwrap();
    hardware.models = hardware.models.difference(&milan).cloned().collect();
    hardware.lacking = [("EPYC-Milan".to_owned(), words(&["pku"]))].into();
    let found = guest_findings(&[host, there]).into_iter();
    let mut found = found.filter(|one| one.rule == rule);
    let found = found.next().unwrap().found;
    let lines = found.lines.iter().map(ToString::to_string).collect();
    (lines, found.by_hand.unwrap())
}

#[test]
fn what_the_next_definition_has_already_is_not_undone() {
    let huge = "<hugepages>
      <page size='2048' unit='KiB'/>
    </hugepages>";
    let large: Spoil = |host| guest(host).memory = Bytes(64 * GIB);
    let not_joined: Spoil = |host| host.memory.joins_shared = Known("never".into());
    let nothing: Spoil = |_| {};
    let one_queue: &Other = &[(" queues='4'", "")];
    let one_thread: &Other = &[("threads='4'", "threads='1'")];
    let small: &Other = &[(huge, "")];
    let enough: [(&str, &Other, &Other, Spoil); 8] = [
        (
            "guest-queues",
            one_queue,
            &[("queues='4'", "queues='8'")],
            nothing,
        ),
        (
            "guest-vhost",
            &[("name='vhost'", "name='qemu'")],
            &[(" name='vhost'", "")],
            nothing,
        ),
        (
            "guest-prealloc",
            one_thread,
            &[("threads='4'", "threads='8'")],
            large,
        ),
        // As many as it has processors.
        ("guest-prealloc", one_thread, &[(" threads='4'", "")], large),
        (
            "guest-prealloc",
            one_thread,
            &[(huge, ""), ("immediate", "ondemand")],
            large,
        ),
        (
            "guest-pages",
            small,
            &[("size='2048' unit='KiB'", "size='1' unit='GiB'")],
            not_joined,
        ),
        ("guest-cpu", &[], &[("EPYC-Milan", "EPYC")], nothing),
        (
            "guest-cpu",
            &[],
            &[("<model fallback='forbid'>EPYC-Milan</model>", "")],
            nothing,
        ),
    ];
    for (rule, now, next, spoil) in enough {
        let (lines, by_hand) = told(rule, now, next, spoil);
        assert_eq!(lines, [] as [String; 0], "{rule} {next:?}");
        assert!(by_hand.ends_with("start it anew"), "{by_hand}");
    }
    // What does not suffice is changed from what is next.
    let two: &Other = &[("queues='4'", "queues='2'")];
    let (lines, _) = told("guest-queues", one_queue, two, nothing);
    assert!(
        lines[0].starts_with("- <driver name='vhost' queues='2'"),
        "{lines:?}"
    );
    let two: &Other = &[("threads='4'", "threads='2'")];
    let (lines, _) = told("guest-prealloc", one_thread, two, large);
    assert!(lines[0].contains("threads='2'"), "{lines:?}");
    let passed: &Other = &[("mode='custom'", "mode='host-passthrough'")];
    assert!(!told("guest-cpu", &[], passed, nothing).0.is_empty());
}

#[test]
fn what_nodes_of_a_domain_say_of_their_memory_counts_before_what_is_said_of_all() {
    let cells = |first: &str, second: &str| {
        let numa = format!("<numa><cell id='0' {first}/>{second}</numa><topology");
        XML.replace("<topology", &numa)
    };
    let one_page = |xml: String| xml.replace("unit='KiB'/>", "unit='KiB' nodeset='0'/>");
    let skips = |xml: &str, rule| skipped(host_with(running(xml)), rule);
    // Node 0 is all of it only where there is no other.
    let only = "guest-huge-pages";
    let no_others = "no other host was looked at: `drover doctor --all` does";
    assert_eq!(skips(&one_page(cells("", "")), only), no_others);
    let why = skips(&one_page(cells("", "<cell id='1'/>")), only);
    assert!(why.contains("pages of their own"), "{why}");

    let plain = |xml: String| {
        let backing = xml.find("<memoryBacking>").unwrap();
        let end = xml.find("</memoryBacking>").unwrap();
        xml[..backing].to_owned() + "<memoryBacking>" + &xml[end..]
    };
    let file = "its memory is in a file, and its file system has the say";
    let shared = "memAccess='shared'";
    let both = cells(shared, "<cell id='1' memAccess='shared'/>");
    assert_eq!(skips(&plain(both), "guest-pages"), file);
    let one = cells(shared, "<cell id='1'/>");
    let why = skips(&plain(one), "guest-pages");
    assert_eq!(why, "parts of its memory are shared, and others are not");
    // All is said to be shared, and one says so again.
    assert_eq!(skips(&cells(shared, "<cell id='1'/>"), "guest-pages"), "");
}
