//! Who is at the other end of a cable, as systemd-networkd keeps it (`/run/systemd/netif/lldp/INDEX`) where it listens (`LLDP=`).
//!
//! ```text
//! file:  length u64 little-endian, frame; again for each neighbour
//! frame: to 6, from 6, type 0x88cc; then TLVs: type 7 bits, length 9 bits, value; the end is type 0
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use drover_tune::facts::{DcbxVersion, Neighbour};

use crate::limits::LLDP;
use crate::netlink::Answer;

/// Addresses and type, before the first TLV.
const ETHERNET: usize = 14;

const CHASSIS: u8 = 1;
const PORT: u8 = 2;
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

/// What is kept of the interface with this index.
pub(crate) fn kept(root: &Path, index: u32) -> Answer {
    let path = root.join(format!("run/systemd/netif/lldp/{index}"));
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LLDP).read_to_end(&mut bytes));
    read.map_err(|_| {
        "nothing here keeps what switches say by LLDP: systemd-networkd does, with LLDP=yes"
            .to_owned()
    })?;
    Ok(bytes)
}

/// Neighbours, as far as their frames are whole.
pub(crate) fn neighbours(mut kept: &[u8]) -> Vec<Neighbour> {
    let mut all = Vec::new();
    while let Some((length, rest)) = kept.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((frame, rest)) = rest.split_at_checked(length) else {
            break;
        };
        kept = rest;
        all.extend(frame.get(ETHERNET..).and_then(neighbour));
    }
    all
}

fn neighbour(mut tlvs: &[u8]) -> Option<Neighbour> {
    let (mut switch, mut port) = (None, None);
    let (mut name, mut frame, mut negotiates) = (None, None, None);
    let mut dcbx = BTreeSet::new();
    while let Some((header, rest)) = tlvs.split_first_chunk::<2>() {
        let header = u16::from_be_bytes(*header);
        let (kind, length) = ((header >> 9) as u8, usize::from(header & 0x1ff));
        let Some((value, rest)) = rest.split_at_checked(length) else {
            break;
        };
        tlvs = rest;
        match kind {
            0 => break,
            CHASSIS => switch = named(value, CHASSIS_ADDRESS),
            PORT => port = named(value, PORT_ADDRESS),
            SYSTEM_NAME => name = text(value),
            ORGANISATION => {
                let (frame_of, negotiates_of) = of_802_3(value);
                frame = frame.or(frame_of);
                negotiates = negotiates.or(negotiates_of);
                dcbx.extend(language(value));
            }
            _ => {}
        }
    }
    Some(Neighbour {
        switch: switch?,
        name,
        port: port?,
        frame,
        negotiates,
        dcbx,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let header = u16::from(kind) << 9 | u16::try_from(value.len()).unwrap();
        [&header.to_be_bytes()[..], value].concat()
    }

    /// A frame as IEEE 802.1AB lays it out, made by hand.
    fn frame(tlvs: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
        frame.extend(tlvs.concat());
        frame.extend([0, 0]);
        let length = u64::try_from(frame.len()).unwrap();
        [&length.to_le_bytes()[..], &frame].concat()
    }

    fn switch() -> Vec<Vec<u8>> {
        vec![
            tlv(CHASSIS, &[4, 0x02, 0, 0, 0, 0, 0xaa]),
            tlv(PORT, b"\x05Ethernet1/7"),
            tlv(3, &[0, 120]),
            tlv(SYSTEM_NAME, b"leaf1"),
            tlv(ORGANISATION, &[0x00, 0x12, 0x0f, 1, 0b11, 0, 0, 0, 30]),
            tlv(ORGANISATION, &[0x00, 0x12, 0x0f, 4, 0x24, 0x12]),
            tlv(ORGANISATION, &[0x00, 0x80, 0xc2, 1, 0, 7]),
        ]
    }

    #[test]
    fn a_switch_is_told_by_what_it_says_of_itself_and_of_its_port() {
        let told = neighbours(&frame(&switch()));
        let expected = Neighbour {
            switch: "02:00:00:00:00:aa".into(),
            name: Some("leaf1".into()),
            port: "Ethernet1/7".into(),
            frame: Some(9234),
            negotiates: Some(true),
            dcbx: BTreeSet::new(),
        };
        assert_eq!(told, std::slice::from_ref(&expected));
        let mut other = switch();
        other[4] = tlv(ORGANISATION, &[0x00, 0x12, 0x0f, 1, 0b01, 0, 0, 0, 30]);
        other[1] = tlv(PORT, &[3, 0x02, 0, 0, 0, 0, 0xab]);
        let both = [frame(&switch()), frame(&other)].concat();
        let told = neighbours(&both);
        assert_eq!(told[0], expected);
        assert_eq!(told[1].negotiates, Some(false));
        assert_eq!(told[1].port, "02:00:00:00:00:ab");
    }

    #[test]
    fn whoever_tells_what_to_hold_back_is_known_by_its_language() {
        let says = |more: &[&[u8]]| {
            let more = more.iter().map(|value| tlv(ORGANISATION, value));
            let frame = frame(&switch().into_iter().chain(more).collect::<Vec<_>>());
            neighbours(&frame).remove(0).dcbx
        };
        let (ieee, cee) = (DcbxVersion::Ieee, DcbxVersion::Cee);
        assert_eq!(says(&[]), BTreeSet::new());
        assert_eq!(says(&[&[0x00, 0x80, 0xc2, 9, 0]]), [ieee].into());
        assert_eq!(says(&[&[0x00, 0x80, 0xc2, 11, 8, 8]]), [ieee].into());
        let both: [&[u8]; 2] = [&[0x00, 0x80, 0xc2, 11, 8, 8], &[0x00, 0x1b, 0x21, 2, 0]];
        assert_eq!(says(&both), [cee, ieee].into());
        // That of before it, and nothing behind the maker's number.
        assert_eq!(
            says(&[&[0x00, 0x1b, 0x21, 1], &[0x00, 0x80, 0xc2]]),
            BTreeSet::new()
        );
    }

    /// What systemd-networkd 252 kept of a frame that was sent to it by hand.
    const KEPT: &str = "45000000000000000180c200000e0200000000aa88cc0207040200000000aa040c0545746865726e6574312f37\
                        060200780a056c65616631fe090012 0f01030000001efe060012 0f0424120000";

    #[test]
    fn what_networkd_keeps_is_read() {
        let digits: Vec<u8> = KEPT.bytes().filter(|byte| *byte != b' ').collect();
        let bytes = data_encoding::HEXLOWER.decode(&digits).unwrap();
        let told = neighbours(&bytes);
        let [told] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(
            (told.switch.as_str(), told.port.as_str()),
            ("02:00:00:00:00:aa", "Ethernet1/7")
        );
        assert_eq!((told.frame, told.negotiates), (Some(9234), Some(true)));
    }

    #[test]
    fn frames_that_are_cut_or_lie_about_their_length_are_none() {
        let whole = frame(&switch());
        for cut in 0..whole.len() {
            assert_eq!(neighbours(&whole[..cut]), []);
        }
        for lie in [0_u64, 1, 13, 1 << 40, u64::MAX] {
            let mut lying = whole.clone();
            lying[..8].copy_from_slice(&lie.to_le_bytes());
            let _ = neighbours(&lying);
        }
        // A TLV that goes on behind the frame.
        let mut lying = whole;
        lying[8 + ETHERNET] |= 1;
        assert_eq!(neighbours(&lying), []);
    }

    #[test]
    fn what_is_not_kept_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(kept(folder.path(), 4).unwrap_err().contains("LLDP=yes"));
        let path = folder.path().join("run/systemd/netif/lldp");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("4"), frame(&switch())).unwrap();
        assert_eq!(neighbours(&kept(folder.path(), 4).unwrap()).len(), 1);
    }
}
