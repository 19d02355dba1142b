//! What is told of an adapter and its line, byte by byte: by a kernel of bridging (`include/uapi/linux/dcbnl.h`), and by systemd-networkd of
//! what a switch says by LLDP (IEEE 802.1AB and 802.3). Captured hosts that are made up have it.

use data_encoding::BASE64;
use drover_host::attribute;
use serde_json::{Value, json};

/// `DCB_ATTR_IEEE_*`: those of the switch are [`PEER`] behind the adapter's own.
pub const ETS: u16 = 1;
/// The same.
pub const PFC: u16 = 2;
/// The same.
pub const APPS: u16 = 3;
/// Behind those of the adapter.
pub const PEER: u16 = 3;
/// The same, of the adapter alone.
pub const MAXRATE: u16 = 7;

/// `DCB_ATTR_IEEE_APP`.
const APP: u16 = 1;

/// `IEEE_8021QAZ_APP_SEL_DGRAM`, and the port of RoCE, version 2.
const BY_UDP: u8 = 3;
const ROCE: u16 = 4791;

/// `IEEE_8021QAZ_TSA_ETS`.
const BY_SHARE: u8 = 2;

/// The priority that has the second class, and that switches hold back.
const OF_STORAGE: usize = 3;

/// As a captured host has what was told.
#[must_use]
pub fn shown(bytes: &[u8]) -> Value {
    json!({ "attributes": BASE64.encode(bytes) })
}

/// An attribute that is a number.
#[must_use]
pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

/// `ieee_ets`: percent for all priorities but the third, and for that one; what classes get to send and to receive, how each is served, and
/// the class of each priority.
#[must_use]
pub fn ets(willing: bool, shares: [u8; 2]) -> Vec<u8> {
    let shares = [shares[0], shares[1], 0, 0, 0, 0, 0, 0];
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

/// `ieee_pfc`: priorities as bits, and frames that arrived of the third one.
#[must_use]
pub fn pfc(enabled: u8, held: u64) -> Vec<u8> {
    let mut arrived = [0; 8];
    arrived[OF_STORAGE] = held;
    let counts = [[0; 8], arrived].concat();
    let counts = counts.into_iter().flat_map(u64::to_ne_bytes);
    [8, enabled, 0, 0, 0, 0, 0, 0]
        .into_iter()
        .chain(counts)
        .collect()
}

/// `dcb_app` of RoCE, as one of several.
#[must_use]
pub fn roce(priority: u8) -> Vec<u8> {
    let [low, high] = ROCE.to_ne_bytes();
    attribute(APP, &[BY_UDP, priority, low, high])
}

/// A switch's frame behind its length, as systemd-networkd keeps it: what it is called, its port's largest frame, and whether that
/// negotiates.
#[must_use]
pub fn neighbour(name: &str, frame: u16, negotiates: bool) -> Vec<u8> {
    let [high, low] = frame.to_be_bytes();
    // It can negotiate.
    let negotiation = if negotiates { 0b11 } else { 0b01 };
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
        tlv(0, &[]),
    ]
    .concat();
    let length = frame.len() as u64;
    [&length.to_le_bytes(), frame.as_slice()].concat()
}

/// A kind of 7 bits, a length of 9, and so many bytes.
fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    [&(kind << 9 | length).to_be_bytes()[..], value].concat()
}
