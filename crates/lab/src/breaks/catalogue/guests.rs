//! Guests that are badly defined on the second host. Those that ask for what this machine may not have (`vhost`, huge pages, 32 GiB) are
//! not started: their definitions are looked at all the same.

use drover_types::Bytes;

use super::{Break, defined};
use crate::breaks::defined::Guest;

/// A guest with nothing wrong. Not started, as the kernel may not serve its queues.
pub(in crate::breaks) const WHOLE: Guest = Guest {
    memory: Bytes(64 << 20),
    vcpus: 2,
    machine: "q35,accel=tcg",
    args: &[
        "-netdev",
        "tap,id=net0,ifname=tap0,script=no,downscript=no,vhost=on,queues=2",
        "-device",
        "virtio-net-pci,netdev=net0,mq=on,vectors=6",
    ],
    runs: false,
};

/// The same with one processor, running.
const RUNNING: Guest = Guest {
    vcpus: 1,
    runs: true,
    ..WHOLE
};

pub(super) const GUESTS: &[Break] = &[
    defined(
        "guest-vhost",
        "QEMU, and not the kernel, carries the packets of a guest that runs",
        "guest-vhost",
        "b guest guest-vhost net0",
        Guest {
            args: &[
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-netdev",
                "tap,id=net0,ifname=tap0,script=no,downscript=no",
                "-device",
                "virtio-net-pci,netdev=net0,romfile=",
            ],
            ..RUNNING
        },
    ),
    defined(
        "guest-packets",
        "a guest that runs is told 9000 bytes, and its interface on the host takes 1500",
        "guest-mtu",
        "b guest guest-packets net0",
        Guest {
            args: &[
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-netdev",
                "tap,id=net0,ifname=tap1,script=no,downscript=no",
                "-device",
                "virtio-net-pci,netdev=net0,romfile=,host_mtu=9000",
            ],
            ..RUNNING
        },
    ),
    defined(
        "guest-queues",
        "a guest of four processors has one queue",
        "guest-queues",
        "b guest guest-queues net0",
        Guest {
            vcpus: 4,
            args: &[
                "-netdev",
                "tap,id=net0,ifname=tap2,script=no,downscript=no,vhost=on",
                "-device",
                "virtio-net-pci,netdev=net0",
            ],
            ..WHOLE
        },
    ),
    defined(
        "guest-backing",
        "a guest's memory is huge pages, of which the other host has none",
        "guest-huge-pages",
        "b guest guest-backing",
        Guest {
            memory: Bytes(16 << 30),
            machine: "q35,accel=tcg,memory-backend=ram0",
            args: &[
                "-object",
                "memory-backend-memfd,id=ram0,size=16G,hugetlb=on,hugetlbsize=1G",
            ],
            ..WHOLE
        },
    ),
    defined(
        "guest-filled",
        "one thread fills 32 GiB before a guest can arrive",
        "guest-prealloc",
        "b guest guest-filled",
        Guest {
            memory: Bytes(32 << 30),
            machine: "q35,accel=tcg,memory-backend=ram0",
            args: &[
                "-object",
                "memory-backend-ram,id=ram0,size=32G,prealloc=on,prealloc-threads=1",
            ],
            ..WHOLE
        },
    ),
];
