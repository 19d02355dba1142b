//! What is known of a host, as far as its rules ask.
//!
//! Whoever reads a host fills these; nobody guesses. What could not be read is [`Fact::Unknown`] with the
//! reason, so that a rule that needs it is skipped and says why.

mod device;
mod domain;
mod fabric;
mod guest;
mod layers;
mod media;
mod nic;
mod path;
mod processors;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use device::{Rdma, Reporter, Spread};
pub use domain::{Domain, Element};
pub use fabric::{
    App, Buffers, Dcb, Dcbx, DcbxVersion, Ets, HeardBy, Listening, Neighbour, Pause, Pfc,
};
pub use guest::{
    Argument, Card, Definition, Guest, HugePages, Memory, Offer, Offers, Own, Pages, Seen,
};
pub use layers::Layers;
pub use media::{Down, Medium, Modes, Module, Port};
pub use nic::{
    Bond, Channels, Coalescing, Counters, Duplex, Features, Fec, Interrupt, Kind, Link, Nic, Pci,
    Rings, Steering, Teller,
};
pub use path::{
    Answers, Carried, Counted, Crossing, HeldUpBy, Joint, Path, PathEnd, Slot, Together, Traffic,
};
pub use processors::{Core, Frequencies, Node, Policy, Processors, Waking};

/// A fact, or why it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact<T> {
    /// As it was read.
    Known(T),
    /// Why not, to be read after "because".
    Unknown(String),
}

/// What an older agent or capture does not have.
impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self::unknown("what read this host is older, and did not ask")
    }
}

impl<T> Fact<T> {
    /// Not known, for this reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(why.into())
    }

    /// The fact.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Unknown(why) => Err(why),
        }
    }

    /// The fact, where it is known.
    pub fn known(&self) -> Option<&T> {
        self.get().ok()
    }
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, or that of the captured tree.
    pub name: String,
    /// Seconds since it was started.
    pub uptime_s: Fact<u64>,
    /// Which start of it that was: another word after each (`boot_id`).
    #[serde(default)]
    pub boot: Fact<String>,
    /// Its processors.
    pub processors: Processors,
    /// Its network interfaces, loopback left out, in the order of their names.
    pub nics: Vec<Nic>,
    /// Settings of the kernel by their names in sysctl.
    pub settings: BTreeMap<String, Fact<String>>,
    /// What became of packets that processors took in.
    #[serde(default)]
    pub softnet: Fact<Softnet>,
    /// irqbalance is running, which puts interrupts where it likes.
    pub irqbalance: Fact<bool>,
    /// lldpad is running, which agrees with switches on what adapters leave to the host (DCBX).
    #[serde(default)]
    pub lldpad: Fact<bool>,
    /// What its memory has for guests.
    #[serde(default)]
    pub memory: Memory,
    /// Its clock, beside that of the host that asked; an agent that asks others knows.
    #[serde(default)]
    pub clock: Fact<Clock>,
    /// Who keeps its processors from sleeping deeply; its agent knows.
    #[serde(default)]
    pub waking: Fact<Waking>,
    /// What its QEMUs can give guests as their processor; its agent knows.
    #[serde(default)]
    pub offers: Fact<Offers>,
    /// Guests of Drover's that are defined or run there, in the order of their names; its agent knows.
    #[serde(default)]
    pub guests: Fact<Vec<Guest>>,
    /// The same of libvirt's domains; none where it has no libvirt.
    #[serde(default)]
    pub domains: Fact<Vec<Guest>>,
}

/// A host's clock, beside that of the host that asked it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// How many milliseconds it is ahead; less than 0 where it is behind.
    pub ahead_ms: i64,
    /// How many milliseconds it may be more or less: half of the time that question and answer were on their way.
    pub doubt_ms: u64,
}

/// Packets of all processors since the host's start (`/proc/net/softnet_stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softnet {
    /// That were to be handed on, and found no place.
    pub dropped: u64,
    /// How often some were left for a later turn.
    pub squeezed: u64,
}

impl Host {
    /// The setting of that name.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn setting(&self, name: &str) -> Result<&str, &str> {
        let fact = self.settings.get(name).ok_or("it was not read")?;
        fact.get().map(String::as_str)
    }

    /// Marks interrupts of which it is known elsewhere that nobody may move them.
    pub fn mark_fixed(&mut self, is_fixed: impl Fn(&Interrupt) -> bool) {
        for nic in &mut self.nics {
            if let Fact::Known(interrupts) = &mut nic.interrupts {
                for interrupt in interrupts {
                    interrupt.fixed |= is_fixed(interrupt);
                }
            }
        }
    }

    /// The interface of that name.
    #[must_use]
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }
}
