use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use drover_api::MovingDomain;
use drover_types::MigrationId;
use serde::{Deserialize, Serialize};

/// What the next agent has to know of a domain that moves, beside the record of its migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRecord {
    /// As it travels.
    #[serde(flatten)]
    pub moving: MovingDomain,
    /// How long it might stand still at the end of a migration before this one, in milliseconds; on the host that it leaves, where
    /// libvirt told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_limit_ms: Option<u64>,
    /// What is to be done of it yet though its migration has ended.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub owes: BTreeSet<Debt>,
}

/// Something that could not be done with a domain when its migration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Debt {
    /// What was changed of it so that it could move is to be as before: whether it is started with its host, how long it may
    /// stand still.
    Settings,
    /// A definition that came with it is to go, if the source keeps it.
    Definition,
    /// Files that were made for its disks are to go, if the source keeps it.
    Disks,
}

/// What is to be told of how a domain's migration ended, and what is to be done of it yet, if anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    pub debt: Option<Debt>,
    pub why: String,
}

impl From<MovingDomain> for DomainRecord {
    fn from(moving: MovingDomain) -> Self {
        Self {
            moving,
            downtime_limit_ms: None,
            owes: BTreeSet::new(),
        }
    }
}

/// Where the definition of a domain is kept that leaves for good, by its migration, as its name may be any text.
pub fn kept_definition(state: &Path, migration: MigrationId) -> PathBuf {
    state.join("departed").join(format!("{migration}.xml"))
}
