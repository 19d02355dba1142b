//! Memory for pages of one size, in few large pieces.
//!
//! A piece for each page would cost as much as to copy the page: the allocator asks the kernel for a little more again
//! and again.

use crate::limits::PIECE_BYTES;

/// Pages by their numbers. Their memory is taken as they come, and given back with all of them.
#[derive(Debug)]
pub struct Pages {
    page_bytes: usize,
    most: usize,
    in_piece: usize,
    pieces: Vec<Vec<u8>>,
}

impl Pages {
    /// None so far, and at most so many.
    pub const fn new(page_bytes: usize, most: u32) -> Self {
        let in_piece = match PIECE_BYTES.checked_div(page_bytes) {
            Some(0) | None => 1,
            Some(count) => count,
        };
        Self {
            page_bytes,
            most: most as usize,
            in_piece,
            pieces: Vec::new(),
        }
    }

    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The page of that number; zeros, or none, if it was not put there.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        let (piece, at) = self.place(number);
        self.pieces.get(piece)?.get(at..at + self.page_bytes)
    }

    /// Puts a page there. Nothing happens to one of another size, or with a number beyond the most.
    pub fn put(&mut self, number: u32, page: &[u8]) {
        if page.len() != self.page_bytes || number as usize >= self.most {
            return;
        }
        let (piece, at) = self.place(number);
        if self.pieces.len() <= piece {
            self.pieces.resize_with(piece + 1, Vec::new);
        }
        let pages = self.in_piece.min(self.most - piece * self.in_piece);
        let memory = &mut self.pieces[piece];
        if memory.capacity() == 0 {
            memory.reserve_exact(pages * self.page_bytes);
        }
        if memory.len() <= at {
            memory.resize(at, 0);
            memory.extend_from_slice(page);
        } else {
            memory[at..at + self.page_bytes].copy_from_slice(page);
        }
    }

    /// In which piece, and where in it.
    const fn place(&self, number: u32) -> (usize, usize) {
        let number = number as usize;
        let at = number % self.in_piece * self.page_bytes;
        (number / self.in_piece, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_where_they_were_put_in_any_order_and_memory_is_taken_for_no_more() {
        const PAGE: usize = PIECE_BYTES / 4;
        let page = |seed: u8| vec![seed; PAGE];
        let mut pages = Pages::new(PAGE, 6);
        pages.put(5, &page(5));
        pages.put(1, &page(1));
        pages.put(0, &page(9));
        pages.put(1, &page(2));
        assert_eq!(pages.get(5), Some(&page(5)[..]));
        assert_eq!(pages.get(1), Some(&page(2)[..]));
        assert_eq!(pages.get(0), Some(&page(9)[..]));
        assert_eq!(pages.get(2), None);
        pages.put(6, &page(6));
        pages.put(2, &page(6)[1..]);
        assert_eq!((pages.get(6), pages.get(2)), (None, None));
        let taken: Vec<usize> = pages.pieces.iter().map(Vec::capacity).collect();
        assert_eq!(taken, [4 * PAGE, 2 * PAGE]);
    }
}
