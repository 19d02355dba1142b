//! A libvirt on hosts of a lab: which one, its libvirtd on each host, and the guest as a domain of it.
//!
//! ```text
//!   host ── host.sh     mounts and processes of its own: libvirt's files over the machine's, and what it keeps for itself
//!            │  libvirtd   there, as everything that is started on the host from then on
//!            │  virsh
//!   domain ── emulator  QEMU, with the lab's monitor beside libvirt's
//! ```
//!
//! A domain is as an operator's: what the lab needs beside it, it gets by the emulator that is named in it, and not
//! by arguments for QEMU, with which agents let no domain go.

mod daemon;
mod domain;
mod emulator;
mod version;

pub use domain::{idle, of_guest};
pub use version::Libvirt;

pub(crate) use daemon::{holder, start, uri, version, virsh};
pub(crate) use domain::{Job, boot, end, pid_of};

/// Process 1 of a host with a libvirt, for `bash -c`: its arguments stand at its begin.
pub const HOST: &str = include_str!("host.sh");
