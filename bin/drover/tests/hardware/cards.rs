//! Cards, by what their drivers' documentation says that they tell.

use serde_json::Value;

use super::netlink::{attribute, bitset, nothing, number, set, told};

/// Where a card is.
#[derive(Clone, Copy)]
pub struct Slot {
    pub address: &'static str,
    /// Its node (`numa_node`), and the processors near it.
    pub node: i32,
    pub near: &'static str,
    /// What its link has, and can have.
    pub speed: &'static str,
    pub lanes: &'static str,
}

/// The first slot of two sockets of four cores.
pub const FIRST: Slot = Slot {
    address: "0000:3b:00.0",
    node: 0,
    near: "0-3",
    speed: "16.0 GT/s PCIe",
    lanes: "16",
};

/// A card, and what is told of it.
pub struct Card {
    pub name: &'static str,
    pub address: &'static str,
    pub driver: &'static str,
    pub model: &'static str,
    pub mtu: u32,
    pub carrier: bool,
    pub rdma: Option<&'static str>,
    pub slot: Slot,
    /// One for each queue: by which processors it may be taken, and by which it is.
    pub interrupts: Vec<(String, u32)>,
    /// By the names of questions in `told.json`.
    pub ethtool: Vec<(&'static str, Value)>,
    /// Files beside those that every card has.
    pub files: Vec<(String, String)>,
    /// What its driver says of itself.
    pub drvinfo: Value,
    /// Data centre bridging, versions and health by devlink, and what neighbours say.
    pub dcb: Value,
    /// Who negotiates of it, and what is told by the language of before the standard.
    pub cee: Value,
    pub versions: Value,
    pub health: Value,
    pub neighbours: Value,
}

impl Card {
    /// Says something else to a question.
    pub fn saying(mut self, question: &'static str, answer: Value) -> Self {
        self.ethtool.retain(|(other, _)| *other != question);
        self.ethtool.push((question, answer));
        self
    }

    /// Queues, each with an interrupt that its processor alone may take, as drivers begin.
    pub fn queues(mut self, most: u32, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.interrupts = cpus.into_iter().map(|cpu| (cpu.to_string(), cpu)).collect();
        let queues = u32::try_from(self.interrupts.len()).unwrap();
        self.saying("channels", told(&[number(5, most), number(9, queues)]))
            .saying("rss", told(&[attribute(4, &table(128, queues))]))
    }

    /// What every card here tells.
    pub fn new(name: &'static str, driver: &'static str, model: &'static str) -> Self {
        let features = [
            ("rx-checksum", true),
            ("rx-gro", true),
            ("tx-checksum-ip-generic", true),
            ("tx-generic-segmentation", true),
            ("tx-scatter-gather", true),
            ("tx-tcp-segmentation", true),
        ];
        Self {
            name,
            address: "10.0.1.1/24",
            driver,
            model,
            mtu: 9000,
            carrier: true,
            rdma: None,
            slot: FIRST,
            interrupts: (0..4).map(|cpu| (cpu.to_string(), cpu)).collect(),
            ethtool: vec![
                ("linkstate", told(&[attribute(2, &[1])])),
                (
                    "pause",
                    told(&[attribute(2, &[0]), attribute(3, &[0]), attribute(4, &[0])]),
                ),
                ("rss", told(&[attribute(4, &table(128, 4))])),
                (
                    "features",
                    told(&[bitset(2, true, &features), bitset(4, false, &features)]),
                ),
                ("rings", told(&[number(2, 8192), number(6, 1024)])),
                ("channels", told(&[number(5, 63), number(9, 4)])),
                ("coalesce", told(&[attribute(11, &[1])])),
                ("module_upper", nothing("its kind of module has none")),
            ],
            files: Vec::new(),
            drvinfo: nothing("what read this host is older, and did not ask"),
            dcb: nothing("its driver does not tell"),
            cee: nothing("its driver does not tell"),
            versions: nothing("its driver does not tell"),
            health: nothing("its driver does not tell"),
            neighbours: nothing("nothing here keeps what switches say by LLDP"),
        }
    }
}

/// Places for queues in turn.
pub fn table(places: u32, queues: u32) -> Vec<u8> {
    let places = (0..places).map(|place| place % queues);
    places.flat_map(u32::to_ne_bytes).collect()
}

/// `LINKMODES`: whether it negotiates, its modes and those of the other end, and the rate in Mbit/s.
pub fn linkmodes(
    negotiates: bool,
    ours: &[(&str, bool)],
    peer: &[&str],
    mbit: Option<u32>,
) -> Value {
    let mut parts = vec![attribute(2, &[u8::from(negotiates)]), bitset(3, true, ours)];
    if !peer.is_empty() {
        parts.push(set(4, peer));
    }
    parts.push(number(5, mbit.unwrap_or(u32::MAX)));
    parts.push(attribute(6, &[if mbit.is_some() { 1 } else { 0xff }]));
    told(&parts)
}

/// 128 bytes of a module with these in them, as `MODULE_EEPROM` has them.
pub fn memory(parts: &[(usize, &[u8])]) -> Value {
    let mut memory = [0; 128];
    for (at, bytes) in parts {
        memory[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    told(&[attribute(7, &memory)])
}

const MODES_25G: [(&str, bool); 6] = [
    ("Autoneg", true),
    ("FIBRE", true),
    ("1000baseKX/Full", true),
    ("10000baseCR/Full", true),
    ("25000baseCR/Full", true),
    ("25000baseSR/Full", true),
];

/// ConnectX-4 Lx for 25 Gbit/s with a copper cable of 2 m (SFF-8472, 25GBASE-CR).
pub fn connectx4() -> Card {
    let peer = ["Autoneg", "10000baseCR/Full", "25000baseCR/Full"];
    let cable = memory(&[
        (0, &[0x03, 0x04, 0x21]),
        (8, &[1 << 2]),
        (12, &[0xff]),
        (18, &[2]),
        (20, b"ACME            "),
        (36, &[0x0d]),
        (40, b"DAC-25-2M       "),
        (66, &[0x67]),
    ]);
    Card::new("ens1f0np0", "mlx5_core", "15B3:1015")
        .saying("linkinfo", told(&[attribute(2, &[0x05])]))
        .saying(
            "linkmodes",
            linkmodes(true, &MODES_25G, &peer, Some(25_000)),
        )
        .saying(
            "fec",
            told(&[set(2, &["RS", "BASER"]), attribute(3, &[1]), number(4, 50)]),
        )
        .saying("module_lower", cable)
}

/// The same on a switch's port that somebody forced to 10 Gbit/s: nothing negotiates there, and there is no link.
pub fn connectx4_on_a_forced_port() -> Card {
    let down = [attribute(2, &[0]), attribute(5, &[0]), attribute(6, &[1])];
    Card {
        carrier: false,
        ..connectx4()
            .saying("linkmodes", linkmodes(true, &MODES_25G, &[], None))
            .saying("linkstate", told(&down))
    }
}

/// E810 for 25 Gbit/s with a cable for SFP+, which is told by its nominal rate alone.
pub fn e810_with_a_cable_for_10g() -> Card {
    let cable = memory(&[
        (0, &[0x03, 0x04, 0x21]),
        (8, &[1 << 2]),
        (12, &[103]),
        (18, &[3]),
        (20, b"ACME            "),
        (40, b"DAC-10-3M       "),
        (60, &[1]),
    ]);
    Card::new("ens2f0", "ice", "8086:159B")
        .saying("linkinfo", told(&[attribute(2, &[0x05])]))
        .saying("linkmodes", linkmodes(false, &MODES_25G, &[], Some(10_000)))
        .saying(
            "fec",
            told(&[set(2, &["RS", "BASER"]), attribute(3, &[1]), number(4, 49)]),
        )
        .saying("module_lower", cable)
}

/// X550 for 10GBASE-T on a switch of 1 Gbit/s. What is plugged into such a port has no memory.
pub fn x550_on_a_switch_of_1g() -> Card {
    let modes = [
        ("Autoneg", true),
        ("TP", true),
        ("100baseT/Full", true),
        ("1000baseT/Full", true),
        ("10000baseT/Full", true),
    ];
    let peer = ["Autoneg", "100baseT/Full", "1000baseT/Full"];
    Card::new("eno1", "ixgbe", "8086:1563")
        .saying("linkinfo", told(&[attribute(2, &[0x00])]))
        .saying("linkmodes", linkmodes(true, &modes, &peer, Some(1000)))
        .saying("fec", nothing("its driver does not tell"))
        .saying("module_lower", nothing("its driver does not tell"))
}

/// ConnectX-5 for 100 Gbit/s with a copper cable of 3 m (SFF-8636, 100GBASE-CR4).
pub fn connectx5() -> Card {
    let modes = [
        ("Autoneg", true),
        ("Backplane", true),
        ("40000baseCR4/Full", true),
        ("50000baseCR2/Full", true),
        ("100000baseCR4/Full", true),
    ];
    let peer = ["Autoneg", "40000baseCR4/Full", "100000baseCR4/Full"];
    let upper = memory(&[
        (0, &[0x11]),
        (18, &[3]),
        (19, &[0xa0]),
        (20, b"ACME            "),
        (40, b"DAC-100-3M      "),
        (64, &[0x0b]),
    ]);
    Card::new("ens3np0", "mlx5_core", "15B3:1017")
        .saying("linkinfo", told(&[attribute(2, &[0x05])]))
        .saying("linkmodes", linkmodes(true, &modes, &peer, Some(100_000)))
        .saying(
            "fec",
            told(&[set(2, &["RS"]), attribute(3, &[1]), number(4, 50)]),
        )
        .saying("module_lower", memory(&[(0, &[0x11])]))
        .saying("module_upper", upper)
}
