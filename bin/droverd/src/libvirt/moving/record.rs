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
}

/// Where the definition of a domain is kept that leaves for good, by its migration, as its name may be any text.
pub fn kept_definition(state: &Path, migration: MigrationId) -> PathBuf {
    state.join("departed").join(format!("{migration}.xml"))
}
