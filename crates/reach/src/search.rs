//! Which sizes to ask for, to find the largest packet that crosses.
//!
//! A size that crosses speaks for all smaller ones, one that the kernel refuses for all larger ones. Silence may be loss: it
//! counts after some tries, and the last word is confirmed by many. It may also be an end that is not woken, for longer than all
//! tries take: so a confirmation asks for a size that is known to cross, too, and is none where that is silent.
//!
//! ```text
//!  least ── ... crossed │ the sizes of a round, both ends of the gap among them │ failed ... ── most
//! ```

use serde::{Deserialize, Serialize};

use crate::limits::{CONFIRM, CONTROLS, ROUNDS, SIZES, TRIES};

/// The search in one direction, in bytes of IP packets.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    most: u32,
    /// The largest that crossed.
    crossed: u32,
    /// The smallest that does not, as far as is known; one above the largest while nothing is.
    failed: u32,
    why: Beyond,
    /// The sizes of this round that nothing is known of yet.
    asks: Vec<u32>,
    stage: Stage,
    tries: u32,
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Narrow,
    Confirm,
    Done,
}

/// The largest packet that crosses in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Largest {
    /// Its size in bytes, IP header included.
    pub size: u32,
    /// What becomes of larger ones.
    pub beyond: Beyond,
}

/// What becomes of packets larger than the largest that crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// None was asked for: it is the largest that there was to try.
    NotTried,
    /// The sender's kernel does not send them: the MTU of its interface or route.
    Refused,
    /// They vanish on the way.
    Lost,
}

impl Search {
    /// Above a size that is known to cross, up to the most.
    pub(crate) fn new(crossed: u32, most: u32) -> Self {
        let mut search = Self {
            most,
            crossed,
            failed: most.max(crossed).saturating_add(1),
            why: Beyond::NotTried,
            asks: Vec::new(),
            stage: Stage::Narrow,
            tries: 0,
            rounds: 0,
        };
        search.next();
        search
    }

    /// The sizes that are to be asked for now, all at once; none when it is over. A size may be in it several times.
    pub(crate) fn asks(&self) -> &[u32] {
        &self.asks
    }

    /// That size crossed.
    pub(crate) fn crossed(&mut self, size: u32) {
        self.crossed = self.crossed.max(size);
        if size >= self.failed {
            self.failed = self.most + 1;
            self.why = Beyond::NotTried;
        }
        self.asks.retain(|ask| *ask > size);
    }

    /// The sender's kernel does not send that size.
    pub(crate) fn refused(&mut self, size: u32) {
        if size <= self.crossed {
            // It crossed before: what there is to find changes.
            self.rounds = ROUNDS + 1;
            return self.end();
        }
        if size <= self.failed {
            self.failed = size;
            self.why = Beyond::Refused;
        }
        self.asks.retain(|ask| *ask < size);
    }

    /// Nothing more is to be waited for of what was asked.
    pub(crate) fn over(&mut self) {
        self.tries += 1;
        let silent = self.asks.iter().min().copied();
        match (self.stage, silent) {
            (Stage::Narrow, Some(_)) if self.tries < TRIES => return,
            (Stage::Narrow, Some(silent)) if silent < self.failed => {
                self.failed = silent;
                self.why = Beyond::Lost;
            }
            (Stage::Confirm, Some(silent)) if silent > self.crossed => return self.end(),
            _ => {}
        }
        self.next();
    }

    /// What was found; none before it is over, or where that has no end.
    pub(crate) fn found(&self) -> Option<Largest> {
        let over = self.stage == Stage::Done && self.rounds <= ROUNDS;
        over.then_some(Largest {
            size: self.crossed,
            beyond: self.why,
        })
    }

    fn next(&mut self) {
        self.tries = 0;
        self.rounds += 1;
        let from = self.crossed + 1;
        let gap = self.failed.saturating_sub(from);
        if self.rounds > ROUNDS {
            self.end();
        } else if gap > 0 {
            self.stage = Stage::Narrow;
            self.asks = spread(from, gap);
        } else if self.why == Beyond::Lost {
            self.stage = Stage::Confirm;
            self.asks = vec![self.failed; CONFIRM];
            // Last: where it is answered in time, those before it would have been.
            self.asks.extend([self.crossed; CONTROLS]);
        } else {
            self.end();
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Done;
        self.asks.clear();
    }
}

/// As many sizes as are asked for at once of `count` from `from` on, the first and the last among them.
fn spread(from: u32, count: u32) -> Vec<u32> {
    let sizes = (SIZES as u32).min(count);
    let last = count - 1;
    let nth = |n: u32| from + (u64::from(n) * u64::from(last) / u64::from(sizes.max(2) - 1)) as u32;
    (0..sizes).map(nth).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A path: what the sender's interface takes, what crosses, and how many in a hundred are lost on the way and back.
    struct Path {
        takes: u32,
        crosses: u32,
        lost: u64,
        random: u64,
        /// The round from which on, and for how many, nothing is answered, as an end is not woken.
        stall: (u32, u32),
    }

    impl Path {
        fn loses(&mut self) -> bool {
            // xorshift64: enough to lose packets without a pattern.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % 100 < self.lost
        }

        fn search(&mut self, least: u32, most: u32) -> (Option<Largest>, u32) {
            let mut search = Search::new(least, most);
            let mut rounds = 0;
            while !search.asks().is_empty() {
                assert!(search.asks().len() <= SIZES.max(CONFIRM + CONTROLS));
                let (from, count) = self.stall;
                let stalls = (from..from + count).contains(&rounds);
                rounds += 1;
                for size in search.asks().to_vec() {
                    if size > self.takes {
                        search.refused(size);
                    } else if size <= self.crosses && !stalls && !self.loses() && !self.loses() {
                        search.crossed(size);
                    }
                }
                search.over();
            }
            (search.found(), rounds)
        }
    }

    #[test]
    fn a_size_that_crossed_and_is_refused_afterwards_leaves_nothing_found() {
        let mut search = Search::new(100, 9000);
        search.crossed(1000);
        search.refused(500);
        search.over();
        assert_eq!((search.asks(), search.found()), (&[][..], None));
    }

    proptest! {
        #[test]
        fn the_exact_size_is_found_over_any_path_that_loses_some(
            takes in 90u32..70_000, crosses in 90u32..70_000, most in 90u32..=65_535, lost in 0u64..10, random in 1u64..,
            stall in (0u32..12, 0u32..12),
        ) {
            let (found, _) = Path { takes, crosses, lost, random, stall }.search(90, most);
            let size = takes.min(crosses).min(most);
            let beyond = if most <= takes && most <= crosses {
                Beyond::NotTried
            } else if takes <= crosses {
                Beyond::Refused
            } else {
                Beyond::Lost
            };
            prop_assert_eq!(found, Some(Largest { size, beyond }));
        }

        #[test]
        fn whatever_is_heard_it_ends(
            heard in proptest::collection::vec((any::<bool>(), 0usize..16), 1..400), most in 90u32..=65_535,
        ) {
            let mut search = Search::new(90, most);
            let mut heard = heard.iter().cycle();
            let mut rounds = 0;
            while !search.asks().is_empty() {
                rounds += 1;
                prop_assert!(rounds <= ROUNDS * TRIES);
                let (crossed, which) = heard.next().unwrap();
                let size = search.asks()[which % search.asks().len()];
                if *crossed { search.crossed(size) } else { search.refused(size) }
                search.over();
            }
        }
    }

    #[test]
    fn nine_thousand_bytes_are_asked_once_where_they_cross_and_a_path_that_falls_silent_is_not_judged()
     {
        let path = |crosses, stall| Path {
            takes: 9000,
            crosses,
            lost: 0,
            random: 1,
            stall,
        };
        let most = |size, beyond| Some(Largest { size, beyond });
        let (found, rounds) = path(9000, (0, 0)).search(90, 9000);
        assert_eq!((found, rounds), (most(9000, Beyond::NotTried), 1));
        let (found, rounds) = path(1400, (0, 0)).search(90, 9000);
        assert_eq!(found, most(1400, Beyond::Lost));
        assert!(rounds <= 4 * TRIES + 1, "{rounds}");
        // Longer than all tries and a confirmation, and for ever.
        assert_eq!(
            path(1400, (1, 12)).search(90, 9000).0,
            most(1400, Beyond::Lost)
        );
        assert_eq!(path(1400, (1, 1000)).search(90, 9000).0, None);
        assert_eq!(path(90, (0, 0)).search(90, 9000).0, most(90, Beyond::Lost));
        assert_eq!(
            path(90, (0, 0)).search(90, 60).0,
            most(90, Beyond::NotTried)
        );
    }

    #[test]
    fn one_size_alone_is_a_search_too() {
        assert_eq!(spread(90, 1), [90]);
        assert_eq!(spread(90, 2), [90, 91]);
        let all = spread(90, 8911);
        assert_eq!((all[0], all[15], all.len()), (90, 9000, SIZES));
    }
}
