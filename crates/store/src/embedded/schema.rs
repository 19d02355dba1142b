//! The file: how it is opened, what is in it, and how an older one becomes a newer one.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::unusable;
use crate::error::{Outcome, StoreError};
use crate::limits;

/// Says in the file's header that it is ours: "Drov".
const APPLICATION_ID: i64 = 0x4472_6f76;

/// Only the agent's user reads it.
const MODE: u32 = 0o600;

/// What makes each version of the file from the one before; the first makes it from nothing. The
/// number of the last is the file's `user_version`.
const MIGRATIONS: [&str; 1] = [
    // `bytes` counts all that was ever in the history, so that its oldest part can be found by its
    // size. `forgotten` is the last revision of which some changes are gone.
    "CREATE TABLE store (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        revision INTEGER NOT NULL,
        forgotten INTEGER NOT NULL,
        bytes INTEGER NOT NULL
     ) STRICT;
     INSERT INTO store VALUES (1, 1, 1, 0);
     CREATE TABLE document (
        key TEXT NOT NULL PRIMARY KEY,
        value TEXT NOT NULL,
        revision INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE change (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        revision INTEGER NOT NULL,
        key TEXT NOT NULL,
        value TEXT,
        bytes INTEGER NOT NULL
     ) STRICT;
     CREATE INDEX change_revision ON change (revision);
     CREATE TABLE leadership (
        name TEXT NOT NULL PRIMARY KEY,
        generation INTEGER NOT NULL,
        holder TEXT NOT NULL,
        since TEXT NOT NULL,
        ttl_ms INTEGER NOT NULL,
        boot TEXT NOT NULL,
        until_ms INTEGER NOT NULL
     ) STRICT;",
];

/// What went wrong with the file, in words for the one who has to mend it.
pub(super) fn problem(path: &Path, error: &rusqlite::Error, outcome: Outcome) -> StoreError {
    let shown = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unavailable {
            path: shown,
            outcome: Outcome::NotDone,
            detail: format!(
                "another process has kept it locked for {} s",
                limits::BUSY.as_secs()
            ),
        },
        Some(ErrorCode::DiskFull) => StoreError::Full {
            detail: format!(
                "{shown}: its disk is full, or the file has reached {} MiB: free space, or prune journals",
                limits::FILE_PAGES / 256
            ),
        },
        Some(ErrorCode::SystemIoFailure) => StoreError::Unavailable {
            path: shown,
            outcome,
            detail: format!("its disk fails: {error}"),
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => unusable(
            path,
            format!(
                "the file is damaged ({error}): restore it from a backup, or move it away to begin with an empty store"
            ),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            unusable(
                path,
                format!("it or its directory cannot be written: {error}"),
            )
        }
        _ => unusable(path, error.to_string()),
    }
}

/// Opens the file, or makes it, and brings it to this version.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let begun = Instant::now();
    loop {
        match open_once(path) {
            // Who finds another process making the file is told at once, however long it would wait.
            Err(StoreError::Unavailable { .. }) if begun.elapsed() < limits::BUSY => {
                std::thread::sleep(limits::BUSY_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn open_once(path: &Path) -> Result<Connection, StoreError> {
    make_private(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |error: rusqlite::Error| problem(path, &error, Outcome::NotDone);
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(limits::BUSY).map_err(failed)?;
    check_owner(path, &connection)?;
    configure(&connection).map_err(failed)?;
    migrate(path, &mut connection)?;
    check_whole(path, &connection)?;
    Ok(connection)
}

/// Makes the file, or takes it from others' eyes; SQLite gives its other files (-wal, -shm) the same
/// mode. It is never opened here: to close it would end the locks of any connection to it that this
/// process has (fcntl(2), and SQLite's "How To Corrupt", 2.2).
fn make_private(path: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::StorageFull => StoreError::Full {
            detail: format!("{}: {error}", path.display()),
        },
        _ => unusable(path, format!("it cannot be made: {error}")),
    };
    let mode = Mode::from_raw_mode(MODE);
    match mknodat(CWD, path, FileType::RegularFile, mode, 0) {
        Ok(()) => return keep_entry(path).map_err(failed),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let mut permissions = std::fs::metadata(path).map_err(failed)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(MODE);
        std::fs::set_permissions(path, permissions).map_err(failed)?;
    }
    Ok(())
}

/// A new file's name must be on the disk before anything in it is acknowledged; SQLite sees to that
/// only for its other files.
fn keep_entry(path: &Path) -> std::io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

/// Nothing is written to a file of another program, or of a newer version of this one.
fn check_owner(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| problem(path, &error, Outcome::NotDone);
    // In one state of the file: another process may be making it. One that was killed while it made
    // it has left a file without tables, which is nobody's.
    let (tables, application): (i64, i64) = connection
        .query_row(
            "SELECT (SELECT count(*) FROM sqlite_schema), application_id FROM pragma_application_id",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(failed)?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(unusable(
            path,
            format!("it is a database of another program (application id {application:#x})"),
        ));
    }
    let version = number(connection, "user_version").map_err(failed)?;
    if version > MIGRATIONS.len() as i64 {
        return Err(unusable(
            path,
            format!(
                "its format is version {version}, and this program knows up to {}: \
                 use the newer program, or restore a backup from before the upgrade",
                MIGRATIONS.len()
            ),
        ));
    }
    Ok(())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    // Without it a commit could be lost with the machine's power.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update_and_check(None, "max_page_count", limits::FILE_PAGES, |row| {
        row.get::<_, i64>(0)
    })?;
    Ok(())
}

fn migrate(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| problem(path, &error, Outcome::NotDone);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Read again within the lock: another process may have brought it further meanwhile.
    let version = number(&transaction, "user_version").map_err(failed)?;
    let done = usize::try_from(version).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    if done < MIGRATIONS.len() {
        transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .and_then(|()| transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64))
            .map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn check_whole(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let verdict: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| problem(path, &error, Outcome::NotDone))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(unusable(
        path,
        format!(
            "the file is damaged ({}): restore it from a backup, or move it away to begin with an empty store",
            drover_types::in_short(verdict)
        ),
    ))
}
