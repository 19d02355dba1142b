//! The agent's directories and sockets: made, checked and claimed before anything else is done.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{Access, FlockOperation, access, flock};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::changes;
use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::limits::{self, LOCK_LET_GO, LOCK_LOOK};
use crate::migration::relays;

/// Directories that this agent alone uses, while it lives.
#[derive(Debug)]
pub struct Places {
    _locks: [File; 2],
}

/// Makes the directories, and makes sure that no other agent uses them.
///
/// # Errors
/// One cannot be made or written, or another agent uses it; the key to change is named.
pub fn claim(config: &Config) -> Result<Places> {
    for (key, directory) in directories(config) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| {
                format!(
                    "key `{key}`: cannot make the directory {}",
                    directory.display()
                )
            })?;
        writable(key, &directory)?;
    }
    let locks = [
        lock("runtime", &config.runtime)?,
        lock("state", &config.state)?,
    ];
    Ok(Places { _locks: locks })
}

/// Checks what can be checked beside a running agent: the directories that are there already, and whether the others can be made. What an
/// agent would begin without for now is given, with the key.
///
/// # Errors
/// One cannot be written or made, or that of checkpoints is another agent's; the key to change is named.
pub fn check(config: &Config) -> Result<Option<String>> {
    for (key, directory) in directories(config) {
        is_usable(key, &directory)?;
    }
    if config.checkpoints.size.0 == 0 {
        return Ok(None);
    }
    let key = "checkpoints.directory";
    let directory = &config.checkpoints.directory;
    // First: nothing is written where a file system is missing.
    let away = Checkpoints::check(config)
        .with_context(|| format!("key `{key}`: cannot use {}", directory.display()))?;
    if let Some(why) = away {
        return Ok(Some(format!(
            "key `{key}`: an agent keeps nothing there for now: {why}"
        )));
    }
    is_usable(key, directory)?;
    Ok(None)
}

fn is_usable(key: &str, directory: &Path) -> Result<()> {
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => writable(key, directory),
        Ok(_) => bail!("key `{key}`: {} is no directory", directory.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => can_be_made(key, directory),
        Err(error) => {
            let what = format!("key `{key}`: cannot look at {}", directory.display());
            Err(anyhow!(error).context(what))
        }
    }
}

/// By the nearest one above it that is there; nothing is written to that.
fn can_be_made(key: &str, directory: &Path) -> Result<()> {
    let mut above = directory.ancestors().skip(1);
    let Some(above) = above.find(|above| above.exists()) else {
        return Ok(());
    };
    access(above, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(io::Error::from)
        .with_context(|| {
            format!(
                "key `{key}`: cannot make {}, as {} cannot be written; run the agent as root, or choose another directory",
                directory.display(),
                above.display()
            )
        })
}

fn directories(config: &Config) -> [(&'static str, PathBuf); 8] {
    [
        ("definitions", config.definitions.clone()),
        ("state", config.state.clone()),
        ("state", config.state.join("migrations")),
        ("state", config.state.join("departed")),
        ("state", config.state.join(changes::DIRECTORY)),
        ("runtime", config.runtime.clone()),
        ("runtime", config.runtime.join("vms")),
        ("runtime", config.runtime.join(relays::DIRECTORY)),
    ]
}

fn writable(key: &str, directory: &Path) -> Result<()> {
    let probe = directory.join(format!(".droverd-{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&probe);
    written.and_then(|_| std::fs::remove_file(&probe)).with_context(|| {
        format!(
            "key `{key}`: cannot write in {}; run the agent as root, or choose another directory",
            directory.display()
        )
    })
}

fn lock(key: &str, directory: &Path) -> Result<File> {
    let path = directory.join("droverd.lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("key `{key}`: cannot open {}", path.display()))?;
    match take(&file) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // Only for the message; an empty one is fine.
            let _ = file.take(20).read_to_string(&mut holder);
            let holder = holder.trim();
            bail!(
                "key `{key}`: another droverd (process {holder}) uses {}; stop it, or choose \
                 another directory",
                directory.display()
            );
        }
        Err(error) => {
            let what = format!("key `{key}`: cannot lock {}", path.display());
            return Err(anyhow!(io::Error::from(error)).context(what));
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Takes a lock. One that was held by an agent that was killed is held on, for a moment, by the process that it was
/// just starting.
fn take(file: &File) -> rustix::io::Result<()> {
    let until = Instant::now() + LOCK_LET_GO;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(LOCK_LOOK);
            }
            taken => return taken,
        }
    }
}

/// Listens on the local socket, for root only. A socket that nobody listens on is replaced.
///
/// # Errors
/// Somebody listens on it, something else is there, or it cannot be made.
pub async fn listen_local(path: &Path) -> Result<UnixListener> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(anyhow!(error).context(format!("key `api.socket`: cannot look at {shown}")));
        }
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("key `api.socket`: {shown} is there and no socket; remove it or choose another");
        }
        Ok(_) => {
            let probe = tokio::time::timeout(limits::SOCKET_PROBE, UnixStream::connect(path));
            match probe.await {
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {}
                _ => bail!(
                    "key `api.socket`: an agent listens on {shown} already; stop it, or choose \
                     another socket"
                ),
            }
        }
    }
    // Made under another name and renamed, so that it is never there with other permissions.
    let beside = path.with_extension("new");
    let making = || format!("key `api.socket`: cannot listen on {shown}");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(anyhow!(error).context(making()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&beside).with_context(making)?;
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o600)).with_context(making)?;
    std::fs::rename(&beside, path).with_context(making)?;
    Ok(listener)
}

/// Listens for peers.
///
/// # Errors
/// The port is in use, or the address is none of this host's.
pub async fn listen_peers(address: SocketAddr) -> Result<TcpListener> {
    listen("api.listen", address).await
}

/// Listens for who wants metrics.
///
/// # Errors
/// The port is in use, or the address is none of this host's.
pub async fn listen_metrics(address: SocketAddr) -> Result<TcpListener> {
    listen("metrics.listen", address).await
}

async fn listen(key: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let next = match error.kind() {
            ErrorKind::AddrInUse => "the port is in use: stop what uses it, or choose another",
            ErrorKind::AddrNotAvailable => "no interface of this host has that address",
            ErrorKind::PermissionDenied => "ports below 1024 need root",
            _ => "choose another address",
        };
        anyhow!("key `{key}`: cannot listen on {address}: {next} ({error})")
    })
}
