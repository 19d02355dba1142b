//! Disks in files that are one host's alone, which move with their domain: docs/decisions/0042.
//!
//! ```text
//!   source       fit ─▶ described ─ image ─▶ NewDisk, which travels         left: what stays behind, once it was handed off
//!   destination  NewDisk ─▶ room: whether they can be made ─▶ made ─ image ─▶ files, and a ledger of them
//! ```
//! The files' contents are libvirt's to copy.
//!
//! # Invariant
//! No file is removed or replaced but one that the agent made here for this very migration, or that this very domain left here when it was
//! handed off; none that any process has open; and none of a domain that may have run here, or that somebody wrote to since libvirt copied to it.

mod described;
mod identity;
mod image;
mod ledger;
mod left;
mod limits;
mod made;
mod place;
mod removed;
mod room;
mod works;

pub use described::{LocalDisk, described};
pub use ledger::{forget, forget_all_but, is_recorded};
pub use left::{left_by, told};
pub use limits::LOOK;
pub use made::make;
pub use removed::{listed, remove, settle};
pub use room::{Share, offer};
pub use works::Works;

use drover_api::{DomainNeed, MovingDomain, NewDisk};

/// The disks that come with a domain.
pub fn of(domain: &MovingDomain) -> &[NewDisk] {
    let disks = domain.needs.iter().find_map(|need| match need {
        DomainNeed::NewDisks { disks, .. } => Some(disks.as_slice()),
        _ => None,
    });
    disks.unwrap_or_default()
}
