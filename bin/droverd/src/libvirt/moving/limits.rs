//! Bounds of what is done with domains that move.

use std::time::Duration;

/// Until it is believed that libvirt leaves a domain as it shows it, where no answer of its own says so: a libvirtd that was just
/// started looks at each QEMU and ends those whose migration it had confirmed, within 2 s for two of them; one whose client
/// has gone ends what it was starting for that within a second.
pub const SETTLES: Duration = Duration::from_secs(5);

/// Files and interfaces of a domain that are looked for on the host that it goes to: it has some ten disks and cards.
pub const DOMAIN_NEEDS: usize = 256;

/// For looking whether they are there, which hangs where they are on another machine that is gone.
pub const LOOK_FOR_FILES: Duration = Duration::from_secs(5);
