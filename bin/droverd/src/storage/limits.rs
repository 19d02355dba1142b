use std::time::Duration;

/// Moves of disks at once: each keeps a file system busy, and a domain has one at a time.
pub const AT_ONCE: usize = 16;

/// Between two looks at a copy, of which progress is shown.
pub const LOOK: Duration = Duration::from_millis(500);

/// The same while a guest stands still for it: libvirt and QEMU take some 10 ms.
pub const MOMENT: Duration = Duration::from_millis(10);

/// Before libvirt is asked again that did not answer, or refused.
pub const AGAIN: Duration = Duration::from_secs(1);

/// How long a guest stands still at most: what it wrote last is copied within that, unless the new file's disk hangs.
pub const LATE: Duration = Duration::from_secs(10);

/// Before a file is looked at again that was to go, and that a process has open.
pub const OWED: Duration = Duration::from_secs(5);

/// Moves that have ended and are still shown: a file of a kilobyte or two each.
pub const HISTORY: usize = 100;

/// Things told of one move: a look that fails is told once.
pub const EVENTS: usize = 64;
