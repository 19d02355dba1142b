//! Facts of what an interface and the switch agree on beside a rate: pause frames, priorities, and who is at the other end.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Pause frames, which hold all packets back (ethtool's `PAUSE`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// They are obeyed.
    pub receive: bool,
    /// They are sent.
    pub send: bool,
    /// Both ends agree on them; none where it is not told.
    #[serde(default)]
    pub agreed: Option<bool>,
    /// How many were sent since the driver was started; none where it does not count.
    pub sent: Option<u64>,
    /// How many arrived.
    pub received: Option<u64>,
}

/// Data centre bridging (IEEE 802.1Qaz and 802.1Qbb), as the adapter has it and as the switch told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcb {
    /// Priorities that are held back alone; none where the driver does not tell.
    pub pfc: Option<Pfc>,
    /// Shares of the line.
    pub ets: Option<Ets>,
    /// The switch's; none where it tells nothing, or nothing listens to it.
    pub peer_pfc: Option<Pfc>,
    /// The same.
    pub peer_ets: Option<Ets>,
    /// What each of 8 classes may send at most, in kbit/s; 0 where there is no bound. None where the driver does not tell.
    #[serde(default)]
    pub rates: Option<Vec<u64>>,
    /// Which priority packets have by what is in them.
    #[serde(default)]
    pub apps: Vec<App>,
    /// The switch's; none where it tells nothing.
    #[serde(default)]
    pub peer_apps: Vec<App>,
}

/// What packets have a priority (`dcb_app`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct App {
    /// By what they are told: 1 the type of the frame, 2 a port of TCP, 3 one of UDP, 4 one of either, 5 the DSCP.
    pub selector: u8,
    /// Which type, port or DSCP.
    pub protocol: u16,
    /// The priority.
    pub priority: u8,
}

/// Priority flow control.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pfc {
    /// Priorities, from 0 to 7, that have it.
    pub enabled: BTreeSet<u8>,
    /// Frames that were sent, of all priorities together.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
}

/// Enhanced transmission selection: what classes of packets get of a line that is full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ets {
    /// The switch's settings are taken instead.
    pub willing: bool,
    /// Percent of the line for each of 8 classes.
    pub shares: Vec<u8>,
    /// How each is served: 0 before all others, 2 by its share.
    pub algorithms: Vec<u8>,
    /// The class of each of 8 priorities.
    pub classes: Vec<u8>,
}

/// Who is at the other end of a cable, as it says by LLDP (IEEE 802.1AB).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Which switch it is: its address or name for itself.
    pub switch: String,
    /// What people call it.
    pub name: Option<String>,
    /// Its port.
    pub port: String,
    /// Its largest frame, in bytes, with Ethernet's header and checksum.
    pub frame: Option<u32>,
    /// Its port negotiates; none where it does not tell, or cannot.
    pub negotiates: Option<bool>,
}
