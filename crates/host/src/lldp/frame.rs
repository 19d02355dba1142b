//! A frame of LLDP (IEEE 802.1AB), which anybody at the other end of a cable may have sent.
//!
//! ```text
//! frame: to 6, from 6, type 0x88cc; then TLVs: type 7 bits, length 9 bits, value; the end is type 0
//! TLVs:  who it is, its port, for how long that counts; then others in any order
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use drover_tune::facts::{DcbxVersion, HeardBy, Neighbour};

/// Addresses and type, before the first TLV.
pub(super) const ETHERNET: usize = 14;

const END: u8 = 0;
const CHASSIS: u8 = 1;
const PORT: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const SYSTEM_NAME: u8 = 5;
const ORGANISATION: u8 = 127;

/// IEEE 802.3's, and its numbers for how a port negotiates, and for its largest frame.
const OF_802_3: [u8; 3] = [0x00, 0x12, 0x0f];
const MAC_PHY: u8 = 1;
const FRAME: u8 = 4;

/// IEEE 802.1's, and its numbers for how a full line is shared (ETS), and for what is held back (PFC): DCBX by the standard (802.1Qaz).
const OF_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const ETS: u8 = 9;
const PFC: u8 = 11;

/// That of who made DCBX before the standard, and its number for CEE.
const OF_CEE: [u8; 3] = [0x00, 0x1b, 0x21];
const CEE: u8 = 2;

/// Kinds of names that are an address of hardware (MAC), for a chassis and for a port.
const CHASSIS_ADDRESS: u8 = 4;
const PORT_ADDRESS: u8 = 3;

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub neighbour: Neighbour,
    /// For how long it counts; nothing where the sender says that it goes.
    pub counts_for: Duration,
}

/// What it says; none where it is not as the standard has it, or cut: half of what somebody says may be another thing.
pub(super) fn said(frame: &[u8], heard_by: HeardBy) -> Option<Said> {
    let mut tlvs = Tlvs(frame.get(ETHERNET..)?);
    let [who, port, counts_for] =
        [CHASSIS, PORT, TIME_TO_LIVE].map(|wanted| tlvs.next()?.of(wanted));
    let mut said = Said {
        neighbour: Neighbour {
            switch: named(who?, CHASSIS_ADDRESS)?,
            port: named(port?, PORT_ADDRESS)?,
            name: None,
            frame: None,
            negotiates: None,
            dcbx: BTreeSet::new(),
            heard_by: Some(heard_by),
        },
        counts_for: seconds(counts_for?)?,
    };
    loop {
        match tlvs.next()? {
            Tlv { kind: END, .. } => return Some(said),
            tlv => more(&mut said.neighbour, &tlv),
        }
    }
}

/// What is not in every frame.
fn more(neighbour: &mut Neighbour, tlv: &Tlv<'_>) {
    match tlv.kind {
        SYSTEM_NAME => neighbour.name = text(tlv.value),
        ORGANISATION => {
            let (frame, negotiates) = of_802_3(tlv.value);
            neighbour.frame = neighbour.frame.or(frame);
            neighbour.negotiates = neighbour.negotiates.or(negotiates);
            neighbour.dcbx.extend(language(tlv.value));
        }
        _ => {}
    }
}

struct Tlv<'f> {
    kind: u8,
    value: &'f [u8],
}

impl<'f> Tlv<'f> {
    fn of(self, kind: u8) -> Option<&'f [u8]> {
        (self.kind == kind).then_some(self.value)
    }
}

/// Those that are left of a frame.
struct Tlvs<'f>(&'f [u8]);

impl<'f> Tlvs<'f> {
    /// The next one; none where it goes on behind the end. A frame may end without saying so: then that is the end.
    fn next(&mut self) -> Option<Tlv<'f>> {
        if self.0.is_empty() {
            let (kind, value) = (END, self.0);
            return Some(Tlv { kind, value });
        }
        let (header, rest) = self.0.split_first_chunk::<2>()?;
        let header = u16::from_be_bytes(*header);
        let (value, rest) = rest.split_at_checked(usize::from(header & 0x1ff))?;
        self.0 = rest;
        let kind = (header >> 9) as u8;
        Some(Tlv { kind, value })
    }
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds = value.first_chunk::<2>()?;
    Some(Duration::from_secs(u16::from_be_bytes(*seconds).into()))
}

/// In which language it tells what to hold back or to share, if it does.
fn language(value: &[u8]) -> Option<DcbxVersion> {
    let of = |own: [u8; 3]| value.strip_prefix(&own[..])?.first();
    match (of(OF_802_1), of(OF_CEE)) {
        (Some(&(ETS | PFC)), _) => Some(DcbxVersion::Ieee),
        (_, Some(&CEE)) => Some(DcbxVersion::Cee),
        _ => None,
    }
}

fn of_802_3(value: &[u8]) -> (Option<u32>, Option<bool>) {
    let own = value.strip_prefix(&OF_802_3[..]);
    match own {
        Some([FRAME, high, low, ..]) => (Some(u32::from(u16::from_be_bytes([*high, *low]))), None),
        // The first bit: it can; the second one: it does.
        Some([MAC_PHY, bits, ..]) if bits & 1 > 0 => (None, Some(bits & 2 > 0)),
        _ => (None, None),
    }
}

/// A name of a kind: hexadecimal digits where it is an address, or no text.
fn named(value: &[u8], address: u8) -> Option<String> {
    let (kind, name) = value.split_first()?;
    let digits = || {
        let octets: Vec<String> = name.iter().map(|octet| format!("{octet:02x}")).collect();
        octets.join(":")
    };
    if *kind == address {
        return Some(digits());
    }
    text(name).or_else(|| Some(digits()).filter(|digits| !digits.is_empty()))
}

fn text(bytes: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let is_text = !bytes.is_empty() && bytes.iter().all(plain);
    is_text.then(|| String::from_utf8_lossy(bytes).into_owned())
}
