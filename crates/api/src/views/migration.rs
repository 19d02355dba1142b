//! One attempt to move one guest, as one of its two agents sees it.

use std::net::SocketAddr;

use drover_types::{ByteRate, Bytes, Convergence, HostName, MigrationId, ReductionMode, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::data_path::DataPathView;
use super::event::EventKind;
use super::expansion::ExpansionView;
use super::interrupts::InterruptsView;
use super::latency::{CpuLatencyView, IdleStateView};
use super::postcopy::PostcopyView;
use super::reduction::{ReductionView, SharedPagesView};
use super::resolve::{AmbiguityView, ResolutionView};
use super::security::LaneEncryption;
use super::traffic::{ChannelView, NicView, PathView, TrafficView};

/// What to move where, and how. Options that are missing come from the agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRequest {
    /// The destination, another host of the cluster.
    #[schema(value_type = String)]
    pub to: HostName,
    /// How it is brought to its end: `downtime_limit_ms` (1 to 2000000), `throttle` (`off`, `auto-converge` or
    /// `dirty-limit`), `throttle_most` (1 to 99 %), `deadline_s` (0, none, to 604800), `at_deadline` (`give-up`,
    /// `stop-and-copy` or `postcopy`). What is missing is as the guest's definition has it, and then the agent.
    #[serde(default, skip_serializing_if = "Convergence::is_silent")]
    #[schema(value_type = Object)]
    pub convergence: Convergence,
    /// QEMU's channels, 1 to 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub channels: Option<u8>,
    /// Connections on each path, 1 to 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub lanes_per_path: Option<u8>,
    /// What is done so that fewer bytes cross: `off`, `pages`, `lz4`, or `zstd:` with a level from -7 to 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reduction: Option<ReductionMode>,
    /// Disks in files that are its host's alone are copied with it: their files are made anew at the destination, in place of those that the
    /// same guest left there when it was handed off, and of no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_disks: bool,
    /// The migration's id, chosen by whoever asks. Asked again with the same one the agent answers with
    /// that migration as it is, or with the refusal that it ended with, and begins no second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub id: Option<MigrationId>,
}

/// Which end of a migration an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationRole {
    /// The guest leaves this host.
    Source,
    /// The guest arrives on this host.
    Destination,
}

/// How far a migration is, on the side that each one names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationPhase {
    /// Source: asking the destination, choosing paths.
    Preparing,
    /// Source: opening the lanes.
    Connecting,
    /// Source: memory is copied while the guest runs.
    Transferring,
    /// Source: postcopy was begun; the guest stops here, and its devices are on their way.
    Switching,
    /// Source: all is copied, or in postcopy all that the guest needs to run; the destination is told to run
    /// it. It never runs here again.
    HandingOff,
    /// Source: the guest runs on the destination, and its pages follow it (postcopy).
    Serving,
    /// Source: the guest runs on the destination.
    Completed,
    /// Source: handed off, and then given up by an operator. The guest can be started here anew.
    GivenUp,
    /// Told to stop, or failed, and undoing it; on either side.
    Cancelling,
    /// Source: stopped as asked; the guest stays here.
    Cancelled,
    /// Source: refused before anything was changed; the guest stays here. `cause` tells why.
    Refused,
    /// Destination: QEMU waits for the lanes.
    Prepared,
    /// Destination: memory arrives.
    Receiving,
    /// Destination: complete, waiting for the source's verdict.
    Arrived,
    /// Destination: the guest runs here, and pages of it are still at the source (postcopy).
    Filling,
    /// Destination: the guest runs here.
    Running,
    /// Destination: given up; nothing of it is left here.
    Abandoned,
    /// The guest had gone on at the destination when pages of it were lost that had not followed (postcopy): as after
    /// a crash of its host.
    CutOff,
    /// Ended by a fault: `cause` tells which, `guest` where that left the guest.
    Failed,
    /// A phase of a newer agent.
    #[serde(other)]
    Unknown,
}

impl MigrationPhase {
    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Connecting => "connecting",
            Self::Transferring => "transferring",
            Self::Switching => "switching",
            Self::HandingOff => "handing-off",
            Self::Serving => "serving",
            Self::Completed => "completed",
            Self::GivenUp => "given-up",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Prepared => "prepared",
            Self::Receiving => "receiving",
            Self::Arrived => "arrived",
            Self::Filling => "filling",
            Self::Running => "running",
            Self::Abandoned => "abandoned",
            Self::CutOff => "cut-off",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::GivenUp
                | Self::Cancelled
                | Self::Refused
                | Self::CutOff
                | Self::Failed
                | Self::Running
                | Self::Abandoned
        )
    }
}

/// Where a migration left its guest, as far as this agent knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestPlace {
    /// It runs on the source.
    Source,
    /// It is on the source, in a process that stands still.
    SourceStopped,
    /// It runs on the destination.
    Destination,
    /// Neither host runs it.
    Nowhere,
    /// Only the other host knows, or a newer agent has a word for it that this one has not.
    #[serde(other)]
    Unknown,
}

/// How much of the guest was moved, as QEMU counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BytesView {
    /// The guest's memory, devices' included.
    #[schema(value_type = u64)]
    pub total: Bytes,
    /// Sent so far, pages sent again included.
    #[schema(value_type = u64)]
    pub transferred: Bytes,
    /// Still to send in this round.
    #[schema(value_type = u64)]
    pub remaining: Bytes,
}

/// How much of a guest's disks was copied, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DisksView {
    /// Copied so far; what the guest wrote again since counts again.
    #[schema(value_type = u64)]
    pub copied: Bytes,
    /// All that there is to copy, with what the guest wrote again since.
    #[schema(value_type = u64)]
    pub total: Bytes,
}

/// An interface or address that could have been used and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Which.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// One migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MigrationView {
    /// Its id, the same on both hosts.
    #[schema(value_type = String, format = "uuid")]
    pub id: MigrationId,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// The host that it leaves.
    #[schema(value_type = String)]
    pub source: HostName,
    /// The host that it goes to.
    #[schema(value_type = String)]
    pub destination: HostName,
    /// Which end this agent is.
    pub role: MigrationRole,
    /// Where the other host's agent was when it began: it is asked there if the cluster does not have
    /// it as a member any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub other_agent: Vec<SocketAddr>,
    /// How far it is.
    pub phase: MigrationPhase,
    /// Why it failed or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Where it left the guest, once it has ended. Missing from an older agent, and then not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestPlace>,
    /// What to do now, when there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The other host does not answer, and only it knows whose the guest is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguity: Option<AmbiguityView>,
    /// What an operator decided on this host in the other one's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionView>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// From the request until QEMU was told to migrate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<u64>,
    /// From telling QEMU to migrate until the guest ran on the destination, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
    /// From the guest's stop on the source until it ran on the destination, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// How much was moved.
    pub bytes: BytesView,
    /// Memory that the guest rewrites, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub dirty_rate: Option<ByteRate>,
    /// The part of its time, in percent, that the guest stands still so that the migration ends
    /// (`auto-converge`); missing while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_percent: Option<u8>,
    /// What followed the guest, once it went on by postcopy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postcopy: Option<PostcopyView>,
    /// Disks that are copied with the guest, once that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<DisksView>,
    /// The round of copying, from 1.
    pub round: u64,
    /// Payload over all lanes, in bytes per second, lately.
    #[schema(value_type = u64)]
    pub rate: ByteRate,
    /// An estimate of the time until the guest runs on the destination with all of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// The least that it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_least_ms: Option<u64>,
    /// The most that it may be; missing beside the estimate where it may never end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_most_ms: Option<u64>,
    /// QEMU's channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u8>,
    /// Largest chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub chunk_bytes: Option<Bytes>,
    /// What may be under way and not yet confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub window_bytes: Option<Bytes>,
    /// What protects the bytes on their way, once there is a lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<LaneEncryption>,
    /// Whether every chunk has a checksum, whatever way its bytes take.
    #[serde(default)]
    pub verify: bool,
    /// How the bytes get through this host's relay, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_path: Option<DataPathView>,
    /// How the bytes of this host's QEMU are reduced, where both ends agreed on that; at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionView>,
    /// What became of what arrived, where both ends agreed on that; at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<ExpansionView>,
    /// Pages that guests arriving at the destination's host share, where that was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_pages: Option<SharedPagesView>,
    /// The paths in use.
    pub paths: Vec<PathView>,
    /// The most payload that the source sends on all paths together, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<ByteRate>,
    /// What all lanes carried together.
    #[serde(default)]
    pub traffic: TrafficView,
    /// The same for each interface of this host.
    #[serde(default)]
    pub nics: Vec<NicView>,
    /// What each channel of QEMU carried.
    #[serde(default)]
    pub channel_traffic: Vec<ChannelView>,
    /// Chunks that were sent on a second lane because the first was late.
    #[serde(default)]
    pub hedged_chunks: u64,
    /// Chunks that came more than once.
    #[serde(default)]
    pub duplicate_chunks: u64,
    /// Times without any lane.
    #[serde(default)]
    pub outages: u32,
    /// What is not used, and why.
    pub left_out: Vec<LeftOut>,
    /// What of its events an operator should see without asking for its history.
    pub notes: Vec<String>,
    /// Payload rate between 5 % and 95 % of the bytes that crossed, in bytes per second; where bytes are reduced, of what
    /// became of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub bulk_goodput: Option<ByteRate>,
    /// The process of this host that carries it, as of the last look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayView>,
    /// Whether this host's processors are held to waking quickly, once there is a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_latency: Option<CpuLatencyView>,
    /// How long they were in each idle state since the relay began, all together; nothing where the kernel does not count
    /// it, as in a virtual machine whose host has the say. As of the last look: every 5 s, and at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<IdleStateView>,
    /// What became of the interrupts of this host's interfaces that carry it, where they are to be moved; of a migration that has
    /// ended, what was done until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptsView>,
}

/// The process that carries a migration's bytes on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelayView {
    /// Its process id.
    pub pid: u32,
    /// Its memory in RAM, in bytes.
    #[schema(value_type = u64)]
    pub resident_bytes: Bytes,
    /// Its CPU time so far, in milliseconds.
    pub cpu_ms: u64,
}

impl MigrationView {
    /// Bytes of the hypervisor that were moved so far: at the source what it counts itself, at the destination what it got.
    #[must_use]
    pub fn moved_bytes(&self) -> Bytes {
        match (self.role, &self.expansion) {
            (MigrationRole::Source, _) => self.bytes.transferred,
            (MigrationRole::Destination, Some(expansion)) => expansion.raw_bytes,
            (MigrationRole::Destination, None) => self.crossed_bytes(),
        }
    }

    /// Bytes that crossed for them, each counted once.
    #[must_use]
    pub fn crossed_bytes(&self) -> Bytes {
        match self.role {
            MigrationRole::Source => self.traffic.sent_bytes,
            MigrationRole::Destination => {
                let channels = self.channel_traffic.iter();
                channels.map(|channel| channel.written_bytes).sum()
            }
        }
    }

    /// What became of its bytes where fewer crossed, in one line; nothing where that was not to be.
    #[must_use]
    pub fn reduced_in_words(&self) -> Option<String> {
        let done = match (&self.reduction, &self.expansion) {
            (Some(reduction), _) => format!("reduction: {reduction}"),
            (None, Some(expansion)) => format!("expansion: {expansion}"),
            (None, None) => return None,
        };
        let shared = self.shared_pages.as_ref();
        let shared = shared.map(|shared| format!("; shared pages: {shared}"));
        Some(done + &shared.unwrap_or_default())
    }

    /// Where it left the guest, in words that follow its name; nothing where that is not known.
    #[must_use]
    pub fn guest_in_words(&self) -> Option<String> {
        let (source, destination) = (&self.source, &self.destination);
        match self.guest? {
            GuestPlace::Source => Some(format!("runs on {source}")),
            GuestPlace::SourceStopped => Some(format!("stands still on {source}")),
            GuestPlace::Destination => Some(format!("runs on {destination}")),
            GuestPlace::Nowhere => Some(format!("runs neither on {source} nor on {destination}")),
            GuestPlace::Unknown => None,
        }
    }

    /// How it ended, as an event.
    #[must_use]
    pub fn ended_event(&self) -> EventKind {
        EventKind::Ended {
            result: self.phase,
            cause: self.cause.clone(),
        }
    }
}
