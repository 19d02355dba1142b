//! Questions that are asked together. Moves no datagram.

use std::time::Duration;

use tokio::time::Instant;

use crate::packet::{Message, Packet};

/// A question's size and its answer's, in bytes of UDP's payload.
pub(crate) type Sizes = (u16, u16);

/// What is heard of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Not yet, or never.
    Nothing,
    /// After so long.
    Answer(Duration),
    /// The kernel of this end does not send it.
    RefusedHere,
    /// That of the other end does not.
    RefusedThere,
}

/// Questions that are asked together, and what is heard of each.
pub(crate) struct Round<'a> {
    first: u32,
    asks: &'a [Sizes],
    /// How many of them are to be asked without a doubt; those beyond are knocks.
    certain: usize,
    /// How many are to be asked by now.
    wanted: usize,
    sent: Vec<Instant>,
    /// Of each, in their order.
    heard: Vec<Heard>,
}

impl<'a> Round<'a> {
    /// The last so many of them are asked by [`Self::knock`] only.
    pub(crate) fn new(first: u32, asks: &'a [Sizes], knocks: usize) -> Self {
        let certain = asks.len().saturating_sub(knocks);
        let heard = vec![Heard::Nothing; asks.len()];
        let sent = Vec::with_capacity(asks.len());
        Self {
            first,
            asks,
            certain,
            wanted: certain,
            sent,
            heard,
        }
    }

    /// What is heard of those that were sent, knocks left aside.
    pub(crate) fn told(&self) -> &[Heard] {
        &self.heard[..self.sent.len().min(self.certain)]
    }

    /// Nothing more can be heard: all were, or a knock that was sent after them.
    pub(crate) fn is_over(&self) -> bool {
        self.next().is_none()
            && (self.knock_is_heard() || !self.heard[..self.wanted].contains(&Heard::Nothing))
    }

    /// Whether the last that was sent is heard of, be it a knock or not. Whoever answers in order has answered all before it by then.
    pub(crate) fn last_is_heard(&self) -> bool {
        let sent = self.heard[..self.sent.len()].last();
        sent.is_some_and(|heard| *heard != Heard::Nothing)
    }

    fn knock_is_heard(&self) -> bool {
        let knocks = &self.heard[self.certain..self.wanted];
        knocks.iter().any(|heard| *heard != Heard::Nothing)
    }

    /// Has one more be asked: whether there was one.
    pub(crate) fn knock(&mut self) -> bool {
        let more = self.wanted < self.asks.len();
        self.wanted += usize::from(more);
        more
    }

    /// What is to be asked next, by its number.
    pub(crate) fn next(&self) -> Option<(u32, Sizes)> {
        let sizes = self.asks[..self.wanted].get(self.sent.len())?;
        Some((self.first.wrapping_add(self.sent.len() as u32), *sizes))
    }

    /// That was sent, or refused by our kernel.
    pub(crate) fn sent(&mut self, heard: Heard) {
        self.heard[self.sent.len()] = heard;
        self.sent.push(Instant::now());
    }

    /// How large the question of that number was; 0 of one that was not asked.
    pub(crate) fn size(&self, sequence: u32) -> u16 {
        let at = sequence.wrapping_sub(self.first) as usize;
        self.asks.get(at).map_or(0, |(size, _)| *size)
    }

    /// Whether it answers one of these, for the first time.
    pub(crate) fn take(&mut self, packet: &Packet) -> bool {
        let at = packet.sequence.wrapping_sub(self.first) as usize;
        let Some(sent) = self
            .sent
            .get(at)
            .filter(|_| self.heard[at] == Heard::Nothing)
        else {
            return false;
        };
        let heard = match packet.message {
            Message::Answer if packet.size == self.asks[at].1 => Heard::Answer(sent.elapsed()),
            Message::TooLarge => Heard::RefusedThere,
            _ => return false,
        };
        self.heard[at] = heard;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_only_in_its_own_round_and_of_its_own_size() {
        let asks = [(100, 200), (100, 300)];
        let mut round = Round::new(u32::MAX, &asks, 0);
        let answer = |sequence, size| Packet {
            message: Message::Answer,
            sequence,
            size,
        };
        assert!(!round.take(&answer(u32::MAX, 200)), "before it was asked");
        round.sent(Heard::Nothing);
        round.sent(Heard::Nothing);
        assert!(!round.take(&answer(u32::MAX, 199)));
        assert!(!round.take(&answer(u32::MAX - 1, 200)) && !round.take(&answer(1, 200)));
        assert!(round.take(&answer(u32::MAX, 200)) && !round.take(&answer(u32::MAX, 200)));
        assert!(round.take(&answer(0, 300)), "numbers begin anew");
        assert!(round.is_over());
    }

    #[test]
    fn a_knock_that_is_answered_ends_a_round_of_which_something_was_lost_and_counts_for_nothing() {
        let asks = [(100, 100); 4];
        let mut round = Round::new(0, &asks, 2);
        let answer = |sequence| Packet {
            message: Message::Answer,
            sequence,
            size: 100,
        };
        round.sent(Heard::Nothing);
        round.sent(Heard::Nothing);
        assert_eq!(round.next(), None);
        assert!(round.take(&answer(0)) && !round.is_over() && !round.last_is_heard());
        for knock in [2, 3] {
            assert!(round.knock() && round.next().is_some() && !round.is_over());
            round.sent(Heard::Nothing);
            assert!(!round.is_over(), "{knock}");
        }
        assert!(!round.knock());
        assert!(round.take(&answer(2)) && round.is_over());
        assert_eq!(round.told().len(), 2);
        assert_eq!(round.told()[1], Heard::Nothing);
    }
}
