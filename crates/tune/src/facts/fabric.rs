//! Facts of what an interface and the switch agree on beside a rate: pause frames, priorities, and who is at the other end.

use std::collections::BTreeSet;
use std::fmt;

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
    /// Who agrees with the switch on all of that; none where the driver does not tell.
    #[serde(default)]
    pub dcbx: Option<Dcbx>,
    /// Where packets are kept that arrive; none where the driver does not tell.
    #[serde(default)]
    pub buffers: Option<Buffers>,
}

/// Who speaks DCBX for an adapter (`DCB_CAP_DCBX_*`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcbx {
    /// It is left to an agent of the host.
    pub host: bool,
    /// Firmware does, or another than the host, by the driver's word.
    pub managed: bool,
    /// Nobody does: what was set counts.
    pub fixed: bool,
    /// In which of its languages.
    pub versions: BTreeSet<DcbxVersion>,
}

impl Dcbx {
    /// Firmware does. Some drivers, such as mlx5's, say so by leaving out that the host does; bnx2x's says that it is managed also where it is
    /// fixed, since negotiation is off.
    #[must_use]
    pub fn by_firmware(&self) -> bool {
        !self.fixed && (self.managed || !(self.host || self.versions.is_empty()))
    }
}

/// A language of DCBX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DcbxVersion {
    /// That of before the standard: Converged Enhanced Ethernet.
    Cee,
    /// IEEE 802.1Qaz.
    Ieee,
}

impl fmt::Display for DcbxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cee => "CEE",
            Self::Ieee => "IEEE",
        })
    }
}

/// Places in an adapter for packets that arrive (`dcbnl_buffer`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// The buffer of each of 8 priorities.
    pub of_priority: Vec<u8>,
    /// Bytes of each of 8 buffers.
    pub sizes: Vec<u32>,
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
    /// Frames that were sent, of all priorities together; none where the driver does not count.
    pub sent: Option<u64>,
    /// Frames that arrived.
    pub received: Option<u64>,
}

/// Enhanced transmission selection: what classes of packets get of a line that is full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ets {
    /// The switch's settings are taken instead.
    pub willing: bool,
    /// Percent of the line for each of 8 classes, or of CEE's 16 groups.
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
    /// Languages in which it says what to hold back and to share.
    #[serde(default)]
    pub dcbx: BTreeSet<DcbxVersion>,
    /// Who heard it; none where what read this host is older.
    #[serde(default)]
    pub heard_by: Option<HeardBy>,
}

/// Who of a host hears what switches say by LLDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeardBy {
    /// Its agent.
    Agent,
    /// systemd-networkd, which keeps it in files.
    Networkd,
}

/// Since when a host's agent listens at an interface for what a switch says by LLDP, without the cable having been out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// By the host's clock, such as `2026-11-27T09:00:00Z`.
    pub since: String,
    /// How many seconds the host ran by then.
    pub uptime_s: u64,
}
