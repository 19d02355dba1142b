//! What a relay is given, and what it tells.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use drover_lanes::TcpFacts;
use drover_reduce::decide::Times;
use drover_reduce::{Counts, OfCodecs};
use drover_session::{ChannelId, LaneId};
use drover_types::{ByteRate, NicPlacement, PathId};
use drover_wire::limits::LANES_MAX;
use serde::{Deserialize, Serialize};

use crate::dialer::PathReport;
use crate::limits::{BUFFER_BYTES_MAX, SPARE_BYTES_MAX};
use crate::{Decided, End, Expanded, Reduction, Sizes, Stats, StoredPages};

/// What both ends agreed on for one migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sizes of chunks and windows.
    pub sizes: Sizes,
    /// Most channels that QEMU may open, and the one on which stored pages are told.
    pub channels_max: u16,
    /// How long a session waits for a lane when it has none left; both ends keep what they have
    /// meanwhile. Zero: not at all.
    pub outage_limit: Duration,
    /// Whether bytes may stay in the kernel where that is possible. Lanes that are encrypted are then
    /// refused. Each end chooses for itself.
    pub pass_through: bool,
    /// Every chunk goes through memory and carries a checksum, encrypted or not. Both ends have to
    /// agree.
    pub verify: bool,
    /// How what the source's QEMU sends becomes fewer bytes, which takes that they pass through memory. Both ends have to
    /// agree.
    pub reduction: Option<Reduction>,
}

/// What became of the bytes of the source's QEMU, at the end that reads them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// In numbers.
    pub counts: Counts,
    /// Memory that pages take now which both ends keep, in bytes at each.
    #[serde(default)]
    pub kept: u64,
    /// Pages that QEMU itself found to be zero: nothing of them is sent.
    #[serde(default)]
    pub zero: u64,
    /// What each codec made of what it was given.
    #[serde(default)]
    pub codecs: OfCodecs,
    /// Where the time went of the threads that did it.
    pub times: Times,
    /// What was decided, where it is decided by what is fastest.
    pub decided: Option<Decided>,
    /// Channels in which pages are no longer found, and why; the main channel is not counted among them.
    pub opaque: Vec<(ChannelId, String)>,
    /// The same with the kind of reason in a word ([`drover_qstream::Opaque::word`]).
    #[serde(default)]
    pub opaque_words: Vec<(ChannelId, String)>,
}

/// How bytes get through this end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPath {
    /// They stay in the kernel, in pipes.
    Splice {
        /// Why some of them did not.
        except: Option<String>,
        /// What is reduced does not either.
        reduced: bool,
    },
    /// They are copied through memory.
    Copy {
        /// Why.
        why: String,
        /// They were to stay in the kernel, and cannot.
        fallback: bool,
    },
}

impl std::fmt::Display for DataPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Splice { except, reduced } => {
                f.write_str("splice")?;
                if *reduced {
                    f.write_str(" of what is not reduced")?;
                }
                match except {
                    Some(why) => write!(f, ", partly copy: {why}"),
                    None => Ok(()),
                }
            }
            Self::Copy { why, .. } => write!(f, "copy, because {why}"),
        }
    }
}

/// What the agent should know at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// The session is over; why, for the operator.
    Ended {
        /// How it ended.
        end: End,
        /// The same in words, with causes.
        reason: String,
    },
    /// A lane is gone.
    LaneLost {
        /// The lane.
        lane: LaneId,
        /// Its path.
        path: PathId,
        /// Why, as far as it is known.
        reason: String,
    },
    /// The last lane on a path is gone; it is dialled again.
    PathLost {
        /// The path.
        path: PathId,
        /// Why, as far as it is known.
        reason: String,
    },
    /// A path has a lane again.
    PathBack {
        /// The path.
        path: PathId,
        /// After this time.
        lasted: Duration,
    },
    /// Large packets vanish on a path: it is used with smaller segments.
    PathNarrowed {
        /// The path.
        path: PathId,
        /// Their size in bytes.
        segment: u16,
    },
    /// Nothing but small packets get through on a path: it is tried rarely from now on.
    PathGivenUp {
        /// The path.
        path: PathId,
        /// What was tried.
        reason: String,
    },
    /// No lane is left: the session keeps everything and waits for one.
    OutageBegan {
        /// How long it will wait.
        limit: Duration,
    },
    /// There is a lane again.
    OutageEnded {
        /// How long there was none.
        lasted: Duration,
    },
    /// A local socket broke or could not be opened, or what arrived for it cannot be used.
    ChannelBroke {
        /// The channel.
        channel: ChannelId,
        /// By what.
        #[serde(default)]
        by: BrokenBy,
        /// Why.
        reason: String,
    },
}

/// By what a channel broke.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokenBy {
    /// A chunk that does not stand for what the source had, or cannot be read: pages that are stored here may be why. Also where a
    /// relay of an earlier version does not say.
    #[default]
    Chunk,
    /// Anything else: its socket, QEMU behind it, this process.
    Socket,
}

/// A relay that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The sizes are beyond the protocol's limits.
    #[error("the session's settings cannot be used")]
    Settings(#[from] drover_session::Refused),
    /// The windows would take more memory than is allowed.
    #[error(
        "{channels} channels with windows of {window} chunks of {chunk_bytes} bytes need {bytes} \
         bytes, {BUFFER_BYTES_MAX} are allowed"
    )]
    Memory {
        /// Channels.
        channels: u16,
        /// Chunks in each window.
        window: u16,
        /// Largest chunk.
        chunk_bytes: u32,
        /// What they need together.
        bytes: u64,
    },
    /// The chunks that are read and received into would take more memory than is allowed.
    #[error(
        "chunks of {chunk_bytes} bytes for {channels} channels and {LANES_MAX} lanes need {bytes} \
         bytes, {SPARE_BYTES_MAX} are allowed"
    )]
    Spare {
        /// Channels.
        channels: u16,
        /// Size of a chunk.
        chunk_bytes: u32,
        /// What they need together.
        bytes: u64,
    },
    /// No socket for QEMU to connect to.
    #[error("cannot listen on {}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread of the relay")]
    Thread(#[source] io::Error),
}

/// How a lane ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaneEnd {
    /// One of the two agents closed it.
    Closed,
    /// It was lost; why, as far as it is known.
    Lost(String),
}

/// The addresses of a connection's ends, as the kernel knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneEnds {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// What one lane carried, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// Its path.
    pub path: PathId,
    /// Its counters.
    pub stats: drover_session::LaneStats,
    /// Where its connection really begins and ends.
    pub ends: LaneEnds,
    /// What the kernel knows of its connection, while it has one.
    pub tcp: Option<TcpFacts>,
    /// How it ended, if it did.
    pub ended: Option<LaneEnd>,
}

/// A relay's counters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Per lane.
    pub lanes: Vec<LaneReport>,
    /// Per path that this side dials.
    pub paths: Vec<PathReport>,
    /// Where the threads of lanes run, by the interface's addresses.
    pub nics: Vec<NicPlacement>,
    /// Per channel, and in all.
    pub session: Stats,
    /// How the bytes got through.
    pub data_path: DataPath,
    /// What became of QEMU's bytes, where they are reduced; at the source.
    pub reduced: Option<Reduced>,
    /// What became of what arrived, where that was agreed on; at the destination.
    #[serde(default)]
    pub expanded: Option<Expanded>,
    /// What became of pages that the destination's host has stored, where that was agreed on.
    #[serde(default)]
    pub stored: Option<StoredPages>,
    /// Rate of QEMU's bytes in the bulk phase, if there was one.
    pub bulk: Option<ByteRate>,
}
