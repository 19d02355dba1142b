//! What a guest holds beside the arena: files, or documents in the memory of another program.
//!
//! It is verified in pieces, so that the heartbeat and the working set go on meanwhile, and only
//! when a full pass is asked for: a program that is asked for all that it holds writes to all of
//! it (reference counts, times of the last access), and would be no guest that does light work.

use std::io;

use crate::documents::Author;
use crate::random::Random;
use crate::report::Line;
use crate::settings::PAGE;

/// Something held.
pub trait Held {
    /// Pieces that it is verified in.
    fn pieces(&self) -> usize;

    /// Pages that a piece counts for.
    fn pages(&self, piece: usize) -> u64;

    /// Looks at one piece; a [`Line::Bad`] for everything that is not as it must be.
    fn verify(&mut self, piece: usize) -> Vec<Line>;

    /// Changes a little of it, as it is used. What fails is found when it is verified.
    fn change(&mut self);
}

/// All pages of something held.
pub fn pages(held: &dyn Held) -> u64 {
    (0..held.pieces()).map(|piece| held.pages(piece)).sum()
}

/// Two of them, one after the other.
pub struct Both(pub Box<dyn Held>, pub Box<dyn Held>);

impl Both {
    /// Which of them has a piece, and its number there.
    fn of(&self, piece: usize) -> (&dyn Held, usize) {
        match piece.checked_sub(self.0.pieces()) {
            Some(second) => (&*self.1, second),
            None => (&*self.0, piece),
        }
    }
}

impl Held for Both {
    fn pieces(&self) -> usize {
        self.0.pieces() + self.1.pieces()
    }

    fn pages(&self, piece: usize) -> u64 {
        let (held, piece) = self.of(piece);
        held.pages(piece)
    }

    fn verify(&mut self, piece: usize) -> Vec<Line> {
        match piece.checked_sub(self.0.pieces()) {
            Some(second) => self.1.verify(second),
            None => self.0.verify(piece),
        }
    }

    fn change(&mut self) {
        self.0.change();
        self.1.change();
    }
}

/// Documents verified at once: some 100 KiB, which an emulated guest reads back in some
/// milliseconds.
const PIECE: usize = 64;

/// Another program that keeps documents.
pub trait Keeper {
    /// Keeps a document under a number, at once or with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// The program is gone, or refuses.
    fn put(&mut self, number: usize, document: &str) -> io::Result<()>;

    /// Has everything kept.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn flush(&mut self) -> io::Result<()>;

    /// For each of the documents from a number on, whether the program has it as it is here.
    ///
    /// # Errors
    /// The program is gone, or does not answer as it must.
    fn compare(&mut self, from: usize, documents: &[String]) -> io::Result<Vec<bool>>;
}

/// Documents in the memory of another program.
pub struct Documents<K> {
    keeper: K,
    author: Author,
    changes: Vec<u64>,
    random: Random,
    pieces: Vec<u64>,
}

impl<K: Keeper> Documents<K> {
    /// Has `keeper` keep so many bytes of documents.
    ///
    /// # Errors
    /// The keeper's.
    pub fn fill(mut keeper: K, author: Author, seed: u64, bytes: u64) -> io::Result<Self> {
        let (mut text, mut left) = (String::new(), bytes);
        let (mut changes, mut of_piece) = (Vec::new(), Vec::new());
        while left > 0 {
            text.clear();
            author.write(changes.len() as u64, 0, &mut text);
            keeper.put(changes.len(), &text)?;
            if changes.len() % PIECE == 0 {
                of_piece.push(0);
            }
            if let Some(bytes) = of_piece.last_mut() {
                *bytes += text.len() as u64;
            }
            changes.push(0);
            left = left.saturating_sub(text.len() as u64);
        }
        keeper.flush()?;
        let pages = |bytes: u64| bytes.div_ceil(PAGE as u64);
        Ok(Self {
            keeper,
            author,
            changes,
            random: Random::new(seed, [0x6368_616e_6765, 0]),
            pieces: of_piece.into_iter().map(pages).collect(),
        })
    }

    fn document(&self, number: usize) -> String {
        let mut text = String::new();
        self.author
            .write(number as u64, self.changes[number], &mut text);
        text
    }
}

impl<K: Keeper> Held for Documents<K> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn pages(&self, piece: usize) -> u64 {
        self.pieces[piece]
    }

    fn verify(&mut self, piece: usize) -> Vec<Line> {
        let from = piece * PIECE;
        let numbers = from..self.changes.len().min(from + PIECE);
        let documents: Vec<_> = numbers
            .clone()
            .map(|number| self.document(number))
            .collect();
        let bad = |number: usize, damage: &str| Line::Bad {
            page: number as u64,
            class: "document".to_owned(),
            damage: damage.to_owned(),
        };
        match self.keeper.compare(from, &documents) {
            Ok(same) => numbers
                .zip(same)
                .filter(|(_, same)| !same)
                .map(|(number, _)| bad(number, "differs"))
                .collect(),
            Err(error) => numbers
                .map(|number| bad(number, &one_word(&error.to_string())))
                .collect(),
        }
    }

    fn change(&mut self) {
        let number = self.random.below(self.changes.len());
        if number < self.changes.len() {
            self.changes[number] += 1;
            let text = self.document(number);
            let _ = self
                .keeper
                .put(number, &text)
                .and_then(|()| self.keeper.flush());
        }
    }
}

/// A text as the value of a field, which has no spaces.
pub fn one_word(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Memory {
        documents: Vec<String>,
        gone: bool,
    }

    impl Keeper for Memory {
        fn put(&mut self, number: usize, document: &str) -> io::Result<()> {
            let needed = self.documents.len().max(number + 1);
            self.documents.resize(needed, String::new());
            self.documents[number] = document.to_owned();
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn compare(&mut self, from: usize, documents: &[String]) -> io::Result<Vec<bool>> {
            if self.gone {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let own = &self.documents[from..];
            Ok(own.iter().zip(documents).map(|(a, b)| a == b).collect())
        }
    }

    fn filled() -> Documents<Memory> {
        let author = Author::new(3, Vec::new());
        Documents::fill(Memory::default(), author, 3, 300_000).unwrap()
    }

    fn found(held: &mut Documents<Memory>) -> Vec<Line> {
        (0..held.pieces())
            .flat_map(|piece| held.verify(piece))
            .collect()
    }

    #[test]
    fn documents_stay_right_while_they_change_and_count_as_the_pages_they_were() {
        let mut held = filled();
        let before = pages(&held);
        assert!((300_000 / 4096..80).contains(&before), "{before}");
        (0..500).for_each(|_| held.change());
        assert_eq!(found(&mut held), []);
        assert_eq!(pages(&held), before);
        assert!(held.changes.iter().any(|changes| *changes > 1));
    }

    #[test]
    fn a_damaged_a_missing_and_an_older_document_are_told_by_their_numbers() {
        let mut held = filled();
        let old = held.keeper.documents.clone();
        while held.changes[9] == 0 {
            held.change();
        }
        let documents = &mut held.keeper.documents;
        documents[9] = old[9].clone();
        documents[70].replace_range(5..6, "~");
        documents[80].clear();
        let numbers: Vec<_> = found(&mut held)
            .iter()
            .map(|line| match line {
                Line::Bad { page, .. } => *page,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(numbers, [9, 70, 80]);
    }

    #[test]
    fn of_two_the_pieces_of_the_second_follow_those_of_the_first() {
        let (first, second) = (filled(), filled());
        let (pieces, all) = (first.pieces(), pages(&first));
        let mut second = second;
        second.keeper.documents[9].clear();
        let mut both = Both(Box::new(first), Box::new(second));
        assert_eq!((both.pieces(), pages(&both)), (pieces * 2, all * 2));
        let bad = (0..both.pieces()).filter(|piece| !both.verify(*piece).is_empty());
        assert_eq!(bad.collect::<Vec<_>>(), [pieces]);
    }

    #[test]
    fn of_a_program_that_is_gone_everything_is_bad() {
        let mut held = filled();
        held.keeper.gone = true;
        let bad = found(&mut held);
        assert_eq!(bad.len(), held.changes.len());
        assert!(
            bad.iter()
                .all(|line| line.to_string().parse() == Ok(line.clone()))
        );
    }
}
