//! Lines from the pieces in which a serial port gives them.

use crate::limits;

/// Puts the pieces of one stream together.
#[derive(Debug)]
pub(crate) struct Assembler {
    part: Vec<u8>,
    /// Bytes of a line that are kept.
    most: usize,
    left_out: usize,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::keeping(limits::LINE)
    }
}

impl Assembler {
    /// One that keeps so many bytes of a line, and says what was left out of a longer one.
    pub(crate) fn keeping(most: usize) -> Self {
        Self {
            part: Vec::new(),
            most,
            left_out: 0,
        }
    }

    /// An assembler whose stream continues another that ended in the middle of a line: the guest
    /// was moved while it wrote.
    pub(super) fn continuing(other: &Self) -> Self {
        Self {
            part: other.part.clone(),
            ..*other
        }
    }

    /// Adds a piece and gives the lines that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in piece {
            if byte == b'\n' {
                lines.push(self.line());
            } else if self.part.len() < self.most {
                self.part.push(byte);
            } else {
                self.left_out += 1;
            }
        }
        lines
    }

    fn line(&mut self) -> String {
        let mut line = String::from_utf8_lossy(&self.part).into_owned();
        if self.left_out > 0 {
            line += &format!(" ({} bytes left out)", self.left_out);
        }
        self.part.clear();
        self.left_out = 0;
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let text = b"one\ntwo\nthree\n";
        for size in 1..text.len() {
            let mut assembler = Assembler::default();
            let lines: Vec<_> = text
                .chunks(size)
                .flat_map(|piece| assembler.feed(piece))
                .collect();
            assert_eq!(lines, ["one", "two", "three"]);
        }
    }

    #[test]
    fn a_line_begun_on_the_source_is_completed_on_the_destination() {
        let mut source = Assembler::default();
        assert_eq!(source.feed(b"one\ntw"), ["one"]);
        let mut destination = Assembler::continuing(&source);
        assert_eq!(destination.feed(b"o\n"), ["two"]);
    }

    #[test]
    fn an_endless_line_takes_no_more_than_its_bound_and_says_what_it_lacks() {
        let mut assembler = Assembler::keeping(3);
        for _ in 0..100 {
            assert!(assembler.feed(&[b'x'; 1000]).is_empty());
        }
        let lines = assembler.feed(b"\nnext\n");
        assert_eq!(
            lines,
            ["xxx (99997 bytes left out)", "nex (1 bytes left out)"]
        );
        assert_eq!(Assembler::default().feed(b"next\n"), ["next"]);
    }
}
