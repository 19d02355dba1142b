//! What no namespace has of a line, written into what was captured of the second host, or of both: bridging, RDMA, and what switches say.

use super::Written::{Answers as Told, File, Line, Mtu};
use super::{Break, everywhere, written};
use crate::breaks::answers::{Answers, WHOLE};
use crate::breaks::fabric::{ALIKE, BRIDGING, Bridging, Fabric, PORT, Port};

pub(super) const LINES: &[Break] = &[
    written(
        "pause",
        "an adapter holds packets back by pause frames beside PFC",
        "dcb-pause",
        "b nic0",
        &[Told(Answers {
            pause: true,
            ..WHOLE
        })],
    ),
    written(
        "switch-priority",
        "a switch holds another priority back than its host",
        "dcb-peer",
        "b nic0",
        &[Line(Fabric {
            peer: Bridging {
                pfc: Some(4),
                ..BRIDGING
            },
            ..ALIKE
        })],
    ),
    written(
        "priorities",
        "two hosts, each as its switch has it, hold different priorities back",
        "pair-dcb",
        "a and b nic0",
        &[Line(Fabric {
            own: FOURTH,
            peer: FOURTH,
            ..ALIKE
        })],
    ),
    everywhere(written(
        "share",
        "migrations have 4 % of a line that is full, on both hosts",
        "dcb-share",
        "a nic0",
        &[Line(Fabric {
            own: SPARSE,
            peer: SPARSE,
            ..ALIKE
        })],
    )),
    written(
        "bound",
        "migrations may send 5 Gbit/s by an adapter of 25",
        "dcb-most",
        "b nic0",
        &[Line(Fabric {
            most: Some(5000),
            ..ALIKE
        })],
    ),
    written(
        "willing",
        "an adapter takes whatever its switch says",
        "dcb-willing",
        "b nic0",
        &[Line(Fabric {
            willing: true,
            ..ALIKE
        })],
    ),
    everywhere(written(
        "lossy",
        "nothing holds packets of RDMA back, on both hosts and at their switches",
        "dcb-lossless",
        "a nic0",
        &[Line(Fabric {
            own: LOSSY,
            peer: LOSSY,
            ..ALIKE
        })],
    )),
    written(
        "rdma-priority",
        "RDMA has another priority than the one that is held back alone",
        "dcb-rdma",
        "b nic0",
        &[Line(Fabric {
            own: OTHER,
            peer: OTHER,
            ..ALIKE
        })],
    ),
    written(
        "held-back",
        "a switch held a line back for hours",
        "dcb-pressure",
        "b nic0",
        &[Line(Fabric {
            held: 10_000_000,
            ..ALIKE
        })],
    ),
    written(
        "rdma-down",
        "an RDMA device is down where its interface has a link",
        "rdma-port",
        "b nic0",
        &[
            File("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN"),
            File(
                "sys/class/infiniband/mlx5_0/ports/1/phys_state",
                "3: Disabled",
            ),
        ],
    ),
    written(
        "rdma-version",
        "an RDMA device has addresses of RoCE v1 alone",
        "rdma-kind",
        "b nic0",
        &[File(
            "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1",
            "IB/RoCE v1",
        )],
    ),
    written(
        "rdma-default",
        "programs take RoCE v1 on one host, and v2 on the other",
        "pair-rdma",
        "a and b nic0",
        &[File(
            "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode",
            "IB/RoCE v1",
        )],
    ),
    everywhere(written(
        "rdma-pieces",
        "RDMA goes in packets of 1500 bytes, on both hosts",
        "rdma-pieces",
        "a nic0",
        &[Mtu(1500)],
    )),
    written(
        "rdma-lost",
        "an RDMA device lost packets",
        "rdma-lost",
        "b nic0",
        &[File(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err",
            "50000",
        )],
    ),
    written(
        "switch-frames",
        "a switch's port takes 1500 bytes, and its host sends 9000",
        "switch-frames",
        "b nic0",
        &[Line(Fabric {
            port: Port {
                frame: 1518,
                ..PORT
            },
            ..ALIKE
        })],
    ),
    written(
        "switch-by-hand",
        "a switch's port was set by hand, and its host negotiates",
        "switch-negotiation",
        "b nic0",
        &[Line(Fabric {
            port: Port {
                negotiates: false,
                ..PORT
            },
            ..ALIKE
        })],
    ),
    written(
        "one-switch",
        "both adapters of a host are cabled to one switch",
        "switch-one",
        "b",
        &[Line(Fabric {
            port: Port { switch: 2, ..PORT },
            ..ALIKE
        })],
    ),
    written(
        "other-switch",
        "two hosts are cabled to different switches",
        "pair-switch",
        "a and b nic0",
        &[Line(Fabric {
            port: Port { switch: 3, ..PORT },
            ..ALIKE
        })],
    ),
];

/// Another priority is held back, that of RDMA as well.
const FOURTH: Bridging = Bridging {
    pfc: Some(4),
    roce: 4,
    ..BRIDGING
};

const SPARSE: Bridging = Bridging {
    share: 4,
    ..BRIDGING
};

const LOSSY: Bridging = Bridging {
    pfc: None,
    ..BRIDGING
};

/// RDMA has a priority that nothing holds back.
const OTHER: Bridging = Bridging {
    roce: 5,
    ..BRIDGING
};
