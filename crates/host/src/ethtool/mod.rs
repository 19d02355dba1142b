//! Asks the kernel about links by ethtool's generic netlink (Linux
//! `Documentation/networking/ethtool-netlink.rst`).
//!
//! A kernel or driver without it is no error: the answer is then why there is none.

mod module;
mod order;
mod spread;
mod state;
mod told;

use std::io;

use drover_types::BitRate;
use serde::{Deserialize, Serialize};

use crate::netlink::attributes::{NESTED, attribute, find};
use crate::netlink::{Answer, Generic};
use crate::sysfs::megabits;

pub(crate) use module::module;
pub(crate) use order::Order;
pub use order::OrderError;
pub(crate) use spread::spread;
pub(crate) use state::{down, pause, port};
pub(crate) use told::{channels, coalescing, features, fec, link, rings};

/// In all questions.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
/// What was changed need not be told.
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
/// What was counted is to be told, too.
const ETHTOOL_FLAG_STATS: u32 = 4;
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
    /// Whether packets that are too many are held back by pause frames, and how many of these there were.
    Pause,
    /// Error correction, and what it could not correct.
    Fec,
    /// Which queues packets are handed to, without the key that they are told apart by.
    Rss,
    /// The memory of its cable or module (`MODULE_EEPROM`): the first half, without a serial number.
    ModuleLower,
    /// The second half, the same way; asked only of those that have their identity there.
    ModuleUpper,
}

impl Question {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 12] = [
        Self::Linkinfo,
        Self::Linkmodes,
        Self::Linkstate,
        Self::Features,
        Self::Rings,
        Self::Channels,
        Self::Coalesce,
        Self::Pause,
        Self::Fec,
        Self::Rss,
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
            Self::Pause => 21,
            Self::Fec => 29,
            Self::Rss => 38,
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
            Self::Rss => spread::kept(&answer),
            _ => answer,
        }
    }

    const fn flags(self) -> u32 {
        match self {
            Self::Pause | Self::Fec => ETHTOOL_FLAG_STATS,
            _ => 0,
        }
    }
}

/// A socket to the kernel's ethtool family.
pub(crate) struct Ethtool {
    family: Generic,
}

impl Ethtool {
    /// `None` where the kernel has no ethtool netlink (before 5.6) or gives no socket.
    pub(crate) fn open() -> Option<Self> {
        let family = Generic::open("ethtool")?;
        Some(Self { family })
    }

    /// The negotiated rate of the interface with this index; `None` where it has none.
    pub(crate) fn speed(&mut self, index: u32) -> Option<BitRate> {
        let answer = self.ask(index, Question::Linkmodes).ok()?;
        let value = find(&answer, ETHTOOL_A_LINKMODES_SPEED)?;
        megabits(u64::from(u32::from_ne_bytes(value.try_into().ok()?)))
    }

    /// Asks about the interface with this index.
    pub(crate) fn ask(&mut self, index: u32, question: Question) -> Answer {
        let mut attributes = header(index, question.flags());
        attributes.extend(question.attributes());
        let answer = self.family.ask(question.message(), &attributes)?;
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
        let mut attributes = header(index, ETHTOOL_FLAG_OMIT_REPLY);
        attributes.extend(&order.attributes);
        let code = self.family.order(order.command, &attributes);
        match code.map_err(|source| OrderError::Socket { source })? {
            Some(0) => Ok(()),
            Some(code) => Err(OrderError::Refused {
                source: io::Error::from_raw_os_error(code.saturating_neg()),
            }),
            None => Err(OrderError::Strange),
        }
    }
}

/// About which interface it is.
fn header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    if flags > 0 {
        header.extend(attribute(ETHTOOL_A_HEADER_FLAGS, &flags.to_ne_bytes()));
    }
    attribute(ETHTOOL_A_HEADER | NESTED, &header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_answers_or_has_no_ethtool_netlink() {
        match Ethtool::open() {
            None => println!("skipped, because the kernel has no ethtool netlink"),
            // Index 1 is the loopback interface; it has no rate.
            Some(mut ethtool) => assert_eq!(ethtool.speed(1), None),
        }
    }
}
