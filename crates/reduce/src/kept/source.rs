//! What the source knows of the pages that the destination keeps: it has them, too.
//!
//! A page that is sent is kept in the place of one that was not needed for long: a hand goes round, passes those that were
//! of use lately, and takes the next. A page that was sent twice is of use; so pages that a guest writes to stay, and
//! those that it was only sent once go.

use std::collections::{HashMap, VecDeque};

use twox_hash::XxHash3_64;

use super::pages::Pages;
use crate::limits::{DELTA_PART, PLACES_TRIED};
use crate::{PageId, SlotId, delta};

/// A chunk being described: of which channel, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    channel: u16,
    /// Counts up by one for each chunk that is described, of all channels.
    order: u64,
}

/// Who has referred to a place since the page was put there.
#[derive(Debug, Clone, Copy)]
enum Readers {
    None,
    One(Turn),
    /// On different channels, the last one at this time.
    Several {
        order: u64,
    },
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    page: PageId,
    written: Turn,
    readers: Readers,
    /// How often the hand passes it.
    of_use: u8,
}

/// By what a page is looked for.
pub(crate) fn hash(content: &[u8]) -> u64 {
    XxHash3_64::oneshot(content)
}

/// A page that was sent before stays for so many rounds of the hand.
const OF_USE: u8 = 3;

/// What the destination is to be told of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is kept.
    Same(SlotId),
    /// What changed is at the end of the bytes that were given for it.
    Changed {
        slot: SlotId,
        /// The new page is kept instead of the old one.
        keep: bool,
    },
    /// It has to cross, and where it is kept then.
    New { keep: Option<SlotId> },
}

/// The chunks of one channel that the destination has not worked off.
#[derive(Debug, Default)]
struct UnderWay {
    /// Number of the chunk, and when it was described.
    chunks: VecDeque<(u64, u64)>,
    /// The last one that was worked off was described then.
    done: Option<u64>,
}

/// The pages that the destination of a session keeps, as the source knows them.
#[derive(Debug)]
pub struct Kept {
    page_bytes: usize,
    most: u32,
    slots: Vec<Slot>,
    contents: Pages,
    of_page: HashMap<PageId, SlotId>,
    of_content: HashMap<u64, SlotId>,
    hand: u32,
    order: u64,
    channels: Vec<UnderWay>,
}

impl Kept {
    /// None so far, and at most so many. Their memory is taken as they come.
    #[must_use]
    pub fn new(page_bytes: usize, most: u32) -> Self {
        Self {
            page_bytes,
            most,
            slots: Vec::new(),
            contents: Pages::new(page_bytes, most),
            of_page: HashMap::new(),
            of_content: HashMap::new(),
            hand: 0,
            order: 0,
            channels: Vec::new(),
        }
    }

    /// Bytes of the pages that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slots.len() as u64 * self.page_bytes as u64
    }

    /// The destination has worked off all chunks of the channel before this number.
    pub fn worked_off(&mut self, channel: u16, before: u64) {
        if let Some(state) = self.channels.get_mut(usize::from(channel)) {
            while let Some((_, order)) = state.chunks.pop_front_if(|(chunk, _)| *chunk < before) {
                state.done = Some(order);
            }
        }
    }

    /// Begins to describe a chunk.
    pub(crate) fn begin(&mut self, channel: u16, chunk: u64) -> Turn {
        let count = usize::from(channel) + 1;
        if self.channels.len() < count {
            self.channels.resize_with(count, UnderWay::default);
        }
        self.order += 1;
        let order = self.order;
        self.channels[usize::from(channel)]
            .chunks
            .push_back((chunk, order));
        Turn { channel, order }
    }

    /// Finds out what the destination has of a page with that content and its [`hash`], and keeps it. What changed is appended to
    /// `change`.
    pub(crate) fn put(
        &mut self,
        (turn, page): (Turn, PageId),
        (content, hash): (&[u8], u64),
        change: &mut Vec<u8>,
    ) -> Found {
        if content.len() != self.page_bytes || self.most == 0 {
            return Found::New { keep: None };
        }
        let earlier = self.of_page.get(&page).copied();
        if let Some(slot) = earlier {
            let found = self.changed(turn, slot, (content, hash), change);
            if let Some(found) = found {
                return found;
            }
        }
        if let Some(slot) = self.same(turn, hash, content) {
            return Found::Same(slot);
        }
        let keep = self.keep(turn, page, content, hash);
        Found::New { keep }
    }

    /// The page as one that is kept, and what changed since.
    fn changed(
        &mut self,
        turn: Turn,
        slot: SlotId,
        (content, hash): (&[u8], u64),
        change: &mut Vec<u8>,
    ) -> Option<Found> {
        let keep = self.may_write(turn, slot);
        if !keep && !self.may_read(turn, slot) {
            return None;
        }
        self.slots.get_mut(slot.0 as usize)?.of_use = OF_USE;
        let kept = self.contents.get(slot.0)?;
        if kept == content {
            self.read(turn, slot);
            return Some(Found::Same(slot));
        }
        if !delta::put(kept, content, content.len() / DELTA_PART, change) {
            return None;
        }
        if keep {
            self.write(turn, slot, content, hash);
        } else {
            self.read(turn, slot);
        }
        Some(Found::Changed { slot, keep })
    }

    /// Where that content is kept.
    fn same(&mut self, turn: Turn, hash: u64, content: &[u8]) -> Option<SlotId> {
        let slot = *self.of_content.get(&hash)?;
        if self.contents.get(slot.0)? != content || !self.may_read(turn, slot) {
            return None;
        }
        self.read(turn, slot);
        Some(slot)
    }

    /// Finds a place for a page that crosses.
    fn keep(&mut self, turn: Turn, page: PageId, content: &[u8], hash: u64) -> Option<SlotId> {
        if let Some(slot) = self.of_page.get(&page).copied() {
            // Written to before, and soon again.
            self.slots.get_mut(slot.0 as usize)?.of_use = OF_USE;
            return self.may_write(turn, slot).then(|| {
                self.write(turn, slot, content, hash);
                slot
            });
        }
        if (self.slots.len() as u64) < u64::from(self.most) {
            return Some(self.add(turn, page, content, hash));
        }
        let slot = self.free(turn)?;
        let kept = self.slots.get_mut(slot.0 as usize)?;
        let before = std::mem::replace(&mut kept.page, page);
        kept.of_use = 0;
        self.of_page.remove(&before);
        self.of_page.insert(page, slot);
        self.write(turn, slot, content, hash);
        Some(slot)
    }

    fn add(&mut self, turn: Turn, page: PageId, content: &[u8], hash: u64) -> SlotId {
        let slot = SlotId(self.slots.len() as u32);
        self.contents.put(slot.0, content);
        self.slots.push(Slot {
            hash,
            page,
            written: turn,
            readers: Readers::None,
            of_use: 0,
        });
        self.of_page.insert(page, slot);
        self.of_content.insert(hash, slot);
        slot
    }

    /// The next place that nobody needs.
    fn free(&mut self, turn: Turn) -> Option<SlotId> {
        for _ in 0..PLACES_TRIED {
            let slot = SlotId(self.hand);
            self.hand = (self.hand + 1) % self.most;
            let writable = self.may_write(turn, slot);
            let kept = self.slots.get_mut(slot.0 as usize)?;
            if kept.of_use > 0 {
                kept.of_use -= 1;
            } else if writable {
                return Some(slot);
            }
        }
        None
    }

    fn write(&mut self, turn: Turn, slot: SlotId, content: &[u8], hash: u64) {
        let Some(kept) = self.slots.get_mut(slot.0 as usize) else {
            return;
        };
        let before = std::mem::replace(&mut kept.hash, hash);
        kept.written = turn;
        kept.readers = Readers::None;
        self.contents.put(slot.0, content);
        if self.of_content.get(&before) == Some(&slot) {
            self.of_content.remove(&before);
        }
        self.of_content.insert(hash, slot);
    }

    fn read(&mut self, turn: Turn, slot: SlotId) {
        let Some(kept) = self.slots.get_mut(slot.0 as usize) else {
            return;
        };
        kept.readers = match kept.readers {
            Readers::One(before) if before.channel != turn.channel => {
                Readers::Several { order: turn.order }
            }
            Readers::Several { .. } => Readers::Several { order: turn.order },
            Readers::None | Readers::One(_) => Readers::One(turn),
        };
    }

    /// Whether the destination has the page there when it works off the chunk of that turn.
    fn may_read(&self, turn: Turn, slot: SlotId) -> bool {
        let kept = self.slots.get(slot.0 as usize);
        kept.is_some_and(|kept| self.is_before(kept.written, turn))
    }

    /// Whether nobody needs the page there any more when it works off the chunk of that turn.
    fn may_write(&self, turn: Turn, slot: SlotId) -> bool {
        let readers = self.slots.get(slot.0 as usize).map(|kept| kept.readers);
        self.may_read(turn, slot)
            && match readers {
                None => false,
                Some(Readers::None) => true,
                Some(Readers::One(reader)) => self.is_before(reader, turn),
                Some(Readers::Several { order }) => self.all_done(order),
            }
    }

    /// Whether the destination works off one before the other.
    fn is_before(&self, first: Turn, second: Turn) -> bool {
        let done = || {
            self.channels
                .get(usize::from(first.channel))
                .and_then(|state| state.done)
        };
        first.channel == second.channel || done() >= Some(first.order)
    }

    /// Whether all that was described up to then is worked off.
    fn all_done(&self, order: u64) -> bool {
        let mut oldest = self
            .channels
            .iter()
            .filter_map(|state| state.chunks.front());
        oldest.all(|(_, oldest)| *oldest > order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FINDING_BYTES;

    const PAGE: usize = 64;

    fn content(seed: u8) -> Vec<u8> {
        (0..PAGE)
            .map(|at| seed.wrapping_mul(31).wrapping_add((at * at) as u8))
            .collect()
    }

    /// What `kept` says of a page with this content, in a chunk of its own.
    fn put(kept: &mut Kept, channel: u16, chunk: u64, page: u64, content: &[u8]) -> Found {
        let turn = kept.begin(channel, chunk);
        let hashed = (content, hash(content));
        kept.put((turn, PageId(page)), hashed, &mut Vec::new())
    }

    const fn new(slot: u32) -> Found {
        Found::New {
            keep: Some(SlotId(slot)),
        }
    }

    #[test]
    fn a_page_is_referred_to_at_once_on_its_channel_and_on_others_when_it_was_worked_off() {
        let mut kept = Kept::new(PAGE, 8);
        assert_eq!(put(&mut kept, 1, 1, 10, &content(1)), new(0));
        assert_eq!(
            put(&mut kept, 1, 2, 11, &content(1)),
            Found::Same(SlotId(0))
        );
        assert_eq!(put(&mut kept, 2, 1, 12, &content(1)), new(1));
        kept.worked_off(1, 1);
        assert_eq!(put(&mut kept, 3, 1, 13, &content(2)), new(2));
        kept.worked_off(3, 2);
        assert_eq!(
            put(&mut kept, 2, 2, 14, &content(2)),
            Found::Same(SlotId(2))
        );
    }

    #[test]
    fn a_page_that_changed_a_little_is_kept_anew_unless_another_channel_still_needs_it() {
        let mut kept = Kept::new(PAGE, 8);
        let mut page = content(1);
        assert_eq!(put(&mut kept, 1, 1, 10, &page), new(0));
        kept.worked_off(1, 2);
        assert_eq!(put(&mut kept, 2, 1, 11, &page), Found::Same(SlotId(0)));
        page[5] ^= 1;
        let slot = SlotId(0);
        let unkept = Found::Changed { slot, keep: false };
        assert_eq!(put(&mut kept, 1, 2, 10, &page), unkept);
        kept.worked_off(2, 2);
        // Two have referred to it, of which this channel's chunk does not matter, but nobody counts them.
        assert_eq!(put(&mut kept, 1, 3, 10, &page), unkept);
        kept.worked_off(1, 4);
        let anew = Found::Changed { slot, keep: true };
        assert_eq!(put(&mut kept, 1, 4, 10, &page), anew);
        assert_eq!(put(&mut kept, 1, 5, 10, &page), Found::Same(slot));
    }

    #[test]
    fn pages_that_were_sent_again_stay_and_those_sent_once_go() {
        let mut kept = Kept::new(PAGE, 3);
        for (page, slot) in [(10, 0), (11, 1), (12, 2)] {
            assert_eq!(put(&mut kept, 1, 1, page, &content(page as u8)), new(slot));
        }
        let mut again = content(11);
        again[0] ^= 1;
        let _ = put(&mut kept, 1, 2, 11, &again);
        for (page, slot) in [(20, 0), (21, 2), (22, 0), (23, 2)] {
            assert_eq!(put(&mut kept, 1, 3, page, &content(page as u8)), new(slot));
        }
        assert_eq!(kept.bytes(), 3 * PAGE as u64);
        // Gone from all that is looked up, too.
        assert!(matches!(
            put(&mut kept, 1, 4, 24, &content(20)),
            Found::New { .. }
        ));
    }

    /// Bytes of a table with room for so many entries of 16 bytes: a power of two of them, of which an eighth stays free, with a
    /// byte for each.
    const fn table(capacity: usize) -> usize {
        (capacity * 8 / 7).next_power_of_two() * 17
    }

    #[test]
    fn to_find_a_kept_page_takes_no_more_than_is_said_also_while_tables_grow() {
        let most = 1 << 16;
        let mut kept = Kept::new(PAGE, most);
        let (mut tables, mut grown) = ([0; 2], 0);
        for page in 0..most {
            let mut content = [0; PAGE];
            content[..4].copy_from_slice(&page.to_be_bytes());
            let _ = put(&mut kept, 1, 1, page.into(), &content);
            let now = [kept.of_page.capacity(), kept.of_content.capacity()].map(table);
            if now != tables {
                // One after the other, with what it was until then.
                grown = tables.into_iter().max().unwrap_or(0);
                tables = now;
                let slots = kept.slots.len() * size_of::<Slot>();
                let each = (slots + tables.iter().sum::<usize>() + grown) / kept.slots.len();
                assert!(page < 1000 || each <= FINDING_BYTES, "{page}: {each}");
            }
        }
        assert!(grown > 0 && kept.slots.len() == most as usize);
    }

    #[test]
    fn no_place_is_given_away_that_is_on_its_way_on_another_channel() {
        let mut kept = Kept::new(PAGE, 2);
        assert_eq!(put(&mut kept, 1, 1, 10, &content(10)), new(0));
        assert_eq!(put(&mut kept, 1, 2, 11, &content(11)), new(1));
        let nowhere = Found::New { keep: None };
        assert_eq!(put(&mut kept, 2, 1, 12, &content(12)), nowhere);
        kept.worked_off(1, 2);
        assert_eq!(put(&mut kept, 2, 2, 13, &content(13)), new(0));
    }
}
