//! Disks in files that are one host's alone, which move with their guest: docs/decisions/0042 and 0043.
//!
//! ```text
//!   source       described ─ image ─▶ NewDisk, which travels            left: what stays behind, once it was handed off
//!   destination  NewDisk ─▶ room: whether they can be made ─▶ made ─ image ─▶ files, and a ledger of them
//! ```
//! The files' contents are for whoever moves the guest to copy: libvirt, or the agent's own QEMUs.
//!
//! # Invariant
//! No file is removed or replaced but one that the agent made here for this very migration, or that this very guest left here when it was
//! handed off; and none that any process has open.

mod described;
mod identity;
mod image;
mod left;
mod limits;
mod made;
mod owner;
mod room;

pub use described::{described, few_enough};
pub use left::{leave, told};
pub use made::{forget, is_recorded, make, recorded, remove, removed};
pub use owner::Owner;
pub use room::offer;
