//! Families of generic netlink, which the kernel knows by their names.

use std::io;

use rtnetlink::sys::protocols::NETLINK_GENERIC;

use super::attributes::{attribute, find};
use super::{Answer, Netlink};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// Command, version and what is reserved, before the attributes.
const HEADER: usize = 4;

/// A socket to a family.
pub(crate) struct Generic {
    netlink: Netlink,
    family: u16,
}

impl Generic {
    /// `None` where the kernel does not have it, or gives no socket.
    pub(crate) fn open(name: &str) -> Option<Self> {
        let mut generic = Self {
            netlink: Netlink::open(NETLINK_GENERIC)?,
            family: GENL_ID_CTRL,
        };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, format!("{name}\0").as_bytes());
        let answer = generic.ask(CTRL_CMD_GETFAMILY, &name).ok()?;
        let id = find(&answer, CTRL_ATTR_FAMILY_ID)?;
        generic.family = u16::from_ne_bytes(id.try_into().ok()?);
        Some(generic)
    }

    /// Sends one request and gives the attributes of its answer.
    pub(crate) fn ask(&mut self, command: u8, attributes: &[u8]) -> Answer {
        let answer = self
            .netlink
            .ask(self.family, &payload(command, attributes))?;
        attributes_of(&answer)
    }

    /// As [`Netlink::order`].
    pub(crate) fn order(&mut self, command: u8, attributes: &[u8]) -> io::Result<Option<i32>> {
        self.netlink
            .order(self.family, &payload(command, attributes))
    }

    /// As [`Netlink::parts`].
    pub(crate) fn parts(
        &mut self,
        command: u8,
        attributes: &[u8],
        most: usize,
    ) -> Result<Vec<Vec<u8>>, String> {
        let all = self
            .netlink
            .parts(self.family, &payload(command, attributes), most)?;
        all.iter().map(|answer| attributes_of(answer)).collect()
    }

    /// As [`Netlink::dump`].
    pub(crate) fn dump(&mut self, command: u8, most: usize) -> Result<Vec<Vec<u8>>, String> {
        let all = self
            .netlink
            .dump(self.family, &payload(command, &[]), most)?;
        all.iter().map(|answer| attributes_of(answer)).collect()
    }
}

fn payload(command: u8, attributes: &[u8]) -> Vec<u8> {
    let mut payload = vec![command, 1, 0, 0];
    payload.extend(attributes);
    payload
}

fn attributes_of(answer: &[u8]) -> Answer {
    let strange = || "the kernel's answer is not as known".to_owned();
    answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(strange)
}
