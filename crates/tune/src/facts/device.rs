//! Facts of an adapter's parts: its table of queues, its health, its RDMA device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which queues packets are handed to (ethtool's `RSS`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Places in the table, by the number of the queue.
    pub places: BTreeMap<u32, u32>,
}

/// A part of an adapter that tells of its health (devlink's health reporters).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporter {
    /// Its name, such as `tx` or `fw_fatal`.
    pub name: String,
    /// It found an error that it could not mend.
    pub in_error: bool,
    /// Errors since the driver was started.
    pub errors: u64,
}

/// The port of an RDMA device that an interface belongs to (`/sys/class/infiniband`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rdma {
    /// The device.
    pub device: String,
    /// Its port.
    pub port: u32,
    /// Such as `ACTIVE`.
    pub state: String,
    /// Such as `LinkUp`.
    pub physical: String,
    /// `Ethernet`, which is RoCE or iWARP, or `InfiniBand`.
    pub layer: String,
    /// Kinds of the addresses that it has on this interface, such as `RoCE v2` or `iWARP`, and how many of each.
    pub kinds: BTreeMap<String, u32>,
    /// What was lost or late since the driver was started, by the kernel's names for counters that are there.
    pub lost: BTreeMap<String, u64>,
    /// The kind of address that the kernel's connection manager takes unless a program says otherwise, such as `RoCE v2`; none where nobody
    /// had it told (`rdma_cm` of configfs).
    #[serde(default)]
    pub default_kind: Option<String>,
    /// The type of service that its packets have, the same way: the upper six bits are their DSCP.
    #[serde(default)]
    pub default_tos: Option<u8>,
    /// How often its link went down since then; none where it does not count.
    #[serde(default)]
    pub downed: Option<u64>,
    /// Ticks in which it had something to send and sent nothing: for want of credits, or of its turn. A tick is one to 256 times as long as a lane
    /// takes for a byte; none where it does not count.
    #[serde(default)]
    pub waited: Option<u64>,
    /// Bytes that it sent; none where it does not count.
    #[serde(default)]
    pub sent: Option<u64>,
    /// Its link's rate, in the kernel's words: such as `100 Gb/sec (4X EDR)`; none where it does not tell.
    #[serde(default)]
    pub rate: Option<String>,
    /// Lanes of its link; none where it does not tell.
    #[serde(default)]
    pub lanes: Option<u32>,
}
