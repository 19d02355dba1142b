//! A domain that moves: libvirt migrates it, over this agent's relays, and the migration's own task decides where it runs.
//!
//! ```text
//!   outgoing ── Held ──▶ HeldDomain ── Leaving ──▶ drover_libvirt::Ready ─▶ libvirtd ── control ──▶ relay ══▶ the other's libvirtd
//!   incoming ── Held ──▶ HeldDomain ── Arriving ─▶ look, resume, destroy ─▶ libvirtd    memory ───▶ relay ══▶ the other's QEMU
//! ```
//! Owns how libvirt is asked and what its answers mean. It decides nothing: docs/decisions/0036 says who does.
//!
//! # Invariant
//! libvirt is told to leave the domain paused at the destination, always. There it is run by [`Movable::resume`] only, which the
//! migration's task tells it when the source has written down that it handed off.
//!
//! [`Movable::resume`]: drover_hypervisor::Movable::resume

mod advice;
mod arrival;
mod arriving;
mod as_held;
mod begin;
mod beside;
mod call;
mod conditions;
mod confined;
mod disks;
mod ended;
mod events;
mod files;
mod fit;
mod held;
mod last;
mod leaving;
mod limits;
mod line;
mod needs;
mod offers;
mod other;
mod owed;
mod places;
mod processor;
mod progress;
mod record;
mod storage;
mod turns;
mod versions;
mod words;

pub use begin::{ToLeave, arrive, forget_arrivals, taken_up, to_leave};
pub(super) use beside::keeping;
pub use conditions::{Whose, whose};
pub use files::{Hang, Held as HeldPaths, Looked, Looks, holder, told as files_told};
pub(super) use fit::Fits;
pub use fit::{Fit, fits};
pub use limits::LOOK_FOR_FILES;
pub(super) use offers::Offers;
pub use offers::{Offer, answer};
pub use owed::{Ended, Left};
pub use record::{Debt, DomainRecord, Owed, kept_definition};
pub use storage::{
    DiskShown, DomainDisk, Ready as DiskReady, Untold, ready as disk_ready,
    taken_up as disk_taken_up,
};
pub(super) use turns::Turns;
pub use turns::Way as DomainWay;
