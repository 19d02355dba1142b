//! What an agent and a relay's process say to each other: a JSON document on each line.
//!
//! ```text
//!   agent                                   process
//!         ◀── Greeting ─────────────────────
//!   Asked { number, request } ─────────────▶
//!         ◀── Answer { number, result } ────
//!         ◀── Event { sequence, told } ─────  kept, and told again to the next agent
//!         ◀── Report ───────────────────────  the newest counts
//! ```

use std::path::PathBuf;
use std::time::Duration;

use drover_relay::{Encryption, Event, LaneFailure, LaneId, Reduction, Report, TurnedAway};
use drover_types::{
    ByteRate, CpuLatency, IdleTime, MigrationId, NicPlacement, Path, PathEnd, PathId,
};
use serde::{Deserialize, Serialize};

/// The version of everything below. A process and an agent that differ in it do not speak.
pub const PROTOCOL: u32 = 5;

/// A request, and the number that its answer has.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Chosen by the agent.
    pub number: u64,
    /// What is wanted.
    pub request: Request,
}

/// What an agent wants of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Tell the events after this one that are still known, and all later ones. Answer: `state`.
    Attach {
        /// The last event that the agent knows; 0 when none.
        after: u64,
    },
    /// Carry. Once. Answer: `done`.
    Start(Start),
    /// Open these lanes, and keep them (source only). Answer: `opened`.
    Open(Open),
    /// Lanes with these keys will come (destination only). Once. Answer: `done`.
    Expect(Keys),
    /// The connection that came with this line begins like a lane of this migration: let it in if
    /// it proves that it is one. Answer: `done`, when it is, or `turned-away`.
    Lane {
        /// The preamble that was read from it.
        preamble: Vec<u8>,
        /// How long it has for that.
        left: Duration,
    },
    /// Lanes are wanted on this path, too (source only). Answer: `done`.
    AddPath {
        /// The path.
        path: Path,
    },
    /// This end of a path carries nothing any more. Answer: `done`.
    LinkLost {
        /// The path.
        path: PathId,
        /// Why.
        reason: String,
    },
    /// This end of a path can be used again. Answer: `done`.
    LinkBack {
        /// The path.
        path: PathId,
        /// By this interface and address.
        source: PathEnd,
    },
    /// Send no more payload than this on a path, or on all together. Answer: `done`.
    Limit {
        /// The path; all together when there is none.
        path: Option<PathId>,
        /// The most per second; as much as goes when there is none.
        rate: Option<ByteRate>,
    },
    /// The file that came with this line has pages that this host has stored (as the source, only to add some). Answer: `done`. Only asked of a
    /// process that was just started, which is of this version.
    Stored(StoredFile),
    /// The file that came with this line is the guest's baseline: as the destination, to record pages there as they arrive; as the
    /// source, to compare with. Answer: `done`. Only asked of a process that was just started, which is of this version.
    Baseline(BaselineFile),
    /// Have the threads of lanes over these interfaces, which joined, run there. Answer: `done`.
    Place {
        /// The interfaces.
        nics: Vec<NicPlacement>,
    },
    /// Tell the counters as they are now. Answer: `done`, behind them.
    Report,
    /// End the session, tell the peer, then end the process. Answer: `done`, at once.
    Close {
        /// Everything was delivered.
        finished: bool,
    },
    /// End the session without a word to the peer. Answer: `done`, when no further byte reaches
    /// QEMU.
    Cut,
}

/// Which side of a migration a relay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// QEMU connects to the relay.
    Source,
    /// The relay connects to QEMU.
    Destination,
}

/// A file of stored pages.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// The key of its digests. It is never shown.
    pub key: [u8; 32],
    /// The key of its pages, where they are sealed. It is never shown.
    #[serde(default)]
    pub seal: Option<[u8; 32]>,
    /// Whether pages that cross are added to it.
    pub fill: bool,
    /// Bytes of pages that may wait to be added, where they are more than usual.
    #[serde(default)]
    pub waiting_bytes: u64,
}

impl std::fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fill = self.fill;
        f.debug_struct("StoredFile")
            .field("fill", &fill)
            .finish_non_exhaustive()
    }
}

/// The file of a guest's baseline.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineFile {
    /// The key of its pages. It is never shown.
    pub seal: [u8; 32],
    /// Bytes of pages that may wait to be recorded, where they are more than usual.
    #[serde(default)]
    pub waiting_bytes: u64,
}

impl std::fmt::Debug for BaselineFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BaselineFile(hidden)")
    }
}

/// Channels of QEMU's for disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disks {
    /// Where QEMU connects to, or listens by then.
    pub socket: PathBuf,
    /// One channel for each.
    pub count: u16,
}

/// What is to be carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Of this migration.
    pub migration: MigrationId,
    /// Which side.
    pub side: Side,
    /// Where QEMU connects to, or listens by then.
    pub socket: PathBuf,
    /// Where whoever drives QEMU connects to, or listens, such as a libvirtd: one channel before QEMU's own, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Disks that QEMU sends before its memory, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Disks>,
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Chunks of one direction of one channel that may be on their way.
    pub window: u16,
    /// Most channels that QEMU may open.
    pub channels_max: u16,
    /// How long to wait for a lane when none is left.
    pub outage_limit: Duration,
    /// Whether bytes may stay in the kernel. Lanes that are encrypted are then refused.
    pub pass_through: bool,
    /// Whether every chunk goes through memory and has a checksum, encrypted or not.
    pub verify: bool,
    /// How the bytes of the source's QEMU are reduced, if they are.
    #[serde(default)]
    pub reduction: Option<Reduction>,
    /// How long to go on without an agent.
    pub patience: Duration,
    /// Where the threads of lanes over this host's interfaces are to run.
    pub nics: Vec<NicPlacement>,
    /// How long, in microseconds, this host's processors may take at most to wake while it is carried; as long as they
    /// like when there is none.
    #[serde(default)]
    pub cpu_latency_us: Option<u32>,
    /// What the agent wants its successor to know.
    pub memo: String,
}

/// What protects the lanes of a migration, and proves who may have one. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// The destination's secret for this migration.
    pub token: [u8; 32],
    /// For lanes within TLS; without it they are not encrypted.
    pub tls: Option<TlsKeys>,
}

/// What TLS needs at one end.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsKeys {
    /// This end's certificate, DER.
    pub certificate: Vec<u8>,
    /// Its key, PKCS #8.
    pub key: Vec<u8>,
    /// The fingerprint of the other end's certificate, in hexadecimal digits.
    pub peer: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

impl std::fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsKeys(hidden)")
    }
}

/// Lanes to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The destination's secret, and what protects the lanes.
    pub keys: Keys,
    /// The port on which the destination accepts lanes.
    pub port: u16,
    /// The paths.
    pub paths: Vec<Path>,
    /// Lanes on each path.
    pub lanes_per_path: u16,
    /// Lanes that a path may get while more carry more.
    pub lanes_most: u16,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Said {
    /// Its first line.
    Greeting(Greeting),
    /// The answer to a request.
    Answer {
        /// The request's number.
        number: u64,
        /// What came of it; a refusal with its reason.
        result: Result<Answer, String>,
    },
    /// Something happened.
    Event {
        /// Counts up by one for each event of the process.
        sequence: u64,
        /// What.
        told: Told,
    },
    /// The newest counters.
    Report(Box<Counters>),
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`] of the process.
    pub protocol: u32,
    /// The version of the program that it is.
    pub version: String,
    /// Its pid.
    pub pid: u32,
    /// When it started (`/proc/PID/stat`, field 22).
    pub start_time: u64,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// How the process stands.
    State(Box<State>),
    /// Lanes were opened.
    Opened(Opened),
    /// The connection became no lane.
    TurnedAway(TurnedAway),
}

/// Lanes that were opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// What protects them.
    pub encryption: Encryption,
    /// Those that were not opened, with the reason.
    pub failures: Vec<Failure>,
}

/// How a process stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What it carries; `None` before it was told.
    pub start: Option<Start>,
    /// Why it does not carry any more.
    pub ended: Option<String>,
    /// It ended because everything was delivered.
    #[serde(default)]
    pub finished: bool,
    /// The paths of its lanes, where it opens them.
    pub paths: Vec<Path>,
    /// The limits that it holds.
    pub limits: Vec<HeldLimit>,
}

/// A limit that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLimit {
    /// Of a path; of all together when there is none.
    pub path: Option<PathId>,
    /// The most payload per second.
    pub rate: ByteRate,
}

impl State {
    /// Whether it carries.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.start.is_some() && self.ended.is_none()
    }
}

/// A lane that was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its number.
    pub lane: LaneId,
    /// Its path.
    pub path: PathId,
    /// Why.
    pub reason: String,
}

impl From<&LaneFailure> for Failure {
    fn from(failure: &LaneFailure) -> Self {
        let LaneFailure {
            lane, path, reason, ..
        } = failure.clone();
        Self { lane, path, reason }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lane, path, reason } = self;
        write!(
            f,
            "lane {lane} on path {path} could not be opened: {reason}"
        )
    }
}

/// What happened in a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The relay tells it.
    Relay(Event),
    /// No agent came for so long that the session was closed.
    Alone {
        /// How long.
        lasted: Duration,
    },
}

/// Counters at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counters {
    /// When, since the process began.
    pub at: Duration,
    /// The relay's.
    pub relay: Report,
    /// What protects the lanes that were let in, once there is one (destination only).
    pub encryption: Option<Encryption>,
    /// The process' own.
    pub usage: Usage,
    /// What was asked of this host's processors.
    #[serde(default)]
    pub latency: Option<Latency>,
}

/// What a process asks of its host's processors while it carries, and what they did meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Whether they are to wake quickly.
    pub cpu: CpuLatency,
    /// How long they were in each idle state since it began, all together; why that is not known.
    pub idle: Result<Vec<IdleTime>, String>,
    /// Nothing is carried and asked any more, and this stays.
    pub over: bool,
}

/// What a process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// CPU time since its start.
    pub cpu: Duration,
}
