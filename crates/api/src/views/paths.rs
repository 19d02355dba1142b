//! What agents ask of each other to find out what the paths between them carry.
//!
//! ```text
//!   who wants to know     asker                           answerer
//!   POST /paths/ask ────▶ POST /answerers ──────────────▶ answers at its addresses
//!                         (datagrams, to and fro)
//!                         POST /answerers/{id}/end ─────▶ tells what it answered, and what it left
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use drover_tune::facts::Path;
use drover_types::{AnswererId, HostName, Interface, LoadId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::load::{LoadRequest, LoadedTogether};
use super::plan::MemberLeftOut;
use crate::schema::InterfaceSchema;

/// Asks a host to answer questions that come by datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswererRequest {
    /// From where they come.
    #[schema(value_type = Vec<String>)]
    pub askers: Vec<IpAddr>,
    /// How long, in seconds; less where that is more than the host gives.
    pub time_s: u64,
    /// Whether paths are to be loaded, too: connections are taken at the port for lanes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load: bool,
    /// Of which load that is: the host has to be taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub part_of: Option<LoadId>,
    /// Whether paths are only loaded: no question is answered then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_load: bool,
}

/// A host that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswererView {
    /// By which it is ended.
    #[schema(value_type = String, format = "uuid")]
    pub id: AnswererId,
    /// What questions have to be made with.
    #[schema(value_type = String)]
    pub ticket: TicketText,
    /// The port that is open between hosts, by its configuration; 0 where none is certain. It answers at another one where that is taken.
    #[serde(default)]
    pub port: u16,
    /// Where it answers: addresses and ports.
    #[schema(value_type = Vec<String>)]
    pub at: Vec<SocketAddr>,
    /// Migrations that are under way from and to it: what they fill is lost to others.
    #[serde(default)]
    pub moving: usize,
    /// Guests that run there, or may, which a load would take the line from; libvirt's domains count as one together.
    #[serde(default)]
    pub guests: usize,
    /// Where loads are taken, if they were asked for; missing where the host takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_port: Option<u16>,
    /// Why none are taken, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_load: Option<String>,
    /// The interfaces that the host lets migrations use, with those of their addresses alone.
    #[schema(value_type = Vec<InterfaceSchema>)]
    pub interfaces: Vec<Interface>,
    /// The interfaces that each of them stands on at the bottom: those of one port share its line. One that is not named counts as a line of
    /// its own.
    #[serde(default)]
    pub ports: BTreeMap<String, BTreeSet<String>>,
}

/// A secret of 32 bytes in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TicketText(pub String);

impl fmt::Debug for TicketText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketText(hidden)")
    }
}

/// What was answered, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnsweredView {
    /// At each address.
    pub at: Vec<AnsweredAt>,
    /// Migrations that are under way by now.
    #[serde(default)]
    pub moving: usize,
    /// Why what was lost meanwhile may not be the fault of a path: the host was part of a load that is not the asker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
}

/// What was answered at one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnsweredAt {
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Answers.
    pub answers: u64,
    /// Questions that were left, as they came too fast or there were too many. With any, silence means nothing.
    pub left: u64,
    /// Answers that its kernel did not send. With any, silence means nothing either.
    #[serde(default)]
    pub unsent: u64,
    /// What the kernel said of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent_why: Option<String>,
    /// What the interface that has it counted meanwhile; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<CountedView>,
}

/// Bytes that an interface counted, with all that crossed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedView {
    /// That arrived.
    pub received: u64,
    /// That left.
    pub sent: u64,
}

/// Asks a host to open connections, and to close them at once: to whoever asks, who wants to know whether that is possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenRequest {
    /// Between which addresses.
    pub ends: Vec<OpenEnds>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenEnds {
    /// An address of the host that opens it.
    #[schema(value_type = String)]
    pub from: IpAddr,
    /// Where it is opened to.
    #[schema(value_type = String)]
    pub to: SocketAddr,
}

/// What became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenedView {
    /// What came of each, in their order.
    pub answers: Vec<OpenAnswer>,
}

/// What came of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OpenAnswer {
    /// Somebody who listens there took it.
    Accepted,
    /// It was refused: by the kernel there, since nobody listens, or by a filter.
    Refused,
    /// Nothing was heard, or it could not be tried.
    Nothing,
}

/// Asks a host to ask its paths to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathsAskRequest {
    /// That other one.
    #[schema(value_type = String)]
    pub answerer: HostName,
    /// How to load each path, if what it carries is to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadRequest>,
    /// The load that whoever asks has hosts taken for. To be loaded both have to be, and by whoever asks; what is loaded as part of it is nobody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub part_of: Option<LoadId>,
}

/// The paths from one host to another, as they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathsView {
    /// Those that were asked, in the format of the crate `drover-tune`.
    #[schema(value_type = Vec<Object>)]
    pub paths: Vec<Path>,
    /// What was not.
    #[serde(default)]
    pub left_out: Vec<PathLeftOut>,
}

/// What was not asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathLeftOut {
    /// The host that was to ask.
    #[schema(value_type = String)]
    pub near: HostName,
    /// The one that was to answer; missing where the interface of the first can be asked with no host at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub far: Option<HostName>,
    /// The interface of the first that has no path; missing where nothing was answered between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Why.
    pub why: String,
}

/// Asks for the paths between the hosts of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterPathsRequest {
    /// Of one host those to and from all others, of several those among them; all where none is named.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<HostName>,
    /// Measures what each path carries as well, two hosts at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadRequest>,
    /// Measures after that what paths carry while several hosts load one, and while every host loads another. Only with `load`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load_together: bool,
}

/// The paths between the hosts of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPathsView {
    /// Those that were asked, each from both of its ends, by the names of both hosts; in the format of the crate
    /// `drover-tune`.
    #[schema(value_type = Vec<Object>)]
    pub paths: Vec<Path>,
    /// What was not.
    #[serde(default)]
    pub paths_left_out: Vec<PathLeftOut>,
    /// Members that did not answer, and why.
    #[serde(default)]
    pub left_out: Vec<MemberLeftOut>,
    /// The time that loads of several hosts took, where they were asked for. What each path carried is told with the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_together: Option<LoadedTogether>,
    /// Why this is not kept, where all were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_sent_and_never_shown() {
        let ticket = TicketText("00ff".into());
        assert_eq!(format!("{ticket:?}"), "TicketText(hidden)");
        assert_eq!(serde_json::to_value(&ticket).unwrap(), "00ff");
    }
}
