use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::QemuMachine;
use super::command::{self, Files};
use super::machine_types;
use super::processors;
use crate::guest::Guest;
use crate::hypervisor::{
    AdoptError, Hypervisor, InspectError, MachineType, Processors, Start, StartError,
};
use crate::limits;
use crate::machine::{Boxed, Machine};
use crate::process::{self, Exit, ProcessId, Watched, last_lines, read_start};
use crate::qmp::{ConnectError, Qmp, QmpError};

/// Starts QEMU processes, which outlive whoever started them, and finds them again.
#[derive(Debug, Clone)]
pub struct QemuLauncher {
    wrapper: Vec<OsString>,
    /// Before the wrapper, where there is no guest.
    keeper: Vec<OsString>,
    start_limit: Duration,
}

impl Default for QemuLauncher {
    fn default() -> Self {
        Self {
            wrapper: Vec::new(),
            keeper: Vec::new(),
            start_limit: limits::START,
        }
    }
}

impl QemuLauncher {
    /// Starts the binaries as they are.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the binaries through a command that becomes them by `exec`, such as
    /// `ip netns exec NAME`.
    #[must_use]
    pub fn through(mut self, wrapper: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Asks binaries that have no guest through such a command as well: one that has them end with this process.
    /// A QEMU that was asked over its stdin does not end when that is closed.
    #[must_use]
    pub fn ask_through(mut self, keeper: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.keeper = keeper.into_iter().map(Into::into).collect();
        self
    }

    /// Waits so long for a started QEMU to answer, in place of [`limits::START`].
    #[must_use]
    pub fn start_within(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// As [`Hypervisor::start`], with the concrete type.
    ///
    /// # Errors
    /// The guest's arguments, its directory or its binary cannot be used; QEMU ended or did not
    /// answer. No process is left.
    pub async fn start(
        &self,
        guest: &Guest,
        directory: &Path,
        start: Start,
    ) -> Result<QemuMachine, StartError> {
        let files = Files::new(directory);
        command::check_arguments(guest)?;
        files.check()?;
        if let Some(ProcessId { pid, .. }) = find(&files) {
            return Err(StartError::AlreadyRunning { pid });
        }
        let log = prepare(&files)?;
        let mut started = Started::new(self.spawn(guest, &files, start, log)?);
        match reach(&started.process, &files, self.start_limit).await {
            Ok((qmp, oob)) => Ok(QemuMachine::new(qmp, oob, started.keep())),
            Err(unreached) => Err(self.give_up(&started.process, unreached).await),
        }
    }

    /// As [`Hypervisor::find`].
    #[must_use]
    pub fn find(&self, directory: &Path) -> Option<ProcessId> {
        find(&Files::new(directory))
    }

    /// As [`Hypervisor::last_words`].
    #[must_use]
    pub fn last_words(&self, directory: &Path) -> Vec<String> {
        last_lines(&Files::new(directory).stderr)
    }

    /// As [`Hypervisor::adopt`], with the concrete type.
    ///
    /// # Errors
    /// The process has ended, or its monitors cannot be used.
    pub async fn adopt(
        &self,
        process: ProcessId,
        directory: &Path,
    ) -> Result<QemuMachine, AdoptError> {
        let files = Files::new(directory);
        let pid = process.pid;
        let watched = Watched::found(process, files.stderr.clone()).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                AdoptError::Gone {
                    pid,
                    stderr: last_lines(&files.stderr),
                }
            } else {
                AdoptError::Watch { pid, source }
            }
        })?;
        let deadline = Instant::now() + 2 * limits::CONNECT;
        let monitors = connect(&files, deadline).await;
        let (qmp, oob) = monitors.map_err(|source| AdoptError::Unreachable { pid, source })?;
        Ok(QemuMachine::new(qmp, oob, watched))
    }

    /// As [`Hypervisor::machine_types`].
    ///
    /// # Errors
    /// The binary cannot be executed, does not end, or is no QEMU.
    pub async fn machine_types(&self, binary: &Path) -> Result<Vec<MachineType>, InspectError> {
        machine_types::ask(self.question(binary), binary).await
    }

    /// As [`Hypervisor::processors`].
    ///
    /// # Errors
    /// The binary cannot be executed, does not end, or is no QEMU.
    pub async fn processors(&self, binary: &Path) -> Result<Processors, InspectError> {
        processors::ask(|| self.question(binary), binary).await
    }

    /// Ends a process that was not reached, and says why from what it left.
    async fn give_up(&self, process: &Watched, unreached: Unreached) -> StartError {
        process.kill();
        let ended = tokio::time::timeout(limits::EXIT, process.exited()).await;
        let stderr = ended.map(|exit| exit.stderr).unwrap_or_default();
        match unreached {
            Unreached::Ended(exit) => StartError::Ended { exit },
            Unreached::Late(source) => StartError::NoAnswer {
                within: self.start_limit,
                stderr,
                source,
            },
            Unreached::Unusable(source) => StartError::Unusable { stderr, source },
        }
    }

    fn command(&self, binary: &Path) -> Command {
        through(&self.wrapper, binary)
    }

    /// For a binary that is there; of another one its start tells most.
    fn question(&self, binary: &Path) -> Command {
        if !binary.is_file() {
            return self.command(binary);
        }
        let all: Vec<_> = self.keeper.iter().chain(&self.wrapper).cloned().collect();
        through(&all, binary)
    }

    fn spawn(
        &self,
        guest: &Guest,
        files: &Files,
        start: Start,
        log: File,
    ) -> Result<Watched, StartError> {
        let binary = &guest.binary;
        let unusable = |source| StartError::Binary {
            binary: binary.clone(),
            source,
        };
        // Behind what starts it this is where a missing binary is noticed at all. A directory can be entered, which is
        // the same right.
        rustix::fs::access(binary, rustix::fs::Access::EXEC_OK)
            .map_err(|error| unusable(error.into()))?;
        if binary.is_dir() {
            return Err(unusable(io::ErrorKind::IsADirectory.into()));
        }
        let child = apart(&self.wrapper, binary)
            .args(command::arguments(guest, files, start))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(unusable)?;
        Watched::child(child, files.stderr.clone()).map_err(|source| StartError::Watch { source })
    }
}

impl Hypervisor for QemuLauncher {
    fn start<'a>(
        &'a self,
        guest: &'a Guest,
        directory: &'a Path,
        start: Start,
    ) -> Boxed<'a, Result<Arc<dyn Machine>, StartError>> {
        Box::pin(async move {
            let machine = self.start(guest, directory, start).await?;
            Ok(Arc::new(machine) as Arc<dyn Machine>)
        })
    }

    fn find(&self, directory: &Path) -> Option<ProcessId> {
        self.find(directory)
    }

    fn last_words(&self, directory: &Path) -> Vec<String> {
        self.last_words(directory)
    }

    fn adopt<'a>(
        &'a self,
        process: ProcessId,
        directory: &'a Path,
    ) -> Boxed<'a, Result<Arc<dyn Machine>, AdoptError>> {
        Box::pin(async move {
            let machine = self.adopt(process, directory).await?;
            Ok(Arc::new(machine) as Arc<dyn Machine>)
        })
    }

    fn machine_types<'a>(
        &'a self,
        binary: &'a Path,
    ) -> Boxed<'a, Result<Vec<MachineType>, InspectError>> {
        Box::pin(self.machine_types(binary))
    }

    fn processors<'a>(&'a self, binary: &'a Path) -> Boxed<'a, Result<Processors, InspectError>> {
        Box::pin(self.processors(binary))
    }
}

/// A process that is killed when dropped, unless it was kept.
struct Started {
    process: Watched,
    kept: bool,
}

impl Started {
    fn new(process: Watched) -> Self {
        Self {
            process,
            kept: false,
        }
    }

    fn keep(&mut self) -> Watched {
        self.kept = true;
        self.process.clone()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.kept {
            self.process.kill();
        }
    }
}

/// Why a started process was not reached.
enum Unreached {
    Ended(Exit),
    Late(ConnectError),
    Unusable(ConnectError),
}

/// Connects to a process that has just been started.
async fn reach(
    process: &Watched,
    files: &Files,
    within: Duration,
) -> Result<(Qmp, Qmp), Unreached> {
    let deadline = Instant::now() + within;
    let connecting = async {
        loop {
            match connect(files, deadline).await {
                Ok(monitors) => return Ok(monitors),
                Err(error) if !may_come(&error) => return Err(Unreached::Unusable(error)),
                Err(error) if Instant::now() >= deadline => return Err(Unreached::Late(error)),
                Err(_) => sleep(limits::START_POLL).await,
            }
        }
    };
    tokio::select! {
        // The end first: it tells more than the connection that it broke.
        biased;
        exit = process.exited() => Err(Unreached::Ended(exit)),
        reached = connecting => match reached {
            Err(unreached) => Err(process.exit().map_or(unreached, Unreached::Ended)),
            monitors => monitors,
        },
    }
}

/// Whether a monitor that is not there may yet come. A lost one is QEMU ending: its exit follows.
fn may_come(error: &ConnectError) -> bool {
    match error {
        ConnectError::NotThere { .. }
        | ConnectError::NoGreeting { .. }
        | ConnectError::Lost { .. } => true,
        ConnectError::Negotiation { source, .. } => {
            matches!(**source, QmpError::Lost { .. } | QmpError::TimedOut { .. })
        }
        ConnectError::NotQmp { .. } | ConnectError::NoOob { .. } => false,
    }
}

/// In a session of its own: neither Ctrl-C nor a hang-up of the agent's terminal reaches it. Nor the hang-up that Linux
/// sends to a group in which a process stands still when its last parent in the session ends, as an agent does (setpgid(2)):
/// a group alone would have a guest that somebody had stopped (`SIGSTOP`) killed with its agent.
fn apart(wrapper: &[OsString], binary: &Path) -> Command {
    let all: Vec<_> = std::iter::once("setsid".into())
        .chain(wrapper.iter().cloned())
        .collect();
    through(&all, binary)
}

fn through(wrapper: &[OsString], binary: &Path) -> Command {
    match wrapper.split_first() {
        None => Command::new(binary),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(binary);
            command
        }
    }
}

fn find(files: &Files) -> Option<ProcessId> {
    let told = read_start(&files.pid).and_then(|pid| pid.trim().parse().ok());
    // Between its start and writing that file, only a process's command line tells.
    told.into_iter()
        .chain(process::pids())
        .find_map(|pid| on_directory(pid, files))
}

fn on_directory(pid: u32, files: &Files) -> Option<ProcessId> {
    let process = ProcessId::of(pid)?;
    let command_line = read_start(Path::new(&format!("/proc/{pid}/cmdline")))?;
    (command::is_ours(&command_line, files) && process.is_running()).then_some(process)
}

/// Makes the directory and opens the log. QEMU itself replaces the sockets and the pid file that an
/// earlier one left.
fn prepare(files: &Files) -> Result<File, StartError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Directory { path, source }
    };
    let directory = &files.directory;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed(directory))?;
    let mut options = OpenOptions::new();
    // Appending, so that the log can be cut while QEMU runs.
    let log = options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&files.stderr);
    let empty = |log: File| log.set_len(0).map(|()| log);
    log.and_then(empty).map_err(failed(&files.stderr))
}

/// Connects to both monitors before the deadline, and in no more than [`limits::CONNECT`] each.
async fn connect(files: &Files, deadline: Instant) -> Result<(Qmp, Qmp), ConnectError> {
    let within = || {
        deadline
            .saturating_duration_since(Instant::now())
            .min(limits::CONNECT)
    };
    let qmp = Qmp::connect(&files.qmp, false, within()).await?;
    let oob = Qmp::connect(&files.oob, true, within()).await?;
    Ok((qmp, oob))
}
