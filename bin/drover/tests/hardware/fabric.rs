//! What is told of RDMA, of bridging and of switches: `include/uapi/linux/dcbnl.h` and `devlink.h`, IEEE 802.1AB and 802.3, and
//! `Documentation/ABI/stable/sysfs-class-infiniband`.

use drover_lab::breaks::told::{
    APPS, BUFFER, DCBX, ETS, PEER, PFC, buffers, ets, neighbour, pfc, roce,
};
use serde_json::Value;

use super::cards::{Card, connectx5};
use super::netlink::{attribute, nested, shown, told};

/// `DCB_CAP_DCBX_*`: as mlx5 tells that it leaves it to the host, and that its firmware does it.
const BY_HOST: u8 = 0x01 | 0x08;
const BY_FIRMWARE: u8 = 0x04 | 0x08;

/// Who negotiates.
pub fn dcbx(flags: u8) -> Value {
    shown(&attribute(DCBX, &[flags]))
}

pub fn all(parts: &[Vec<u8>]) -> Value {
    shown(&parts.concat())
}

pub fn version(name: &str, value: &str) -> Vec<u8> {
    let text = |kind: u16, text: &str| attribute(kind, format!("{text}\0").as_bytes());
    nested(101, &[text(103, name), text(104, value)].concat())
}

/// Of devlink, the version of the whole firmware.
pub fn firmware(value: &str) -> Value {
    shown(&version("fw.version", value))
}

pub fn reporter(name: &str, state: u8) -> Vec<u8> {
    let of = [
        attribute(115, format!("{name}\0").as_bytes()),
        attribute(116, &[state]),
        attribute(117, &u64::from(state).to_ne_bytes()),
    ];
    nested(114, &of.concat())
}

/// `ieee_ets` as nobody has set it: all priorities in the first of 8 classes, which has the whole line.
pub fn one_class(willing: bool) -> Vec<u8> {
    let first = |value: u8| [value, 0, 0, 0, 0, 0, 0, 0];
    let (shares, served, classes) = (first(100), first(2), [0; 8]);
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
        dcb: all(&[
            attribute(ETS, &ets(false, [50, 50])),
            attribute(PFC, &pfc(1 << 3, 0)),
            nested(APPS, &roce(3)),
            attribute(ETS + PEER, &ets(false, [50, 50])),
            attribute(PFC + PEER, &pfc(1 << 3, 0)),
            attribute(BUFFER, &buffers(Some(3), [20_000, 200_000])),
        ]),
        cee: dcbx(BY_HOST),
        versions: all(&[
            version("fw.psid", "MT_0000000080"),
            version("fw.version", "16.35.2000"),
        ]),
        health: all(&[reporter("fw", 0), reporter("tx", 0), reporter("rx", 0)]),
        neighbours: shown(&neighbour("leaf1", 9234, true, Vec::new())),
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
            *text = "50000\n".to_owned();
        }
    }
    let pause = [attribute(2, &[0]), attribute(3, &[1]), attribute(4, &[1])];
    Card {
        dcb: all(&[
            attribute(ETS, &ets(true, [4, 96])),
            // 0.3 ms each: 3000 s of ten days.
            attribute(PFC, &pfc(1 << 3, 10_000_000)),
            attribute(PFC + PEER, &pfc(1 << 4, 0)),
        ]),
        cee: dcbx(BY_FIRMWARE),
        health: all(&[reporter("fw", 0), reporter("tx", 1)]),
        neighbours: shown(&neighbour("leaf1", 1518, true, Vec::new())),
        ..card.saying("pause", told(&pause))
    }
}
