//! Where the pages are kept that the source refers to.

use crate::SlotId;
use crate::wrong::Wrong;

/// The pages that a destination keeps for one session.
#[derive(Debug)]
pub struct Kept {
    page_bytes: usize,
    most: u32,
    slots: Vec<Option<Box<[u8]>>>,
}

impl Kept {
    /// None so far, and at most so many. Their memory is taken as they come.
    #[must_use]
    pub const fn new(page_bytes: usize, most: u32) -> Self {
        Self {
            page_bytes,
            most,
            slots: Vec::new(),
        }
    }

    /// Bytes of the pages that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slots
            .iter()
            .flatten()
            .map(|page| page.len() as u64)
            .sum()
    }

    pub(crate) const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(crate) fn get(&self, slot: SlotId) -> Result<&[u8], Wrong> {
        let page = self.slots.get(slot.0 as usize).and_then(Option::as_deref);
        page.ok_or(Wrong::Unknown(slot))
    }

    /// Keeps a page of the right size.
    pub(crate) fn put(&mut self, slot: SlotId, page: &[u8]) -> Result<(), Wrong> {
        let most = self.most;
        if slot.0 >= most {
            return Err(Wrong::NoPlace { slot, most });
        }
        let at = slot.0 as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        match &mut self.slots[at] {
            Some(kept) => kept.copy_from_slice(page),
            empty => *empty = Some(page.into()),
        }
        Ok(())
    }
}
