//! RDMA devices (`Documentation/ABI/stable/sysfs-class-infiniband`, `Documentation/ABI/testing/configfs-rdma_cm`). Their addresses are not
//! read: what kind they are is enough.

use std::collections::BTreeMap;

use drover_tune::facts::Rdma;

use super::tree::Tree;

/// What was lost or late, by the names of files: of all devices, and of some drivers' (`hw_counters` of mlx5, bnxt_re and rxe).
const LOST: [&str; 14] = [
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/symbol_error",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/max_retry_exceeded",
    "hw_counters/missing_resp",
    "hw_counters/oos_drop_count",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/rnr_naks_rcvd",
    "hw_counters/retry_exceeded_err",
    "hw_counters/seq_err_naks_rcvd",
    "hw_counters/to_retransmits",
];

/// Of each word that is counted.
const OCTETS: u64 = 4;

/// Such as of "100 Gb/sec (4X EDR)".
fn lanes(rate: &str) -> Option<u32> {
    let (_, width) = rate.split_once('(')?;
    let (lanes, _) = width.split_once('X')?;
    lanes.parse().ok()
}

/// The port of `device` that has addresses on `nic`, or that `nic` says to have; else its first one.
pub(super) fn rdma(tree: &Tree, device: &str, nic: &str) -> Result<Rdma, String> {
    let ports = format!("sys/class/infiniband/{device}/ports");
    let all = tree.numbered(&ports, "").into_iter();
    let mut all: Vec<_> = all
        .map(|(port, _)| (port, kinds(tree, &format!("{ports}/{port}"), nic)))
        .collect();
    if all.is_empty() {
        return Err("its RDMA device tells no port".to_owned());
    }
    // Addresses of InfiniBand are no interface's: it says itself which port it has, the first one being 0 (`dev_port`).
    let told: Option<u32> = tree.parsed(&format!("sys/class/net/{nic}/dev_port"));
    let by_number = |(port, _): &(u32, _)| told.is_some_and(|told| *port == told.saturating_add(1));
    let own = all.iter().position(|(_, kinds)| !kinds.is_empty());
    let own = own.or_else(|| all.iter().position(by_number));
    let (port, mut kinds) = all.swap_remove(own.unwrap_or(0));
    // Such as "4: RNIC". The kernel calls its addresses what it calls those of RoCE v1.
    let node = tree.text(&format!("sys/class/infiniband/{device}/node_type"));
    if node.is_ok_and(|node| node.contains("RNIC")) && !kinds.is_empty() {
        let addresses: u32 = kinds.values().sum();
        kinds = [("iWARP".to_owned(), addresses)].into();
    }
    let path = format!("{ports}/{port}");
    // Such as "4: ACTIVE".
    let word = |file: &str| {
        let text = tree.text(&format!("{path}/{file}"))?;
        let word = text
            .split_once(": ")
            .map_or(text.as_str(), |(_, word)| word);
        Ok::<String, String>(word.to_owned())
    };
    let lost = LOST.iter().filter_map(|file| {
        let count = tree.parsed(&format!("{path}/{file}"))?;
        let (_, name) = file.split_once('/')?;
        Some((name.to_owned(), count))
    });
    let words: Option<u64> = tree.parsed(&format!("{path}/counters/port_xmit_data"));
    let rate = tree.text(&format!("{path}/rate")).ok();
    let manager = format!("sys/kernel/config/rdma_cm/{device}/ports/{port}");
    Ok(Rdma {
        default_kind: tree.text(&format!("{manager}/default_roce_mode")).ok(),
        default_tos: tree.parsed(&format!("{manager}/default_roce_tos")),
        device: device.to_owned(),
        port,
        state: word("state")?,
        physical: word("phys_state")?,
        layer: word("link_layer")?,
        kinds,
        lost: lost.collect(),
        downed: tree.parsed(&format!("{path}/counters/link_downed")),
        waited: tree.parsed(&format!("{path}/counters/port_xmit_wait")),
        sent: words.map(|words| words.saturating_mul(OCTETS)),
        lanes: rate.as_deref().and_then(lanes),
        rate,
    })
}

/// Of 256 to 1024 places; those without an address give an error instead of a text.
fn kinds(tree: &Tree, port: &str, nic: &str) -> BTreeMap<String, u32> {
    let mut kinds = BTreeMap::new();
    for place in tree.passing(&format!("{port}/gid_attrs/ndevs")) {
        let of = |what: &str| tree.text(&format!("{port}/gid_attrs/{what}/{place}"));
        if of("ndevs").is_ok_and(|of| of == nic)
            && let Ok(kind) = of("types")
            && !kind.is_empty()
        {
            *kinds.entry(kind).or_default() += 1;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_port_with_addresses_on_the_interface_is_told_with_their_kinds() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root
                .path()
                .join("sys/class/infiniband/mlx5_0/ports")
                .join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for port in ["1", "2"] {
            write(&format!("{port}/state"), "4: ACTIVE\n");
            write(&format!("{port}/phys_state"), "5: LinkUp\n");
            write(&format!("{port}/link_layer"), "Ethernet\n");
        }
        write("1/gid_attrs/ndevs/0", "ens9\n");
        write("1/gid_attrs/types/0", "RoCE v2\n");
        for (place, kind) in [
            ("0", "IB/RoCE v1\n"),
            ("1", "RoCE v2\n"),
            ("2", "RoCE v2\n"),
        ] {
            write(&format!("2/gid_attrs/ndevs/{place}"), "ens1f0\n");
            write(&format!("2/gid_attrs/types/{place}"), kind);
        }
        // Of a place without an address nothing can be read.
        write("2/gid_attrs/ndevs/3", "");
        write("2/hw_counters/packet_seq_err", "12\n");
        write("2/counters/symbol_error", "0\n");
        write("2/counters/link_downed", "3\n");
        let tree = Tree::at(root.path());
        let told = rdma(&tree, "mlx5_0", "ens1f0").unwrap();
        assert_eq!(
            (told.port, told.state.as_str(), told.physical.as_str()),
            (2, "ACTIVE", "LinkUp")
        );
        let kinds = [("IB/RoCE v1".to_owned(), 1), ("RoCE v2".to_owned(), 2)];
        assert_eq!(told.kinds, kinds.into());
        let lost = [
            ("packet_seq_err".to_owned(), 12),
            ("symbol_error".to_owned(), 0),
        ];
        assert_eq!(told.lost, lost.into());
        assert_eq!(told.downed, Some(3));
        assert_eq!((told.waited, told.sent, told.lanes), (None, None, None));
        assert_eq!((&told.default_kind, told.default_tos), (&None, None));
        write(
            "../../../../kernel/config/rdma_cm/mlx5_0/ports/2/default_roce_mode",
            "RoCE v2\n",
        );
        write(
            "../../../../kernel/config/rdma_cm/mlx5_0/ports/2/default_roce_tos",
            "106\n",
        );
        let default = rdma(&tree, "mlx5_0", "ens1f0").unwrap();
        assert_eq!(default.default_kind.as_deref(), Some("RoCE v2"));
        assert_eq!(default.default_tos, Some(106));
        let told = default;
        write("../node_type", "1: CA\n");
        assert_eq!(rdma(&tree, "mlx5_0", "ens1f0").unwrap().kinds, told.kinds);
        write("../node_type", "4: RNIC\n");
        let iwarp = [("iWARP".to_owned(), 3)];
        assert_eq!(rdma(&tree, "mlx5_0", "ens1f0").unwrap().kinds, iwarp.into());
        assert_eq!(rdma(&tree, "mlx5_0", "none").unwrap().port, 1);
        assert!(rdma(&tree, "mlx5_1", "ens1f0").is_err());
    }

    #[test]
    fn the_port_of_an_interface_of_infiniband_is_the_one_that_it_says() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join("sys/class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (port, state) in [(1, "1: DOWN\n"), (2, "4: ACTIVE\n")] {
            let of = |file: &str| format!("infiniband/mlx4_0/ports/{port}/{file}");
            write(&of("state"), state);
            write(&of("phys_state"), "5: LinkUp\n");
            write(&of("link_layer"), "InfiniBand\n");
        }
        let port = || rdma(&Tree::at(root.path()), "mlx4_0", "ib1").unwrap().port;
        assert_eq!(port(), 1);
        for (told, expected) in [("0\n", 1), ("1\n", 2), ("7\n", 1), ("4294967295\n", 1)] {
            write("net/ib1/dev_port", told);
            assert_eq!(port(), expected, "{told:?}");
        }
    }

    #[test]
    fn what_a_port_waited_for_and_sent_is_told_with_the_lanes_of_its_link() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("sys/class/infiniband/mlx5_0/ports/1");
        fs::create_dir_all(port.join("counters")).unwrap();
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("link_layer", "InfiniBand\n"),
            ("rate", "100 Gb/sec (4X EDR)\n"),
            ("counters/port_xmit_wait", "7\n"),
            ("counters/port_xmit_data", "1000\n"),
            ("counters/port_xmit_discards", "2\n"),
        ] {
            fs::write(port.join(file), text).unwrap();
        }
        let told = rdma(&Tree::at(root.path()), "mlx5_0", "ib0").unwrap();
        // Data is counted in words of four octets.
        assert_eq!(
            (told.waited, told.sent, told.lanes),
            (Some(7), Some(4000), Some(4))
        );
        assert_eq!(told.rate.as_deref(), Some("100 Gb/sec (4X EDR)"));
        assert_eq!(told.lost, [("port_xmit_discards".to_owned(), 2)].into());
        for strange in ["", "100 Gb/sec", "100 Gb/sec (X EDR)", "(4"] {
            assert_eq!(lanes(strange), None, "{strange}");
        }
    }
}
