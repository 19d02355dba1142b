//! A port of InfiniBand with IP over it, by what `drivers/infiniband/ulp/ipoib`, `drivers/net/ethernet/mellanox/mlx5/core/ipoib` and
//! `drivers/infiniband/core/sysfs.c` of Linux 6.12 tell.

use super::cards::{Card, FIRST, linkmodes};
use super::netlink::{attribute, drvinfo, nothing, told};

/// ConnectX-5 with a link of EDR. It has an address of InfiniBand that is no interface's: those files have an error in place of a text
/// (`_show_port_gid_attr`). Of its link it tells the rate alone (`mlx5i_get_link_ksettings`).
pub fn connectx5_edr(lanes: u32) -> Card {
    let device = "sys/class/infiniband/mlx5_0";
    let files = [
        ("node_type", "1: CA\n".to_owned()),
        ("fw_ver", "16.35.2000\n".to_owned()),
        ("ports/1/state", "4: ACTIVE\n".to_owned()),
        ("ports/1/phys_state", "5: LinkUp\n".to_owned()),
        ("ports/1/link_layer", "InfiniBand\n".to_owned()),
        (
            "ports/1/rate",
            format!("{} Gb/sec ({lanes}X EDR)\n", 25 * lanes),
        ),
        ("ports/1/gid_attrs/types/0", "IB/RoCE v1\n".to_owned()),
        ("ports/1/counters/port_rcv_errors", "0\n".to_owned()),
        ("ports/1/counters/port_xmit_discards", "0\n".to_owned()),
        ("ports/1/counters/symbol_error", "0\n".to_owned()),
        ("ports/1/counters/link_downed", "1\n".to_owned()),
        ("ports/1/counters/port_xmit_wait", "120000\n".to_owned()),
        (
            "ports/1/counters/port_xmit_data",
            "250000000000\n".to_owned(),
        ),
    ];
    let mut files: Vec<(String, String)> = files
        .map(|(file, text)| (format!("{device}/{file}"), text))
        .into();
    // ARPHRD_INFINIBAND, and its port less one.
    files.push(("sys/class/net/ibp59s0/type".into(), "32\n".into()));
    files.push(("sys/class/net/ibp59s0/dev_port".into(), "0\n".into()));
    let rate = 25_000 * lanes;
    let unasked = || nothing("its driver does not tell");
    Card {
        // The largest of a datagram; connected mode, which mlx5 does without, would have 65520.
        mtu: 4092,
        rdma: Some("mlx5_0"),
        files,
        drvinfo: drvinfo(
            "mlx5_core[ib_ipoib]",
            "16.35.2000 (MT_0000000080)",
            FIRST.address,
        ),
        ..Card::new("ibp59s0", "mlx5_core", "15B3:1017")
            .saying("linkinfo", told(&[attribute(2, &[0xff])]))
            .saying("linkmodes", linkmodes(false, &[], &[], Some(rate)))
            .saying("pause", unasked())
            .saying("fec", unasked())
            .saying("rss", unasked())
            .saying("module_lower", unasked())
    }
}
