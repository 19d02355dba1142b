//! Bounds of what is done with domains that move.

use std::time::Duration;

use crate::limits::{DOMAIN_NEEDS_ASKED, INVENTORY, SHOW};

/// For a libvirtd whose client has gone to end what it was starting for that: it does within a second.
pub const SETTLES: Duration = Duration::from_secs(5);

/// Files and interfaces of a domain that are looked for on the host that it goes to: it has some ten disks and cards.
pub const DOMAIN_NEEDS: usize = 256;

/// For looking whether they are there, which hangs where they are on another machine that is gone.
pub const LOOK_FOR_FILES: Duration = Duration::from_secs(5);

// Whoever asks a host what it has waits for that and for its libvirt.
const _: () = assert!(LOOK_FOR_FILES.as_secs() + SHOW.as_secs() < INVENTORY.as_secs());

/// Looks of that kind at once. One that hangs may do so for ever, one on each mount: a host has some five mounts of other machines.
pub const LOOKS: usize = 16;

/// How long it is believed what a host has: planning, looking at the plan and beginning with it ask for the same in a row. Who moves a
/// domain has it looked for anew.
pub const OFFER_KEPT: Duration = Duration::from_secs(10);

/// Things of which that is kept: those of four who ask for different ones.
pub const OFFERS_KEPT: usize = 4 * DOMAIN_NEEDS_ASKED;

/// For what disks are that are to be copied, of all domains of a host, some milliseconds each.
pub const DISKS_DESCRIBED: Duration = Duration::from_secs(4);

// Beside libvirt's and the kernel's words on them.
const _: () = assert!(DISKS_DESCRIBED.as_secs() + 2 * SHOW.as_secs() < INVENTORY.as_secs());

/// Domains of which that is looked at, at once: each has some two disks, and each is a process.
pub const DESCRIBED_AT_ONCE: usize = 8;

/// How long it is believed what a domain needs: somebody may attach a device meanwhile, which its move finds then.
pub const FIT_KEPT: Duration = Duration::from_secs(10);

/// Longest beginning of libvirt's qemu.conf that is looked through: with all of its comments it has some 40 KiB.
pub const CONF_BYTES: u64 = 1 << 20;
