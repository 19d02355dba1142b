//! A plan: what is to be done in which order, why, what to expect of it, and what is left afterwards.

use std::collections::BTreeMap;

use drover_types::{BitRate, Bytes, HostName, VmName};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::inventory::Disks;
use crate::policy::{CannotMove, LossOf};
use crate::precopy::{Forecast, Range};
use crate::refusal::Unmovable;
use crate::request::Request;
use crate::words::Text;

/// The version of a plan's format; a plan of another one is refused before anything else of it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Format {
    /// Of guests that are called as they are named, and may be on any host that has room and a processor for them.
    #[default]
    First,
    /// The same, also of others: [`Plan::called`], [`NoPlace::Lacks`](crate::refusal::NoPlace::Lacks). Written only where there are such.
    Second,
    /// The same, also of guests that move with disks that only their host has: [`Step::disks`],
    /// [`NoPlace::Disks`](crate::refusal::NoPlace::Disks), and what was asked for says so. Written only where that was asked for.
    Third,
}

impl From<Format> for u32 {
    fn from(format: Format) -> u32 {
        match format {
            Format::First => 1,
            Format::Second => 2,
            Format::Third => 3,
        }
    }
}

/// A plan in a format of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the plan has format {found}, and this version reads 1 to 3: make it anew with this version"
)]
pub struct OtherFormat {
    found: u32,
}

impl TryFrom<u32> for Format {
    type Error = OtherFormat;
    fn try_from(found: u32) -> Result<Self, OtherFormat> {
        match found {
            1 => Ok(Self::First),
            2 => Ok(Self::Second),
            3 => Ok(Self::Third),
            found => Err(OtherFormat { found }),
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of the format.
    pub format: Format,
    /// What it was made from: facts, policy and request ([`crate::digest`] says which facts).
    pub inputs: Digest,
    /// What was asked for.
    pub request: Request,
    /// Hosts that take no more guests from the beginning on.
    pub cordon: Vec<HostName>,
    /// Hosts that take guests again from the beginning on.
    pub uncordon: Vec<HostName>,
    /// The moves, in the order in which they start.
    pub steps: Vec<Step>,
    /// Guests that the request is about and that need not move.
    pub stays: Vec<Stay>,
    /// Guests that cannot move, and what happens to them.
    pub unmoved: Vec<Unmoved>,
    /// What people call those of these guests that are named otherwise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub called: BTreeMap<VmName, Text>,
    /// What it will take.
    pub expected: Expected,
    /// How things are afterwards.
    pub afterwards: Afterwards,
    /// Of all of the above: an edited plan does not fit it.
    pub seal: Digest,
}

/// A move of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// From 1.
    pub number: u32,
    /// From 1. A wave begins when the one before it has ended; within a wave any order and pace is
    /// safe, as long as the limits on migrations at once are kept.
    pub wave: u32,
    /// The guest.
    pub vm: VmName,
    /// Where it is.
    pub from: HostName,
    /// Where it goes.
    pub to: HostName,
    /// Why there.
    pub why: Why,
    /// The memory that it takes at both ends while it moves.
    pub memory: Bytes,
    /// Disks that are copied with it, where it has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<StepDisks>,
    /// When it is expected to start, in milliseconds from the beginning.
    pub starts_ms: u64,
    /// What of the lines it is expected to have.
    pub bandwidth: BitRate,
    /// What it will take.
    pub forecast: Forecast,
}

/// Disks that are copied with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDisks {
    /// How large they are.
    pub disks: Disks,
    /// What of the forecast's time is for them, in milliseconds: memory is copied after them.
    pub ms: Range,
}

/// Why a guest goes where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// What decided.
    pub choice: Choice,
    /// Memory for guests that is free there when the plan is done, headroom kept.
    pub free_after: Bytes,
    /// Memory that is there for guests, headroom kept.
    pub room: Bytes,
    /// Hosts that it could have gone to, this one included.
    pub candidates: u32,
    /// Guests that it is kept apart from.
    pub apart_from: Vec<VmName>,
    /// Guests that it is kept together with.
    pub together_with: Vec<VmName>,
    /// Wishes that are broken there: soft groups, preferred failure domains.
    pub wishes_broken: u32,
}

/// What decided where a guest goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Choice {
    /// No other host has a place for it.
    OnlyPlace,
    /// The host is the least full with it, of those that have a place.
    MostRoom,
    /// Fewer wishes are broken than on a host with more room.
    Wishes,
    /// Better for the whole: another guest has the place with more room, or a line is less busy.
    Whole,
    /// It was there before.
    Home,
    /// It makes the hosts' loads more equal.
    Evens {
        /// Load of the host that it leaves, in percent, before and after.
        from_percent: [u32; 2],
        /// Load of the host that it goes to.
        to_percent: [u32; 2],
    },
    /// It makes room for another guest.
    MakesRoom {
        /// That guest.
        vm: VmName,
    },
}

/// A guest that stays where it is because nothing else is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stay {
    /// The VM.
    pub vm: VmName,
    /// Why.
    pub why: Staying,
}

/// Why a guest stays where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Staying {
    /// It is not in memory.
    Stopped,
    /// It is on its way already.
    Moving {
        /// Where to.
        to: HostName,
    },
    /// It is there already.
    AtHome,
    /// The inventory does not have it any more.
    Gone,
}

/// A guest that cannot move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmoved {
    /// The guest.
    pub vm: VmName,
    /// Where it is.
    pub host: HostName,
    /// Its memory.
    pub memory: Bytes,
    /// Why.
    pub why: Unmovable,
    /// What happens to it.
    pub then: Then,
}

impl Unmoved {
    /// Whether there is no plan because of it.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.then == Then::Blocks
    }
}

/// What happens to a guest that cannot move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// There is no plan.
    Blocks,
    /// It runs on where it is; the host does not become empty. Its policy wants that, or a move of it
    /// failed a moment ago.
    RunsOn,
    /// It is suspended to disk, and resumed when its host is back.
    Suspended,
    /// It is stopped, and started when its host is back.
    Stopped,
    /// It was to come home and stays where it is.
    NotHome,
}

impl From<CannotMove> for Then {
    fn from(wanted: CannotMove) -> Self {
        match wanted {
            CannotMove::Block => Self::Blocks,
            CannotMove::Skip => Self::RunsOn,
            CannotMove::Suspend => Self::Suspended,
            CannotMove::StopAndStart => Self::Stopped,
        }
    }
}

/// What a plan will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Bytes that are carried.
    pub bytes: Range,
    /// Milliseconds from the first order to the last guest's arrival.
    pub ms: Range,
    /// The least time in which the lines could carry the expected bytes, in milliseconds.
    pub bound_ms: u64,
    /// Milliseconds that the guest with the longest stop stands still, whichever that turns out to be.
    pub longest_downtime_ms: Range,
}

/// How things are when a plan is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Afterwards {
    /// The hosts, by name.
    pub hosts: Vec<HostAfter>,
    /// What the cluster can lose then.
    pub losses: Losses,
}

/// A host when a plan is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostAfter {
    /// The host.
    pub host: HostName,
    /// Whether it takes guests.
    pub takes_guests: bool,
    /// Guests in memory.
    pub guests: u32,
    /// Memory for guests that is free, headroom kept.
    pub memory_free: Bytes,
    /// Memory for guests, headroom kept.
    pub memory_room: Bytes,
    /// vCPUs that still fit.
    pub vcpus_free: u64,
}

/// What a cluster can lose, with a place for every guest that was on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// What is counted.
    pub of: LossOf,
    /// So many at once, whichever they are.
    pub can_lose: u32,
    /// Whether the policy's wish is kept.
    pub kept: bool,
    /// Losses that would be too much, one more at once than can be lost; none where more were not looked
    /// at.
    pub too_much: Option<TooMuch>,
    /// Guests that no other host that takes guests may take, for their pins, what they need or their hypervisor: their
    /// host's loss is theirs, whatever room there is.
    pub bound_to_their_host: u32,
}

/// A loss that leaves guests without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TooMuch {
    /// The hosts that would be lost.
    pub lost: Vec<HostName>,
    /// Guests for which no place was found.
    pub guests: u32,
    /// Their memory.
    pub memory: Bytes,
}
