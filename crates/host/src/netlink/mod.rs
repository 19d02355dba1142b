//! Requests to the kernel by netlink, one at a time, for what no library here knows: ethtool, devlink and data centre bridging.
//!
//! It answers for the network namespace of the calling thread, whatever is mounted on `/sys`.
//!
//! ```text
//! nlmsghdr 16: length u32, type u16, flags u16, sequence u32, port u32      an error: code i32, 0 or a negative errno
//! genlmsghdr 4, of generic families: command u8, version u8, reserved u16
//! attributes: see `attributes`
//! ```

pub(crate) mod attributes;
mod generic;

use std::io;

use rtnetlink::sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::limits::NETLINK_ANSWER;

pub(crate) use generic::Generic;

pub(crate) const NLM_F_REQUEST: u16 = 1;
/// An answer is wanted even where there is nothing to say.
pub(crate) const NLM_F_ACK: u16 = 4;
/// All that there are, one message each.
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

const HEADER: usize = 16;

/// What the kernel told, or why it did not, to be read after "because".
pub(crate) type Answer = Result<Vec<u8>, String>;

/// A socket to a part of the kernel.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// `None` where the kernel gives no socket.
    pub(crate) fn open(protocol: isize) -> Option<Self> {
        let mut socket = Socket::new(protocol).ok()?;
        socket.bind_auto().ok()?;
        socket.connect(&SocketAddr::new(0, 0)).ok()?;
        // The kernel has queued its answer when `send` returns, so nothing is waited for.
        socket.set_non_blocking(true).ok()?;
        Some(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends one request and gives what is in the one message that comes back.
    pub(crate) fn ask(&mut self, kind: u16, payload: &[u8]) -> Answer {
        let answer = self.exchange(kind, NLM_F_REQUEST, payload);
        let answer = answer.map_err(|error| unanswered(&error))?;
        payload_of(&answer, kind, self.sequence)
    }

    /// Has something be done; the kernel's code, 0 or a negative errno, or none where it answers something else.
    pub(crate) fn order(&mut self, kind: u16, payload: &[u8]) -> io::Result<Option<i32>> {
        let answer = self.exchange(kind, NLM_F_REQUEST | NLM_F_ACK, payload)?;
        Ok(error_of(&answer, self.sequence))
    }

    /// Asks for all that there are: what is in each message. More than `most` are an error.
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        payload: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, String> {
        self.all(kind, NLM_F_REQUEST | NLM_F_DUMP, payload, most)
    }

    /// Sends one request that is answered in several messages, as what is asked for is too much for one. More than `most` are an error.
    pub(crate) fn parts(
        &mut self,
        kind: u16,
        payload: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, String> {
        self.all(kind, NLM_F_REQUEST, payload, most)
    }

    fn all(
        &mut self,
        kind: u16,
        flags: u16,
        payload: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, String> {
        let first = self.exchange(kind, flags, payload);
        let mut bytes = first.map_err(|error| unanswered(&error))?;
        let mut all = All::of_at_most(most);
        loop {
            for message in messages(&bytes) {
                if self::kind(message) == Some(NLMSG_DONE) {
                    return all.told();
                }
                all.push(payload_of(message, kind, self.sequence)?);
            }
            bytes = self.receive().map_err(|error| unanswered(&error))?;
        }
    }

    fn exchange(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, flags, self.sequence, payload);
        self.socket.send(&request, 0)?;
        self.receive()
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut answer: Vec<u8> = Vec::with_capacity(NETLINK_ANSWER);
        self.socket.recv(&mut answer, 0)?;
        Ok(answer)
    }
}

/// What is in several messages. All are read, so that none is taken for the answer to what is asked next.
struct All {
    told: Vec<Vec<u8>>,
    most: usize,
    beyond: usize,
}

impl All {
    fn of_at_most(most: usize) -> Self {
        let told = Vec::new();
        Self {
            told,
            most,
            beyond: 0,
        }
    }

    fn push(&mut self, payload: Vec<u8>) {
        if self.told.len() < self.most {
            self.told.push(payload);
        } else {
            self.beyond += 1;
        }
    }

    /// An error where there were more: a part would pass for all of it.
    fn told(self) -> Result<Vec<Vec<u8>>, String> {
        let (most, sent) = (self.most, self.told.len() + self.beyond);
        if self.beyond > 0 {
            return Err(format!(
                "the kernel tells it in {sent} messages, and {most} are read at most"
            ));
        }
        Ok(self.told)
    }
}

fn unanswered(error: &io::Error) -> String {
    format!("the kernel does not answer: {error}")
}

fn request(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(payload);
    message
}

/// Messages behind each other, as far as they are whole.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number(bytes, 0)?).ok()?;
        let message = bytes.get(..length).filter(|_| length >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// What is in an answer to `sequence`.
fn payload_of(message: &[u8], kind: u16, sequence: u32) -> Answer {
    if let Some(code) = error_of(message, sequence) {
        return Err(refused(code));
    }
    let is_answer = self::kind(message) == Some(kind) && number(message, 8) == Some(sequence);
    let length = number(message, 0).filter(|_| is_answer);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let payload = length.and_then(|length| message.get(HEADER..length));
    let strange = || "the kernel's answer is not as known".to_owned();
    payload.map(<[u8]>::to_vec).ok_or_else(strange)
}

/// The code of an error, if it is one about that request.
fn error_of(message: &[u8], sequence: u32) -> Option<i32> {
    let is_error = kind(message) == Some(NLMSG_ERROR) && number(message, 8) == Some(sequence);
    number(message, 16)
        .filter(|_| is_error)
        .map(u32::cast_signed)
}

fn kind(message: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?))
}

/// Why the kernel does not tell.
fn refused(code: i32) -> String {
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) {
        "its driver does not tell".to_owned()
    } else {
        format!("the kernel refuses to tell: {error}")
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::attributes::attribute;
    use super::*;

    #[test]
    fn an_answer_to_another_question_is_none() {
        let message = request(21, NLM_F_REQUEST, 7, b"some");
        assert_eq!(payload_of(&message, 21, 7), Ok(b"some".to_vec()));
        assert!(payload_of(&message, 21, 8).is_err());
        assert!(payload_of(&message, 22, 7).is_err());
    }

    #[test]
    fn cut_answers_are_none() {
        let message = request(21, NLM_F_REQUEST, 7, &attribute(5, &[1, 2, 3, 4]));
        for cut in 0..message.len() {
            let payload = payload_of(&message[..cut], 21, 7);
            assert!(payload.is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_driver_that_does_not_tell_is_told_from_a_kernel_that_refuses() {
        let error = |code: i32| {
            let mut message = request(NLMSG_ERROR, 0, 7, &[0; 20]);
            message[16..20].copy_from_slice(&code.to_ne_bytes());
            payload_of(&message, 21, 7).unwrap_err()
        };
        assert_eq!(error(-95), "its driver does not tell");
        assert!(error(-19).starts_with("the kernel refuses to tell: "));
        for strange in [0, i32::MIN, i32::MAX] {
            assert!(!error(strange).is_empty());
        }
    }

    #[test]
    fn more_messages_than_are_read_are_an_error_and_no_part_of_it() {
        let told = |count: usize| {
            let mut all = All::of_at_most(2);
            (0..count).for_each(|number| all.push(vec![number as u8]));
            all.told()
        };
        assert_eq!(told(2), Ok(vec![vec![0], vec![1]]));
        let refused = told(5).unwrap_err();
        assert_eq!(
            refused,
            "the kernel tells it in 5 messages, and 2 are read at most"
        );
    }

    #[test]
    fn messages_behind_each_other_are_taken_apart_and_lying_lengths_end_them() {
        let one = request(21, 0, 7, b"odd");
        let mut both = one.clone();
        both.resize(both.len().next_multiple_of(4), 0);
        both.extend(request(22, 0, 7, b""));
        let kinds: Vec<_> = messages(&both).map(kind).collect();
        assert_eq!(kinds, [Some(21), Some(22)]);
        for lie in [0_u32, 15, 1 << 20, u32::MAX] {
            let mut lying = one.clone();
            lying[..4].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(messages(&lying).count(), 0, "{lie}");
        }
    }
}
