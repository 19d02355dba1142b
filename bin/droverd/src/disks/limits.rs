use std::time::Duration;

/// For `qemu-img` to read or write an image's header: it takes milliseconds where its disk is not busy.
pub const IMAGE: Duration = Duration::from_secs(10);

/// For all files to be made, which is a part of what a destination may take to get ready (`HYPERVISOR_START` of `migrate`, 50 s).
pub const MAKE: Duration = Duration::from_secs(40);

/// For all files of a guest to be looked at or removed: to remove a file of a TiB takes some seconds. Nobody but who pays debts waits
/// for it, and it goes on.
pub const REMOVE: Duration = Duration::from_secs(15);

/// Longest text of `qemu-img` that is read: what it says of an image is a KiB, and each snapshot adds some 200 B.
pub const SAID_BYTES: u64 = 1 << 20;

/// For a look at folders and files: as for others that a domain needs.
pub const LOOK: Duration = crate::libvirt::LOOK_FOR_FILES;
