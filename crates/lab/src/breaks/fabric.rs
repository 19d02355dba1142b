//! What is told of the lines of an adapter: bridging as it and its switch have it, by `include/uapi/linux/dcbnl.h`, and what
//! systemd-networkd keeps of that switch's LLDP (IEEE 802.1AB and 802.3).

use data_encoding::BASE64;
use drover_host::attribute;
use serde_json::{Value, json};

/// An adapter with RDMA, and the port that it is cabled to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fabric {
    /// As it has them.
    pub(super) own: Bridging,
    /// As its switch told it.
    pub(super) peer: Bridging,
    /// It takes its switch's settings.
    pub(super) willing: bool,
    /// Who agrees with the switch on them (`DCB_CAP_DCBX_*`).
    pub(super) dcbx: u8,
    /// What is held back alone has a buffer of its own.
    pub(super) apart: bool,
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
    /// Percent for all priorities but [`OF_STORAGE`], which has the others.
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
    /// It says what to hold back, by the standard's language.
    pub(super) dcbx: bool,
}

/// An agent of the host does, in the standard's language; or firmware.
pub(super) const BY_HOST: u8 = 0x01 | 0x08;
pub(super) const BY_FIRMWARE: u8 = 0x02 | 0x08;

/// The priority with a share of its own.
const OF_STORAGE: usize = 3;

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
    dcbx: false,
};

/// The same, of the first adapter.
pub(super) const ALIKE: Fabric = Fabric {
    own: BRIDGING,
    peer: BRIDGING,
    willing: false,
    dcbx: BY_HOST,
    apart: true,
    most: None,
    held: 0,
    port: PORT,
};

/// `DCB_ATTR_IEEE_*`, those of the switch three behind the adapter's own.
const ETS: u16 = 1;
const PFC: u16 = 2;
const APPS: u16 = 3;
const PEER: u16 = 3;
const MAXRATE: u16 = 7;
const BUFFER: u16 = 10;

/// `DCB_ATTR_DCBX`
const DCBX: u16 = 14;

/// Bytes of the buffer for all that is not held back, and of the other one: twice what is on its way over a line of 25 Gbit/s.
const BUFFERS: [u32; 2] = [20_000, 100_000];

const APP: u16 = 1;

/// `IEEE_8021QAZ_APP_SEL_DGRAM`, and the port of RoCE, version 2.
const BY_UDP: u8 = 3;
const ROCE: u16 = 4791;

/// `IEEE_8021QAZ_TSA_ETS`.
const BY_SHARE: u8 = 2;

impl Fabric {
    /// Writes it down as what is told of an adapter.
    pub(super) fn tell(&self, nic: &mut Value) {
        let shown = |bytes: &[u8]| json!({ "attributes": BASE64.encode(bytes) });
        let mut bridging = self.own.told(0, self.willing, self.held);
        bridging.extend(self.peer.told(PEER, false, 0));
        if let Some(most) = self.most {
            let mut rates = [0; 8];
            // In kbit/s, of the class of migrations.
            rates[0] = most * 1000;
            bridging.extend(attribute(MAXRATE, &rates.map(u64::to_ne_bytes).concat()));
        }
        bridging.extend(attribute(BUFFER, &self.buffers()));
        nic["dcb"] = shown(&bridging);
        nic["cee"] = shown(&attribute(DCBX, &[self.dcbx]));
        nic["neighbours"] = shown(&self.port.kept());
    }

    /// `dcbnl_buffer`: the buffer of each priority, bytes of each, and of all.
    fn buffers(&self) -> Vec<u8> {
        let mut of_priority = [0; 8];
        if let Some(priority) = self.own.pfc.filter(|_| self.apart) {
            of_priority[usize::from(priority)] = 1;
        }
        let rest = [0; 6];
        let sizes = [&BUFFERS[..], &rest, &[BUFFERS.iter().sum()]].concat();
        let sizes = sizes.into_iter().flat_map(u32::to_ne_bytes);
        of_priority.into_iter().chain(sizes).collect()
    }
}

impl Bridging {
    fn told(&self, behind: u16, willing: bool, held: u64) -> Vec<u8> {
        let [low, high] = ROCE.to_ne_bytes();
        let app = attribute(APP, &[BY_UDP, self.roce, low, high]);
        [
            attribute(ETS + behind, &self.ets(willing)),
            attribute(PFC + behind, &self.pfc(held)),
            attribute(APPS + behind, &app),
        ]
        .concat()
    }

    /// `ieee_ets`: what classes get to send and to receive, how each is served, and the class of each priority.
    fn ets(&self, willing: bool) -> Vec<u8> {
        let shares = [self.share, 100 - self.share, 0, 0, 0, 0, 0, 0];
        let mut classes = [0; 8];
        classes[OF_STORAGE] = 1;
        let served = [BY_SHARE, BY_SHARE, 0, 0, 0, 0, 0, 0];
        let recommended = [0; 24];
        let parts: [&[u8]; 6] = [
            &[willing.into(), 8, 0],
            &shares,
            &shares,
            &served,
            &classes,
            &recommended,
        ];
        parts.concat()
    }

    /// `ieee_pfc`: priorities as bits, frames that were sent by priority, and those that arrived.
    fn pfc(&self, held: u64) -> Vec<u8> {
        let enabled = self.pfc.map_or(0, |priority| 1 << priority);
        let mut arrived = [0; 8];
        arrived[OF_STORAGE] = held;
        let counts = [[0; 8], arrived].concat();
        let counts = counts.into_iter().flat_map(u64::to_ne_bytes);
        [8, enabled, 0, 0, 0, 0, 0, 0]
            .into_iter()
            .chain(counts)
            .collect()
    }
}

impl Port {
    /// Its frame, behind its length.
    fn kept(&self) -> Vec<u8> {
        let name = format!("leaf{}", self.switch);
        let [high, low] = self.frame.to_be_bytes();
        // It can negotiate, and does.
        let negotiation = if self.negotiates { 0b11 } else { 0b01 };
        // IEEE 802.1's: what is held back.
        let said = match self.dcbx {
            true => tlv(127, &[0x00, 0x80, 0xc2, 11, 8, 8]),
            false => Vec::new(),
        };
        let addresses = [0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
        let frame = [
            addresses.to_vec(),
            // A name of its own, the interface's, for 120 s, and what people call it.
            tlv(1, &[&[7], name.as_bytes()].concat()),
            tlv(2, b"\x05Ethernet1/7"),
            tlv(3, &[0, 120]),
            tlv(5, name.as_bytes()),
            // IEEE 802.3's: how it negotiates, and its largest frame.
            tlv(127, &[0x00, 0x12, 0x0f, 1, negotiation, 0, 0, 0, 30]),
            tlv(127, &[0x00, 0x12, 0x0f, 4, high, low]),
            said,
            tlv(0, &[]),
        ]
        .concat();
        let length = frame.len() as u64;
        [&length.to_le_bytes(), frame.as_slice()].concat()
    }
}

/// A kind of 7 bits, a length of 9, and so many bytes.
fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    [&(kind << 9 | length).to_be_bytes()[..], value].concat()
}
