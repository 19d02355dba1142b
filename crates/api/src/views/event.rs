//! What happened in a migration, as its history keeps it.

use std::fmt;

use drover_types::{AtDeadline, ByteRate, Bytes, Path, PathId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::data_path::DataPathView;
use super::interrupts::InterruptsView;
use super::latency::{CpuLatencyView, IdleStateView};
use super::limit::{Limit, LimitScope};
use super::migration::MigrationPhase;
use super::security::{LaneEncryption, fmt_of_protection};

/// The interfaces that a path joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicPair {
    /// At the source.
    pub source: String,
    /// At the destination.
    pub destination: String,
}

impl NicPair {
    /// Those of a path.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self {
            source: path.source.interface.clone(),
            destination: path.destination.interface.clone(),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// It was asked for.
    Asked,
    /// The agent was started again and took it up.
    TakenUp,
    /// Destination: QEMU waits for the guest.
    Prepared {
        /// The version of QEMU there.
        qemu_version: String,
    },
    /// Source: the destination has agreed.
    Agreed {
        /// The version of QEMU there.
        qemu_version: String,
        /// The version of the relays' protocol.
        protocol: u32,
    },
    /// The number of QEMU's channels.
    ChannelsChosen {
        /// multifd channels; 0 without multifd.
        channels: u8,
        /// What kept it from being larger, where that is worth a word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A pair of interfaces is used.
    PathChosen {
        /// Its number.
        #[schema(value_type = u16)]
        path: PathId,
        /// The interface at the source.
        source: String,
        /// The interface at the destination.
        destination: String,
    },
    /// A pair of interfaces joined in the middle.
    PathJoined {
        /// Its number.
        #[schema(value_type = u16)]
        path: PathId,
        /// The interface at the source.
        source: String,
        /// The interface at the destination.
        destination: String,
    },
    /// A lane carries.
    LaneUp {
        /// The lane.
        lane: u32,
        /// Its path.
        #[schema(value_type = u16)]
        path: PathId,
    },
    /// The way of the bytes through this host's relay, when it was chosen and when it changes.
    DataPathChosen {
        /// Which.
        data_path: DataPathView,
    },
    /// Whether this host's processors are held to waking quickly while bytes are carried.
    CpuLatencyChosen {
        /// At what, or why not.
        cpu_latency: CpuLatencyView,
    },
    /// Bytes are carried no more, and processors may sleep as they like: how long they slept meanwhile.
    Slept {
        /// In which states, all processors together.
        idle_states: Vec<IdleStateView>,
    },
    /// Interrupts of one of this host's interfaces are taken near it from now on, or why not.
    InterruptsMoved {
        /// Of which, and where.
        interrupts: InterruptsView,
    },
    /// This host's interrupts that were moved for it are where they were.
    InterruptsGivenBack {
        /// So many.
        interrupts: u64,
        /// Those that are not, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// The first lane is up: what protects what goes over it and all others.
    LanesProtected {
        /// What encrypts it.
        encryption: LaneEncryption,
        /// Whether each chunk that this host sends has a checksum of ours.
        checksums: bool,
    },
    /// A lane could not be opened.
    LaneNotOpened {
        /// The lane.
        lane: u32,
        /// Its path.
        #[schema(value_type = u16)]
        path: PathId,
        /// Why.
        reason: String,
    },
    /// Nothing came back on a lane for longer than usual: it gets nothing more for now.
    LaneSuspected {
        /// The lane.
        lane: u32,
        /// Its path.
        #[schema(value_type = u16)]
        path: PathId,
    },
    /// A lane was lost; what it had not delivered goes over the others.
    LaneLost {
        /// The lane.
        lane: u32,
        /// Its path.
        #[schema(value_type = u16)]
        path: PathId,
        /// Why.
        reason: String,
    },
    /// The last lane on a path is gone; it is dialled again.
    PathLost {
        /// The path.
        #[schema(value_type = u16)]
        path: PathId,
        /// Its interfaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nics: Option<NicPair>,
        /// Why.
        reason: String,
    },
    /// A path has a lane again.
    PathBack {
        /// The path.
        #[schema(value_type = u16)]
        path: PathId,
        /// Its interfaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nics: Option<NicPair>,
        /// How long it had none.
        lasted_ms: u64,
    },
    /// Large packets vanish on a path: it is used with smaller segments.
    PathNarrowed {
        /// The path.
        #[schema(value_type = u16)]
        path: PathId,
        /// Their size in bytes.
        segment: u16,
    },
    /// Nothing but small packets get through on a path: it is tried rarely from now on.
    PathGivenUp {
        /// The path.
        #[schema(value_type = u16)]
        path: PathId,
        /// What was tried.
        reason: String,
    },
    /// Chunks that are late on their lane are sent on a second one as well.
    HedgingBegan,
    /// No chunk was late for a while.
    HedgingEnded {
        /// So many were sent twice.
        chunks: u64,
        /// From the first to the last of them.
        lasted_ms: u64,
    },
    /// No lane is left.
    OutageBegan {
        /// How long one is waited for.
        limit_ms: u64,
    },
    /// There is a lane again.
    OutageEnded {
        /// How long there was none.
        lasted_ms: u64,
    },
    /// A channel of QEMU broke.
    ChannelBroke {
        /// The channel.
        channel: u16,
        /// Why.
        reason: String,
    },
    /// The connection to this host's QEMU was lost, and is made anew.
    MonitorLost,
    /// Source: QEMU was told to migrate.
    Begun,
    /// A round of QEMU's precopy began.
    Round {
        /// Its number, from 1.
        round: u64,
        /// Memory left to send as it began.
        #[schema(value_type = u64)]
        remaining: Bytes,
        /// Memory that the guest rewrote, per second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<u64>)]
        dirty_rate: Option<ByteRate>,
    },
    /// Source: QEMU slows the guest down, which writes faster than its memory is carried.
    Throttled {
        /// The part of its time, in percent, that it stands still.
        percent: u8,
    },
    /// Source: memory was not copied by the deadline.
    DeadlinePassed {
        /// What is done.
        #[schema(value_type = String)]
        then: AtDeadline,
        /// Memory left to send.
        #[schema(value_type = u64)]
        remaining: Bytes,
        /// How fast it was sent, in bytes per second.
        #[schema(value_type = u64)]
        rate: ByteRate,
        /// How fast the guest rewrote it, in bytes per second.
        #[schema(value_type = u64)]
        dirty_rate: ByteRate,
    },
    /// Source: QEMU stopped the guest and sends the rest.
    Switchover,
    /// Source: from here on only the destination may run the guest.
    HandedOff,
    /// Destination: everything is there; the guest waits for the source's verdict.
    Arrived,
    /// The guest runs on the destination.
    Runs,
    /// Postcopy: the session broke with pages still to follow; another is opened.
    PagesStopped {
        /// Why.
        reason: String,
    },
    /// Postcopy: pages follow again.
    PagesFollow,
    /// Source, postcopy: every page has followed.
    AllFollowed {
        /// Bytes that did.
        #[schema(value_type = u64)]
        bytes: Bytes,
        /// How often the guest stood still for one that was not there yet.
        requests: u64,
    },
    /// Something was done without, or otherwise than usual.
    Fallback {
        /// What, and why.
        what: String,
    },
    /// Somebody wants it to end.
    CancelAsked {
        /// Who.
        by: String,
    },
    /// An operator changed what it may carry over this host.
    LimitChanged {
        /// What is limited.
        scope: LimitScope,
        /// To what; none: the limit was lifted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        limit: Option<Limit>,
    },
    /// An operator decided in the place of the other host, which did not answer.
    Resolved {
        /// What, and what follows from it.
        what: String,
    },
    /// Two hosts have the guest, or could: a person has to see to it at once.
    Conflict {
        /// What there is, and what to do.
        what: String,
    },
    /// It is over.
    Ended {
        /// How.
        result: MigrationPhase,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// Of a newer agent; `text` tells it.
    #[serde(other)]
    Unknown,
}

impl EventKind {
    /// Whether the operator should see it without asking for the history.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        match self {
            Self::ChannelsChosen { why, .. } => why.is_some(),
            Self::DataPathChosen { data_path } => data_path.fallback,
            Self::CpuLatencyChosen { cpu_latency } => cpu_latency.fallback,
            Self::InterruptsMoved { interrupts } => interrupts.fallback,
            Self::InterruptsGivenBack { left, .. } => !left.is_empty(),
            Self::TakenUp
            | Self::LaneNotOpened { .. }
            | Self::LaneLost { .. }
            | Self::PathJoined { .. }
            | Self::PathLost { .. }
            | Self::PathBack { .. }
            | Self::PathNarrowed { .. }
            | Self::PathGivenUp { .. }
            | Self::OutageBegan { .. }
            | Self::OutageEnded { .. }
            | Self::ChannelBroke { .. }
            | Self::MonitorLost
            | Self::Throttled { .. }
            | Self::DeadlinePassed { .. }
            | Self::PagesStopped { .. }
            | Self::PagesFollow
            | Self::Resolved { .. }
            | Self::Conflict { .. }
            | Self::Fallback { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::TakenUp => f.write_str("the agent was started again and took it up"),
            Self::Prepared { qemu_version } => write!(f, "QEMU {qemu_version} waits for the guest"),
            Self::Agreed {
                qemu_version,
                protocol,
            } => write!(
                f,
                "the destination has agreed: QEMU {qemu_version}, protocol {protocol}"
            ),
            Self::ChannelsChosen { channels, why } => {
                write!(f, "{channels} channels")?;
                why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::PathChosen {
                path,
                source,
                destination,
            } => write!(f, "path {path}: {source} > {destination}"),
            Self::PathJoined {
                path,
                source,
                destination,
            } => write!(f, "path {path} joins: {source} > {destination}"),
            Self::Begun => f.write_str("QEMU begins to migrate"),
            Self::Throttled { percent } => {
                write!(
                    f,
                    "the guest writes too fast: slowed down, it stands still {percent} % of its time"
                )
            }
            Self::DeadlinePassed {
                then,
                remaining,
                rate,
                dirty_rate,
            } => {
                let then = match then {
                    AtDeadline::GiveUp => "given up",
                    AtDeadline::StopAndCopy => {
                        "the guest is stopped for the rest, once that takes less than 2000 s"
                    }
                    AtDeadline::Postcopy => {
                        "the guest goes on at the destination, and the rest follows it"
                    }
                };
                write!(
                    f,
                    "the deadline has passed with {remaining} left, sent at {rate}, dirty {dirty_rate}: {then}"
                )
            }
            Self::Switchover => f.write_str("switchover: the guest is stopped, the rest is sent"),
            Self::HandedOff => f.write_str("hand-off: only the destination may run the guest now"),
            Self::Arrived => f.write_str("everything is there, waiting for the source's verdict"),
            Self::Runs => f.write_str("the guest runs on the destination"),
            Self::PagesStopped { reason } => {
                write!(
                    f,
                    "no page follows the guest for now, a new session is opened: {reason}"
                )
            }
            Self::PagesFollow => f.write_str("pages follow the guest again"),
            Self::AllFollowed { bytes, requests } => write!(
                f,
                "every page has followed: {bytes}, and the guest stood still {requests} times for one"
            ),
            Self::MonitorLost => {
                f.write_str("the connection to this host's QEMU was lost: made anew")
            }
            Self::Round {
                round,
                remaining,
                dirty_rate,
            } => {
                write!(f, "round {round}: {remaining} to send")?;
                let dirty = dirty_rate.iter();
                dirty
                    .copied()
                    .try_for_each(|rate| write!(f, ", dirty {rate}"))
            }
            Self::Fallback { what } | Self::Resolved { what } | Self::Conflict { what } => {
                f.write_str(what)
            }
            Self::CancelAsked { by } => write!(f, "{by} wants it to end"),
            Self::LimitChanged { scope, limit } => match limit {
                Some(limit) => write!(f, "the operator limits {scope} to {limit}"),
                None => write!(f, "the operator lifts the limit of {scope}"),
            },
            Self::Ended { result, cause } => {
                write!(f, "{}", result.as_str())?;
                cause.iter().try_for_each(|cause| write!(f, ": {cause}"))
            }
            Self::Unknown => f.write_str("something that this version does not know"),
            carrying => carrying.fmt_of_lanes(f),
        }
    }
}

impl EventKind {
    fn fmt_of_lanes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataPathChosen { data_path } => write!(f, "data path: {data_path}"),
            Self::CpuLatencyChosen { cpu_latency } => write!(f, "CPU latency: {cpu_latency}"),
            Self::Slept { idle_states } => {
                write!(f, "processors slept: {}", IdleStateView::list(idle_states))
            }
            Self::InterruptsMoved { interrupts } => write!(f, "interrupts of {interrupts}"),
            Self::InterruptsGivenBack { interrupts, left } => {
                write!(f, "{interrupts} interrupts are given back")?;
                left.iter().try_for_each(|left| write!(f, "; {left}"))
            }
            Self::LanesProtected {
                encryption,
                checksums,
            } => fmt_of_protection(f, *encryption, *checksums),
            Self::LaneUp { lane, path } => write!(f, "lane {lane} on path {path} is up"),
            Self::LaneNotOpened { lane, path, reason } => write!(
                f,
                "lane {lane} on path {path} could not be opened: {reason}"
            ),
            Self::LaneSuspected { lane, path } => {
                write!(f, "lane {lane} on path {path} is silent: suspected")
            }
            Self::LaneLost { lane, path, reason } => {
                write!(f, "lane {lane} on path {path} was lost: {reason}")
            }
            Self::PathLost { path, nics, reason } => write!(
                f,
                "path {path}{} has no lane left, and is dialled again: {reason}",
                between(nics.as_ref())
            ),
            Self::PathBack {
                path,
                nics,
                lasted_ms,
            } => write!(
                f,
                "path {path}{} has lanes again after {lasted_ms} ms",
                between(nics.as_ref())
            ),
            Self::HedgingBegan => {
                f.write_str("chunks are late on their lane: they are sent on a second one as well")
            }
            Self::HedgingEnded { chunks, lasted_ms } => write!(
                f,
                "no chunk is late any more: {chunks} were sent on a second lane within {lasted_ms} ms"
            ),
            Self::PathNarrowed { path, segment } => write!(
                f,
                "large packets vanish on path {path} (something on it has a smaller MTU than both \
                 interfaces, and does not say so): it is used with segments of {segment} bytes"
            ),
            Self::PathGivenUp { path, reason } => write!(
                f,
                "path {path} is given up, and tried again from time to time: {reason}"
            ),
            Self::OutageBegan { limit_ms } => write!(
                f,
                "no path to the other host is left: waiting up to {} s for one",
                limit_ms / 1000
            ),
            Self::OutageEnded { lasted_ms } => write!(
                f,
                "there is a path to the other host again, after {lasted_ms} ms without"
            ),
            Self::ChannelBroke { channel, reason } => {
                write!(f, "channel {channel} of QEMU broke: {reason}")
            }
            _ => Ok(()),
        }
    }
}

fn between(nics: Option<&NicPair>) -> String {
    let pair = |nics: &NicPair| format!(" ({} > {})", nics.source, nics.destination);
    nics.map(pair).unwrap_or_default()
}

/// Something that happened in a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// When, by this host's clock; the first time, if it stands for several.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The last time, if it stands for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_at: Option<Timestamp>,
    /// How many alike it stands for; `kind` and `text` are those of the last one.
    pub count: u64,
    /// The same in words.
    pub text: String,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl EventView {
    /// One event.
    #[must_use]
    pub fn new(at: Timestamp, kind: EventKind) -> Self {
        Self {
            at,
            last_at: None,
            count: 1,
            text: kind.to_string(),
            kind,
        }
    }
}

#[cfg(test)]
mod tests;
