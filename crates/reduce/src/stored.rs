//! Pages that the destination's host has stored, of whatever guest: it tells the source which, and numbers them in the
//! order in which it tells.

use crate::{PageId, Wrong};

/// The number of a stored page, which stands for the same content as long as the session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredId(pub u32);

/// What the source was told.
pub trait Told {
    /// The stored page of that content.
    fn find(&mut self, page: &[u8]) -> Option<StoredId>;

    /// A stored page of which it is likely that this one was made, and what is in it.
    fn base(&mut self, page: PageId) -> Option<(StoredId, &[u8])>;
}

/// What the destination has stored.
pub trait Stored {
    /// Fills `pages` with the page of that number and as many of those that follow it.
    ///
    /// # Errors
    /// [`Wrong::NotStored`], [`Wrong::Damaged`], [`Wrong::NotGiven`].
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong>;
}

/// Nothing.
impl Told for () {
    fn find(&mut self, _: &[u8]) -> Option<StoredId> {
        None
    }

    fn base(&mut self, _: PageId) -> Option<(StoredId, &[u8])> {
        None
    }
}

/// Nothing.
impl Stored for () {
    fn read(&self, first: StoredId, _: &mut [u8]) -> Result<(), Wrong> {
        Err(Wrong::NotStored(first))
    }
}
