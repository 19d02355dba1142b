//! A disk of a domain that moves to another file of this host: how libvirt is told, and what it shows.
//!
//! ```text
//!   order ─▶ begin: may it ─▶ DomainDisk ── look, begin, suspend, complete, resume, give up ─▶ libvirtd ─▶ QEMU
//! ```
//! Decides nothing: `drover_migrate::storage_move` does, and `crate::storage` carries that out.

mod begin;
mod conditions;

use std::path::{Path, PathBuf};

use drover_libvirt::{CallError, Connection, CopyState, DiskCopy, DiskLook, DomainState, Source};
use drover_migrate::storage_move::{CopySeen, FileSeen, Seen, Stands};
use drover_types::{Bytes, with_sources};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::line::Line;
use super::turns::Turn;

pub use begin::{Ready, ready, taken_up};

/// A disk of a domain, in the domain's turn.
#[derive(Debug)]
pub struct DomainDisk {
    uuid: Uuid,
    target: String,
    from: PathBuf,
    to: PathBuf,
    line: Line,
    connection: Mutex<Option<Connection>>,
    _turn: Option<Turn>,
}

/// What a look shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskShown {
    /// What decides.
    pub seen: Seen,
    /// How much was copied by now, and of how much.
    pub copied: Option<(Bytes, Bytes)>,
    /// The file that the disk will be when the domain is started next, where that is neither of them.
    pub defined: Option<String>,
}

/// What became of something that libvirt was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untold {
    /// It has not done it.
    Refused(String),
    /// It may have.
    Unanswered(String),
}

impl DomainDisk {
    /// The domain and its disk as they are now.
    ///
    /// # Errors
    /// libvirt does not tell, and why.
    pub async fn look(&self) -> Result<DiskShown, String> {
        let connection = self.connected().await?;
        let look = connection.look_at_disk(self.uuid, &self.target).await;
        let look = look.map_err(|error| with_sources(&error))?;
        Ok(shown(look.as_ref(), &self.from, &self.to))
    }

    /// Begins to copy it to the new file.
    ///
    /// # Errors
    /// It does not, or may not.
    pub async fn begin(&self, copy: &DiskCopy) -> Result<(), Untold> {
        let connection = self.connected().await.map_err(Untold::Refused)?;
        let begun = connection.begin_copy(self.uuid, copy).await;
        begun.map_err(|error| untold(&error))
    }

    /// Has the domain stand still, once nothing holds its copy up.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn suspend(&self) -> Result<(), Untold> {
        let connection = self.connected().await.map_err(Untold::Refused)?;
        let unlimited = connection.unlimit_copy(self.uuid, &self.target).await;
        unlimited.map_err(|error| untold(&error))?;
        let suspended = connection.suspend(self.uuid).await;
        suspended.map_err(|error| untold(&error))
    }

    /// Has the disk become the new file.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn complete(&self) -> Result<(), Untold> {
        let connection = self.connected().await.map_err(Untold::Refused)?;
        let told = connection.let_it_be_the_copy(self.uuid, &self.target).await;
        told.map_err(|error| untold(&error))
    }

    /// Has the domain run.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn resume(&self) -> Result<(), Untold> {
        let connection = self.connected().await.map_err(Untold::Refused)?;
        let told = connection.resume(self.uuid).await;
        told.map_err(|error| untold(&error))
    }

    /// Has the copy end as nothing.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn give_up(&self) -> Result<(), Untold> {
        let connection = self.connected().await.map_err(Untold::Refused)?;
        let told = connection.give_copy_up(self.uuid, &self.target).await;
        told.map_err(|error| untold(&error))
    }

    /// The connection, or another one where it was lost.
    async fn connected(&self) -> Result<Connection, String> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|held| held.closed().is_none()) {
            return Ok(connection.clone());
        }
        let connection = self.line.connect().await?;
        *held = Some(connection.clone());
        Ok(connection)
    }
}

fn untold(error: &CallError) -> Untold {
    let why = with_sources(error);
    match error {
        CallError::TimedOut { .. } | CallError::Lost { .. } => Untold::Unanswered(why),
        CallError::Refused { .. } | CallError::TooMany { .. } | CallError::Text { .. } => {
            Untold::Refused(why)
        }
    }
}

/// What libvirt's look means, of a disk that moves from one file to another.
fn shown(look: Option<&DiskLook>, from: &Path, to: &Path) -> DiskShown {
    let file = |source: &Source| match source {
        Source::File(path) if path == to => FileSeen::New,
        Source::File(path) if path == from => FileSeen::Old,
        _ => FileSeen::Other,
    };
    let now = look.and_then(|look| look.now.as_ref());
    let copy = now.and_then(|disk| disk.copy.as_ref());
    // One to somewhere else is somebody else's, and none of ours is beside it.
    let copy = copy.filter(|copy| file(&copy.to) == FileSeen::New);
    let defined = look.and_then(|look| look.defined.as_ref());
    let guest = look.map_or(Stands::Gone, |look| match look.domain.domain.state {
        DomainState::ShutOff => Stands::Gone,
        DomainState::Paused => Stands::Still,
        _ => Stands::Runs,
    });
    DiskShown {
        seen: Seen {
            guest,
            disk: now.map_or(FileSeen::Other, |disk| file(&disk.source)),
            copy: copy.map_or(CopySeen::None, |copy| match copy.state {
                CopyState::Copies => CopySeen::Copies,
                CopyState::Same => CopySeen::Same,
                CopyState::Ending => CopySeen::Ending,
            }),
            defined: defined.map(file),
        },
        copied: look.and_then(|look| look.copied),
        defined: defined
            .filter(|source| file(source) == FileSeen::Other)
            .map(conditions::words),
    }
}

#[cfg(test)]
mod tests {
    use drover_libvirt::{self as libvirt, DiskSeen, Look, Why};

    use super::*;
    use crate::libvirt::seen::tests::domain;

    #[test]
    fn what_libvirt_shows_is_told_by_the_two_files() {
        let file = |path: &str| Source::File(path.into());
        let look = |state, now: &str, copy: Option<&str>, defined: Option<&str>| {
            let copy = copy.map(|to| libvirt::CopySeen {
                to: file(to),
                state: CopyState::Same,
            });
            let look = DiskLook {
                domain: Look {
                    domain: domain("web", state),
                    why: Why::Asked,
                },
                now: Some(DiskSeen {
                    source: file(now),
                    copy,
                }),
                defined: defined.map(file),
                copied: None,
            };
            shown(Some(&look), Path::new("/old"), Path::new("/new"))
        };
        let same = look(DomainState::Running, "/old", Some("/new"), Some("/old"));
        let expected = Seen {
            guest: Stands::Runs,
            disk: FileSeen::Old,
            copy: CopySeen::Same,
            defined: Some(FileSeen::Old),
        };
        assert_eq!((same.seen, same.defined), (expected, None));
        let others = look(DomainState::Paused, "/old", Some("/x"), Some("/y & z"));
        assert_eq!(others.seen.copy, CopySeen::None);
        assert_eq!(others.seen.guest, Stands::Still);
        assert_eq!(others.seen.defined, Some(FileSeen::Other));
        assert_eq!(others.defined.as_deref(), Some("/y & z"));
        let moved = look(DomainState::Running, "/new", None, None).seen;
        assert_eq!((moved.disk, moved.defined), (FileSeen::New, None));
        let gone = shown(None, Path::new("/old"), Path::new("/new")).seen;
        assert_eq!((gone.guest, gone.defined), (Stands::Gone, None));
    }
}
