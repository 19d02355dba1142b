//! Asks the kernel for link rates by ethtool's generic netlink (Linux
//! `Documentation/networking/ethtool-netlink.rst`, `LINKMODES_GET`).
//!
//! It answers for the network namespace of the calling thread, whatever is mounted on `/sys`.
//! A kernel or driver without it is no error: the rate is then looked for elsewhere.
//!
//! ```text
//! nlmsghdr 16: length u32, type u16, flags u16, sequence u32, port u32
//! genlmsghdr 4: command u8, version u8, reserved u16
//! attributes: length u16, type u16, value, padded to 4
//! ```

use std::io;

use drover_types::BitRate;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::limits::ETHTOOL_ANSWER;
use crate::sysfs::megabits;

const HEADERS: usize = 16 + 4;
const NLM_F_REQUEST: u16 = 1;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = (1 << 14) - 1;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;

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
        let answer = ethtool.ask(CTRL_CMD_GETFAMILY, &name).ok()??;
        let id = find(&answer, CTRL_ATTR_FAMILY_ID)?;
        ethtool.family = u16::from_ne_bytes(id.try_into().ok()?);
        Some(ethtool)
    }

    /// The negotiated rate of the interface with this index; `None` where it has none.
    pub(crate) fn speed(&mut self, index: u32) -> Option<BitRate> {
        let device = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
        let header = attribute(ETHTOOL_A_LINKMODES_HEADER | NLA_F_NESTED, &device);
        let answer = self.ask(ETHTOOL_MSG_LINKMODES_GET, &header).ok()??;
        let value = find(&answer, ETHTOOL_A_LINKMODES_SPEED)?;
        megabits(u64::from(u32::from_ne_bytes(value.try_into().ok()?)))
    }

    /// Sends one request and gives the attributes of its answer; `None` when refused.
    fn ask(&mut self, command: u8, attributes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket
            .send(&request(self.family, self.sequence, command, attributes), 0)?;
        let mut answer: Vec<u8> = Vec::with_capacity(ETHTOOL_ANSWER);
        self.socket.recv(&mut answer, 0)?;
        Ok(attributes_of(&answer, self.family, self.sequence))
    }
}

fn request(family: u16, sequence: u32, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADERS + attributes.len());
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut attribute = Vec::new();
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// The attributes of an answer to `sequence`; `None` when it is an error or something else.
fn attributes_of(message: &[u8], family: u16, sequence: u32) -> Option<Vec<u8>> {
    let length = usize::try_from(number(message, 0)?).ok()?;
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let answers = kind == family && number(message, 8)? == sequence;
    answers.then(|| message.get(HEADERS..length).map(<[u8]>::to_vec))?
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

/// The value of the first attribute of this type.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind & NLA_TYPE_MASK == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(attributes: &[u8]) -> Vec<u8> {
        request(21, 7, ETHTOOL_MSG_LINKMODES_GET, attributes)
    }

    #[test]
    fn an_attribute_is_found_behind_others_of_any_length() {
        let mut attributes = attribute(9, b"odd");
        attributes.extend(attribute(
            ETHTOOL_A_LINKMODES_SPEED,
            &10_000_u32.to_ne_bytes(),
        ));
        let message = answer(&attributes);
        let read = attributes_of(&message, 21, 7).unwrap();
        let value = find(&read, ETHTOOL_A_LINKMODES_SPEED).unwrap();
        assert_eq!(value, 10_000_u32.to_ne_bytes());
        assert_eq!(find(&read, 77), None);
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let message = answer(&[]);
        assert!(attributes_of(&message, 21, 8).is_none());
        assert!(attributes_of(&message, 22, 7).is_none());
    }

    #[test]
    fn cut_and_lying_answers_are_none() {
        let message = answer(&attribute(5, &[1, 2, 3, 4]));
        for cut in 0..message.len() {
            let attributes = attributes_of(&message[..cut], 21, 7);
            assert!(attributes.is_none(), "cut at {cut}");
        }
        for lie in [0_u16, 1, 3, 4, 9, u16::MAX] {
            let mut attributes = attribute(9, b"1234");
            attributes[..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(find(&attributes, 5), None, "length {lie}");
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
