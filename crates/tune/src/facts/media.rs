//! Facts of what is between an interface and the other end: its port, its cable or module, and why there is no link.

use std::collections::BTreeSet;

use drover_types::BitRate;
use serde::{Deserialize, Serialize};

/// Modes of a link by the kernel's names, such as `25000baseCR/Full`; also what it says among them, such as `Autoneg` and `FIBRE`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// What this end can.
    pub supported: BTreeSet<String>,
    /// What it offers.
    pub advertised: BTreeSet<String>,
    /// What the other end offers; empty where it is not known.
    pub peer: BTreeSet<String>,
}

/// What a cable is put into (ethtool's `LINKINFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// `TP`: 10GBASE-T and its kind.
    TwistedPair,
    /// `FIBRE`: a module; some drivers say so of a copper cable, too.
    Fibre,
    /// `DA`: a copper cable with a module at each end.
    DirectAttach,
    /// `NONE`: nothing is in it, or there is nothing to put a cable into.
    Nothing,
    /// Anything else.
    Other,
}

/// What a module carries its bits over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Direct attach without electronics.
    PassiveCopper,
    /// Direct attach with amplifiers, or fibre that cannot be taken off.
    ActiveCable,
    /// A connector for fibre.
    Fibre,
    /// A connector for twisted pairs.
    TwistedPair,
    /// It does not tell.
    Unknown,
}

/// A cable or module, as its memory tells of it (SFF-8472, SFF-8636, CMIS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its kind, such as `SFP28`.
    pub form: String,
    /// What it carries bits over.
    pub medium: Medium,
    /// What it complies with, such as `25GBASE-CR CA-25G-N`; empty where it does not tell.
    pub complies: String,
    /// Rates that it carries; empty where that is not known.
    pub carries: BTreeSet<BitRate>,
    /// Length of a cable that cannot be taken off, in metres.
    pub metres: Option<u32>,
    /// Who made it.
    pub vendor: String,
    /// Their name for it.
    pub part: String,
}

/// Why there is no link (ethtool's `LINKSTATE`), by the kernel's names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// `EXT_STATE`, such as `autoneg` or `no-cable`.
    pub state: String,
    /// `EXT_SUBSTATE`, such as `an-no-partner-detected`.
    pub detail: Option<String>,
}
