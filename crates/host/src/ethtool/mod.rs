//! Asks the kernel about links by ethtool's generic netlink (Linux
//! `Documentation/networking/ethtool-netlink.rst`).
//!
//! It answers for the network namespace of the calling thread, whatever is mounted on `/sys`.
//! A kernel or driver without it is no error: the answer is then why there is none.
//!
//! ```text
//! nlmsghdr 16: length u32, type u16, flags u16, sequence u32, port u32
//! genlmsghdr 4: command u8, version u8, reserved u16      an error: code i32, 0 or a negative errno
//! attributes: see `attributes`
//! ```

mod attributes;
mod module;
mod order;
mod state;
mod told;

use std::io;

use drover_types::BitRate;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::limits::ETHTOOL_ANSWER;
use crate::sysfs::megabits;

use attributes::{NESTED, find};
pub use attributes::{attribute, bitset};
pub(crate) use module::module;
pub(crate) use order::Order;
pub use order::OrderError;
pub(crate) use state::{down, port};
pub(crate) use told::{channels, coalescing, features, fec, link, rings};

const HEADERS: usize = 16 + 4;
const NLM_F_REQUEST: u16 = 1;
/// An answer is wanted even where there is nothing to say.
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// In all questions.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
/// What was changed need not be told.
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;

/// What can be asked of an interface, by the names of the kernel's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What its cable is put into.
    Linkinfo,
    /// Rates and modes.
    Linkmodes,
    /// Why there is no link.
    Linkstate,
    /// What is done for the stack.
    Features,
    /// Places for packets.
    Rings,
    /// Queues.
    Channels,
    /// When interrupts are raised.
    Coalesce,
    /// Error correction.
    Fec,
    /// The memory of its cable or module (`MODULE_EEPROM`): the first half, without a serial number.
    ModuleLower,
    /// The second half, the same way; asked only of those that have their identity there.
    ModuleUpper,
}

impl Question {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 10] = [
        Self::Linkinfo,
        Self::Linkmodes,
        Self::Linkstate,
        Self::Features,
        Self::Rings,
        Self::Channels,
        Self::Coalesce,
        Self::Fec,
        Self::ModuleLower,
        Self::ModuleUpper,
    ];

    /// Number of the kernel's message (`ETHTOOL_MSG_*_GET`).
    const fn message(self) -> u8 {
        match self {
            Self::Linkinfo => 2,
            Self::Linkmodes => 4,
            Self::Linkstate => 6,
            Self::Features => 11,
            Self::Rings => 15,
            Self::Channels => 17,
            Self::Coalesce => 19,
            Self::Fec => 29,
            Self::ModuleLower | Self::ModuleUpper => 31,
        }
    }

    /// What is asked for beside the interface.
    fn attributes(self) -> Vec<u8> {
        match self {
            Self::ModuleLower | Self::ModuleUpper => module::asked(self == Self::ModuleUpper),
            _ => Vec::new(),
        }
    }

    /// What is kept of the answer.
    fn kept(self, answer: Vec<u8>) -> Vec<u8> {
        match self {
            Self::ModuleLower | Self::ModuleUpper => {
                module::kept(self == Self::ModuleUpper, &answer)
            }
            _ => answer,
        }
    }
}

/// The attributes of an answer, or why there is none, to be read after "because".
pub type Answer = Result<Vec<u8>, String>;

/// A socket to the kernel's ethtool family.
pub(crate) struct Ethtool {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl Ethtool {
    /// `None` where the kernel has no ethtool netlink (before 5.6) or gives no socket.
    pub(crate) fn open() -> Option<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC).ok()?;
        socket.bind_auto().ok()?;
        socket.connect(&SocketAddr::new(0, 0)).ok()?;
        // The kernel has queued its answer when `send` returns, so nothing is waited for.
        socket.set_non_blocking(true).ok()?;
        let mut ethtool = Self {
            socket,
            family: GENL_ID_CTRL,
            sequence: 0,
        };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let answer = ethtool.exchange(CTRL_CMD_GETFAMILY, &name).ok()?;
        let id = find(&answer, CTRL_ATTR_FAMILY_ID)?;
        ethtool.family = u16::from_ne_bytes(id.try_into().ok()?);
        Some(ethtool)
    }

    /// The negotiated rate of the interface with this index; `None` where it has none.
    pub(crate) fn speed(&mut self, index: u32) -> Option<BitRate> {
        let answer = self.ask(index, Question::Linkmodes).ok()?;
        let value = find(&answer, ETHTOOL_A_LINKMODES_SPEED)?;
        megabits(u64::from(u32::from_ne_bytes(value.try_into().ok()?)))
    }

    /// Asks about the interface with this index.
    pub(crate) fn ask(&mut self, index: u32, question: Question) -> Answer {
        let device = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
        let mut attributes = attribute(ETHTOOL_A_HEADER | NESTED, &device);
        attributes.extend(question.attributes());
        let answer = self.exchange(question.message(), &attributes)?;
        Ok(question.kept(answer))
    }

    /// Asks all questions about it, but those that an earlier answer makes idle.
    pub(crate) fn ask_all(&mut self, index: u32) -> Vec<(Question, Answer)> {
        let mut answers: Vec<(Question, Answer)> = Vec::new();
        for question in Question::ALL {
            let is_idle = question == Question::ModuleUpper
                && !answers.last().is_some_and(|(_, lower)| {
                    lower.as_ref().is_ok_and(|lower| module::has_upper(lower))
                });
            let answer = if is_idle {
                Err("what is in its port has no second half of a memory".to_owned())
            } else {
                self.ask(index, question)
            };
            answers.push((question, answer));
        }
        answers
    }

    /// Has the interface with this index be changed.
    pub(crate) fn order(&mut self, index: u32, order: &Order) -> Result<(), OrderError> {
        let mut header = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
        let flags = ETHTOOL_FLAG_OMIT_REPLY.to_ne_bytes();
        header.extend(attribute(ETHTOOL_A_HEADER_FLAGS, &flags));
        let mut attributes = attribute(ETHTOOL_A_HEADER | NESTED, &header);
        attributes.extend(&order.attributes);
        let answer = self.answer(order.command, NLM_F_REQUEST | NLM_F_ACK, &attributes);
        let answer = answer.map_err(|source| OrderError::Socket { source })?;
        match error_of(&answer, self.sequence) {
            Some(0) => Ok(()),
            Some(code) => Err(OrderError::Refused {
                source: io::Error::from_raw_os_error(code.saturating_neg()),
            }),
            None => Err(OrderError::Strange),
        }
    }

    /// Sends one request and gives the attributes of its answer.
    fn exchange(&mut self, command: u8, attributes: &[u8]) -> Answer {
        let answer = self.answer(command, NLM_F_REQUEST, attributes);
        let answer = answer.map_err(|error| format!("the kernel does not answer: {error}"))?;
        attributes_of(&answer, self.family, self.sequence)
    }

    /// Sends one request and gives the message that comes back.
    fn answer(&mut self, command: u8, flags: u16, attributes: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.family, flags, self.sequence, command, attributes);
        let mut answer: Vec<u8> = Vec::with_capacity(ETHTOOL_ANSWER);
        self.socket.send(&request, 0)?;
        self.socket.recv(&mut answer, 0)?;
        Ok(answer)
    }
}

fn request(family: u16, flags: u16, sequence: u32, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADERS + attributes.len());
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

/// The attributes of an answer to `sequence`.
fn attributes_of(message: &[u8], family: u16, sequence: u32) -> Answer {
    if let Some(code) = error_of(message, sequence) {
        return Err(refused(code));
    }
    let is_answer = kind(message) == Some(family) && number(message, 8) == Some(sequence);
    let length = number(message, 0).filter(|_| is_answer);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let attributes = length.and_then(|length| message.get(HEADERS..length));
    let strange = || "the kernel's answer is not as known".to_owned();
    attributes.map(<[u8]>::to_vec).ok_or_else(strange)
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
    use super::*;

    fn answer(attributes: &[u8]) -> Vec<u8> {
        request(
            21,
            NLM_F_REQUEST,
            7,
            Question::Linkmodes.message(),
            attributes,
        )
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let message = answer(&attribute(9, b"odd"));
        assert_eq!(attributes_of(&message, 21, 7), Ok(attribute(9, b"odd")));
        assert!(attributes_of(&message, 21, 8).is_err());
        assert!(attributes_of(&message, 22, 7).is_err());
    }

    #[test]
    fn cut_answers_are_none() {
        let message = answer(&attribute(5, &[1, 2, 3, 4]));
        for cut in 0..message.len() {
            let attributes = attributes_of(&message[..cut], 21, 7);
            assert!(attributes.is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_driver_that_does_not_tell_is_told_from_a_kernel_that_refuses() {
        let error = |code: i32| {
            let mut message = request(NLMSG_ERROR, 0, 7, 0, &[0; 16]);
            message[16..20].copy_from_slice(&code.to_ne_bytes());
            attributes_of(&message, 21, 7).unwrap_err()
        };
        assert_eq!(error(-95), "its driver does not tell");
        assert!(error(-19).starts_with("the kernel refuses to tell: "));
        for strange in [0, i32::MIN, i32::MAX] {
            assert!(!error(strange).is_empty());
        }
    }

    #[test]
    fn this_kernel_answers_or_has_no_ethtool_netlink() {
        match Ethtool::open() {
            None => println!("skipped, because the kernel has no ethtool netlink"),
            // Index 1 is the loopback interface; it has no rate.
            Some(mut ethtool) => assert_eq!(ethtool.speed(1), None),
        }
    }
}
