//! Where the pages are kept that the source refers to.

use super::pages::Pages;
use crate::SlotId;
use crate::wrong::Wrong;

/// The pages that a destination keeps for one session.
#[derive(Debug)]
pub struct Kept {
    most: u32,
    pages: Pages,
    is_taken: Vec<bool>,
}

impl Kept {
    /// None so far, and at most so many. Their memory is taken as they come.
    #[must_use]
    pub const fn new(page_bytes: usize, most: u32) -> Self {
        Self {
            most,
            pages: Pages::new(page_bytes, most),
            is_taken: Vec::new(),
        }
    }

    /// Bytes of the pages that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let taken = self.is_taken.iter().filter(|taken| **taken);
        taken.count() as u64 * self.page_bytes() as u64
    }

    pub(crate) const fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }

    pub(crate) fn get(&self, slot: SlotId) -> Result<&[u8], Wrong> {
        let taken = self.is_taken.get(slot.0 as usize).copied();
        let page = self.pages.get(slot.0).filter(|_| taken == Some(true));
        page.ok_or(Wrong::Unknown(slot))
    }

    /// Keeps a page of the right size.
    pub(crate) fn put(&mut self, slot: SlotId, page: &[u8]) -> Result<(), Wrong> {
        let most = self.most;
        if slot.0 >= most {
            return Err(Wrong::NoPlace { slot, most });
        }
        let at = slot.0 as usize;
        if at >= self.is_taken.len() {
            self.is_taken.resize(at + 1, false);
        }
        self.is_taken[at] = true;
        self.pages.put(slot.0, page);
        Ok(())
    }
}
