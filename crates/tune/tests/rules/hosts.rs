//! Hosts as drivers tell of them, and how they are made worse.

use std::collections::{BTreeMap, BTreeSet};

use crate::guests;
use Fact::Known;
use drover_tune::Report;
use drover_tune::facts::{
    App, Bond, Buffers, Channels, Clock, Coalescing, Core, Counters, Dcb, Dcbx, DcbxVersion, Down,
    Duplex, Ets, Fact, Features, Fec, Frequencies, HeardBy, Host, Interrupt, Kind, Link, Medium,
    Modes, Module, Neighbour, Nic, Node, Pause, Pci, Pfc, Policy, Port, Processors, Rdma, Rings,
    Softnet, Spread, Steering, Teller, Waking,
};
use drover_types::{BitRate, CpuSet};

pub fn gbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000_000)
}

pub fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// An adapter for 25 Gbit/s on the first node, as its driver tells of it.
pub fn adapter(name: &str, address: &str) -> Nic {
    let features = words(&[
        "rx-checksum",
        "rx-gro",
        "tx-checksum-ip-generic",
        "tx-generic-segmentation",
        "tx-scatter-gather",
        "tx-tcp-segmentation",
    ]);
    let rates: BTreeSet<BitRate> = [gbit(1), gbit(10), gbit(25)].into();
    Nic {
        name: name.into(),
        kind: Kind::Adapter,
        up: true,
        carrier: true,
        addresses: vec![address.parse().unwrap()],
        mtu: 9000,
        lower: Vec::new(),
        driver: Known("mlx5_core".into()),
        driver_version: Known("6.12.48".into()),
        firmware: Known("26.35.1012".into()),
        versions: [(Teller::Driver, "26.35.1012".to_owned())].into(),
        model: Known("15B3:1015".into()),
        link: Known(Link {
            speed: Some(gbit(25)),
            duplex: Some(Duplex::Full),
            negotiates: Some(true),
            by_hand: false,
            supported: rates.clone(),
            advertised: rates.clone(),
            peer: rates.clone(),
            modes: Modes::default(),
        }),
        port: Known(Port::DirectAttach),
        module: Known(Module {
            form: "SFP28".into(),
            medium: Medium::PassiveCopper,
            complies: "25GBASE-CR CA-25G-N".into(),
            carries: rates,
            metres: Some(2),
            vendor: "ACME".into(),
            part: "DAC-25-2M".into(),
        }),
        down: Known(None),
        fec: Known(Fec {
            automatic: true,
            configured: words(&["RS", "BASER"]),
            active: Some("RS".into()),
            uncorrected: Some(0),
        }),
        pause: Known(Pause {
            sent: Some(0),
            received: Some(0),
            ..Pause::default()
        }),
        dcb: Known(dcb()),
        neighbours: Known(vec![Neighbour {
            switch: format!(
                "02:00:00:00:00:{:02x}",
                name.len() + usize::from(name.ends_with('1'))
            ),
            name: Some(format!("leaf-{name}")),
            port: "Ethernet1/7".into(),
            frame: Some(9216),
            negotiates: Some(true),
            dcbx: BTreeSet::new(),
            heard_by: Some(HeardBy::Networkd),
        }]),
        listening: None,
        spread: Known(Spread {
            places: (0..4).map(|queue| (queue, 32)).collect(),
        }),
        health: Known(Vec::new()),
        rdma: Some(Known(Rdma {
            device: "mlx5_0".into(),
            port: 1,
            state: "ACTIVE".into(),
            physical: "LinkUp".into(),
            layer: "Ethernet".into(),
            kinds: [("IB/RoCE v1".to_owned(), 2), ("RoCE v2".to_owned(), 2)].into(),
            lost: [("packet_seq_err".to_owned(), 0)].into(),
            default_kind: Some("RoCE v2".into()),
            default_tos: Some(106),
            downed: Some(0),
            waited: None,
            sent: None,
            rate: None,
            lanes: None,
        })),
        carrier_changes: Known(2),
        channels: Known(Channels {
            combined: 4,
            combined_most: 8,
        }),
        qdisc: Known("mq".into()),
        rings: Known(Rings {
            receive: 1024,
            receive_most: 8192,
        }),
        features: Known(Features {
            active: features.clone(),
            changeable: features.into_iter().chain(["rx-lro".to_owned()]).collect(),
        }),
        coalescing: Known(Coalescing {
            adaptive_receive: Some(true),
            receive_micros: Some(8),
            receive_packets: Some(128),
        }),
        interrupts: Known(
            (0..4)
                .map(|queue| Interrupt {
                    number: 60 + queue,
                    cpus: cpus(&queue.to_string()),
                    effective: cpus(&queue.to_string()),
                    fixed: false,
                })
                .collect(),
        ),
        steering: Known(Steering {
            receive: BTreeMap::new(),
            receive_queues: 4,
            send: (0..4)
                .map(|queue| (format!("tx-{queue}"), cpus(&queue.to_string())))
                .collect(),
            send_queues: 4,
        }),
        pci: Known(Pci {
            slot: "0000:3b:00.0".into(),
            speed: Some(8000),
            speed_most: Some(8000),
            width: Some(8),
            width_most: Some(8),
            near: Some(cpus("0-3")),
        }),
        bond: None,
        counters: Known(Counters {
            received: 10_000_000,
            sent: Some(10_000_000),
            send_errors: Some(0),
            ..Counters::default()
        }),
    }
}

/// Priority 3 is held back alone, and has half of the line, here and at the switch.
fn dcb() -> Dcb {
    let pfc = Pfc {
        enabled: [3].into(),
        ..Pfc::default()
    };
    let ets = Ets {
        willing: false,
        shares: vec![50, 50, 0, 0, 0, 0, 0, 0],
        algorithms: vec![2, 2, 0, 0, 0, 0, 0, 0],
        classes: vec![0, 0, 0, 1, 0, 0, 0, 0],
    };
    Dcb {
        pfc: Some(pfc.clone()),
        ets: Some(ets.clone()),
        peer_pfc: Some(pfc),
        peer_ets: Some(ets),
        rates: Some(vec![0; 8]),
        apps: vec![app(3, 4791, 3)],
        peer_apps: vec![app(4, 4791, 3)],
        dcbx: Some(Dcbx {
            host: true,
            versions: [DcbxVersion::Ieee].into(),
            ..Dcbx::default()
        }),
        buffers: Some(Buffers {
            of_priority: vec![0, 0, 0, 1, 2, 0, 0, 0],
            sizes: vec![20_000, 100_000, 100_000, 0, 0, 0, 0, 0],
        }),
    }
}

/// Its first adapter's firmware agrees with the switch, in that language.
pub fn by_firmware(host: &mut Host, version: DcbxVersion) {
    let dcbx = value(&mut host.nics[0].dcb).dcbx.as_mut().unwrap();
    (dcbx.host, dcbx.managed) = (false, true);
    dcbx.versions = [version].into();
}

/// The switch at its first adapter says in this language what to hold back.
pub fn switch_says(host: &mut Host, version: DcbxVersion) {
    value(&mut host.nics[0].neighbours)[0].dcbx = [version].into();
}

/// Packets by what is in them, and their priority.
pub fn app(selector: u8, protocol: u16, priority: u8) -> App {
    App {
        selector,
        protocol,
        priority,
    }
}

/// What stands on others.
pub fn on_top(name: &str, kind: Kind, lower: &[&str]) -> Nic {
    Nic {
        kind,
        lower: lower.iter().map(|name| (*name).to_owned()).collect(),
        addresses: Vec::new(),
        ..adapter(name, "10.9.9.9/24")
    }
}

/// A policy of cpufreq with a governor, and a preference where its hardware chooses.
pub fn policy(governor: &str, preference: Option<&str>) -> Policy {
    Policy {
        governor: governor.into(),
        available: words(&["performance", "powersave", "schedutil"]),
        preference: preference.map(str::to_owned),
    }
}

/// Two sockets of four cores, and two adapters.
pub fn healthy(name: &str, number: u8) -> Host {
    let settings = [
        ("kernel.numa_balancing", "0"),
        ("kernel.osrelease", "6.12.48"),
        ("net.core.netdev_budget", "300"),
        ("net.core.netdev_budget_usecs", "2000"),
        ("net.core.netdev_max_backlog", "1000"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic lp"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096 16384 33554432"),
    ];
    Host {
        name: name.into(),
        uptime_s: Known(3600),
        boot: Known("0f7b1c9e".into()),
        processors: Processors {
            online: Known(cpus("0-7")),
            housekeeping: Known(cpus("0-7")),
            cores: Known(
                (0..8)
                    .map(|cpu| {
                        let (package, core) = (cpu / 4, cpu % 4);
                        (cpu, Core { package, core })
                    })
                    .collect(),
            ),
            nodes: Known(
                [(0, "0-3", [10, 21]), (1, "4-7", [21, 10])]
                    .map(|(number, list, distances)| Node {
                        number,
                        cpus: cpus(list),
                        distances: (0..).zip(distances).collect(),
                    })
                    .into(),
            ),
            governors: Known([("performance".to_owned(), 8)].into()),
            drivers: Known([("acpi-cpufreq".to_owned(), 8)].into()),
            preferences: Fact::unknown("no CPU has it"),
            policies: Known(
                (0..8)
                    .map(|cpu| (cpu, policy("performance", None)))
                    .collect(),
            ),
            frequencies: Known(Frequencies {
                least: 1_200_000,
                most: 3_600_000,
            }),
            idle: Known([("C1E".to_owned(), 10), ("C6".to_owned(), 133)].into()),
        },
        nics: vec![
            adapter("ens1f0", &format!("10.0.1.{number}/24")),
            adapter("ens1f1", &format!("10.0.2.{number}/24")),
        ],
        settings: settings
            .map(|(name, value)| (name.to_owned(), Known(value.to_owned())))
            .into(),
        softnet: Known(Softnet {
            dropped: 0,
            squeezed: 0,
        }),
        irqbalance: Known(false),
        lldpad: Known(false),
        clock: Known(Clock::default()),
        memory: guests::memory(),
        waking: Known(Waking {
            wished_us: Some(20),
            held_us: Known(2_000_000_000),
        }),
        offers: Known(guests::offers()),
        guests: Known(Vec::new()),
        domains: Known(Vec::new()),
    }
}

pub fn value<T>(fact: &mut Fact<T>) -> &mut T {
    match fact {
        Known(value) => value,
        Fact::Unknown(why) => panic!("{why}"),
    }
}

pub fn link(host: &mut Host) -> &mut Link {
    value(&mut host.nics[0].link)
}

/// By whoever tells it.
pub fn has_firmware(nic: &mut Nic, version: &str) {
    nic.firmware = Known(version.to_owned());
    nic.versions = [(Teller::Driver, version.to_owned())].into();
}

/// The switch's port, too.
pub fn by_hand(host: &mut Host) {
    value(&mut host.nics[0].neighbours)[0].negotiates = Some(false);
    link(host).negotiates = Some(false);
    link(host).by_hand = true;
}

/// Its first interface has no link, for this reason.
pub fn is_down(host: &mut Host, state: &str, detail: Option<&str>) {
    host.nics[0].carrier = false;
    link(host).speed = None;
    host.nics[0].down = Known(Some(Down {
        state: state.into(),
        detail: detail.map(str::to_owned),
    }));
}

pub fn rdma(host: &mut Host) -> &mut Rdma {
    value(host.nics[0].rdma.as_mut().unwrap())
}

pub fn set(host: &mut Host, name: &str, to: &str) {
    host.settings.insert(name.into(), Known(to.into()));
}

pub fn bonded(host: &mut Host, mode: &str, hash: &str, active: &[&str]) {
    let mut bond = on_top("bond0", Kind::Bond, &["ens1f0", "ens1f1"]);
    bond.addresses = std::mem::take(&mut host.nics[0].addresses);
    host.nics[1].addresses.clear();
    bond.bond = Some(Known(Bond {
        mode: mode.into(),
        hash: Some(hash.into()),
        active: active.iter().map(|name| (*name).to_owned()).collect(),
        carrying: (mode == "active-backup").then(|| active[0].to_owned()),
        aggregator: None,
        aggregators: BTreeMap::new(),
    }));
    host.nics.push(bond);
}

pub fn names(report: &Report) -> Vec<&str> {
    let names = report.findings.iter().map(|finding| finding.rule.as_str());
    names.collect()
}
