//! Lines from the pieces in which a serial port gives them.

use crate::limits;

/// Puts the pieces of one stream together.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    part: Vec<u8>,
}

impl Assembler {
    /// An assembler whose stream continues another that ended in the middle of a line: the guest
    /// was moved while it wrote.
    pub(super) fn continuing(other: &Self) -> Self {
        Self {
            part: other.part.clone(),
        }
    }

    /// Adds a piece and gives the lines that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in piece {
            if byte == b'\n' {
                lines.push(String::from_utf8_lossy(&self.part).into_owned());
                self.part.clear();
            } else if self.part.len() < limits::LINE {
                self.part.push(byte);
            }
        }
        lines
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
    fn an_endless_line_takes_no_more_than_its_bound() {
        let mut assembler = Assembler::default();
        for _ in 0..100 {
            assert!(assembler.feed(&[b'x'; 1000]).is_empty());
        }
        assert_eq!(assembler.feed(b"\n")[0].len(), limits::LINE);
    }
}
