//! The one thing wrong that each rule is for.

use drover_tune::Severity;
use drover_tune::facts::{
    Clock, DcbxVersion, Duplex, Fact, Fact::Known, Host, Kind, Link, Reporter,
};

use crate::hosts::{
    app, bonded, by_firmware, by_hand, cpus, gbit, has_firmware, is_down, link, on_top, rdma, set,
    switch_says, value,
};

pub type Spoil = fn(&mut Host);

/// A rule, how much it matters, and what is wrong.
pub const CASES: &[(&str, Severity, Spoil)] = &[
    ("link-speed", Severity::Critical, |host| {
        by_hand(host);
        link(host).speed = Some(gbit(10));
    }),
    ("link-speed", Severity::Warning, |host| {
        by_hand(host);
        link(host).speed = Some(gbit(10));
        link(host).peer.clear();
    }),
    ("link-speed", Severity::Critical, |host| {
        link(host).advertised.remove(&gbit(25));
        link(host).speed = Some(gbit(10));
    }),
    ("link-speed", Severity::Notice, |host| {
        // As virtual adapters tell of themselves: they can, and offer nothing.
        let link = link(host);
        link.negotiates = None;
        link.advertised.clear();
        link.peer.clear();
        link.speed = Some(gbit(1));
    }),
    ("link-duplex", Severity::Critical, |host| {
        link(host).duplex = Some(Duplex::Half);
    }),
    ("link-module", Severity::Warning, |host| {
        // A cable for SFP+ between two ends of 25.
        value(&mut host.nics[0].module).carries = [gbit(1), gbit(10)].into();
        link(host).speed = Some(gbit(10));
    }),
    ("link-module", Severity::Notice, |host| {
        value(&mut host.nics[0].module).carries = [gbit(10)].into();
        link(host).peer.clear();
        link(host).speed = Some(gbit(10));
    }),
    ("link-module", Severity::Critical, |host| {
        // Optics for 100 alone.
        value(&mut host.nics[0].module).carries = [gbit(100)].into();
        host.nics[0].carrier = false;
        link(host).speed = None;
    }),
    ("link-down", Severity::Critical, |host| {
        is_down(host, "autoneg", Some("an-no-partner-detected"));
    }),
    ("link-down", Severity::Critical, |host| {
        is_down(host, "autoneg", Some("an-fec-mismatch-during-override"));
        value(&mut host.nics[0].fec).automatic = false;
    }),
    ("link-down", Severity::Notice, |host| {
        is_down(host, "no-cable", None);
    }),
    ("link-flaps", Severity::Notice, |host| {
        host.nics[0].carrier_changes = Known(40);
    }),
    ("link-errors", Severity::Notice, |host| {
        value(&mut host.nics[0].counters).receive_errors = 1000;
    }),
    ("link-errors", Severity::Notice, |host| {
        value(&mut host.nics[0].counters).send_errors = Some(1000);
    }),
    ("link-errors", Severity::Notice, |host| {
        value(&mut host.nics[0].fec).uncorrected = Some(1000);
    }),
    ("pci-slot", Severity::Critical, |host| {
        value(&mut host.nics[0].pci).width = Some(1);
    }),
    ("pci-slot", Severity::Warning, |host| {
        // Enough for each port, and not for both: 28 Gbit/s.
        for (nic, port) in host.nics.iter_mut().zip(["0", "1"]) {
            let pci = value(&mut nic.pci);
            (pci.width, pci.width_most) = (Some(4), Some(4));
            pci.slot = format!("0000:3b:00.{port}");
        }
    }),
    ("pci-slot", Severity::Notice, |host| {
        // At rest: all lanes, and fewer transfers than it can.
        value(&mut host.nics[0].pci).speed = Some(2500);
    }),
    ("mtu-layers", Severity::Critical, |host| {
        let mut bridge = on_top("br0", Kind::Bridge, &["ens1f0", "vnet0"]);
        bridge.mtu = 9100;
        host.nics.push(bridge);
    }),
    ("bond-mode", Severity::Warning, |host| {
        bonded(host, "active-backup", "layer2", &["ens1f0"]);
    }),
    ("bond-mode", Severity::Warning, |host| {
        bonded(host, "802.3ad", "layer2", &["ens1f0", "ens1f1"]);
    }),
    ("bond-members", Severity::Critical, |host| {
        bonded(host, "802.3ad", "layer3+4", &["ens1f0"]);
    }),
    ("bond-members", Severity::Critical, |host| {
        bonded(host, "802.3ad", "layer3+4", &["ens1f0", "ens1f1"]);
        let bond = value(host.nics[2].bond.as_mut().unwrap());
        bond.aggregator = Some(1);
        bond.aggregators = [("ens1f0".to_owned(), 1), ("ens1f1".to_owned(), 2)].into();
    }),
    ("nic-queues", Severity::Warning, |host| {
        value(&mut host.nics[0].channels).combined = 1;
    }),
    ("nic-spread", Severity::Warning, |host| {
        let places = &mut value(&mut host.nics[0].spread).places;
        *places = [(0, 128)].into();
    }),
    ("nic-spread", Severity::Notice, |host| {
        value(&mut host.nics[0].spread).places.insert(3, 8);
    }),
    ("nic-health", Severity::Warning, |host| {
        value(&mut host.nics[0].health).push(Reporter {
            name: "tx".into(),
            in_error: true,
            errors: 3,
        });
    }),
    ("nic-interrupts", Severity::Warning, |host| {
        // It may be taken anywhere, and is taken far away.
        let interrupt = &mut value(&mut host.nics[0].interrupts)[0];
        (interrupt.cpus, interrupt.effective) = (cpus("0-7"), cpus("5"));
    }),
    ("nic-interrupts", Severity::Warning, |host| {
        // The kernel does not tell where it is taken.
        let interrupt = &mut value(&mut host.nics[0].interrupts)[0];
        (interrupt.cpus, interrupt.effective) = (cpus("4-7"), cpus(""));
    }),
    ("nic-interrupts", Severity::Notice, |host| {
        // Another part of the socket, as firmware divides it (NPS, SNC).
        for core in value(&mut host.processors.cores).values_mut() {
            (core.core, core.package) = (core.core + 4 * core.package, 0);
        }
        let interrupt = &mut value(&mut host.nics[0].interrupts)[0];
        interrupt.effective = cpus("5");
    }),
    ("nic-crowded", Severity::Warning, |host| {
        // 10 Gbit/s of 25.
        for interrupt in value(&mut host.nics[0].interrupts) {
            (interrupt.cpus, interrupt.effective) = (cpus("0-3"), cpus("2"));
        }
    }),
    ("nic-crowded", Severity::Notice, |host| {
        for interrupt in value(&mut host.nics[0].interrupts) {
            (interrupt.cpus, interrupt.effective) = (cpus("0-3"), cpus("0"));
        }
        link(host).speed = Some(gbit(10));
        // So that no other rule speaks.
        let link = link(host);
        (link.supported, link.peer) = ([gbit(10)].into(), [gbit(10)].into());
        link.advertised = [gbit(10)].into();
        value(&mut host.nics[0].module).carries = [gbit(10)].into();
    }),
    ("nic-xps", Severity::Notice, |host| {
        value(&mut host.nics[0].steering).send.remove("tx-3");
    }),
    ("nic-steering", Severity::Notice, |host| {
        let steering = value(&mut host.nics[0].steering);
        steering.receive.insert("rx-0".into(), cpus("0-7"));
    }),
    ("nic-ring", Severity::Notice, |host| {
        // 512 in its four queues together.
        value(&mut host.nics[0].rings).receive = 128;
    }),
    ("nic-ring", Severity::Notice, |host| {
        value(&mut host.nics[0].rings).receive = 512;
        value(&mut host.nics[0].channels).combined_most = 1;
        value(&mut host.nics[0].channels).combined = 1;
    }),
    ("nic-coalescing", Severity::Notice, |host| {
        // One for each packet.
        let coalescing = value(&mut host.nics[0].coalescing);
        coalescing.adaptive_receive = Some(false);
        (coalescing.receive_micros, coalescing.receive_packets) = (Some(0), None);
    }),
    ("nic-coalescing", Severity::Notice, |host| {
        let coalescing = value(&mut host.nics[0].coalescing);
        coalescing.adaptive_receive = Some(false);
        coalescing.receive_micros = Some(1000);
    }),
    ("nic-offloads", Severity::Warning, |host| {
        value(&mut host.nics[0].features).active.remove("rx-gro");
    }),
    ("nic-offloads", Severity::Notice, |host| {
        value(&mut host.nics[0].features)
            .active
            .remove("tx-tcp-segmentation");
    }),
    ("nic-lro", Severity::Critical, |host| {
        value(&mut host.nics[0].features)
            .active
            .insert("rx-lro".into());
        host.nics.push(on_top("ens1f0.7", Kind::Vlan, &["ens1f0"]));
        host.nics.push(on_top("br0", Kind::Bridge, &["ens1f0.7"]));
    }),
    ("nic-qdisc", Severity::Warning, |host| {
        host.nics[0].qdisc = Known("tbf".into());
    }),
    ("nic-qdisc", Severity::Notice, |host| {
        host.nics[0].qdisc = Known("htb".into());
    }),
    ("nic-qdisc", Severity::Notice, |host| {
        // As BBR was once said to want it: one lock for four queues.
        host.nics[0].qdisc = Known("fq".into());
    }),
    ("dcb-pause", Severity::Warning, |host| {
        value(&mut host.nics[0].pause).receive = true;
    }),
    ("dcb-peer", Severity::Warning, |host| {
        let peer = value(&mut host.nics[0].dcb).peer_pfc.as_mut();
        peer.unwrap().enabled = [4].into();
    }),
    ("dcb-peer", Severity::Warning, |host| {
        let peer = value(&mut host.nics[0].dcb).peer_ets.as_mut();
        peer.unwrap().shares[0] = 10;
    }),
    ("dcb-share", Severity::Notice, |host| {
        // 4.75 Gbit/s.
        let dcb = value(&mut host.nics[0].dcb);
        dcb.ets.as_mut().unwrap().shares[..2].copy_from_slice(&[19, 81]);
        dcb.peer_ets = None;
    }),
    ("dcb-most", Severity::Warning, |host| {
        // 5 Gbit/s for the class of priority 0; that of others is theirs.
        let dcb = value(&mut host.nics[0].dcb);
        dcb.rates = Some(vec![5_000_000, 1000, 0, 0, 0, 0, 0, 0]);
    }),
    ("dcb-willing", Severity::Notice, |host| {
        by_firmware(host, DcbxVersion::Ieee);
        let ets = value(&mut host.nics[0].dcb).ets.as_mut();
        ets.unwrap().willing = true;
    }),
    ("dcb-agent", Severity::Warning, |host| {
        by_firmware(host, DcbxVersion::Ieee);
        switch_says(host, DcbxVersion::Cee);
    }),
    ("dcb-agent", Severity::Notice, |host| {
        let ets = value(&mut host.nics[0].dcb).ets.as_mut();
        ets.unwrap().willing = true;
        switch_says(host, DcbxVersion::Ieee);
    }),
    ("dcb-buffer", Severity::Warning, |host| {
        let buffers = value(&mut host.nics[0].dcb).buffers.as_mut();
        buffers.unwrap().of_priority[3] = 0;
    }),
    ("dcb-buffer", Severity::Warning, |host| {
        // Of 25 Gbit/s and packets of 9000 bytes 41,380 have to find a place.
        let buffers = value(&mut host.nics[0].dcb).buffers.as_mut();
        buffers.unwrap().sizes[1] = 41_000;
    }),
    ("dcb-lossless", Severity::Notice, |host| {
        let dcb = value(&mut host.nics[0].dcb);
        for pfc in [&mut dcb.pfc, &mut dcb.peer_pfc] {
            pfc.as_mut().unwrap().enabled.clear();
        }
    }),
    ("dcb-peer", Severity::Warning, |host| {
        value(&mut host.nics[0].dcb).peer_apps[0].priority = 4;
    }),
    ("dcb-rdma", Severity::Notice, |host| {
        let dcb = value(&mut host.nics[0].dcb);
        for apps in [&mut dcb.apps, &mut dcb.peer_apps] {
            apps[0].priority = 4;
        }
    }),
    ("dcb-rdma", Severity::Notice, |host| {
        // 106 is DSCP 26.
        let dcb = value(&mut host.nics[0].dcb);
        (dcb.apps, dcb.peer_apps) = (vec![app(5, 26, 2)], Vec::new());
    }),
    ("dcb-pressure", Severity::Notice, |host| {
        // 1.3 ms each: 13 s of an hour.
        value(&mut host.nics[0].pause).received = Some(10_000);
    }),
    ("dcb-pressure", Severity::Notice, |host| {
        let pfc = value(&mut host.nics[0].dcb).pfc.as_mut();
        pfc.unwrap().sent = Some(10_000);
    }),
    ("rdma-port", Severity::Notice, |host| {
        rdma(host).state = "DOWN".into();
    }),
    ("rdma-port", Severity::Notice, |host| {
        // A broken lane of InfiniBand.
        let rdma = rdma(host);
        rdma.layer = "InfiniBand".into();
        (rdma.waited, rdma.sent) = (Some(0), Some(1 << 40));
        (rdma.lanes, rdma.rate) = (Some(1), Some("25 Gb/sec (1X EDR)".into()));
    }),
    ("rdma-kind", Severity::Notice, |host| {
        rdma(host).kinds.remove("RoCE v2");
    }),
    ("rdma-pieces", Severity::Notice, |host| {
        host.nics[0].mtu = 1500;
    }),
    ("rdma-lost", Severity::Notice, |host| {
        rdma(host).lost.insert("packet_seq_err".into(), 100);
    }),
    ("rdma-waits", Severity::Notice, |host| {
        // On four lanes time for 12 GiB at least, while 100 were sent.
        let rdma = rdma(host);
        rdma.layer = "InfiniBand".into();
        (rdma.waited, rdma.lanes) = (Some(3 << 30), Some(4));
        rdma.sent = Some(100 << 30);
    }),
    ("switch-frames", Severity::Warning, |host| {
        value(&mut host.nics[0].neighbours)[0].frame = Some(1518);
    }),
    ("switch-negotiation", Severity::Notice, |host| {
        value(&mut host.nics[0].neighbours)[0].negotiates = Some(false);
    }),
    ("switch-one", Severity::Notice, |host| {
        let switch = value(&mut host.nics[1].neighbours)[0].switch.clone();
        value(&mut host.nics[0].neighbours)[0].switch = switch;
    }),
    ("cpu-preference", Severity::Notice, |host| {
        host.processors.drivers = Known([("intel_pstate".to_owned(), 8)].into());
        host.processors.preferences = Known([("balance_power".to_owned(), 8)].into());
    }),
    ("numa-balancing", Severity::Notice, |host| {
        set(host, "kernel.numa_balancing", "1");
    }),
    ("cpu-sleep", Severity::Notice, |host| {
        value(&mut host.waking).wished_us = None;
    }),
    ("cpu-sleep", Severity::Notice, |host| {
        value(&mut host.waking).held_us = Fact::unknown("/dev/cpu_dma_latency takes no request");
    }),
    ("cpu-governor", Severity::Warning, |host| {
        host.processors.governors = Known([("powersave".to_owned(), 8)].into());
    }),
    ("tcp-buffers", Severity::Notice, |host| {
        // The kernel's own: 16.8 Gbit/s a connection, and eight of them fill the line.
        set(host, "net.ipv4.tcp_wmem", "4096 16384 4194304");
    }),
    ("tcp-buffers", Severity::Warning, |host| {
        set(host, "net.ipv4.tcp_wmem", "4096 16384 262144");
    }),
    ("tcp-timestamps", Severity::Notice, |host| {
        set(host, "net.ipv4.tcp_timestamps", "0");
    }),
    ("tcp-congestion", Severity::Notice, |host| {
        set(host, "net.ipv4.tcp_congestion_control", "lp");
    }),
    ("net-backlog", Severity::Notice, |host| {
        value(&mut host.softnet).dropped = 1000;
    }),
    ("net-budget", Severity::Notice, |host| {
        // Of each adapter so few that `link-errors` has nothing to say.
        for nic in &mut host.nics {
            let counters = value(&mut nic.counters);
            (counters.received, counters.receive_missed) = (1_000_000, 60);
        }
        value(&mut host.softnet).squeezed = 1;
    }),
    ("tcp-window", Severity::Critical, |host| {
        set(host, "net.ipv4.tcp_window_scaling", "0");
    }),
];

/// The same of two hosts: what is wrong with the second one.
pub const PAIRS: &[(&str, Severity, Spoil)] = &[
    ("pair-address", Severity::Critical, |host| {
        host.nics[0].addresses = vec!["10.0.1.1/24".parse().unwrap()];
    }),
    ("pair-mtu", Severity::Warning, |host| {
        host.nics[0].mtu = 8000
    }),
    ("pair-speed", Severity::Warning, |host| {
        *link(host) = Link {
            speed: Some(gbit(10)),
            supported: [gbit(10)].into(),
            advertised: [gbit(10)].into(),
            ..link(host).clone()
        };
    }),
    ("pair-adapter", Severity::Notice, |host| {
        has_firmware(&mut host.nics[0], "26.31.2006");
    }),
    ("pair-adapter", Severity::Notice, |host| {
        // Not the one that came with the kernel.
        host.nics[0].driver_version = Known("24.10-0.7.0".into());
    }),
    ("pair-dcb", Severity::Warning, |host| {
        // As its switch has it.
        let dcb = value(&mut host.nics[0].dcb);
        for pfc in [&mut dcb.pfc, &mut dcb.peer_pfc] {
            pfc.as_mut().unwrap().enabled = [4].into();
        }
        for apps in [&mut dcb.apps, &mut dcb.peer_apps] {
            apps[0].priority = 4;
        }
    }),
    ("pair-dcb", Severity::Warning, |host| {
        let dcb = value(&mut host.nics[0].dcb);
        for ets in [&mut dcb.ets, &mut dcb.peer_ets] {
            ets.as_mut().unwrap().shares[..2].copy_from_slice(&[60, 40]);
        }
    }),
    ("pair-dcbx", Severity::Notice, |host| {
        by_firmware(host, DcbxVersion::Ieee);
    }),
    ("pair-rdma", Severity::Notice, |host| {
        rdma(host).layer = "InfiniBand".into();
    }),
    ("pair-rdma", Severity::Notice, |host| {
        rdma(host).default_kind = Some("IB/RoCE v1".into());
    }),
    ("pair-rdma", Severity::Notice, |host| {
        rdma(host).default_tos = Some(0);
    }),
    ("pair-switch", Severity::Notice, |host| {
        value(&mut host.nics[0].neighbours)[0].switch = "02:00:00:00:00:ff".into();
    }),
    ("pair-qemu", Severity::Warning, |host| {
        value(&mut host.offers).version = Some("7.2.0".into());
    }),
    ("pair-cpu", Severity::Notice, |host| {
        let hardware = value(&mut host.offers).hardware.as_mut();
        hardware.unwrap().features.remove("avx2");
    }),
    ("pair-cpu", Severity::Notice, |host| {
        value(&mut host.offers).processor = "AMD EPYC 7713".into();
    }),
    ("pair-clock", Severity::Notice, |host| {
        host.clock = Known(Clock {
            ahead_ms: -5000,
            doubt_ms: 3,
        });
    }),
    ("pair-clock", Severity::Warning, |host| {
        host.clock = Known(Clock {
            ahead_ms: 3_600_000,
            doubt_ms: 3,
        });
    }),
];
