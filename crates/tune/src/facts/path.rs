//! Facts of a path: a pair of interfaces, asked from one of its ends.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Fact;

/// A path, as its near end found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// The end that asked.
    pub near: PathEnd,
    /// The one that answered.
    pub far: PathEnd,
    /// The interface by which the near host's kernel would send to the far address, were it left to choose.
    pub route: Fact<String>,
    /// What the near host's kernel said where it sent no question at all.
    #[serde(default)]
    pub refused: Option<String>,
    /// How many questions were answered.
    pub answers: Fact<Answers>,
    /// Interfaces of the near host by which answers arrived.
    pub arrivals: Fact<BTreeSet<String>>,
    /// The largest packet that crosses to the far end.
    pub there: Fact<Crossing>,
    /// The largest one that crosses from there.
    pub back: Fact<Crossing>,
    /// Half of the round trips were longer, in microseconds.
    pub round_trip: Fact<u64>,
    /// What both interfaces that are claimed counted while it was asked.
    #[serde(default)]
    pub counted: Fact<Counted>,
    /// What it carried to the far end; missing where that was not to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Fact<Carried>>,
    /// What it carried while others were loaded at the same time; missing where that was not to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
}

/// An end of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathEnd {
    /// Its host.
    pub host: String,
    /// Its interface.
    pub nic: String,
    /// Its address.
    pub address: IpAddr,
    /// Largest packet of the interface, in bytes.
    pub mtu: u32,
}

/// Small packets that were asked and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Questions.
    pub asked: u32,
    /// Of these, how many were answered.
    pub answered: u32,
}

/// What crosses a path in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossing {
    /// Bytes of the largest packet, its IP header included.
    pub size: u32,
    /// Larger ones vanish, and nobody tells the sender.
    pub vanish: bool,
}

/// Bytes that crossed a path, and what the interfaces at its ends counted meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Of questions that were answered, without headers.
    pub asked: u64,
    /// Of answers that arrived, the same way.
    pub answered: u64,
    /// By the near interface.
    pub near: Traffic,
    /// By the far one.
    pub far: Traffic,
}

/// Bytes that an interface counted, with Ethernet's headers and all else that crossed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// That arrived.
    pub received: u64,
    /// That left.
    pub sent: u64,
}

/// What a path carried when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Bits of payload in a second.
    pub rate: u64,
    /// Bits in a second of the slower of both links, where known.
    pub line: Option<u64>,
    /// Bits in a second that were allowed; missing where there was no limit.
    pub allowed: Option<u64>,
    /// Packets that were sent.
    pub packets: u64,
    /// Of these, packets that were sent again.
    pub again: u64,
    /// What it waited for.
    pub held_up_by: HeldUpBy,
    /// How the near adapter's slot worked meanwhile, as it rests without work; missing where it has none of its own, or none that limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
}

/// How a slot works at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Lanes.
    pub width: u32,
    /// Millions of transfers a second on each.
    pub speed: u32,
}

impl Carried {
    /// What it could have carried at most, in bits a second, by its slower link and what was allowed; nothing where nobody tells the
    /// link's rate.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        let line = self.line?;
        let most = self.allowed.map_or(line, |allowed| allowed.min(line));
        Some(most.max(1))
    }
}

/// What a path carried while others were loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// It has no part in either, as its line is loaded by another path of its two hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// While all hosts that have a path to its far host loaded that one.
    pub to_one: Fact<Joint>,
    /// While every host loaded another one.
    pub each_other: Fact<Joint>,
}

/// What a path carried beside others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// What it carried.
    pub carried: Carried,
    /// The time at which that was: paths that were loaded at the same time have the same number.
    pub round: u32,
    /// What the near interface stands on; a bond stands on several.
    #[serde(default)]
    pub near_ports: BTreeSet<String>,
    /// What the far interface stands on: those that have one of these in common share a line.
    pub far_ports: BTreeSet<String>,
    /// Bits in a second of the far link, where known.
    pub far_line: Option<u64>,
}

/// What a load waited for most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldUpBy {
    /// The path.
    Path,
    /// Processors of the near host.
    Near,
    /// Processors of the far host.
    Far,
}
