//! Which bytes of a channel are which pages.

use std::collections::VecDeque;
use std::ops::Range;

use drover_qstream::{Found, Page};
use drover_reduce::{PageId, Span};

/// Pages are numbered within their block below this: a block of 4 PiB. Their block's number is above it, 24 bits that follow
/// from its name: the same on each channel. Where two blocks have the same, a page may be compared with one of the other block,
/// and less is saved; nothing else depends on it.
const PAGE_BITS: u32 = 40;

/// The pages of one channel of which nothing has been sent: of one that was cut nobody can make anything.
#[derive(Debug)]
pub(super) struct Pages {
    page_bytes: u64,
    pages: VecDeque<Page>,
    /// Those of which nothing is sent, since they were last taken.
    zero: u64,
}

impl Pages {
    pub(super) const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes: page_bytes as u64,
            pages: VecDeque::new(),
            zero: 0,
        }
    }

    /// Something was found behind all that was found before.
    pub(super) fn add(&mut self, found: Found) {
        match found {
            Found::Page(page) => self.pages.push_back(page),
            Found::Filled { .. } => self.zero += 1,
        }
    }

    /// How many pages were found since then of which QEMU says that they are zero.
    pub(super) const fn take_zero(&mut self) -> u64 {
        std::mem::replace(&mut self.zero, 0)
    }

    /// How far the bytes up to `end` go without cutting a page.
    pub(super) fn whole(&self, end: u64) -> u64 {
        let before = self.pages.partition_point(|page| page.begins < end);
        let last = before.checked_sub(1).and_then(|last| self.pages.get(last));
        let cut = last.filter(|page| end < page.begins + self.page_bytes);
        cut.map_or(end, |page| page.begins)
    }

    /// Forgets the pages that begin before that.
    pub(super) fn forget(&mut self, before: u64) {
        let gone = |page: &mut Page| page.begins < before;
        while self.pages.pop_front_if(gone).is_some() {}
    }

    /// What those bytes are, of which a page may only be cut at the beginning; what comes before them is forgotten.
    pub(super) fn spans(&mut self, bytes: Range<u64>) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut at = bytes.start;
        for page in &self.pages {
            let Page { begins, .. } = *page;
            if begins < at {
                continue;
            }
            if begins + self.page_bytes > bytes.end {
                break;
            }
            if begins > at {
                spans.push(Span::Plain((begins - at) as usize));
            }
            spans.push(Span::Page(self.id(page)));
            at = begins + self.page_bytes;
        }
        if at < bytes.end {
            spans.push(Span::Plain((bytes.end - at) as usize));
        }
        self.forget(bytes.end);
        spans
    }

    fn id(&self, page: &Page) -> PageId {
        let number = (page.offset / self.page_bytes) & ((1 << PAGE_BITS) - 1);
        PageId((u64::from(page.block.number()) << PAGE_BITS) | number)
    }
}

#[cfg(test)]
mod tests {
    use drover_qstream::Block;

    use super::*;

    /// Two that follow each other, and one behind 100 bytes that are none.
    fn pages() -> Pages {
        let mut pages = Pages::new(4096);
        let block = Block::named(b"pc.ram");
        for (begins, offset) in [(1000, 0), (5096, 8192), (9292, 4096)] {
            pages.add(Found::Filled { block, offset: 0 });
            pages.add(Found::Page(Page {
                begins,
                block,
                offset,
            }));
        }
        pages
    }

    #[test]
    fn bytes_end_where_they_cut_no_page() {
        let pages = pages();
        for (end, whole) in [
            (999, 999),
            (1000, 1000),
            (1001, 1000),
            (5095, 1000),
            (5096, 5096),
            (5097, 5096),
            (9192, 9192),
            (9292, 9292),
            (13_387, 9292),
            (13_388, 13_388),
            (20_000, 20_000),
        ] {
            assert_eq!(pages.whole(end), whole, "{end}");
        }
    }

    #[test]
    fn pages_of_which_nothing_is_sent_are_counted_once() {
        let mut pages = pages();
        assert_eq!([pages.take_zero(), pages.take_zero()], [3, 0]);
    }

    #[test]
    fn pages_are_found_between_other_bytes_and_one_that_was_cut_before_is_none() {
        let block = u64::from(Block::named(b"pc.ram").number()) << PAGE_BITS;
        let page = |number| Span::Page(PageId(block | number));
        let mut all = pages();
        assert_eq!(
            all.spans(0..9292),
            [Span::Plain(1000), page(0), page(2), Span::Plain(100)]
        );
        assert_eq!(all.spans(9292..13_500), [page(1), Span::Plain(112)]);
        assert!(all.pages.is_empty());
        let mut cut = pages();
        cut.forget(3000);
        assert_eq!(cut.spans(3000..9192), [Span::Plain(2096), page(2)]);
        cut.forget(13_388);
        assert!(cut.pages.is_empty());
    }

    #[test]
    fn what_follows_the_beginning_of_a_page_that_was_sent_does_not_wait_for_its_end() {
        let mut pages = pages();
        pages.forget(3000);
        assert_eq!(pages.whole(3500), 3500);
        assert_eq!(pages.spans(3000..3500), [Span::Plain(500)]);
        assert_eq!(pages.whole(5097), 5096);
    }
}
