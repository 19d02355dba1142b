//! Bounds on what a host may tell, and for how long.

use std::time::Duration;

/// How long the kernel may take to list its links and addresses. It takes 1 ms for ten of them
/// and some 100 ms for thousands.
pub const NETLINK: Duration = Duration::from_secs(5);

/// Interfaces and addresses read. Hosts with a bridge and two taps for each of 1000 guests have
/// some 3000; no more than 64 of them are ever used.
pub const LINKS: usize = 8192;

/// Addresses of one interface whose changes are told. Of an interface no more than 8 are used.
pub const ADDRESSES: usize = 256;

/// Bytes read of one file. `/proc/meminfo` has 1.5 KiB, `/proc/self/status` 1.5 KiB and a CPU
/// list of 4096 single CPUs 20 KiB.
pub const FILE: u64 = 64 * 1024;

/// Entries looked at in one folder of `/sys`.
pub const ENTRIES: usize = 1024;

/// Bytes of one answer of ethtool and its like: link modes take some 100, and a table of 2048 places for queues 8 KiB.
pub const NETLINK_ANSWER: usize = 16 * 1024;

/// Parts of all adapters of a host that tell of their health: an adapter has some ten for each port.
pub const REPORTERS: usize = 4096;

/// Bytes of what systemd-networkd keeps of the neighbours of one interface: a frame is 1500 bytes at most, and a port has one
/// neighbour, or few.
pub const LLDP: u64 = 64 * 1024;

/// Bytes of one frame of LLDP: it is not divided, and no adapter takes larger ones than these.
pub const LLDP_FRAME: usize = 9216;

/// Neighbours of one interface that are remembered, each with three names of 511 bytes at most: one at a cable, or few where something that
/// hands LLDP on is in between.
pub const LLDP_NEIGHBOURS: usize = 16;

/// Interfaces at which an agent listens for LLDP: those with hardware that are no virtual function, and a host with 8 adapters of 4 ports has fewer.
pub const LLDP_PORTS: usize = 64;

/// How many interfaces may stand on each other until one has hardware: a bridge over a VLAN over a
/// bond is three, and `netdev` itself allows 8 (`MAX_NEST_DEV`).
pub const LOWER_DEPTH: usize = 8;

/// Adapters looked at below one interface. A bond has some 8 at most, a bridge one beside its taps.
pub const PORTS: usize = 64;

/// Folders looked at from a device up to the one that knows its NUMA node; a virtio or auxiliary
/// device is one or two below it.
pub const PARENTS: usize = 4;

/// Processes whose names are looked at. A host with 1000 guests has some 10,000, the kernel's own included.
pub const PROCESSES: usize = 64 * 1024;

/// Entries of a table of priorities: one for each of 64 DSCPs, and as many for ports.
pub const APPS: usize = 128;

/// Interrupts of one adapter: as many as PCI allows (MSI-X).
pub const INTERRUPTS: usize = 2048;

/// Idle states of one processor: as many as the kernel has room for (`CPUIDLE_STATE_MAX`).
pub const IDLE_STATES: u32 = 10;

/// Profiles of tuned that include each other: those that come with it have four at most.
pub const PROFILES: usize = 16;

/// Bytes of a file by which settings last: those that come with distributions have some 10 KiB, an `interfaces` of 100 stanzas 20.
pub const ETC_FILE: u64 = 64 * 1024;

/// Bytes of a file's name: as many as file systems take (`NAME_MAX`).
pub const NAME: usize = 255;

/// Bytes of an attribute of such a file, and of all their names: as many as the kernel takes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
pub const ATTRIBUTE: usize = 64 * 1024;

/// Messages in which a team tells its options: one of 4 KiB holds those of some 10 members, and a team of 64 is more than any host has.
pub const TEAM_PARTS: usize = 16;

/// How long NetworkManager may take to tell its version, or to read a profile again. It takes some 20 ms; one that starts on a loaded host
/// answers a second later.
pub const NETWORK_MANAGER: Duration = Duration::from_secs(5);
