//! The lines of an adapter: bridging as it and its switch have it, and what that switch says by LLDP.

use drover_host::attribute;
use serde_json::Value;

use super::told::{APPS, ETS, MAXRATE, PEER, PFC, ets, neighbour, pfc, roce, shown};

/// An adapter with RDMA, and the port that it is cabled to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fabric {
    /// As it has them.
    pub(super) own: Bridging,
    /// As its switch told it.
    pub(super) peer: Bridging,
    /// It takes its switch's settings.
    pub(super) willing: bool,
    /// Mbit/s that migrations may send at most, if there is a bound.
    pub(super) most: Option<u64>,
    /// Frames by which its switch held it back.
    pub(super) held: u64,
    /// The other end of its cable.
    pub(super) port: Port,
}

/// What is done when a line is full.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bridging {
    /// The priority that is held back alone.
    pub(super) pfc: Option<u8>,
    /// Percent for all priorities but the third, which has the others.
    pub(super) share: u8,
    /// The priority of RDMA.
    pub(super) roce: u8,
}

/// A switch's port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    /// The number of its switch.
    pub(super) switch: usize,
    /// Its largest frame, in bytes.
    pub(super) frame: u16,
    /// It negotiates.
    pub(super) negotiates: bool,
}

/// With nothing wrong.
pub(super) const BRIDGING: Bridging = Bridging {
    pfc: Some(3),
    share: 50,
    roce: 3,
};

/// The same.
pub(super) const PORT: Port = Port {
    switch: 1,
    frame: 9234,
    negotiates: true,
};

/// The same, of the first adapter.
pub(super) const ALIKE: Fabric = Fabric {
    own: BRIDGING,
    peer: BRIDGING,
    willing: false,
    most: None,
    held: 0,
    port: PORT,
};

impl Fabric {
    /// Writes it down as what is told of an adapter.
    pub(super) fn tell(&self, nic: &mut Value) {
        let mut bridging = self.own.told(0, self.willing, self.held);
        bridging.extend(self.peer.told(PEER, false, 0));
        if let Some(most) = self.most {
            let mut rates = [0; 8];
            // In kbit/s, of the class of migrations.
            rates[0] = most * 1000;
            bridging.extend(attribute(MAXRATE, &rates.map(u64::to_ne_bytes).concat()));
        }
        nic["dcb"] = shown(&bridging);
        nic["neighbours"] = shown(&self.port.kept());
    }
}

impl Bridging {
    fn told(&self, behind: u16, willing: bool, held: u64) -> Vec<u8> {
        let enabled = self.pfc.map_or(0, |priority| 1 << priority);
        [
            attribute(ETS + behind, &ets(willing, [self.share, 100 - self.share])),
            attribute(PFC + behind, &pfc(enabled, held)),
            attribute(APPS + behind, &roce(self.roce)),
        ]
        .concat()
    }
}

impl Port {
    fn kept(&self) -> Vec<u8> {
        neighbour(&format!("leaf{}", self.switch), self.frame, self.negotiates)
    }
}
