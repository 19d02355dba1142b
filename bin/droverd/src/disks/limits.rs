use std::time::Duration;

/// For `qemu-img` to read or write an image's header: it takes milliseconds where its disk is not busy.
pub const IMAGE: Duration = Duration::from_secs(10);

/// For all files to be made, which is a part of what a destination may take to get ready (`HYPERVISOR_START` of `migrate`, 50 s).
pub const MAKE: Duration = Duration::from_secs(40);

/// For a look at folders and files: as for files that a domain needs.
pub const LOOK: Duration = crate::libvirt::LOOK_FOR_FILES;
