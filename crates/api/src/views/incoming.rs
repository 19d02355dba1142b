//! What the source's agent asks of the destination's, and back.
//!
//! ```text
//!   source                                   destination
//!   POST /incoming ───────────────────────▶  starts QEMU, answers with its offer
//!   (lanes are opened)
//!   POST /incoming/{id}/start ────────────▶  QEMU listens
//!   (memory)
//!   POST /incoming/{id}/paths ────────────▶  when interfaces come and go
//!   POST /incoming/{id}/run ──────────────▶  the guest runs there, and only there
//!      or /incoming/{id}/abandon ─────────▶  nothing is left there
//!
//!   (postcopy, and the session broke)
//!   POST /incoming/{id}/reopen ───────────▶  makes ready for another one
//!   (lanes are opened)
//!   POST /incoming/{id}/recover ──────────▶  QEMU listens again
//!
//!                ◀────────────────────────── GET /migrations/{id}/verdict, when in doubt
//! ```

use drover_types::{Bytes, HostName, Interface, MigrationId, Path, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::domain::{DomainNeed, NewDisk};
use super::host::ProtocolRange;
use super::resolve::Resolution;
use super::security::LaneSecurity;
use crate::definition::VmDefinition;
use crate::schema::{InterfaceSchema, PathSchema};

/// Sizes that both relays of a session use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionSizes {
    /// Largest chunk in bytes.
    pub chunk_bytes: u32,
    /// Chunks of one direction of one channel that may be under way.
    pub window: u16,
    /// Most channels of QEMU, the main channel included.
    pub channels_max: u16,
}

/// Asks a host to prepare for a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingRequest {
    /// The migration.
    #[schema(value_type = String, format = "uuid")]
    pub id: MigrationId,
    /// The host that asks; the destination must have it as a peer.
    #[schema(value_type = String)]
    pub source: HostName,
    /// The guest, with its concrete machine type.
    pub definition: VmDefinition,
    /// What else is to be known of it where it is a domain of libvirt's; missing where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<MovingDomain>,
    /// Disks that come with it where it is none, at most 16: files of the source's alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<NewDisk>,
    /// Versions of the relays' protocol that the source speaks.
    pub protocol: ProtocolRange,
    /// Sizes of the session.
    pub session: SessionSizes,
    /// How the source wants its lanes protected.
    pub lanes: LaneSecurity,
    /// How the source would have its bytes reduced; missing when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionTerms>,
    /// The guest's memory, where the source would keep its pages for its return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub keeps: Option<Bytes>,
    /// The source's interfaces.
    #[schema(value_type = Vec<InterfaceSchema>)]
    pub interfaces: Vec<Interface>,
    /// CPUs that the source may use for it.
    pub cpus: u32,
    /// QEMU's channels, when the operator fixed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u8>,
    /// The longest stop of the guest to aim at, in milliseconds.
    pub downtime_limit_ms: u64,
    /// How long the source would wait for a path when it has none left, in seconds.
    pub outage_limit_s: u64,
}

/// A domain of libvirt's that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovingDomain {
    /// Its id, as libvirt writes it.
    pub uuid: String,
    /// Its name, which may be one that no guest of the agents' could have.
    pub name: String,
    /// It has a definition, which goes along.
    pub persistent: bool,
    /// It is to be started with its host.
    pub autostart: bool,
    /// It stood still by somebody's word when it was to move, and is to stand still afterwards.
    pub paused: bool,
    /// What the host that it goes to has to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<DomainNeed>,
    /// Of each file that it writes to is told what its own host sees of it: an agent of before told its path alone.
    #[serde(default)]
    pub files_told: bool,
}

/// Asks a host for another session, for pages that are still to follow a guest there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingReopen {
    /// Sizes of the session.
    pub session: SessionSizes,
    /// How the source wants its lanes protected.
    pub lanes: LaneSecurity,
    /// How long the source would wait for a path when it has none left, in seconds.
    pub outage_limit_s: u64,
}

/// How bytes are reduced, which both ends have to keep memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionTerms {
    /// The layout of reduced chunks: 2 of a domain of libvirt's, in whose session others than memory have channels.
    pub layout: u32,
    /// The size of the guest's pages, in bytes.
    pub page_bytes: u32,
    /// Pages that both ends keep at most.
    pub kept_pages: u32,
    /// What a codec remembers of each channel: 2 to the power of this, in bytes.
    pub window_log: u32,
    /// Pages of which the destination tells at most that its host has them of other guests.
    #[serde(default)]
    pub stored_pages: u32,
    /// What changed of such a page may be sent.
    #[serde(default)]
    pub stored_changes: bool,
}

/// The destination is prepared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingOffer {
    /// The migration.
    #[schema(value_type = String, format = "uuid")]
    pub id: MigrationId,
    /// The version of the relays' protocol to use.
    pub protocol: u32,
    /// The destination's interfaces that may carry the guest.
    #[schema(value_type = Vec<InterfaceSchema>)]
    pub interfaces: Vec<Interface>,
    /// Sizes of the session, as the source asked for them.
    pub session: SessionSizes,
    /// The secret with which lanes are let in, 64 hexadecimal digits.
    pub token: String,
    /// How the lanes are protected: at least as the source asked for.
    pub lanes: LaneSecurity,
    /// How the source's bytes may be reduced: at most as it asked for; missing when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionTerms>,
    /// The TCP port for lanes, on every address of those interfaces.
    pub data_port: u16,
    /// How long both ends wait for a path when they have none left, in seconds: the shorter of
    /// what they are configured for.
    pub outage_limit_s: u64,
    /// CPUs that the destination may use for it.
    pub cpus: u32,
    /// The version of the QEMU that waits.
    pub qemu_version: String,
    /// Fallbacks and choices of the destination, and why.
    pub notes: Vec<String>,
}

/// The lanes are up: QEMU is to listen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingStart {
    /// QEMU's channels.
    pub channels: u8,
    /// The paths in use.
    #[schema(value_type = Vec<PathSchema>)]
    pub paths: Vec<Path>,
    /// The guest may go on before its pages do.
    #[serde(default)]
    pub postcopy: bool,
}

/// The paths of a session that is under way: those that it had, and those that joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingPaths {
    /// All of them.
    #[schema(value_type = Vec<PathSchema>)]
    pub paths: Vec<Path>,
}

/// What the destination offers by now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingNetworks {
    /// Its interfaces that may carry the guest.
    #[schema(value_type = Vec<InterfaceSchema>)]
    pub interfaces: Vec<Interface>,
}

/// The migration will not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbandonRequest {
    /// Why.
    pub cause: String,
}

/// How far the destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IncomingPhase {
    /// QEMU waits for the lanes.
    Prepared,
    /// Memory arrives.
    Receiving,
    /// Complete; the guest waits for the verdict.
    Arrived,
    /// The guest runs here, and needs nothing of the source.
    Running,
    /// Postcopy: the guest runs here, and may need pages of the source.
    Filling,
    /// Postcopy: the guest ran here, and pages of it are lost.
    CutOff,
    /// Given up; nothing of it is left here.
    Abandoned,
    /// A phase of a newer agent.
    #[serde(other)]
    Unknown,
}

/// An arriving guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncomingView {
    /// The migration.
    #[schema(value_type = String, format = "uuid")]
    pub id: MigrationId,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// How far it is.
    pub phase: IncomingPhase,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What an operator decided here in the source's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolution>,
    /// Its QEMU is ready for a guest that goes on before its pages do.
    #[serde(default)]
    pub postcopy: bool,
    /// When the guest began to run here, by this host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub resumed_at: Option<Timestamp>,
}

/// Whose the guest is, as the source decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Still transferring.
    Undecided,
    /// The destination's: it must run the guest.
    HandedOff,
    /// The source's: the destination must give up its copy.
    Kept,
    /// The destination's, where it ran; but pages of it that had not followed are lost.
    CutOff,
}

/// The source's verdict on one migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerdictView {
    /// The verdict.
    pub verdict: Verdict,
}
