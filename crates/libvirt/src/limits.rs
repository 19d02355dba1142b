//! Every bound of this crate: how long each wait lasts, and how much of somebody else's is taken.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

/// From asking for a connection to having it, its events asked for. An idle libvirtd takes 10 ms; one that has just been
/// started has to look at each QEMU on the host first: 1.5 s for two, seen.
pub const CONNECT: Duration = Duration::from_secs(15);

/// Attempts to connect that may hang at once. Those of migrations and of who ends one are not among them: they have bounds of their
/// own ([`MIGRATIONS`], [`ABORTS`]), and one that is to be ended must not wait for others that hang.
///
/// libvirt has no way to give one up: with a libvirtd that took the connection and says nothing, the attempt's thread waits
/// until that goes on or ends. Whoever tries again after [`CONNECT`] has four of them within a minute, and from then on is told so. Others
/// wait for their turn as long: one that does not hang is over in 10 ms, so twenty domains that move at once have theirs.
pub const CONNECTING: usize = 4;

/// How often libvirtd is asked whether it lives, in seconds, where nothing else was heard.
pub const KEEPALIVE_SECONDS: c_int = 3;

/// So many unanswered questions end a connection: a libvirtd that hangs or was stopped is noticed within 12 s, and every call that
/// waits fails. libvirt's own clients have 5 of 5 s. To lose one costs nothing but to connect again: libvirt goes on with a migration
/// of its own (peer to peer).
pub const KEEPALIVE_UNANSWERED: c_uint = 3;

/// For a call's answer. Each takes below 1 ms on an idle libvirtd, and waits for the domain's lock, which a QEMU that does not
/// answer its monitor may hold. Longer than what [`KEEPALIVE_SECONDS`] finds, so that a lost libvirtd is called that.
pub const CALL: Duration = Duration::from_secs(20);

/// Calls of one connection that may wait for their turn. One is made after another, so more than this many waiting means that
/// libvirtd answers nothing.
pub const CALLS_WAITING: usize = 32;

/// Migrations at once of this process, each with a connection of its own and a thread that waits for its end. libvirt itself has no limit; a host that sends
/// more than a few at once shares its NICs among them and gains nothing.
pub const MIGRATIONS: usize = 32;

/// Jobs that are ended at once, each over a connection of its own: one for each migration that there may be. Such a call waits for
/// the domain's lock, which a QEMU that hangs may hold, and cannot be given up.
pub const ABORTS: usize = MIGRATIONS;

/// Events kept for a reader that is slow; the oldest go first and it is told how many it missed. Each is below 1 KiB.
pub const EVENTS_KEPT: usize = 512;

/// Longest text of an error that is looked at, in bytes: libvirt quotes what a program said.
pub const WORDS_BYTES: usize = 4 << 10;

/// Longest text of somebody else that is repeated in an error, in characters.
pub const EXCERPT_CHARS: usize = 400;

/// Longest name of a domain that is taken, in bytes. libvirt makes a file of it, so it has 255 at most.
pub const NAME_BYTES: usize = 255;

/// Longest XML of a domain that is taken, in bytes: what libvirt's protocol carries (`REMOTE_STRING_MAX`).
pub const XML_BYTES: usize = 4 << 20;

/// Most nodes of a domain's XML: one with 1000 devices has some 10000.
pub const XML_NODES: u32 = 100_000;

/// Pause of the thread of events after an error of its loop, so that one that stays does not take a processor.
pub const EVENTS_AGAIN: Duration = Duration::from_millis(100);

/// Until libvirtd is looked for again, where it was lost or is not there. It takes a second to be restarted. Each further look that
/// finds none waits twice as long as the one before, up to [`RECONNECT_MOST`].
pub const RECONNECT: Duration = Duration::from_secs(1);

/// The longest of these pauses: a libvirtd that somebody starts after an hour is used half a minute later.
pub const RECONNECT_MOST: Duration = Duration::from_secs(30);

/// Until the library is looked for again: somebody may install libvirt, which is rare and takes longer.
pub const RELOAD: Duration = Duration::from_secs(30);

/// Between two listings of a host's domains while events come: a listing asks three questions for each domain, 60 ms for 200.
pub const RELIST: Duration = Duration::from_millis(250);

/// Until domains are listed again although no event came: libvirt tells nothing of a changed autostart.
pub const REFRESH: Duration = Duration::from_secs(30);
