//! The process that carries a change out: how an agent starts it, and what it does.
//!
//! It outlives its agent, as a relay's does: what a link's bounce does to an agent, or to whoever has asked it, does not keep it from
//! taking back what cuts this host off.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::Context as _;
use clap::ValueEnum;
use drover_api::{ErrorCode, Refusal};
use drover_change::{Account, Journal, Runner};
use drover_types::{ChangeId, HostName, with_sources};
use tokio::task::{JoinError, JoinHandle};

use super::ROOT;
use super::hands::ThisHost;
use super::paths::Connections;
use crate::logging;

/// What an operator sees of it in `ps` and `top`, and the package's scripts know it by; at most 15 bytes (prctl(2)).
const NAME: &std::ffi::CStr = c"droverd-change";

/// This very program, also when its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";

/// Its exit code when it says on stdout why it changed nothing.
const NOTHING_DONE: u8 = 3;

/// What a process is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// To carry out what its agent has made.
    Apply,
    /// To go back with what an earlier process left.
    Recover,
    /// To take back what was carried out.
    Undo,
}

/// Starts one; it has the lock from here on. What it said is there when it has ended.
///
/// # Errors
/// It cannot be started.
pub fn start(
    host: &HostName,
    folder: &Path,
    what: What,
    lock: OwnedFd,
) -> io::Result<JoinHandle<io::Result<Output>>> {
    let mut options = OpenOptions::new();
    let log = options.create(true).append(true).mode(0o600);
    // What is there is taken back also where nobody can write about it.
    let log = log.open(folder.join("log")).map_or_else(
        |error| {
            let folder = folder.display();
            tracing::error!(%error, %folder, "the process has no log");
            Stdio::null()
        },
        Stdio::from,
    );
    let mut command = std::process::Command::new(PROGRAM);
    command.arg0("droverd");
    command.arg("change").arg("--host").arg(host.as_str());
    command.arg(folder);
    command.args(
        what.to_possible_value()
            .map(|word| word.get_name().to_owned()),
    );
    command
        .current_dir("/")
        // These are the agent's own.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("JOURNAL_STREAM")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(log);
    let child = tokio::process::Command::from(command).spawn()?;
    Ok(tokio::spawn(child.wait_with_output()))
}

/// What became of a process that was to take a change back whose journal had so many records.
///
/// # Errors
/// It did nothing, and why.
pub fn undone(
    id: ChangeId,
    ended: Result<io::Result<Output>, JoinError>,
    folder: &Path,
    records: usize,
) -> Result<(), Refusal> {
    let failed = |why: String| {
        let message = format!("change {id} was not undone: {why}");
        let next = format!("{} tells more", folder.join("log").display());
        Refusal::new(ErrorCode::Internal, message).next(next)
    };
    let output = ended.map_err(|error| failed(error.to_string()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.code() == Some(NOTHING_DONE.into()) {
        let why = String::from_utf8_lossy(&output.stdout);
        let message = format!("change {id} was not undone: {}", why.trim());
        return Err(Refusal::new(ErrorCode::NotUndoable, message).next(
            "something else has changed that since: set it as the change left it, or leave it as it is",
        ));
    }
    // A process that dies is followed by one that goes back, if it has begun.
    let has_begun = || Account::read(folder).is_ok_and(|account| account.records.len() > records);
    if !output.status.success() && !has_begun() {
        let status = output.status;
        return Err(failed(format!(
            "its process ended before it began ({status})"
        )));
    }
    Ok(())
}

/// Is that process, until all is done or taken back.
///
/// # Errors
/// Its stdin is not the lock, or the folder is none of a change; nothing was changed then.
pub fn run(host: &HostName, folder: &Path, what: What) -> anyhow::Result<()> {
    logging::init();
    if let Err(error) = rustix::thread::set_name(NAME) {
        tracing::debug!(%error, "the process keeps its name");
    }
    // An interrupt at its agent's terminal is not for it, nor the hang-up of one that stands still when its agent ends.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "the process stays in its session");
    }
    let root = Path::new(ROOT);
    let lock = std::io::stdin().as_fd().try_clone_to_owned();
    let mut journal = Journal::passed_on(folder, lock.context("stdin")?, what == What::Apply)?;
    let boot = drover_host::boot_id(root)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tracing::info!(?what, folder = %folder.display(), "begins");
    let mut runner = Runner {
        journal: &mut journal,
        hands: &ThisHost { root },
        paths: &Connections,
        host,
        boot: &boot,
    };
    let outcome = match what {
        What::Apply | What::Recover => runtime.block_on(runner.run()),
        What::Undo => match runtime.block_on(runner.undo()) {
            Ok(outcome) => outcome,
            Err(error) => {
                let why = with_sources(&error);
                tracing::warn!(why, "nothing was undone");
                // Its agent may be gone; the log has it.
                let _ = writeln!(io::stdout(), "{why}");
                std::process::exit(NOTHING_DONE.into());
            }
        },
    };
    tracing::info!(?outcome, "ended");
    Ok(())
}
