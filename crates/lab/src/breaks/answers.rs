//! What ethtool would tell of an adapter of 25 Gbit/s, by the numbers of `include/uapi/linux/ethtool_netlink.h`.

use drover_host::{attribute, bitset};
use serde_json::{Value, json};

use super::told::{number, shown};

/// What its driver answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    /// Of its link now, in Mbit/s.
    pub(super) speed: u32,
    /// What it can have, of those below.
    pub(super) most: u32,
    /// The rate was set by hand.
    pub(super) by_hand: bool,
    /// It carries one way at a time.
    pub(super) half: bool,
    /// Queues for both directions, of eight.
    pub(super) queues: u32,
    /// Places for packets in each, of 8192.
    pub(super) ring: u32,
    /// How many microseconds an interrupt waits for more packets; none where it follows what arrives.
    pub(super) wait: Option<u32>,
    /// What of [`FEATURES`] is off.
    pub(super) off: &'static [&'static str],
    /// It joins what arrives itself.
    pub(super) lro: bool,
    /// Queues that what arrives is handed to.
    pub(super) spread: u32,
    /// Pause frames are sent and obeyed.
    pub(super) pause: bool,
}

/// One with nothing wrong.
pub(super) const WHOLE: Answers = Answers {
    speed: 25_000,
    most: 25_000,
    by_hand: false,
    half: false,
    queues: 4,
    ring: 1024,
    wait: None,
    off: &[],
    lro: false,
    spread: 4,
    pause: false,
};

/// Microseconds that an interrupt waits for more packets, as mlx5 has it from its start.
const USUAL_WAIT: u32 = 8;

/// Places of the table by which packets are handed to queues.
const PLACES: u32 = 128;

/// What it does for the processors.
const FEATURES: [&str; 6] = [
    "rx-checksum",
    "rx-gro",
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
];

const LRO: &str = "rx-lro";

/// Rates and the modes that have them.
const MODES: [(u32, &str); 3] = [
    (1000, "1000baseKX/Full"),
    (10_000, "10000baseCR/Full"),
    (25_000, "25000baseCR/Full"),
];

impl Answers {
    /// The answers, as a captured host has them.
    pub(super) fn told(&self) -> Value {
        json!({
            "linkmodes": shown(&self.linkmodes()),
            "features": shown(&self.features()),
            "rings": shown(&[number(2, 8192), number(6, self.ring)].concat()),
            "channels": shown(&[number(5, 8), number(9, self.queues)].concat()),
            "coalesce": shown(&self.coalescing()),
            "pause": shown(&[(2, false), (3, self.pause), (4, self.pause)].map(switch).concat()),
            "rss": shown(&attribute(4, &self.table())),
            "fec": shown(&[bitset(2, true, &[("RS", true)]), attribute(3, &[1])].concat()),
        })
    }

    fn coalescing(&self) -> Vec<u8> {
        let adaptive = attribute(11, &[self.wait.is_none().into()]);
        [number(2, self.wait.unwrap_or(USUAL_WAIT)), adaptive].concat()
    }

    fn table(&self) -> Vec<u8> {
        let places = (0..PLACES).map(|place| place % self.spread.max(1));
        places.flat_map(u32::to_ne_bytes).collect()
    }

    fn linkmodes(&self) -> Vec<u8> {
        let can = MODES.iter().filter(|(rate, _)| *rate <= self.most);
        let offers = |(rate, mode): &(u32, &'static str)| {
            let offered = !self.by_hand || *rate == self.speed;
            (*mode, offered)
        };
        let ours: Vec<_> = can.map(offers).collect();
        let ours = [&[("Autoneg", !self.by_hand)], &ours[..]].concat();
        let peer = MODES.map(|(_, mode)| (mode, true));
        [
            attribute(2, &[(!self.by_hand).into()]),
            bitset(3, true, &ours),
            bitset(4, false, &peer),
            number(5, self.speed),
            attribute(6, &[(!self.half).into()]),
        ]
        .concat()
    }

    fn features(&self) -> Vec<u8> {
        let can = FEATURES.iter().chain([&LRO]).map(|name| (*name, true));
        let can: Vec<_> = can.collect();
        let on = FEATURES.iter().filter(|name| !self.off.contains(*name));
        let on: Vec<_> = on
            .chain(self.lro.then_some(&LRO))
            .map(|name| (*name, true))
            .collect();
        [bitset(2, false, &can), bitset(4, false, &on)].concat()
    }
}

fn switch((kind, is_on): (u16, bool)) -> Vec<u8> {
    attribute(kind, &[is_on.into()])
}
