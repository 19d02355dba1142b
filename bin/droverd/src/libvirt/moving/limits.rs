//! Bounds of what is done with domains that move.

use std::time::Duration;

/// For a libvirtd whose client has gone to end what it was starting for that: it does within a second.
pub const SETTLES: Duration = Duration::from_secs(5);

/// Files and interfaces of a domain that are looked for on the host that it goes to: it has some ten disks and cards.
pub const DOMAIN_NEEDS: usize = 256;

/// For looking whether they are there, which hangs where they are on another machine that is gone.
pub const LOOK_FOR_FILES: Duration = Duration::from_secs(5);

/// Looks of that kind at once. One that hangs may do so for ever.
pub const LOOKS: usize = 4;
