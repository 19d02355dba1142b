//! The process of one migration's relay, as an agent starts it: no agent, no runtime, no other file
//! than those of its own directory.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use drover_carrier::Place;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::logging;

/// What an operator sees of it in `ps` and `top`, and the package's scripts know it by; at most 15 bytes (prctl(2)).
const NAME: &std::ffi::CStr = c"droverd-relay";

/// Runs it until its relay is over.
///
/// # Errors
/// Its stdin is no socket, or as [`drover_carrier::run`].
pub fn run(directory: PathBuf) -> anyhow::Result<()> {
    logging::init();
    end_with_a_panic();
    end_before_guests();
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

/// Where the kernel has no memory left, this process is what it ends first: that costs a migration, and no guest.
fn end_before_guests() {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "1000") {
        tracing::debug!(%error, "guests may be ended before this process, where memory is short");
    }
}

/// Has a panic of any thread end the process: without that thread the others would wait for ever, and the guest with them. An agent takes a relay
/// that ended for what it is. Nothing of a guest's memory is left in a core file.
fn end_with_a_panic() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::debug!(%error, "a core file of this process may be written");
    }
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name").to_owned();
        tracing::error!(thread, "this is a bug, and the migration ends: {panic}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    const CHILD: &str = "DROVER_TEST_CHILD";

    /// The test of that name, in a process of its own.
    fn alone(name: &str) -> std::process::ExitStatus {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            end_with_a_panic();
            let thread = std::thread::Builder::new().name("relay-read-2".into());
            let thread = thread.spawn(|| panic!("what nobody thought of"));
            drop(thread.map(std::thread::JoinHandle::join));
            return;
        }
        let status = alone("relay::tests::a_panic_of_any_thread_ends_the_process");
        assert_eq!(status.signal(), Some(6), "{status}");
        assert!(!status.core_dumped());
    }

    #[test]
    fn the_kernel_ends_a_relay_before_any_guest() {
        if std::env::var_os(CHILD).is_some() {
            end_before_guests();
            let score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
            assert_eq!(score.trim(), "1000");
            return;
        }
        let status = alone("relay::tests::the_kernel_ends_a_relay_before_any_guest");
        assert!(status.success(), "{status}");
    }
}
