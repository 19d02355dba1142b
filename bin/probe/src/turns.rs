//! Which page is rewritten next, and how often each was: all of it follows from the count of rewrites.

/// Turns through the first pages of something, one page after the other, again and again.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    working_set: usize,
    /// Complete turns, and the page that is next: a division for each rewrite would cost an emulated
    /// guest more than the rewrite.
    turns: u64,
    next: usize,
}

impl Turns {
    /// Through so many pages.
    pub fn through(working_set: usize) -> Self {
        Self {
            working_set,
            turns: 0,
            next: 0,
        }
    }

    /// The page whose turn it is, which counts as rewritten from now on; none where none ever is.
    pub fn next(&mut self) -> Option<usize> {
        let page = self.peek()?;
        self.next += 1;
        if self.next == self.working_set {
            (self.next, self.turns) = (0, self.turns + 1);
        }
        Some(page)
    }

    /// The page whose turn it is.
    pub fn peek(&self) -> Option<usize> {
        (self.working_set > 0).then_some(self.next)
    }

    /// Rewrites since the beginning.
    pub fn rewrites(&self) -> u64 {
        self.turns * self.working_set as u64 + self.next as u64
    }

    /// How often a page was rewritten.
    pub fn generation(&self, page: usize) -> u64 {
        if page >= self.working_set {
            return 0;
        }
        self.turns + u64::from(page < self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_its_turn_and_others_never() {
        let mut turns = Turns::through(3);
        let order: Vec<_> = (0..5).filter_map(|_| turns.next()).collect();
        assert_eq!(order, [0, 1, 2, 0, 1]);
        assert_eq!(
            [0, 1, 2, 3].map(|page| turns.generation(page)),
            [2, 2, 1, 0]
        );
        assert_eq!((turns.rewrites(), turns.peek()), (5, Some(2)));
        let mut none = Turns::through(0);
        assert_eq!((none.next(), none.rewrites()), (None, 0));
    }
}
