//! A guest's disk that moves to another file of the same host, while the guest runs.

use std::fmt;
use std::path::PathBuf;

use drover_types::{BitRate, Bytes, StorageMoveId, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::domain::DiskLayout;

/// Asks for a disk of a guest that runs to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageMoveRequest {
    /// The guest: by its name, or a domain by its id.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// The disk: by its name for the guest such as `vda`, or by the path of the file that it has now.
    pub disk: String,
    /// The new file, which is not there yet; or a folder that is, for a file of the same name.
    #[schema(value_type = String)]
    pub to: PathBuf,
    /// What the new file is to be; none: the same as the old one.
    #[serde(default)]
    pub format: Option<DiskFormat>,
    /// The most that the copy may take, in bits per second; none: as much as goes.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<BitRate>,
    /// The old file is removed once nothing names it any more.
    #[serde(default)]
    pub remove_old: bool,
}

/// How the contents of a disk are laid out in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// As they are.
    Raw,
    /// QEMU's qcow2.
    Qcow2,
}

impl DiskFormat {
    /// The word, which is QEMU's and libvirt's too.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

impl fmt::Display for DiskFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<DiskLayout> for DiskFormat {
    fn from(layout: DiskLayout) -> Self {
        match layout {
            DiskLayout::Raw => Self::Raw,
            DiskLayout::Qcow2 { .. } => Self::Qcow2,
        }
    }
}

/// How far a move of a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StorageMovePhase {
    /// The new file is made.
    Preparing,
    /// The contents are copied.
    Copying,
    /// The guest stands still for a moment, and the disk becomes the new file.
    Pivoting,
    /// The copy is given up.
    GivingUp,
    /// The disk is the new file.
    Moved,
    /// The disk is the old file, as somebody wished.
    Cancelled,
    /// The disk is the old file.
    Failed,
    /// Which file the disk is is not known: both are left.
    Unknown,
    /// Of a newer agent.
    #[serde(other)]
    Other,
}

impl StorageMovePhase {
    /// Nothing is done any more.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Moved | Self::Cancelled | Self::Failed | Self::Unknown
        )
    }
}

impl fmt::Display for StorageMovePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preparing => "preparing",
            Self::Copying => "copying",
            Self::Pivoting => "pivoting",
            Self::GivingUp => "giving-up",
            Self::Moved => "moved",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Other => "other",
        })
    }
}

/// A move of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageMoveView {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub id: StorageMoveId,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// The disk, by its name for the guest.
    pub disk: String,
    /// Its file before.
    #[schema(value_type = String)]
    pub from: PathBuf,
    /// What that is.
    pub from_format: DiskFormat,
    /// Its file afterwards.
    #[schema(value_type = String)]
    pub to: PathBuf,
    /// What that is.
    pub to_format: DiskFormat,
    /// The old file is removed once nothing names it any more.
    pub remove_old: bool,
    /// How far it is.
    pub phase: StorageMovePhase,
    /// Copied so far, with what was written to meanwhile.
    #[schema(value_type = u64)]
    pub copied: Bytes,
    /// Of so much.
    #[schema(value_type = u64)]
    pub total: Bytes,
    /// How long the guest stood still for it, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ms: Option<u64>,
    /// When it was ordered.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Why the disk is not the new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What happened, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<StorageMoveEvent>,
}

/// Something that happened in a move of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageMoveEvent {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What, in words.
    pub what: String,
}
