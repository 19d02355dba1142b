//! Digests by the order in which they came, each found by what it is; and addresses, likewise.
//!
//! ```text
//!   slots   . 3 . . 0 2 . 1     4 bits of a digest, and its number: 4 bytes each, two thirds full at most
//!             └─────┐
//!   digests 0 1 2 3 ...         16 bytes each, in blocks that never move
//! ```
//! Where a digest is looked for follows from its first bits, which are as good as random for those of
//! [`DigestKey`](crate::DigestKey). Whoever makes up digests without a page fills a few slots too much, and those beyond
//! [`PROBES_MOST`] are not found: which costs a page that crosses. So it is of addresses, whose bits are mixed.

use crate::digest::Digest;
use crate::layout::PLACES_MOST;

/// Digests of a block: 64 KiB.
const BLOCK: usize = 4096;

/// Of so many slots...
const SLOTS: u64 = 3;
/// ...so many are taken at most. To find that a digest is not there takes a look at 5 slots then, 13 with four of five taken; and as
/// slots have four bits of their digest, at a third of one digest, elsewhere in memory.
const TAKEN: u64 = 2;

/// The least slots.
const SLOTS_LEAST: u64 = 64;

/// Slots that are looked at, one after the other. Of 2^28 digests that are random the longest way is some 270 with as many slots
/// taken.
const PROBES_MOST: usize = 512;

/// Bits of a slot that are a digest's number; those above are its tag.
const NUMBER_BITS: u32 = 28;

/// No digest: its number would be [`PLACES_MOST`].
const EMPTY: u32 = u32::MAX;

/// What is found by what it is.
pub trait Key: Copy + Eq {
    /// Bits from which it follows where it is looked for.
    fn first(&self) -> u64;

    /// Others, of which four are in its slot.
    fn last(&self) -> u8;
}

impl Key for Digest {
    fn first(&self) -> u64 {
        u64::from_be_bytes(self.0.first_chunk().copied().unwrap_or_default())
    }

    fn last(&self) -> u8 {
        self.0[self.0.len() - 1]
    }
}

/// The address of a page, its bits mixed: those of pages that follow each other have little in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mixed(u64);

impl Mixed {
    /// One to one (the last steps of `SplitMix64`).
    pub(crate) const fn address(address: u64) -> Self {
        let mixed = (address ^ (address >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(mixed ^ (mixed >> 31))
    }
}

impl Key for Mixed {
    fn first(&self) -> u64 {
        self.0
    }

    fn last(&self) -> u8 {
        self.0.to_be_bytes()[7]
    }
}

/// So many digests at most, each numbered by the order in which it came.
pub type KnownDigests = Known<Digest>;

/// The same of whatever is found by what it is.
#[derive(Debug)]
pub struct Known<K> {
    most: u32,
    count: u32,
    /// All of the same size but for the last, which has room for as many.
    blocks: Vec<Vec<K>>,
    slots: Vec<u32>,
}

impl<K: Key> Known<K> {
    /// None so far, and at most so many. Memory is taken as they come: 6 bytes for each beside its own when all are there, 22 for a
    /// digest, and never more than all take.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self {
            most: most.min(PLACES_MOST),
            count: 0,
            blocks: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// How many have come: the number of the next.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether no more can come.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.count == self.most
    }

    /// The number of the first that is this one.
    #[must_use]
    pub fn find(&self, digest: &K) -> Option<u32> {
        self.look(digest).ok()
    }

    /// Adds one, which has the next number also where it is there already. Beyond the most nothing is added.
    pub fn add(&mut self, digest: K) {
        if self.is_full() {
            return;
        }
        let wanted = u64::from(self.count) + 1;
        if wanted * SLOTS > self.slots.len() as u64 * TAKEN {
            self.grow();
        }
        let (number, found) = (self.count, self.look(&digest));
        match self.blocks.last_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(digest),
            None => {
                let left = (self.most - number) as usize;
                let mut block = Vec::with_capacity(BLOCK.min(left));
                block.push(digest);
                self.blocks.push(block);
            }
        }
        self.count += 1;
        if let Err(Some(slot)) = found {
            self.take(slot, &digest, number);
        }
    }

    /// Doubles the slots, but for no more than all that may come need. What was there goes first.
    fn grow(&mut self) {
        let needed = (u64::from(self.most) * SLOTS).div_ceil(TAKEN);
        let doubled = (self.slots.len() as u64 * 2).max(SLOTS_LEAST);
        self.slots = Vec::new();
        self.slots = vec![EMPTY; doubled.min(needed) as usize];
        for number in 0..self.count {
            let digest = *self.digest(number);
            if let Err(Some(slot)) = self.look(&digest) {
                self.take(slot, &digest, number);
            }
        }
    }

    fn take(&mut self, slot: usize, digest: &K, number: u32) {
        self.slots[slot] = tag(digest) | number;
    }

    /// The number of a digest that is there; or else the slot that it would take, if there is one.
    fn look(&self, digest: &K) -> Result<u32, Option<usize>> {
        let tag = tag(digest);
        let count = self.slots.len();
        let mut slot = first_slot(digest, count);
        for _ in 0..PROBES_MOST.min(count) {
            let held = self.slots[slot];
            if held == EMPTY {
                return Err(Some(slot));
            }
            let number = held & ((1 << NUMBER_BITS) - 1);
            if held ^ number == tag && self.digest(number) == digest {
                return Ok(number);
            }
            slot += 1;
            if slot == count {
                slot = 0;
            }
        }
        Err(None)
    }

    fn digest(&self, number: u32) -> &K {
        let number = number as usize;
        &self.blocks[number / BLOCK][number % BLOCK]
    }
}

/// Its first bits, as a part of all slots.
fn first_slot(digest: &impl Key, slots: usize) -> usize {
    let part = u128::from(digest.first()) * slots as u128;
    (part >> u64::BITS) as usize
}

/// Its last bits, where a slot has them.
fn tag(digest: &impl Key) -> u32 {
    u32::from(digest.last()) << NUMBER_BITS
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::digest::{DIGEST_BYTES, DigestKey, KEY_BYTES};

    /// As digests of pages are.
    fn random(seed: u32) -> Digest {
        DigestKey::new([4; KEY_BYTES]).digest(&seed.to_be_bytes())
    }

    fn bytes(known: &KnownDigests) -> usize {
        let blocks: usize = known.blocks.iter().map(Vec::capacity).sum();
        let each = size_of::<Vec<Digest>>();
        blocks * DIGEST_BYTES + known.blocks.capacity() * each + known.slots.capacity() * 4
    }

    /// Few, of which many want the same slot, have the same tag or are the same.
    fn digest() -> impl Strategy<Value = Digest> {
        prop_oneof![
            (0..2_u8, 0..2_u8, 0..20_u8).prop_map(|(first, last, between)| {
                let mut bytes = [0; DIGEST_BYTES];
                (bytes[0], bytes[8], bytes[15]) = (first * 0xff, between, last);
                Digest(bytes)
            }),
            (0..200_u32).prop_map(random),
        ]
    }

    proptest! {
        #[test]
        fn each_is_found_by_the_number_of_the_first_like_it(
            most in 0..300_u32,
            digests in prop::collection::vec(digest(), 0..400),
            others in prop::collection::vec(digest(), 0..20),
        ) {
            let mut known = KnownDigests::new(most);
            let mut model = HashMap::new();
            for (number, digest) in (0..most).zip(&digests) {
                prop_assert_eq!(known.find(digest), model.get(digest).copied());
                prop_assert_eq!(known.count(), number);
                known.add(*digest);
                model.entry(*digest).or_insert(number);
            }
            for digest in digests.iter().chain(&others) {
                prop_assert_eq!(known.find(digest), model.get(digest).copied());
                if known.is_full() {
                    known.add(*digest);
                }
            }
            prop_assert_eq!(known.count(), most.min(digests.len() as u32));
        }
    }

    #[test]
    fn a_digest_takes_some_22_bytes_and_while_they_come_never_more_than_all() {
        let most = 100_000;
        let mut known = KnownDigests::new(most);
        assert_eq!(bytes(&known), 0);
        for number in 0..most {
            known.add(random(number));
            assert!(bytes(&known) < 23 * most as usize, "{number}");
        }
        assert!(known.is_full());
        for number in 0..most {
            assert_eq!(known.find(&random(number)), Some(number));
            assert_eq!(known.find(&random(number + most)), None);
        }
    }

    #[test]
    fn an_address_takes_some_14_bytes_and_each_is_found_where_they_follow_each_other_or_not() {
        let most = 100_000;
        for apart in [1, 7, 1 << 9, 1 << 20] {
            let mut known = Known::new(most);
            for number in 0..most {
                let address = Mixed::address(u64::from(number) * apart);
                assert_eq!(known.find(&address), None);
                known.add(address);
            }
            for number in 0..most {
                let address = Mixed::address(u64::from(number) * apart);
                assert_eq!(known.find(&address), Some(number));
            }
            let slots = known.slots.capacity() * 4;
            let blocks: usize = known.blocks.iter().map(Vec::capacity).sum();
            assert!(slots + blocks * size_of::<Mixed>() < 15 * most as usize);
        }
    }

    #[test]
    fn digests_that_somebody_made_up_are_looked_for_no_longer_than_others() {
        let alike = |number: u32| {
            let mut bytes = [7; DIGEST_BYTES];
            bytes[8..12].copy_from_slice(&number.to_be_bytes());
            Digest(bytes)
        };
        let mut known = KnownDigests::new(5_000);
        for number in 0..5_000 {
            known.add(alike(number));
        }
        assert_eq!(known.find(&alike(0)), Some(0));
        // What is found no more is not mistaken for another.
        assert_eq!(known.find(&alike(4_000)), None);
        assert_eq!(known.count(), 5_000);
    }
}
