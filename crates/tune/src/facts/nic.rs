//! Facts of a network interface.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{BitRate, CpuSet, IpNetwork};
use serde::{Deserialize, Serialize};

use super::{
    Dcb, Down, Fact, Listening, Modes, Module, Neighbour, Pause, Port, Rdma, Reporter, Spread,
};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// The kernel's name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Administratively up.
    pub up: bool,
    /// It has a carrier.
    pub carrier: bool,
    /// Its addresses.
    pub addresses: Vec<IpNetwork>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Interfaces that it stands on: members of a bond, ports of a bridge, the parent of a VLAN.
    pub lower: Vec<String>,
    /// Module of the kernel that drives it.
    pub driver: Fact<String>,
    /// The version that its driver says of itself: the kernel's, where it came with that.
    #[serde(default)]
    pub driver_version: Fact<String>,
    /// Version of its firmware.
    pub firmware: Fact<String>,
    /// The same by who tells it, each in words of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<Teller, String>,
    /// `vendor:device` of its hardware, in hexadecimal digits.
    pub model: Fact<String>,
    /// What is agreed on with the other end of its cable.
    pub link: Fact<Link>,
    /// What its cable is put into.
    #[serde(default)]
    pub port: Fact<Port>,
    /// The cable or module that is in it.
    #[serde(default)]
    pub module: Fact<Module>,
    /// Why it has no carrier; none where it has one, or where nothing tells.
    #[serde(default)]
    pub down: Fact<Option<Down>>,
    /// How errors on the cable are corrected.
    pub fec: Fact<Fec>,
    /// Whether pause frames hold packets back.
    #[serde(default)]
    pub pause: Fact<Pause>,
    /// What it and the switch do when the line is full.
    #[serde(default)]
    pub dcb: Fact<Dcb>,
    /// Who is at the other end of its cable.
    #[serde(default)]
    pub neighbours: Fact<Vec<Neighbour>>,
    /// Since when the host's agent listens for them; none where it does not, or was not asked.
    #[serde(default)]
    pub listening: Option<Listening>,
    /// How often the carrier went or came (`carrier_changes`).
    pub carrier_changes: Fact<u64>,
    /// Queues of the hardware.
    pub channels: Fact<Channels>,
    /// Which of them packets are handed to.
    #[serde(default)]
    pub spread: Fact<Spread>,
    /// What packets go through before they come to it: its queueing discipline, by the kernel's name.
    #[serde(default)]
    pub qdisc: Fact<String>,
    /// Places for packets.
    pub rings: Fact<Rings>,
    /// What the hardware, or the kernel, does for the stack.
    pub features: Fact<Features>,
    /// How long interrupts are held back.
    pub coalescing: Fact<Coalescing>,
    /// What wakes processors for it.
    pub interrupts: Fact<Vec<Interrupt>>,
    /// Processors that the kernel, not the hardware, hands packets to.
    pub steering: Fact<Steering>,
    /// Its place on the bus.
    pub pci: Fact<Pci>,
    /// What the adapter's parts tell of their health.
    #[serde(default)]
    pub health: Fact<Vec<Reporter>>,
    /// Its RDMA device, if it has one.
    #[serde(default)]
    pub rdma: Option<Fact<Rdma>>,
    /// How its members are used, if it is a bond.
    pub bond: Option<Fact<Bond>>,
    /// What went wrong since it was made.
    pub counters: Fact<Counters>,
}

impl Nic {
    /// It has an address that somebody gave it, and not only one that every link has by itself.
    #[must_use]
    pub fn is_addressed(&self) -> bool {
        !self.addresses.iter().all(IpNetwork::is_link_local)
    }
}

/// Who tells the version of an adapter's firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Teller {
    /// Its driver (`ETHTOOL_GDRVINFO`).
    Driver,
    /// Its driver by devlink, where kernel and driver have that.
    Devlink,
    /// Its RDMA device, where that driver is loaded.
    Rdma,
}

impl Teller {
    /// All of them, first those that most adapters have.
    pub const ALL: [Self; 3] = [Self::Driver, Self::Devlink, Self::Rdma];
}

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It has hardware.
    Adapter,
    /// Several adapters as one: a bond, or a team.
    Bond,
    /// A switch in the kernel.
    Bridge,
    /// A part of another interface.
    Vlan,
    /// Anything else that has no hardware.
    Virtual,
}

/// Both ways at once, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplex {
    /// One at a time.
    Half,
    /// Both.
    Full,
}

/// Rates and modes of a link (ethtool's `LINKMODES`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Now; none without carrier.
    pub speed: Option<BitRate>,
    /// Now.
    pub duplex: Option<Duplex>,
    /// Both ends agree by themselves; none where there is nothing to agree on.
    pub negotiates: Option<bool>,
    /// The rate was set by hand: it could negotiate, and does not offer to. Some drivers say that they negotiate only once they
    /// have, so that [`Self::negotiates`] does not tell it.
    #[serde(default)]
    pub by_hand: bool,
    /// Rates that this end can have, over any of its kinds of cable.
    pub supported: BTreeSet<BitRate>,
    /// Rates that it offers.
    pub advertised: BTreeSet<BitRate>,
    /// Rates that the other end offers; empty where it is not known.
    pub peer: BTreeSet<BitRate>,
    /// The same by name.
    #[serde(default)]
    pub modes: Modes,
}

/// Error correction (ethtool's `FEC`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fec {
    /// It is chosen by the hardware.
    pub automatic: bool,
    /// What it may choose from, or what is set by hand, such as `RS`; nothing where errors are not corrected.
    pub configured: BTreeSet<String>,
    /// What is in use, by the same names, or `None`; none where it is not told.
    #[serde(default)]
    pub active: Option<String>,
    /// Blocks that arrived with more errors than it can correct; none where they are not counted.
    #[serde(default)]
    pub uncorrected: Option<u64>,
}

/// Queues (ethtool's `CHANNELS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// For both directions.
    pub combined: u32,
    /// Most of them.
    pub combined_most: u32,
}

/// Places in the rings (ethtool's `RINGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// For packets that arrive.
    pub receive: u32,
    /// Most of them.
    pub receive_most: u32,
}

/// What is done for the stack (ethtool's `FEATURES`), by the kernel's names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// On.
    pub active: BTreeSet<String>,
    /// Can be turned on and off.
    pub changeable: BTreeSet<String>,
}

/// When an interrupt is raised for what arrives (ethtool's `COALESCE`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalescing {
    /// By how much arrives; none where the driver cannot.
    pub adaptive_receive: Option<bool>,
    /// So many microseconds after a packet; 0 where time does not count, none where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_micros: Option<u32>,
    /// After so many packets; 0 where their number does not count, none where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_packets: Option<u32>,
}

/// An interrupt of an adapter (`device/msi_irqs`, of virtio the parent's).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Which processors may take it.
    pub cpus: CpuSet,
    /// Which of them the kernel has it taken by; nothing where it does not tell.
    #[serde(default)]
    pub effective: CpuSet,
    /// The kernel spreads it by itself and lets nobody move it (`IRQD_AFFINITY_MANAGED`), as far as that is told: by who may write its file
    /// since Linux 6.13, by what it refused a change before.
    #[serde(default)]
    pub fixed: bool,
}

impl Interrupt {
    /// Where it is taken, as far as the kernel tells.
    #[must_use]
    pub fn taken_by(&self) -> &CpuSet {
        if self.effective.is_empty() {
            &self.cpus
        } else {
            &self.effective
        }
    }
}

/// Steering by the kernel (`queues/rx-*/rps_cpus`, `queues/tx-*/xps_cpus`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Processors that packets are handed to; by queue, those with none left out.
    pub receive: BTreeMap<String, CpuSet>,
    /// Queues for what arrives.
    pub receive_queues: u32,
    /// Processors that send by a queue alone; by queue, those with none left out.
    #[serde(default)]
    pub send: BTreeMap<String, CpuSet>,
    /// Queues for what leaves, of the first class of traffic where there are several.
    #[serde(default)]
    pub send_queues: u32,
}

/// The slot of an adapter (`/sys/bus/pci/devices`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pci {
    /// `domain:bus:device.function`.
    pub slot: String,
    /// Now, in millions of transfers a second on each lane; none where it is not told.
    pub speed: Option<u32>,
    /// What the adapter can.
    pub speed_most: Option<u32>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Lanes that the adapter has.
    pub width_most: Option<u32>,
    /// Processors near it.
    pub near: Option<CpuSet>,
}

/// Devices on a bus of their own say of themselves what is PCI's least, in millions of transfers a second and lanes.
const PCI_LEAST: (Option<u32>, Option<u32>) = (Some(2500), Some(1));

impl Pci {
    /// Whether it has no slot that limits it, as adapters in a chipset: now and at most it tells PCI's least.
    #[must_use]
    pub fn limits_nothing(&self) -> bool {
        [(self.speed, self.width), (self.speed_most, self.width_most)] == [PCI_LEAST; 2]
    }
}

/// Several adapters as one (`bonding/*`, or the options of a team).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// The kernel's word, such as `802.3ad` or `active-backup`; of a team `loadbalance`, `activebackup`, `roundrobin`.
    pub mode: String,
    /// What decides which member takes a packet, such as `layer3+4`.
    pub hash: Option<String>,
    /// Members that are up: all of these carry, unless the mode has [`Self::carrying`].
    pub active: Vec<String>,
    /// The one that carries, in a mode in which only one does.
    #[serde(default)]
    pub carrying: Option<String>,
    /// The group of ports at the switch that carries, by the number of `802.3ad`; none in other modes.
    #[serde(default)]
    pub aggregator: Option<u32>,
    /// The group of each member, the same way.
    #[serde(default)]
    pub aggregators: BTreeMap<String, u32>,
}

impl Bond {
    /// Only one member carries at a time.
    #[must_use]
    pub fn one_carries(&self) -> bool {
        matches!(self.mode.as_str(), "active-backup" | "activebackup")
    }
}

/// What went wrong on an interface since it was made (`statistics/*`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that arrived.
    pub received: u64,
    /// Damaged ones.
    pub receive_errors: u64,
    /// Dropped for want of a place.
    pub receive_missed: u64,
    /// Packets that left; none where it is not told.
    #[serde(default)]
    pub sent: Option<u64>,
    /// Packets that were to leave and did not, for a fault of the adapter or the cable.
    #[serde(default)]
    pub send_errors: Option<u64>,
}
