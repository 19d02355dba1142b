use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::guest::Guest;
use crate::limits;
use crate::machine::{Boxed, Machine};
use crate::process::{Exit, ProcessId};
use crate::qmp::{ConnectError, Version};

/// Starts guests and finds them again. Each guest has a runtime directory of its own, where its
/// sockets and its log are; it is the same for starting, finding and adopting.
pub trait Hypervisor: Send + Sync + fmt::Debug {
    /// Starts a guest. When this fails, or its future is dropped, no process is left.
    fn start<'a>(
        &'a self,
        guest: &'a Guest,
        directory: &'a Path,
        start: Start,
    ) -> Boxed<'a, Result<Arc<dyn Machine>, StartError>>;

    /// The process of the guest that was started with this directory, while it runs; also of one
    /// that has not answered yet. Looks at every process where there is none.
    fn find(&self, directory: &Path) -> Option<ProcessId>;

    /// The last lines that the guest's process wrote to stderr, at most
    /// [`limits::STDERR_LINES`]: for one that ended while nobody watched.
    fn last_words(&self, directory: &Path) -> Vec<String>;

    /// Takes over a guest that somebody else started, such as this agent before its restart.
    fn adopt<'a>(
        &'a self,
        process: ProcessId,
        directory: &'a Path,
    ) -> Boxed<'a, Result<Arc<dyn Machine>, AdoptError>>;

    /// The machine types that a hypervisor program offers.
    fn machine_types<'a>(
        &'a self,
        binary: &'a Path,
    ) -> Boxed<'a, Result<Vec<MachineType>, InspectError>>;

    /// What a hypervisor program can give guests as their processor on this host. Starts it twice,
    /// without a guest.
    fn processors<'a>(&'a self, binary: &'a Path) -> Boxed<'a, Result<Processors, InspectError>>;
}

/// What a guest does once it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It runs.
    Run,
    /// It waits for [`Movable::resume`](crate::Movable::resume).
    Paused,
    /// It waits for [`Movable::listen_incoming`](crate::Movable::listen_incoming), and after the
    /// migration for [`Movable::resume`](crate::Movable::resume).
    Incoming,
}

/// A machine type that a hypervisor program offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineType {
    /// Its name, such as `pc-q35-10.0` or `q35`.
    pub name: String,
    /// The concrete type, where the name is an alias.
    pub alias_of: Option<String>,
    /// What a guest without a machine type gets.
    pub default: bool,
    /// Marked as deprecated.
    pub deprecated: bool,
}

/// What a hypervisor program can give guests as their processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors {
    /// The program's version.
    pub version: Version,
    /// With the processor's own virtualisation; none where this host does not let it be used.
    pub hardware: Option<ProcessorOffer>,
    /// Emulated; none where the program cannot.
    pub emulated: Option<ProcessorOffer>,
}

/// What can be given to a guest in one of these ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessorOffer {
    /// Named models that run with all that belongs to them.
    pub models: BTreeSet<String>,
    /// Features, by all of the names that the hypervisor has for them.
    pub features: BTreeSet<String>,
    /// Other models that it knows, and what they lack here.
    pub lacking: BTreeMap<String, BTreeSet<String>>,
}

/// Why a guest could not be started. No process is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An argument of the guest that belongs to the agent.
    #[error("guest {guest} may not have the argument {argument}: {why}")]
    Argument {
        /// The guest's name.
        guest: String,
        /// The argument.
        argument: String,
        /// Whose it is.
        why: &'static str,
    },
    /// The runtime directory's path is too long for the sockets in it.
    #[error(
        "{path} has {length} bytes, a socket's path may have {limit}: choose a shorter runtime \
         directory",
        limit = limits::SOCKET_PATH_BYTES
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// The runtime directory cannot be used.
    #[error("cannot prepare the runtime directory {path}")]
    Directory {
        /// What could not be made or written.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A guest with this directory runs.
    #[error("the guest runs already, as process {pid}")]
    AlreadyRunning {
        /// Its process.
        pid: u32,
    },
    /// The program is not there or may not be executed.
    #[error("cannot execute {binary}: is qemu installed there?")]
    Binary {
        /// The program.
        binary: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended before it answered.
    #[error("qemu ended at start with {}{}", exit.status, last_words(&exit.stderr))]
    Ended {
        /// How.
        exit: Exit,
    },
    /// It runs and does not answer; it was killed.
    #[error(
        "qemu did not answer within {within:?} of its start{}",
        last_words(stderr)
    )]
    NoAnswer {
        /// How long was waited.
        within: Duration,
        /// Its last lines of stderr.
        stderr: Vec<String>,
        /// The last attempt to reach it.
        source: ConnectError,
    },
    /// It answers in a way that cannot be used; it was killed.
    #[error("qemu started but cannot be used{}", last_words(stderr))]
    Unusable {
        /// Its last lines of stderr.
        stderr: Vec<String>,
        /// What is wrong.
        source: ConnectError,
    },
    /// The process cannot be watched.
    #[error("cannot watch qemu's process")]
    Watch {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a guest could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The process has ended.
    #[error("process {pid} has ended{}", last_words(stderr))]
    Gone {
        /// Its pid.
        pid: u32,
        /// Its last lines of stderr.
        stderr: Vec<String>,
    },
    /// The process runs and its monitors cannot be used. It was left as it is.
    #[error("process {pid} runs, but its monitors cannot be used")]
    Unreachable {
        /// Its pid.
        pid: u32,
        /// What is wrong.
        source: ConnectError,
    },
    /// The process cannot be watched. It was left as it is.
    #[error("cannot watch process {pid}")]
    Watch {
        /// Its pid.
        pid: u32,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a hypervisor program did not tell what it offers.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The program is not there or may not be executed.
    #[error("cannot execute {binary}: is qemu installed there?")]
    Binary {
        /// The program.
        binary: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not end in time; it was killed.
    #[error("{binary} did not tell what it offers within {within:?}")]
    NoAnswer {
        /// The program.
        binary: PathBuf,
        /// How long was waited.
        within: Duration,
    },
    /// What it printed is no answer of a QEMU.
    #[error("{binary} did not tell what it offers: {status}, {printed:?}; is it qemu?")]
    NotQemu {
        /// The program.
        binary: PathBuf,
        /// How it ended.
        status: String,
        /// The beginning of what it printed.
        printed: String,
    },
}

/// A process's last lines as the end of a message.
fn last_words(stderr: &[String]) -> String {
    match stderr {
        [] => ", saying nothing".to_owned(),
        lines => format!(", saying: {}", lines.join(" / ")),
    }
}

impl StartError {
    /// The last lines of stderr that QEMU left, where it got so far.
    #[must_use]
    pub fn stderr(&self) -> &[String] {
        match self {
            Self::Ended { exit } => &exit.stderr,
            Self::NoAnswer { stderr, .. } | Self::Unusable { stderr, .. } => stderr,
            _ => &[],
        }
    }
}
