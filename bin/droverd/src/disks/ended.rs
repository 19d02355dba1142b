//! What becomes of files that were made for a guest which does not come.

use std::path::{Path, PathBuf};

use drover_types::{HostName, MigrationId};

use super::ledger::{give, is_recorded};
use super::removed::{listed, remove, settle};
use super::works::Works;

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Nothing was copied to its disks here.
    Not,
    /// Its source may have begun to copy: what becomes of them is the source's word.
    Begun,
    /// It may have run here, by whoever's word.
    Ran,
}

/// What is told of what is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stays {
    pub why: String,
    /// It is to go yet.
    pub is_owed: bool,
}

/// Takes away what was made here for disks of a guest that does not come, where it came nowhere; none where nothing is left. What it may
/// have written to is left for good.
pub async fn end(
    works: &Works,
    state: &Path,
    migration: MigrationId,
    source: &HostName,
    (came, paths): (Came, &[PathBuf]),
) -> Option<Stays> {
    // Somebody may be about to make them.
    let is_under_way = works.stop(migration);
    if !is_under_way && !is_recorded(state, migration) {
        return None;
    }
    let paths = listed(paths);
    let why = match came {
        Came::Ran => {
            give(state, migration);
            return Some(Stays {
                why: format!(
                    "somebody has had it run here: files that were made here for its disks are left, and are not removed: {paths}"
                ),
                is_owed: false,
            });
        }
        Came::Begun => {
            if let Err(why) = settle(works, state, migration).await {
                tracing::warn!(id = %migration, why, "looked at again before anything is removed");
            }
            format!(
                "start nothing with them; they go once {source} says that it keeps the guest; if {source} is gone for good, they may be the \
                 last that there is of them"
            )
        }
        Came::Not => remove(works, state, migration).await.err()?,
    };
    Some(Stays {
        why: format!("files that were made here for its disks are left ({paths}): {why}"),
        is_owed: true,
    })
}
