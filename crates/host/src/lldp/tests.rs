use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use drover_tune::facts::DcbxVersion;
use proptest::collection::vec;
use proptest::prelude::*;

use super::frame::{ETHERNET, said};
use super::*;
use crate::limits::LLDP_NEIGHBOURS;

const CHASSIS: u8 = 1;
const PORT: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const SYSTEM_NAME: u8 = 5;
const ORGANISATION: u8 = 127;

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let header = u16::from(kind) << 9 | u16::try_from(value.len()).unwrap();
    [&header.to_be_bytes()[..], value].concat()
}

/// A frame as IEEE 802.1AB lays it out, made by hand, without an end.
fn endless(tlvs: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
    frame.extend(tlvs.concat());
    frame
}

/// The same with its end, as systemd-networkd keeps it.
fn frame(tlvs: &[Vec<u8>]) -> Vec<u8> {
    let frame = [endless(tlvs), vec![0, 0]].concat();
    let length = u64::try_from(frame.len()).unwrap();
    [&length.to_le_bytes()[..], &frame].concat()
}

fn switch() -> Vec<Vec<u8>> {
    vec![
        tlv(CHASSIS, &[4, 0x02, 0, 0, 0, 0, 0xaa]),
        tlv(PORT, b"\x05Ethernet1/7"),
        tlv(TIME_TO_LIVE, &[0, 120]),
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
        heard_by: Some(HeardBy::Networkd),
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

/// What lldpd 1.0.16 sent, told to say a largest frame of 1518 bytes as well.
const SENT: &str = "0180c200000e8a86e490f3a488cc0207048a86e490f3a4040405737737060200040a056c656166310c126120737769746368206f66206120746573740e04009c\
                    008010181102fe800000000000008886e4fffe90f3a40200000002000803737737fe0900120f030100000000fe0900120f010080000036fe0600120f0405ee\
                    0000";

fn sent() -> Vec<u8> {
    data_encoding::HEXLOWER.decode(SENT.as_bytes()).unwrap()
}

#[test]
fn what_lldpd_sends_is_heard() {
    let expected = Neighbour {
        switch: "8a:86:e4:90:f3:a4".into(),
        name: Some("leaf1".into()),
        port: "sw7".into(),
        frame: Some(1518),
        // It says that its port cannot.
        negotiates: None,
        dcbx: BTreeSet::new(),
        heard_by: Some(HeardBy::Agent),
    };
    let said = said(&sent(), HeardBy::Agent).unwrap();
    assert_eq!((said.neighbour, said.counts_for.as_secs()), (expected, 4));
}

#[test]
fn a_frame_that_says_half_or_goes_on_behind_its_end_says_nothing() {
    let says = |tlvs: &[Vec<u8>]| said(&endless(tlvs), HeardBy::Agent).is_some();
    let whole = switch();
    // Its end may be left out: then the frame's is the end.
    assert!(says(&whole));
    for mandatory in 0..3 {
        let mut without = whole.clone();
        without.remove(mandatory);
        assert!(!says(&without), "{mandatory}");
        let mut other = whole.clone();
        other.swap(mandatory, 3);
        assert!(!says(&other), "{mandatory}");
    }
    let sent = sent();
    for cut in 0..sent.len() {
        let cut = said(&sent[..cut], HeardBy::Agent);
        // Where one TLV ends and the next begins.
        assert!(cut.is_none_or(|said| said.neighbour.port == "sw7"));
    }
    let many: Vec<_> = (0..4000).map(|_| tlv(SYSTEM_NAME, b"")).collect();
    assert!(says(&[whole, many].concat()));
}

/// A neighbour that is to be remembered for so many seconds.
fn of(port: &str, seconds: u8) -> Vec<u8> {
    let mut tlvs = switch();
    tlvs[1] = tlv(PORT, &[b"\x05", port.as_bytes()].concat());
    tlvs[2] = tlv(TIME_TO_LIVE, &[0, seconds]);
    endless(&tlvs)
}

fn ports(heard: &Heard, now: Instant) -> Vec<&str> {
    let neighbours = heard.neighbours(now);
    neighbours.map(|one| one.port.as_str()).collect()
}

#[test]
fn a_neighbour_counts_for_as_long_as_it_says_and_no_longer_when_it_goes() {
    let (mut heard, start) = (Heard::default(), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    heard.take(&of("1", 10), start);
    heard.take(&of("2", 20), start);
    assert_eq!(ports(&heard, after(9)), ["1", "2"]);
    assert_eq!(ports(&heard, after(10)), ["2"]);
    heard.take(&of("2", 20), after(15));
    assert_eq!(ports(&heard, after(34)), ["2"]);
    heard.take(&of("2", 0), after(16));
    assert_eq!(ports(&heard, after(16)), [""; 0]);
}

#[test]
fn more_neighbours_than_the_bound_are_not_remembered_until_others_are_over() {
    let (mut heard, start) = (Heard::default(), Instant::now());
    for number in 0..1000 {
        heard.take(&of(&format!("{number:03}"), 10), start);
    }
    let all: Vec<_> = (0..LLDP_NEIGHBOURS)
        .map(|number| format!("{number:03}"))
        .collect();
    assert_eq!(ports(&heard, start), all);
    // Those who are known are heard on.
    let later = start + Duration::from_secs(5);
    heard.take(&of("000", 10), later);
    let over = start + Duration::from_secs(10);
    heard.take(&of("other", 10), over);
    assert_eq!(ports(&heard, over), ["000", "other"]);
}

proptest! {
    #[test]
    fn any_frames_are_heard_or_not_and_never_more_than_the_bound(
        frames in vec((vec(any::<u8>(), 0..64), any::<prop::sample::Index>(), any::<u16>(), any::<bool>()), 0..64),
    ) {
        let (mut heard, now) = (Heard::default(), Instant::now());
        for (bytes, at, number, keep) in frames {
            // Bytes of anybody, or a whole frame with others in it and another port.
            let mut whole = of(&number.to_string(), 120);
            let at = at.index(whole.len());
            let until = whole.len().min(at + bytes.len());
            if keep {
                whole[at..until].copy_from_slice(&bytes[..until - at]);
                heard.take(&whole, now);
            }
            heard.take(&bytes, now);
            heard.take(&of(&number.to_string(), 120), now);
            let told: Vec<_> = heard.neighbours(now).collect();
            prop_assert!(told.len() <= LLDP_NEIGHBOURS);
            // 511 bytes are hexadecimal digits of 3 letters each at most.
            prop_assert!(told.iter().all(|one| one.switch.len() <= 3 * 511 && one.port.len() <= 3 * 511));
        }
    }
}

#[tokio::test]
async fn an_interface_that_is_not_there_cannot_be_listened_at_and_loopback_can_be_or_why_not() {
    let none = LldpSocket::open(u32::MAX >> 1).unwrap_err();
    assert!(none.raw_os_error().is_some(), "{none}");
    match LldpSocket::open(1) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped, because nobody may listen here: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn how_often_a_carrier_changed_is_told_where_it_is_known() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sys/class/net/nic0");
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(carrier_changes(root.path(), "nic0"), None);
    std::fs::write(folder.join("carrier_changes"), "7\n").unwrap();
    assert_eq!(carrier_changes(root.path(), "nic0"), Some(7));
    assert_eq!(carrier_changes(root.path(), "nic1"), None);
}

#[test]
fn virtual_functions_take_no_adapters_place_and_who_is_left_out_is_told() {
    let adapter = |name: String, index| {
        let is_virtual_function = name.contains('v');
        let hardware = Hardware {
            index,
            is_virtual_function,
        };
        (name, hardware)
    };
    let of = |count: u32| {
        let functions = (0..100).map(|index| adapter(format!("ens1f0v{index}"), 1000 + index));
        let own = (0..count).map(|index| adapter(format!("ens2f{index:02}"), index));
        chosen(functions.chain(own).collect())
    };
    let most = u32::try_from(LLDP_PORTS).unwrap();
    let told = of(most + 1);
    assert_eq!(told["ens1f0v0"], Err(NoLldp::VirtualFunction));
    assert_eq!(told["ens2f00"], Ok(0));
    assert_eq!(told["ens2f64"], Err(NoLldp::Beyond));
    let heard = |told: &BTreeMap<_, Result<u32, NoLldp>>| told.values().flatten().count();
    assert_eq!(
        (heard(&told), told.len()),
        (LLDP_PORTS, 100 + LLDP_PORTS + 1)
    );
    assert_eq!(heard(&of(2)), 2);
    let beyond = NoLldp::Beyond.to_string();
    assert!(beyond.contains("more than the 64 adapters"), "{beyond}");
}
