//! libvirt's domains, by libvirt's own library: listed, watched, migrated.
//!
//! The library is loaded at run time ([`Library::load`]), so a program starts on a host without it and says so. libvirt's calls
//! block: each [`Connection`] makes them in a thread of its own, one after another. A migration ([`Ready`]) has a connection and a
//! thread of its own, and so has whoever ends one ([`abort_job`]). Events come in one thread for the whole process. [`Watch`] keeps a connection and a host's domains, and finds
//! libvirtd again.
//!
//! ```text
//!   Watch ── Connection ── thread "libvirt-calls" ────▶ libvirt.so.0 ── UNIX socket ──▶ libvirtd ── QEMU
//!              │    Ready ── thread "libvirt-migrate" ─▶   │    ▲
//!            Events ◀─────── thread "libvirt-events" ◀─────┘    └ keepalive
//! ```
//! Says nothing to a hypervisor itself, and decides nothing: docs/decisions/0036 says who does. What a look at a domain that moves
//! means is read in `moving`, without I/O.
//!
//! # Invariant
//! Whatever libvirtd does (die, hang, refuse) becomes an error within a bound of [`limits`], with libvirt's own words where it has
//! some. One thread makes the calls of a connection: libvirt 9.0 can lose the answer of one of two. `unsafe` is in `raw` only,
//! with its argument.

mod abort;
mod beside;
mod connection;
mod copying;
mod description;
mod domain;
mod error;
mod events;
mod library;
pub mod limits;
mod migration;
mod moving;
mod offered;
mod opening;
mod raw;
mod shared;
mod uri;
mod version;
mod watch;

pub use abort::abort_job;
pub use beside::Beside;
pub use connection::Connection;
pub use copying::{CopySeen, CopyState, DiskCopy, DiskLook, DiskSeen};
pub use description::{
    Card, Description, Disk, NoDescription, Processor, Source, Tie, Tpm, confining,
};
pub use domain::{Domain, DomainState, Domains, Look, Untold, Why, Xml};
pub use error::{CallError, Closed, ConnectError, LoadError, NotEnded, NotReady, Refusal};
pub use events::{Event, Events, Happening, Job, Notice, Operation};
pub use library::{Library, SYSTEM};
pub use migration::{CopiedDisks, Migrating, Migration, Ready};
pub use moving::{Before, Comes, Leaves, Shown};
pub use offered::{Has, Machine, Secret, Wanted};
pub use uri::{SYSTEM as SYSTEM_URI, of_libvirtd as uri_of_socket};
pub use version::Version;
pub use watch::{Standing, Watch};
