//! Who agrees with switches on what is held back, and where packets are kept meanwhile.

use drover_tune::facts::{Buffers, Dcbx, DcbxVersion, Fact, Host};
use drover_tune::{Severity, Subject, examine};

use crate::hosts::{by_firmware, healthy, names, rdma, switch_says, value};

/// What the rule says of the first adapter: that it was found, with what was read, or why it was skipped.
fn said(rule: &str, host: Host) -> Option<String> {
    let report = examine(&[host], &[]);
    let here = |nic: Option<&str>| nic == Some("ens1f0");
    let mut found = report.findings.into_iter();
    let found = found.find(|one| one.rule == rule && here(one.subject.nic.as_deref()));
    let mut skipped = report.skipped.into_iter();
    let skipped = skipped.find(|one| one.rule == rule && here(one.subject.nic.as_deref()));
    found
        .map(|one| one.found.read)
        .or(skipped.map(|one| one.because))
}

fn changed(change: impl FnOnce(&mut Host)) -> Host {
    let mut host = healthy("a", 1);
    change(&mut host);
    host
}

fn dcbx(host: &mut Host) -> &mut Option<Dcbx> {
    &mut value(&mut host.nics[0].dcb).dcbx
}

#[test]
fn who_negotiates_is_no_matter_of_settings_that_count_as_they_are() {
    let said = |change: fn(&mut Host)| said("dcb-agent", changed(change));
    assert_eq!(said(|host| switch_says(host, DcbxVersion::Ieee)), None);
    assert_eq!(
        said(|host| *dcbx(host) = Some(Dcbx::default())),
        None,
        "nobody does"
    );
    let fixed = said(|host| {
        by_firmware(host, DcbxVersion::Ieee);
        let dcbx = dcbx(host).as_mut().unwrap();
        (dcbx.managed, dcbx.fixed) = (false, true);
        *value(&mut host.lldpad) = true;
    });
    assert_eq!(fixed, None);
    // With an agent the host's own is taken over.
    let listens = said(|host| {
        *value(&mut host.lldpad) = true;
        value(&mut host.nics[0].dcb).ets.as_mut().unwrap().willing = true;
        switch_says(host, DcbxVersion::Ieee);
    });
    assert_eq!(listens, None);
    assert_eq!(
        said(|host| by_firmware(host, DcbxVersion::Cee)),
        None,
        "its switch says nothing"
    );
}

#[test]
fn what_nobody_tells_of_who_negotiates_is_skipped_with_the_reason() {
    let said = |change: fn(&mut Host)| said("dcb-agent", changed(change)).unwrap();
    let untold = said(|host| *dcbx(host) = None);
    assert_eq!(untold, "its driver does not tell who negotiates");
    let untold = said(|host| {
        value(&mut host.nics[0].dcb).ets.as_mut().unwrap().willing = true;
        host.lldpad = Fact::unknown("there are too many processes");
    });
    assert_eq!(untold, "there are too many processes");
    let untold = said(|host| {
        by_firmware(host, DcbxVersion::Ieee);
        host.nics[0].neighbours = Fact::unknown("nobody listens");
    });
    assert_eq!(untold, "nobody listens");
}

#[test]
fn an_agent_beside_firmware_keeps_out_and_two_languages_are_named() {
    let both = changed(|host| {
        by_firmware(host, DcbxVersion::Ieee);
        *value(&mut host.lldpad) = true;
    });
    assert_eq!(said("dcb-agent", both), None);
    let strange = changed(|host| {
        by_firmware(host, DcbxVersion::Ieee);
        switch_says(host, DcbxVersion::Cee);
    });
    let read = said("dcb-agent", strange).unwrap();
    assert_eq!(read, "firmware, in IEEE, and the switch speaks CEE");
    // Where nobody has set anything it may not matter.
    let unset = changed(|host| {
        by_firmware(host, DcbxVersion::Ieee);
        switch_says(host, DcbxVersion::Cee);
        let dcb = value(&mut host.nics[0].dcb);
        dcb.pfc.as_mut().unwrap().enabled.clear();
        (dcb.ets, dcb.peer_pfc, dcb.peer_ets) = (None, None, None);
        host.nics[0].rdma = None;
    });
    let report = examine(&[unset], &[]);
    assert_eq!(names(&report), ["dcb-agent"]);
    assert_eq!(report.findings[0].found.severity, Severity::Notice);
}

#[test]
fn a_buffer_that_holds_what_is_held_back_and_what_is_not_is_named_with_both() {
    let buffers = |of_priority: [u8; 8], sizes: [u32; 8]| {
        let buffers = Buffers {
            of_priority: of_priority.into(),
            sizes: sizes.into(),
        };
        let change = |host: &mut Host| value(&mut host.nics[0].dcb).buffers = Some(buffers);
        said("dcb-buffer", changed(change))
    };
    let large = [100_000; 8];
    let shared = buffers([0, 0, 0, 1, 1, 0, 0, 1], large).unwrap();
    let read = "priority 3, which is held back alone, has buffer 1 with 4, 7";
    assert_eq!(shared, read);
    assert_eq!(buffers([0, 0, 0, 7, 0, 0, 0, 0], large), None);
    let small = buffers([0, 0, 0, 7, 0, 0, 0, 0], [41_379; 8]).unwrap();
    assert_eq!(small, "buffer 7 of priority 3 has 41379 bytes");
    assert_eq!(buffers([0, 0, 0, 7, 0, 0, 0, 0], [41_380; 8]), None);
    // One that there is not has nothing told of it.
    assert_eq!(buffers([0, 0, 0, 9, 0, 0, 0, 0], large), None);
    let untold = changed(|host| value(&mut host.nics[0].dcb).buffers = None);
    let why = "its driver does not tell where it keeps what arrives";
    assert_eq!(said("dcb-buffer", untold).as_deref(), Some(why));
}

#[test]
fn two_ends_differ_where_a_switch_is_heard_at_one_of_them_in_whatever_language() {
    let about = |change: fn(&mut Host), far: fn(&mut Host)| {
        let (mut own, mut other) = (healthy("a", 1), healthy("b", 2));
        change(&mut own);
        far(&mut other);
        let report = examine(&[own, other], &[]);
        // The others have what is told of them as it was.
        let is_it = |rule: &str, subject: &Subject| {
            rule == "pair-dcbx" && subject.nic.as_deref() == Some("ens1f0")
        };
        let mut findings = report.findings.into_iter();
        let found = findings.find(|one| is_it(&one.rule, &one.subject));
        let mut skipped = report.skipped.into_iter();
        let skipped = skipped.find(|one| is_it(&one.rule, &one.subject));
        let read = found.map(|one| one.found.read);
        read.or(skipped.map(|one| one.because))
    };
    fn by_hand(_: &mut Host) {}
    fn firmware(host: &mut Host) {
        by_firmware(host, DcbxVersion::Cee);
    }
    fn either(host: &mut Host) {
        // As mlx5 tells of its own.
        let both = [DcbxVersion::Cee, DcbxVersion::Ieee].into();
        let versions = both;
        *dcbx(host) = Some(Dcbx {
            versions,
            ..Dcbx::default()
        });
    }
    fn fixed(host: &mut Host) {
        dcbx(host).as_mut().unwrap().fixed = true;
    }
    fn nobody(host: &mut Host) {
        *dcbx(host) = Some(Dcbx::default());
    }
    fn agent(host: &mut Host) {
        own_agent(host);
        value(&mut host.nics[0].dcb).ets.as_mut().unwrap().willing = true;
    }
    fn own_agent(host: &mut Host) {
        *value(&mut host.lldpad) = true;
    }
    fn willing_to_nobody(host: &mut Host) {
        agent(host);
        *value(&mut host.lldpad) = false;
    }
    fn maybe(host: &mut Host) {
        agent(host);
        host.lldpad = Fact::unknown("there are too many processes");
    }
    let read = "what is set by hand counts at a ens1f0, what the switch says at b ens1f0";
    for heard in [firmware, either, agent] {
        for set in [by_hand, fixed, nobody, willing_to_nobody] {
            assert_eq!(about(set, heard).as_deref(), Some(read));
            assert_eq!(about(set, by_hand), None);
        }
        assert_eq!(about(heard, firmware), None);
    }
    // It tells the kernel nothing of what it takes over.
    for set in [by_hand, firmware] {
        let why = about(set, own_agent).unwrap();
        let says = "lldpad runs, and keeps by itself whether it takes over what the switch says";
        assert!(why.starts_with(says), "{why}");
        assert!(why.contains("-i ens1f0 -V ETS-CFG -c willing"), "{why}");
    }
    assert_eq!(
        about(by_hand, |host| {
            own_agent(host);
            fixed(host);
        }),
        None
    );
    let why = "there are too many processes";
    assert_eq!(about(by_hand, maybe).as_deref(), Some(why));
    let why = "the driver of one end does not tell who negotiates";
    assert_eq!(
        about(by_hand, |host| *dcbx(host) = None).as_deref(),
        Some(why)
    );
}

#[test]
fn ticks_are_held_against_what_was_sent_and_a_counter_at_its_end_tells_no_more() {
    let counted = |waited: u64, sent: u64| {
        let change = |host: &mut Host| {
            let rdma = rdma(host);
            rdma.layer = "InfiniBand".into();
            (rdma.waited, rdma.sent, rdma.lanes) = (Some(waited), Some(sent), Some(4));
        };
        said("rdma-waits", changed(change))
    };
    assert_eq!(counted(0, 0), None);
    // Less than 1 GiB, however little was sent.
    assert_eq!(counted((1 << 28) - 1, 0), None);
    let all = counted(1 << 28, 0).unwrap();
    assert!(all.starts_with("268435456 ticks"), "{all}");
    assert_eq!(counted(1 << 28, 10 << 30), None);
    let end = counted(u32::MAX.into(), 1 << 50).unwrap();
    assert!(end.contains("stands at its end"), "{end}");
    // 16 GiB, as a counter of 32 bits has it that has sent more.
    let end = counted(1 << 30, 4 * u64::from(u32::MAX)).unwrap();
    assert!(end.starts_with("its counter of what it sends"), "{end}");
    let untold = changed(|host| rdma(host).layer = "InfiniBand".into());
    let why = "it does not count what it waits for";
    assert_eq!(said("rdma-waits", untold).as_deref(), Some(why));
}

/// What people are told to do by a rule.
fn by_hand(rule: &str, host: Host) -> String {
    let mut found = examine(&[host], &[]).findings.into_iter();
    let found = found.find(|one| one.rule == rule).unwrap();
    found.found.by_hand.unwrap()
}

#[test]
fn shares_are_told_as_they_are_set_and_are_all_of_the_line_together() {
    let told = |shares: [u8; 8]| {
        by_hand(
            "dcb-share",
            changed(|host| {
                let dcb = value(&mut host.nics[0].dcb);
                let ets = dcb.ets.as_mut().unwrap();
                (ets.shares, ets.algorithms) = (shares.into(), vec![2; 8]);
                dcb.peer_ets = None;
            }),
        )
    };
    let set = |shares: &str| {
        format!(
            "give its class more: dcb ets set dev ens1f0 tc-bw {shares}, and the same at the switch"
        )
    };
    assert_eq!(told([19, 81, 0, 0, 0, 0, 0, 0]), set("0:20 1:80"));
    // 45 and 45 of 95 are 38 of 80, and 5 of them 4.
    assert_eq!(told([5, 45, 45, 5, 0, 0, 0, 0]), set("0:20 1:37 2:39 3:4"));
    let pattern = "give its class more (dcb ets set, tc-bw), and the same at the switch";
    assert_eq!(told([10, 80, 0, 0, 0, 0, 0, 0]), pattern, "no 100 now");
    assert_eq!(
        told([1, 98, 1, 0, 0, 0, 0, 0]),
        pattern,
        "nothing would be left"
    );
}

#[test]
fn what_the_switch_holds_back_is_told_as_it_is_set_here() {
    let told = by_hand(
        "dcb-peer",
        changed(|host| {
            let peer = value(&mut host.nics[0].dcb).peer_pfc.as_mut();
            peer.unwrap().enabled = [3, 4].into();
        }),
    );
    let command = "dcb pfc set dev ens1f0 prio-pfc all:off 3:on 4:on";
    assert!(told.ends_with(command), "{told}");
}
