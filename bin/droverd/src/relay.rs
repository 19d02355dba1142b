//! The process of one migration's relay, as an agent starts it: no agent, no runtime, no other file
//! than those of its own directory.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use drover_carrier::Place;

use crate::logging;

/// What an operator sees of it in `ps` and `top`; at most 15 bytes (prctl(2)).
const NAME: &std::ffi::CStr = c"droverd-relay";

/// Runs it until its relay is over.
///
/// # Errors
/// Its stdin is no socket, or as [`drover_carrier::run`].
pub fn run(directory: PathBuf) -> anyhow::Result<()> {
    logging::init();
    if let Err(error) = rustix::thread::set_name(NAME) {
        tracing::debug!(%error, "the process keeps its name");
    }
    // An interrupt at its agent's terminal is not for it, nor the hang-up of one that stands still when its agent ends.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "the process stays in its session");
    }
    let listener = std::io::stdin().as_fd().try_clone_to_owned();
    let listener = UnixListener::from(listener.context("stdin")?);
    let ours = listener.local_addr().context(
        "stdin is no UNIX socket: this is what droverd starts for each migration, and of no use by \
         hand",
    )?;
    let place = Place::at(directory);
    tracing::info!(socket = ?ours, "ready");
    let root = Path::new("/");
    drover_carrier::run(&place, &listener, env!("CARGO_PKG_VERSION"), root)?;
    tracing::info!("ended");
    Ok(())
}
