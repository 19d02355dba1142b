//! What agents ask of each other to load the paths between them.
//!
//! ```text
//!   who wants to know     host that loads                     host that is loaded
//!   POST /loads ────────▶ is taken, as every other one
//!   POST /loads/{id}/carry ▶ POST /answerers ───────────────▶ lets connections in
//!                         (connections, full from a moment on that all hosts have in common)
//!                         POST /answerers/{id}/end ─────────▶
//!   POST /loads/{id}/end ▶ is free again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use drover_tune::facts::{Carried, Fact};
use drover_types::{BitRate, HostName, LoadId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How paths are loaded to measure what they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadRequest {
    /// How long each path is measured, in milliseconds: 100 to 10,000.
    pub time_ms: u64,
    /// The part of a line's rate that a load may take, in percent. Where it is not given: half of it where guests run at either end, and
    /// all of it where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub share: Option<u8>,
}

/// Takes a host for a load, so that it is part of no other one meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadTakeRequest {
    /// The load, by the name that whoever asks for it made up.
    #[schema(value_type = String, format = "uuid")]
    pub id: LoadId,
    /// How long, in seconds, unless it is ended before; less where that is more than the host gives.
    pub time_s: u64,
}

/// A host that was taken for a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadTakenView {
    /// The lines of interfaces that it lets migrations use, by their names.
    pub lines: BTreeMap<String, LineView>,
}

/// The line that an interface has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineView {
    /// The interfaces that it stands on at the bottom: those of one port share its line.
    pub ports: BTreeSet<String>,
    /// Its rate in bits per second, where the driver tells one.
    #[schema(value_type = Option<u64>)]
    pub rate: Option<BitRate>,
}

/// Has a host load another one, at the same time as others do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadOrder {
    /// The host that is loaded.
    #[schema(value_type = String)]
    pub far: HostName,
    /// The paths to it, no line of either host in two of them.
    pub paths: Vec<LoadPath>,
    /// How.
    pub load: LoadRequest,
    /// When connections begin to be full, in milliseconds after this has arrived.
    pub after_ms: u64,
}

/// A path that is to be loaded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct LoadPath {
    /// The interface that it leaves by.
    pub nic: String,
    /// The address there.
    #[schema(value_type = String)]
    pub from: IpAddr,
    /// The far address.
    #[schema(value_type = String)]
    pub to: IpAddr,
    /// How many hosts load the far line at the same time, this one with them. They share what a load may take of it.
    pub senders: u32,
}

/// What paths carried that were loaded at the same time as others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedView {
    /// Each of those of the order.
    pub paths: Vec<LoadedPath>,
    /// How long that took from the moment at which the order was there, in milliseconds. What is more for whoever gave it is the way there and back.
    pub took_ms: u64,
    /// Why nothing that was carried at that time counts, also of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoiled: Option<String>,
}

/// What one of them carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedPath {
    /// The interface that it left by.
    pub nic: String,
    /// The far address.
    #[schema(value_type = String)]
    pub to: IpAddr,
    /// What it carried, in the format of the crate `drover-tune`.
    #[schema(value_type = Object)]
    pub carried: Fact<Carried>,
}

/// What it took to load paths of several hosts at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedTogether {
    /// How long it may take at most, in milliseconds.
    pub budget_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// How often all others loaded one host, for the time that was asked for, and some more to begin and to end.
    pub to_one: u32,
    /// How often every host loaded another one.
    pub each_other: u32,
    /// How often it was to be done of both together. What was not says with its paths why.
    pub wanted: u32,
    /// How many paths there are.
    pub paths: u32,
    /// Of how many of them it is known what they carried with others.
    pub measured: u32,
    /// The part of a line's rate that loads were to take at most, all into one host together, in percent, where that was given. Where it was not: half
    /// of it where guests run at either end, and all of it where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u8>,
}
