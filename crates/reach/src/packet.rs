//! Questions and answers as bytes.
//!
//! ```text
//!  0      4        5     6     8         10        14    46
//!  magic  version  kind  size  answer    sequence  MAC   zeros, up to its size
//! ```
//! Numbers have their highest byte first. The MAC is BLAKE3, keyed, of all before it; the size is the whole datagram's, so that a
//! datagram that was cut off is none.

use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes before the padding.
pub(crate) const HEADER: usize = 46;
const SIGNED: usize = 14;
const MAGIC: [u8; 4] = *b"DrvR";
const VERSION: u8 = 1;

/// The secret that makes an answerer speak: whoever has it can ask. It goes over the agents' own TLS only, and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket(pub [u8; 32]);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(hidden)")
    }
}

impl Ticket {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; 32];
        // So few come at once, or not at all.
        if getrandom(&mut key, GetRandomFlags::empty())? != key.len() {
            return Err(io::Error::other("too few random numbers"));
        }
        Ok(Self(key))
    }
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Say something of that size, in bytes of UDP's payload.
    Ask {
        /// The size.
        answer: u16,
    },
    /// What was asked for.
    Answer,
    /// What was asked for is larger than the answerer's own interface takes.
    TooLarge,
}

/// A datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    /// What is said.
    pub message: Message,
    /// Which question this is, or which one it answers.
    pub sequence: u32,
    /// Its size with the padding, in bytes of UDP's payload.
    pub size: u16,
}

/// A datagram that is not for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It is none of ours, or a part of one, or of a version that is not known.
    #[error("it is not a question or answer of this version")]
    Foreign,
    /// It was made without the ticket.
    #[error("it was not made with this ticket")]
    Forged,
}

impl Packet {
    /// Writes it to the beginning of the buffer, whose rest is left as it is: its bytes, or none where the size does not fit the
    /// buffer or the header.
    pub(crate) fn write<'b>(&self, ticket: &Ticket, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let size = usize::from(self.size);
        let datagram = buffer.get_mut(..size).filter(|_| size >= HEADER)?;
        let (kind, answer) = match self.message {
            Message::Ask { answer } => (1, answer),
            Message::Answer => (2, 0),
            Message::TooLarge => (3, 0),
        };
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4] = VERSION;
        datagram[5] = kind;
        datagram[6..8].copy_from_slice(&self.size.to_be_bytes());
        datagram[8..10].copy_from_slice(&answer.to_be_bytes());
        datagram[10..14].copy_from_slice(&self.sequence.to_be_bytes());
        let mac = blake3::keyed_hash(&ticket.0, &datagram[..SIGNED]);
        datagram[SIGNED..HEADER].copy_from_slice(mac.as_bytes());
        datagram[HEADER..].fill(0);
        Some(datagram)
    }

    /// Reads one that arrived whole.
    ///
    /// # Errors
    /// It is not for us.
    pub(crate) fn read(ticket: &Ticket, datagram: &[u8]) -> Result<Self, Refused> {
        let header: &[u8; HEADER] = datagram.first_chunk().ok_or(Refused::Foreign)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let size = number(6);
        if header[..4] != MAGIC || header[4] != VERSION || usize::from(size) != datagram.len() {
            return Err(Refused::Foreign);
        }
        let mut mac = [0; 32];
        mac.copy_from_slice(&header[SIGNED..]);
        // Compared in constant time.
        if blake3::keyed_hash(&ticket.0, &header[..SIGNED]) != blake3::Hash::from_bytes(mac) {
            return Err(Refused::Forged);
        }
        let message = match header[5] {
            1 => Message::Ask { answer: number(8) },
            2 => Message::Answer,
            3 => Message::TooLarge,
            _ => return Err(Refused::Foreign),
        };
        let sequence = u32::from_be_bytes([header[10], header[11], header[12], header[13]]);
        Ok(Self {
            message,
            sequence,
            size,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticket(key: u8) -> Ticket {
        Ticket([key; 32])
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            any::<u16>().prop_map(|answer| Message::Ask { answer }),
            Just(Message::Answer),
            Just(Message::TooLarge),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_no_changed_header_is(
            message in message(), sequence: u32, size in HEADER as u16..2000, at in 0..HEADER, flip in 1u8..,
        ) {
            let packet = Packet { message, sequence, size };
            let mut buffer = [7; 2000];
            let mut datagram = packet.write(&ticket(1), &mut buffer).unwrap().to_vec();
            prop_assert_eq!(datagram.len(), usize::from(size));
            prop_assert_eq!(Packet::read(&ticket(1), &datagram), Ok(packet));
            prop_assert_eq!(Packet::read(&ticket(2), &datagram), Err(Refused::Forged));
            prop_assert_eq!(Packet::read(&ticket(1), &datagram[..datagram.len() - 1]), Err(Refused::Foreign));
            datagram[at] ^= flip;
            prop_assert!(Packet::read(&ticket(1), &datagram).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Packet::read(&ticket(1), &bytes).is_err());
        }
    }

    #[test]
    fn a_size_that_fits_neither_the_header_nor_the_buffer_is_not_written() {
        let of = |size| Packet {
            message: Message::Answer,
            sequence: 0,
            size,
        };
        let mut buffer = [0; 100];
        assert!(
            of(HEADER as u16 - 1)
                .write(&ticket(1), &mut buffer)
                .is_none()
        );
        assert!(of(101).write(&ticket(1), &mut buffer).is_none());
        assert!(of(100).write(&ticket(1), &mut buffer).is_some());
    }

    #[test]
    fn a_ticket_is_new_each_time_and_never_shown() {
        let (one, other) = (Ticket::random().unwrap(), Ticket::random().unwrap());
        assert!(one != other);
        assert_eq!(format!("{one:?}"), "Ticket(hidden)");
    }
}
