//! Intel's X710 and XL710 by what `drivers/net/ethernet/intel/i40e` of Linux 6.12 tells, and its documentation.

use drover_lab::breaks::told::{ETS, PFC, pfc, shown};

use super::cards::{Card, Slot, linkmodes, memory};
use super::fabric::{all, dcbx, one_class, version};
use super::netlink::{attribute, drvinfo, nothing, number, set, told};

/// `DCB_CAP_DCBX_LLD_MANAGED` and `_VER_IEEE`: firmware speaks LLDP, and DCBX; `DCB_CAP_DCBX_HOST` where `disable-fw-lldp` is on
/// (`i40e_init_pf_dcb`).
pub const BY_FIRMWARE: u8 = 0x02 | 0x08;
pub const BY_HOST: u8 = 0x01 | 0x08;

/// Near the second node of two Xeons.
const SECOND: Slot = Slot {
    address: "0000:af:00.0",
    node: 1,
    near: "18-35,54-71",
    speed: "8.0 GT/s PCIe",
    lanes: "8",
};

/// X710 for 10 Gbit/s with a module for fibre (10GBASE-SR). What it supports it reckons from what is plugged in; nothing is negotiated there,
/// though it offers to (`i40e_get_settings_link_up`). Its interrupts are taken where `taken` says.
pub fn x710(who: u8, taken: &[u32]) -> Card {
    let modes = [
        ("Autoneg", true),
        ("FIBRE", true),
        ("Pause", false),
        ("Asym_Pause", false),
        ("1000baseX/Full", true),
        ("10000baseT/Full", true),
        ("10000baseSR/Full", true),
        ("10000baseLR/Full", true),
    ];
    let module = memory(&[
        (0, &[0x03, 0x04, 0x07]),
        (3, &[0x10]),
        (12, &[103]),
        (20, b"ACME            "),
        (40, b"SR-10           "),
    ]);
    let card = Card {
        slot: SECOND,
        dcb: all(&[attribute(ETS, &one_class(true)), attribute(PFC, &pfc(0, 0))]),
        cee: dcbx(who),
        drvinfo: drvinfo("i40e", "9.20 0x8000d8c5 1.3353.0", SECOND.address),
        // Since Linux 6.7.
        versions: all(&[
            version("fw.mgmt", "9.20"),
            version("fw.mgmt.api", "1.15"),
            version("fw.psid.api", "9.20"),
            version("fw.bundle_id", "0x8000d8c5"),
            version("fw.undi", "1.3353.0"),
        ]),
        // Somebody keeps what is said, and nothing was.
        neighbours: shown(&[]),
        ..Card::new("enp175s0f0", "i40e", "8086:1572")
    };
    card.queues(64, taken.iter().copied())
        .saying("linkinfo", told(&[attribute(2, &[0x03])]))
        .saying("linkmodes", linkmodes(false, &modes, &[], Some(10_000)))
        .saying("fec", told(&[attribute(3, &[0]), number(4, 49)]))
        .saying("rings", told(&[number(2, 4096), number(6, 512)]))
        .saying("module_lower", module)
}

/// XL710 for 40 Gbit/s: one of two ports in a slot that carries what one and a half have.
pub fn xl710(port: u32) -> Card {
    let modes = [
        ("Autoneg", true),
        ("FIBRE", true),
        ("40000baseCR4/Full", true),
    ];
    let upper = memory(&[
        (0, &[0x0d]),
        (3, &[0x08]),
        (18, &[3]),
        (19, &[0xa0]),
        (20, b"ACME            "),
        (40, b"DAC-40-3M       "),
    ]);
    let (name, address, of_network) = match port {
        0 => ("enp175s0f0", "0000:af:00.0", "10.0.1.1/24"),
        _ => ("enp175s0f1", "0000:af:00.1", "10.0.2.1/24"),
    };
    let card = Card {
        address: of_network,
        slot: Slot { address, ..SECOND },
        drvinfo: drvinfo("i40e", "8.15 0x800095c4 0.0.0", address),
        // As before Linux 6.7: there is no devlink.
        versions: nothing("the kernel has no devlink"),
        health: nothing("the kernel has no devlink"),
        ..Card::new(name, "i40e", "8086:1583")
    };
    card.queues(64, 18..26)
        .saying("linkinfo", told(&[attribute(2, &[0x05])]))
        .saying("linkmodes", linkmodes(true, &modes, &[], Some(40_000)))
        .saying(
            "fec",
            told(&[set(2, &[]), attribute(3, &[0]), number(4, 49)]),
        )
        .saying("rings", told(&[number(2, 8160), number(6, 512)]))
        .saying("module_lower", memory(&[(0, &[0x0d])]))
        .saying("module_upper", upper)
}
