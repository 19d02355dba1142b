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
//! handed off; none that any process has open; and none of a guest that may have run here, or that somebody wrote to since it was copied to.

mod described;
mod ended;
mod identity;
mod image;
mod known;
mod ledger;
mod left;
mod limits;
mod made;
mod owner;
mod place;
mod removed;
mod room;
mod stale;
mod works;

pub use described::{described, few_enough};
pub use ended::{Came, end};
pub use image::{Bitmaps, ENCRYPTED, changes_of};
pub use known::KnownFile;
pub use ledger::{forget_all_but, give, is_recorded, paths, recorded, take};
pub use left::{Leaves, told};
pub use limits::LOOK;
pub use made::make;
pub use owner::Owner;
pub use removed::{listed, remove, settle};
pub use room::{Share, offer};
pub use stale::{Known, Stale};
pub use works::Works;
