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
    sent: Vec<Instant>,
    /// Of each, in their order.
    heard: Vec<Heard>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(first: u32, asks: &'a [Sizes]) -> Self {
        let heard = vec![Heard::Nothing; asks.len()];
        let sent = Vec::with_capacity(asks.len());
        Self {
            first,
            asks,
            sent,
            heard,
        }
    }

    /// What is heard of those that were sent.
    pub(crate) fn told(&self) -> &[Heard] {
        &self.heard[..self.sent.len()]
    }

    pub(crate) fn is_over(&self) -> bool {
        self.next().is_none() && !self.heard.contains(&Heard::Nothing)
    }

    /// What is to be asked next, by its number.
    pub(crate) fn next(&self) -> Option<(u32, Sizes)> {
        let sizes = self.asks.get(self.sent.len())?;
        Some((self.first.wrapping_add(self.sent.len() as u32), *sizes))
    }

    /// That was sent, or refused by our kernel.
    pub(crate) fn sent(&mut self, heard: Heard) {
        self.heard[self.sent.len()] = heard;
        self.sent.push(Instant::now());
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
        let mut round = Round::new(u32::MAX, &asks);
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
}
