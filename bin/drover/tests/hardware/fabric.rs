//! What is told of RDMA, of bridging and of switches: `include/uapi/linux/dcbnl.h` and `devlink.h`, IEEE 802.1AB and 802.3, and
//! `Documentation/ABI/stable/sysfs-class-infiniband`.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::cards::{Card, connectx5};
use super::netlink::{attribute, bare, nested};

/// `ieee_pfc`: priorities as bits, and how many frames of one of them were sent and arrived.
fn pfc(enabled: u8, sent: u64, received: u64) -> Vec<u8> {
    let mut pfc = vec![8, enabled, 0, 0, 0, 0, 0, 0];
    for count in [sent, received] {
        pfc.extend([0; 24]);
        pfc.extend(count.to_ne_bytes());
        pfc.extend([0; 32]);
    }
    pfc
}

/// The port of RoCE, version 2.
const ROCE_V2: u16 = 4791;

/// `dcb_app` by a port of UDP.
fn app(port: u16, priority: u8) -> Vec<u8> {
    let [first, second] = port.to_ne_bytes();
    attribute(1, &[3, priority, first, second])
}

/// `ieee_ets`: two classes, the second one for priority 3.
fn ets(willing: bool, shares: [u8; 2]) -> Vec<u8> {
    let mut ets = vec![u8::from(willing), 8, 0];
    ets.extend([shares[0], shares[1], 0, 0, 0, 0, 0, 0]);
    ets.extend([0; 8]);
    ets.extend([2, 2, 0, 0, 0, 0, 0, 0]);
    ets.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    ets.extend([0; 24]);
    ets
}

/// A frame of a switch as systemd-networkd keeps it.
fn lldp(name: &str, port: &str, frame: u16) -> Value {
    let tlv = |kind: u16, value: &[u8]| {
        let header = kind << 9 | u16::try_from(value.len()).unwrap();
        [&header.to_be_bytes()[..], value].concat()
    };
    let [high, low] = frame.to_be_bytes();
    let tlvs = [
        tlv(1, &[&[7], name.as_bytes()].concat()),
        tlv(2, &[&[5], port.as_bytes()].concat()),
        tlv(3, &[0, 120]),
        tlv(5, name.as_bytes()),
        tlv(127, &[0x00, 0x12, 0x0f, 1, 0b11, 0, 0, 0, 30]),
        tlv(127, &[0x00, 0x12, 0x0f, 4, high, low]),
        tlv(0, &[]),
    ];
    let addresses = [0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
    let frame = [&addresses[..], &tlvs.concat()].concat();
    let length = u64::try_from(frame.len()).unwrap().to_le_bytes();
    json!({ "attributes": BASE64.encode(&[&length[..], &frame].concat()) })
}

fn version(name: &str, value: &str) -> Vec<u8> {
    let text = |kind: u16, text: &str| attribute(kind, format!("{text}\0").as_bytes());
    nested(101, &[text(103, name), text(104, value)].concat())
}

/// Of devlink, the version of the whole firmware.
pub fn firmware(value: &str) -> Value {
    bare(&[version("fw.version", value)])
}

fn reporter(name: &str, state: u8) -> Vec<u8> {
    let of = [
        attribute(115, format!("{name}\0").as_bytes()),
        attribute(116, &[state]),
        attribute(117, &u64::from(state).to_ne_bytes()),
    ];
    nested(114, &of.concat())
}

/// ConnectX-5 with RoCE, which has priority 3, held back alone, on a switch that says the same.
pub fn connectx5_with_roce() -> Card {
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    let files = [
        ("state", "4: ACTIVE\n"),
        ("phys_state", "5: LinkUp\n"),
        ("link_layer", "Ethernet\n"),
        ("gid_attrs/ndevs/0", "ens3np0\n"),
        ("gid_attrs/types/0", "IB/RoCE v1\n"),
        ("gid_attrs/ndevs/1", "ens3np0\n"),
        ("gid_attrs/types/1", "RoCE v2\n"),
        ("hw_counters/packet_seq_err", "0\n"),
        ("hw_counters/out_of_sequence", "0\n"),
    ];
    let mut files: Vec<(String, String)> = files
        .map(|(file, text)| (format!("{port}/{file}"), text.to_owned()))
        .into();
    let firmware = "sys/class/infiniband/mlx5_0/fw_ver".to_owned();
    files.push((firmware, "16.35.2000\n".to_owned()));
    Card {
        rdma: Some("mlx5_0"),
        files,
        dcb: bare(&[
            attribute(1, &ets(false, [50, 50])),
            attribute(2, &pfc(1 << 3, 0, 0)),
            nested(3, &app(ROCE_V2, 3)),
            attribute(4, &ets(false, [50, 50])),
            attribute(5, &pfc(1 << 3, 0, 0)),
        ]),
        versions: bare(&[
            version("fw.psid", "MT_0000000080"),
            version("fw.version", "16.35.2000"),
        ]),
        health: bare(&[reporter("fw", 0), reporter("tx", 0), reporter("rx", 0)]),
        neighbours: lldp("leaf1", "Ethernet1/7", 9234),
        ..connectx5()
    }
}

/// The same with everything of it wrong at once.
pub fn connectx5_with_roce_gone_wrong() -> Card {
    let mut card = connectx5_with_roce();
    card.files
        .retain(|(path, _)| !path.ends_with("types/1") && !path.ends_with("ndevs/1"));
    for (path, text) in &mut card.files {
        if path.ends_with("packet_seq_err") {
            *text = "5000\n".to_owned();
        }
    }
    let pause = [attribute(2, &[0]), attribute(3, &[1]), attribute(4, &[1])];
    Card {
        dcb: bare(&[
            attribute(1, &ets(true, [4, 96])),
            // 0.3 ms each: 300 s of a day.
            attribute(2, &pfc(1 << 3, 0, 1_000_000)),
            attribute(5, &pfc(1 << 4, 0, 0)),
        ]),
        health: bare(&[reporter("fw", 0), reporter("tx", 1)]),
        neighbours: lldp("leaf1", "Ethernet1/7", 1518),
        ..card.saying("pause", super::netlink::told(&pause))
    }
}
