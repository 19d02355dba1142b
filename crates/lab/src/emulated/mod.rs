//! A host that is emulated: Debian's kernel with every driver, adapters as QEMU emulates them, and this machine's files.
//!
//! What the kernel of a development machine lacks (bonding, team, RDMA, drivers of adapters) is real there: its own objects, its own
//! answers. The adapters are not: what only hardware shows is not shown.
//!
//! ```text
//!   Kernel ──┐                       ┌─ /        this machine's, read-only by 9p
//!   modules ─┼─ initramfs ─▶ QEMU ───┼─ /run/out a folder of the caller's, to write to
//!   NICs ────┘                       └─ ttyS1    what the program says; asks for its links to be cut
//! ```
//! One program runs in it, as its first and only one, and its exit status is the machine's.
//!
//! # Invariant
//! Nothing of this machine is changed but the caller's folder. QEMU ends with the run, whatever comes of that, and with the caller, however
//! that ends.

mod host;
mod initramfs;
mod kernel;
mod link;
mod modules;
mod said;

pub use host::{Adapter, EmulatedHost, Ended, Program};
pub use initramfs::OUT;
pub use kernel::Kernel;

pub use crate::guest::kernel::cache;
