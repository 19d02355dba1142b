//! Broadcom's NetXtreme-E by what `drivers/net/ethernet/broadcom/bnxt` (bnxt_en) and `drivers/infiniband/hw/bnxt_re` of Linux 6.12 tell.

use drover_lab::breaks::told::{ETS, PFC, pfc};
use serde_json::Value;

use super::cards::{Card, FIRST, Slot, linkmodes, memory};
use super::fabric::{all, dcbx, one_class, reporter, version};
use super::netlink::{attribute, drvinfo, number, set, told};

/// `DCB_CAP_DCBX_LLD_MANAGED` and `_VER_IEEE`: its firmware speaks DCBX (`bnxt_dcb_init`).
const BY_FIRMWARE: u8 = 0x02 | 0x08;

/// BCM57414 for 25 Gbit/s with a copper cable of 3 m, in the fourth node of two EPYCs: the driver gives each queue a processor, the nearest
/// first, and has as many as there are processors for each of its two ports, 32 at most (`bnxt_set_dflt_rings`).
pub fn bcm57414(queues: &[u32]) -> Card {
    let modes = [
        ("Autoneg", true),
        ("FIBRE", true),
        ("1000baseX/Full", true),
        ("10000baseCR/Full", true),
        ("25000baseCR/Full", true),
    ];
    let peer = ["Autoneg", "10000baseCR/Full", "25000baseCR/Full"];
    let cable = memory(&[
        (0, &[0x03, 0x04, 0x21]),
        (8, &[1 << 2]),
        (12, &[0xff]),
        (18, &[3]),
        (20, b"ACME            "),
        (36, &[0x0d]),
        (40, b"DAC-25-3M       "),
        (66, &[0x67]),
    ]);
    let card = Card::new("enp193s0f0np0", "bnxt_en", "14E4:16D7");
    Card {
        slot: Slot {
            address: "0000:c1:00.0",
            node: 3,
            near: "24-31,88-95",
            speed: "8.0 GT/s PCIe",
            lanes: "8",
        },
        dcb: all(&[
            attribute(ETS, &one_class(false)),
            attribute(PFC, &pfc(0, 0)),
        ]),
        cee: dcbx(BY_FIRMWARE),
        drvinfo: drvinfo("bnxt_en", "220.0.59.0/pkg 220.0.83.0", "0000:c1:00.0"),
        versions: versions("220.0.83.0"),
        health: all(&[reporter("fw", 0)]),
        ..card
            .queues(74, queues.iter().copied())
            .saying("linkinfo", told(&[attribute(2, &[0x05])]))
            .saying("linkmodes", linkmodes(true, &modes, &peer, Some(25_000)))
            .saying(
                "fec",
                told(&[set(2, &["RS", "BASER"]), attribute(3, &[1]), number(4, 50)]),
            )
            // One place of each ring is kept free (BNXT_MAX_RX_DESC_CNT_JUM_ENA, BNXT_DEFAULT_RX_RING_SIZE).
            .saying("rings", told(&[number(2, 2047), number(6, 511)]))
            .saying("module_lower", cable)
    }
}

/// What devlink tells, the package of all of it as `fw` (`bnxt_dl_info_get`).
fn versions(package: &str) -> Value {
    all(&[
        version("fw.psid", "0.0.0"),
        version("fw", package),
        version("fw.mgmt", "220.0.59.0"),
        version("fw.mgmt.api", "1.10.2"),
        version("fw.ncsi", "220.0.59.0"),
        version("fw.roce", "220.0.59.0"),
    ])
}

/// The same as [`bcm57414`] in a host of four cores in each socket, with three queues and RDMA (bnxt_re), which lost what its own counters say.
pub fn bcm57414_with_losses(name: &str, count: u32) -> Card {
    let device = "sys/class/infiniband/bnxt_re0";
    let counter = format!("ports/1/hw_counters/{name}");
    let files = [
        ("node_type", "1: CA\n".to_owned()),
        ("fw_ver", "220.0.59.0\n".to_owned()),
        ("ports/1/state", "4: ACTIVE\n".to_owned()),
        ("ports/1/phys_state", "5: LinkUp\n".to_owned()),
        ("ports/1/link_layer", "Ethernet\n".to_owned()),
        ("ports/1/gid_attrs/ndevs/0", "enp193s0f0np0\n".to_owned()),
        ("ports/1/gid_attrs/types/0", "RoCE v2\n".to_owned()),
        ("ports/1/hw_counters/rx_pkts", "70000000\n".to_owned()),
        (counter.as_str(), format!("{count}\n")),
    ];
    let files = files.map(|(file, text)| (format!("{device}/{file}"), text));
    let pause = [attribute(2, &[0]), attribute(3, &[1]), attribute(4, &[1])];
    Card {
        slot: FIRST,
        rdma: Some("bnxt_re0"),
        files: files.into(),
        ..bcm57414(&[0, 1, 2]).saying("pause", told(&pause))
    }
}
