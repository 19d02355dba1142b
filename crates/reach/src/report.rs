//! What was found out about a path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Largest, Trips};

/// A path, as it was asked from one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Small packets: loss and round trips; where nobody was there, how often that was asked.
    pub trips: Trips,
    /// By which interfaces of this host answers arrived, and how many.
    pub arrivals: BTreeMap<String, u32>,
    /// The largest packet that crosses to the other end; none where that was not found out.
    pub there: Option<Largest>,
    /// The largest one that crosses from there.
    pub back: Option<Largest>,
    /// Bytes of questions that were answered, in UDP's payload.
    pub asked: u64,
    /// Bytes of answers that arrived, the same way.
    pub answered: u64,
    /// Why something was not found out.
    pub unfinished: Option<Unfinished>,
}

/// Why asking ended before all was known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Unfinished {
    /// Nothing came back.
    #[error("nothing came back")]
    Silent,
    /// Somebody was there at first, and then nothing more came back: the path may have gone, or the other end was not woken.
    #[error("somebody answered at first, and nothing more came back then")]
    FellSilent,
    /// The time for it was over.
    #[error("the time for asking was over")]
    Time,
    /// It would have cost more bytes than it may.
    #[error("it would have cost more bytes than it may")]
    Bytes,
    /// The kernel did not send.
    #[error("the kernel did not send: {why}")]
    NotSent {
        /// What it said.
        why: String,
    },
    /// Sizes crossed at one time and not at another, or in the end none that had crossed before.
    #[error("sizes crossed at one time and not at another, or the path fell silent")]
    Unsteady,
}
