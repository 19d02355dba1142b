//! The operations that a chunk is described by: one after the other they give its bytes.
//!
//! ```text
//!   0 PLAIN     bytes                    bytes that are not pages, from the ordinary section
//!   1 FILL      pages, word[8]           pages filled with a word
//!   2 ORDINARY  pages                    pages from the ordinary section
//!   3 DENSE     pages                    pages from the dense section
//!   4 ORDINARY, KEPT   pages, slot       as before, and each is kept: at that slot, the next one, ...
//!   5 DENSE, KEPT      pages, slot
//!   6 SAME      pages, slot              pages that are kept at that slot, the next one, ...
//!   7 CHANGED   slot, bytes, the change  the page kept there, changed
//!   8 CHANGED, KEPT    slot, bytes, ...  as before, and the new page is kept instead
//!   9 STORED    pages, id                stored pages: of that number, the next one, ...
//!  10 STORED, KEPT     pages, id, slot   as before, and each is kept: at that slot, the next one, ...
//!  11 STORED, CHANGED  id, bytes, the change        the stored page of that number, changed
//!  12 STORED, CHANGED, KEPT   id, slot, bytes, ...  as before, and the new page is kept at that slot
//! ```
//! Each begins with one byte; numbers are as short as they can be.

use crate::class::Class;
use crate::varint;
use crate::wrong::Wrong;
use crate::{SlotId, StoredId, limits};

const PLAIN: u8 = 0;
const FILL: u8 = 1;
const ORDINARY: u8 = 2;
const DENSE: u8 = 3;
const ORDINARY_KEPT: u8 = 4;
const DENSE_KEPT: u8 = 5;
const SAME: u8 = 6;
const CHANGED: u8 = 7;
const CHANGED_KEPT: u8 = 8;
const STORED: u8 = 9;
const STORED_KEPT: u8 = 10;
const STORED_CHANGED: u8 = 11;
const STORED_CHANGED_KEPT: u8 = 12;

/// What the next bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'b> {
    /// Bytes that are not pages, as they stand in the ordinary section.
    Plain {
        /// How many.
        bytes: u32,
    },
    /// Pages filled with one word.
    Fill {
        /// How many.
        pages: u32,
        /// The word.
        word: [u8; 8],
    },
    /// Pages as they stand in the section of their class.
    Literal {
        /// Their class.
        class: Class,
        /// How many.
        pages: u32,
        /// Where the first one is kept, and the others behind it.
        keep: Option<SlotId>,
    },
    /// Pages that are kept.
    Same {
        /// How many.
        pages: u32,
        /// Where the first one is kept, and the others behind it.
        slot: SlotId,
    },
    /// Pages that the destination has stored.
    Stored {
        /// How many.
        pages: u32,
        /// The first one's number; the others follow it.
        id: StoredId,
        /// Where the first one is kept, and the others behind it.
        keep: Option<SlotId>,
    },
    /// A page that is kept, changed.
    Changed {
        /// Where it is kept.
        slot: SlotId,
        /// Whether the new one is kept there from now on.
        keep: bool,
        /// What changes.
        change: &'b [u8],
    },
    /// A page that the destination has stored, changed.
    StoredChanged {
        /// Its number.
        id: StoredId,
        /// Where the new one is kept.
        keep: Option<SlotId>,
        /// What changes.
        change: &'b [u8],
    },
}

/// Operations being written. Those that go on where the last one ends become one.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    last: Option<Op<'static>>,
}

impl Writer {
    /// Without operations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = None;
    }

    /// The operations so far.
    pub fn finish(&mut self) -> &[u8] {
        self.flush();
        &self.bytes
    }

    /// Adds one that has no bytes of its own.
    pub fn put(&mut self, op: Op<'static>) {
        if let Some(joined) = self.last.and_then(|last| joined(last, op)) {
            self.last = Some(joined);
        } else {
            self.flush();
            self.last = Some(op);
        }
    }

    /// Adds a changed page.
    pub fn put_changed(&mut self, slot: SlotId, keep: bool, change: &[u8]) {
        self.flush();
        self.bytes.push(if keep { CHANGED_KEPT } else { CHANGED });
        varint::put(slot.0, &mut self.bytes);
        self.change(change);
    }

    /// Adds a changed stored page.
    pub fn put_stored_changed(&mut self, id: StoredId, keep: Option<SlotId>, change: &[u8]) {
        self.flush();
        let name = if keep.is_some() {
            STORED_CHANGED_KEPT
        } else {
            STORED_CHANGED
        };
        self.bytes.push(name);
        varint::put(id.0, &mut self.bytes);
        if let Some(slot) = keep {
            varint::put(slot.0, &mut self.bytes);
        }
        self.change(change);
    }

    fn change(&mut self, change: &[u8]) {
        varint::put(change.len() as u32, &mut self.bytes);
        self.bytes.extend_from_slice(change);
    }

    fn flush(&mut self) {
        match self.last.take() {
            None | Some(Op::Changed { .. } | Op::StoredChanged { .. }) => {}
            Some(Op::Plain { bytes }) => self.numbers(PLAIN, bytes, None),
            Some(Op::Fill { pages, word }) => {
                self.numbers(FILL, pages, None);
                self.bytes.extend(word);
            }
            Some(Op::Literal { class, pages, keep }) => {
                let name = match (class, keep) {
                    (Class::Ordinary, None) => ORDINARY,
                    (Class::Dense, None) => DENSE,
                    (Class::Ordinary, Some(_)) => ORDINARY_KEPT,
                    (Class::Dense, Some(_)) => DENSE_KEPT,
                };
                self.numbers(name, pages, keep);
            }
            Some(Op::Same { pages, slot }) => self.numbers(SAME, pages, Some(slot)),
            Some(Op::Stored { pages, id, keep }) => {
                let name = if keep.is_some() { STORED_KEPT } else { STORED };
                self.bytes.push(name);
                varint::put(pages, &mut self.bytes);
                varint::put(id.0, &mut self.bytes);
                if let Some(slot) = keep {
                    varint::put(slot.0, &mut self.bytes);
                }
            }
        }
    }

    fn numbers(&mut self, name: u8, count: u32, slot: Option<SlotId>) {
        self.bytes.push(name);
        varint::put(count, &mut self.bytes);
        if let Some(slot) = slot {
            varint::put(slot.0, &mut self.bytes);
        }
    }
}

/// Both as one, where the second goes on where the first ends.
fn joined(first: Op<'static>, second: Op<'static>) -> Option<Op<'static>> {
    match (first, second) {
        (Op::Plain { bytes }, Op::Plain { bytes: more }) => Some(Op::Plain {
            bytes: bytes + more,
        }),
        (
            Op::Fill { pages, word },
            Op::Fill {
                pages: more,
                word: other,
            },
        ) if word == other => Some(Op::Fill {
            pages: pages + more,
            word,
        }),
        (
            Op::Literal { class, pages, keep },
            Op::Literal {
                class: other,
                pages: more,
                keep: then,
            },
        ) if class == other && follows(keep, pages, then) => Some(Op::Literal {
            class,
            pages: pages + more,
            keep,
        }),
        (
            Op::Same { pages, slot },
            Op::Same {
                pages: more,
                slot: then,
            },
        ) if follows(Some(slot), pages, Some(then)) => Some(Op::Same {
            pages: pages + more,
            slot,
        }),
        (
            Op::Stored { pages, id, keep },
            Op::Stored {
                pages: more,
                id: next,
                keep: then,
            },
        ) if id.0.checked_add(pages) == Some(next.0) && follows(keep, pages, then) => {
            Some(Op::Stored {
                pages: pages + more,
                id,
                keep,
            })
        }
        _ => None,
    }
}

fn follows(first: Option<SlotId>, pages: u32, then: Option<SlotId>) -> bool {
    match (first, then) {
        (None, None) => true,
        (Some(first), Some(then)) => first.0.checked_add(pages) == Some(then.0),
        _ => false,
    }
}

/// Operations being read.
#[derive(Debug, Clone)]
pub struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Of these bytes.
    #[must_use]
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    fn number(&mut self) -> Result<u32, Wrong> {
        varint::take(&mut self.0).ok_or(Wrong::Layout("a number of an operation"))
    }

    fn slot(&mut self) -> Result<SlotId, Wrong> {
        match self.number()? {
            number if number < limits::SLOTS_MOST => Ok(SlotId(number)),
            _ => Err(Wrong::Layout("a slot beyond all")),
        }
    }

    fn bytes(&mut self, count: usize) -> Result<&'b [u8], Wrong> {
        let cut = Wrong::Layout("the bytes of an operation");
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn literal(&mut self, class: Class, kept: bool) -> Result<Op<'b>, Wrong> {
        Ok(Op::Literal {
            class,
            pages: self.number()?,
            keep: if kept { Some(self.slot()?) } else { None },
        })
    }

    fn read(&mut self, name: u8) -> Result<Op<'b>, Wrong> {
        match name {
            PLAIN => Ok(Op::Plain {
                bytes: self.number()?,
            }),
            FILL => {
                let pages = self.number()?;
                let word = self.bytes(8)?.first_chunk().copied().unwrap_or_default();
                Ok(Op::Fill { pages, word })
            }
            ORDINARY => self.literal(Class::Ordinary, false),
            DENSE => self.literal(Class::Dense, false),
            ORDINARY_KEPT => self.literal(Class::Ordinary, true),
            DENSE_KEPT => self.literal(Class::Dense, true),
            SAME => Ok(Op::Same {
                pages: self.number()?,
                slot: self.slot()?,
            }),
            STORED | STORED_KEPT => Ok(Op::Stored {
                pages: self.number()?,
                id: StoredId(self.number()?),
                keep: if name == STORED_KEPT {
                    Some(self.slot()?)
                } else {
                    None
                },
            }),
            CHANGED | CHANGED_KEPT => {
                let slot = self.slot()?;
                let count = self.number()? as usize;
                Ok(Op::Changed {
                    slot,
                    keep: name == CHANGED_KEPT,
                    change: self.bytes(count)?,
                })
            }
            STORED_CHANGED | STORED_CHANGED_KEPT => {
                let id = StoredId(self.number()?);
                let keep = if name == STORED_CHANGED_KEPT {
                    Some(self.slot()?)
                } else {
                    None
                };
                let count = self.number()? as usize;
                let change = self.bytes(count)?;
                Ok(Op::StoredChanged { id, keep, change })
            }
            _ => Err(Wrong::Layout("an operation that is not known")),
        }
    }
}

impl<'b> Iterator for Reader<'b> {
    type Item = Result<Op<'b>, Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.split_first()?;
        self.0 = rest;
        let op = self.read(*name);
        if op.is_err() {
            self.0 = &[];
        }
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn literal(pages: u32, keep: Option<u32>) -> Op<'static> {
        Op::Literal {
            class: Class::Ordinary,
            pages,
            keep: keep.map(SlotId),
        }
    }

    fn read(bytes: &[u8]) -> Vec<Op<'_>> {
        Reader::new(bytes).map(Result::unwrap).collect()
    }

    #[test]
    fn what_goes_on_where_the_last_one_ends_is_one_operation() {
        let mut ops = Writer::default();
        let word = *b"abcdefgh";
        for op in [
            Op::Plain { bytes: 3 },
            Op::Plain { bytes: 4 },
            literal(1, Some(7)),
            literal(1, Some(8)),
            literal(1, Some(10)),
            literal(1, None),
            literal(2, None),
            Op::Fill { pages: 1, word },
            Op::Fill { pages: 1, word },
            Op::Fill {
                pages: 1,
                word: [0; 8],
            },
        ] {
            ops.put(op);
        }
        ops.put_changed(SlotId(300), true, b"new");
        for slot in [4, 5, 5] {
            let slot = SlotId(slot);
            ops.put(Op::Same { pages: 1, slot });
        }
        let stored = |pages, id, keep: Option<u32>| Op::Stored {
            pages,
            id: StoredId(id),
            keep: keep.map(SlotId),
        };
        for op in [
            stored(1, 70, None),
            stored(1, 71, None),
            stored(1, 72, Some(3)),
            stored(1, 73, Some(4)),
            stored(1, 74, Some(6)),
            stored(1, 90, Some(7)),
        ] {
            ops.put(op);
        }
        ops.put_stored_changed(StoredId(91), None, b"a");
        ops.put_stored_changed(StoredId(92), Some(SlotId(8)), b"bc");
        let stored_changed = |id, keep: Option<u32>, change| Op::StoredChanged {
            id: StoredId(id),
            keep: keep.map(SlotId),
            change,
        };
        assert_eq!(
            read(ops.finish()),
            [
                Op::Plain { bytes: 7 },
                literal(2, Some(7)),
                literal(1, Some(10)),
                literal(3, None),
                Op::Fill { pages: 2, word },
                Op::Fill {
                    pages: 1,
                    word: [0; 8]
                },
                Op::Changed {
                    slot: SlotId(300),
                    keep: true,
                    change: b"new"
                },
                Op::Same {
                    pages: 2,
                    slot: SlotId(4)
                },
                Op::Same {
                    pages: 1,
                    slot: SlotId(5)
                },
                stored(2, 70, None),
                stored(2, 72, Some(3)),
                stored(1, 74, Some(6)),
                stored(1, 90, Some(7)),
                stored_changed(91, None, b"a"),
                stored_changed(92, Some(8), b"bc"),
            ]
        );
        ops.clear();
        assert_eq!(ops.finish(), b"");
    }

    proptest! {
        #[test]
        fn any_bytes_are_operations_or_refused(bytes: Vec<u8>) {
            let ops: Vec<_> = Reader::new(&bytes).collect();
            prop_assert!(ops.len() <= bytes.len());
            let refused = ops.iter().filter(|op| op.is_err()).count();
            prop_assert!(refused == 0 || (refused == 1 && ops.last().is_some_and(Result::is_err)));
        }
    }
}
