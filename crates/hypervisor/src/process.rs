//! Processes by pid and start time, and how they end.
//!
//! Owns the pidfd of each process that is watched, and the child where it is ours to reap. A pid
//! alone is never acted on: it may be somebody else's by now.

use std::fmt;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::limits;

/// A process, told apart from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since the machine's boot (`/proc/PID/stat`, field 22,
    /// proc_pid_stat(5)).
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this pid now; `None` if none runs with it (a zombie does not).
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = read_start(Path::new(&format!("/proc/{pid}/stat")))?;
        let start_time = start_time_of_running(&stat)?;
        Some(Self { pid, start_time })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Ends it with `SIGKILL`, for a process that no [`Machine`](crate::Machine) could be had of,
    /// and waits for its end.
    ///
    /// # Errors
    /// It still runs after [`limits::EXIT`], or cannot be watched. That it has ended is no error.
    pub async fn kill(self) -> io::Result<()> {
        let watched = match Watched::found(self, PathBuf::new()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            watched => watched?,
        };
        watched.kill();
        let ended = tokio::time::timeout(limits::EXIT, watched.exited()).await;
        ended.map(drop).map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// With what status.
    pub status: ExitStatus,
    /// Its last lines of stderr, at most [`limits::STDERR_LINES`], oldest first.
    pub stderr: Vec<String>,
    /// When that was noticed.
    pub at: SystemTime,
}

/// With what status a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It ended by itself with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Not known: it was not started by this process, so its status went to another.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("an unknown exit status"),
        }
    }
}

/// A process whose end is watched. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    id: ProcessId,
    pidfd: Arc<OwnedFd>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Watched {
    /// Watches a child of ours, and reaps it.
    pub(crate) fn child(child: Child, stderr: PathBuf) -> io::Result<Self> {
        let pid = child.id();
        Self::watch(pid, Some(child), stderr).inspect_err(|_| kill_child(pid))
    }

    /// Watches a process that was found; an error of kind `NotFound` when it is gone.
    pub(crate) fn found(id: ProcessId, stderr: PathBuf) -> io::Result<Self> {
        let watched = Self::watch(id.pid, None, stderr)?;
        if watched.id == id {
            Ok(watched)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn watch(pid: u32, child: Option<Child>, stderr: PathBuf) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => io::ErrorKind::NotFound.into(),
            other => io::Error::from(other),
        })?;
        let pidfd = Arc::new(pidfd);
        // The pidfd holds whatever process has the pid now; only then its start time counts. A
        // child that has ended already is a zombie, and ours: its pid is not given away.
        let id = match ProcessId::of(pid) {
            Some(id) => id,
            None if child.is_some() => ProcessId { pid, start_time: 0 },
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let (sender, exit) = watch::channel(None);
        let ended = Arc::clone(&pidfd);
        // A thread, and no task: it also reaps when no runtime is left that would poll it.
        let watching = move || {
            wait_for_end(&ended);
            let status = child.map_or(ExitStatus::Unknown, reap);
            let exit = Exit {
                status,
                stderr: last_lines(&stderr),
                at: SystemTime::now(),
            };
            sender.send_replace(Some(exit));
        };
        let thread = thread::Builder::new()
            .name(format!("exit-{pid}"))
            .stack_size(limits::WATCH_STACK_BYTES);
        thread.spawn(watching)?;
        Ok(Self { id, pidfd, exit })
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// How it ended, once it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Waits for its end.
    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        loop {
            if let Some(exit) = exit.borrow_and_update().clone() {
                return exit;
            }
            if exit.changed().await.is_err() {
                // The watching thread never ends without a word.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends `SIGKILL`; a process that has ended already is no error.
    pub(crate) fn kill(&self) {
        if let Err(error) = pidfd_send_signal(&self.pidfd, Signal::KILL) {
            tracing::debug!(pid = self.id.pid, %error, "not killed");
        }
    }
}

/// Blocks until a process has ended.
fn wait_for_end(pidfd: &OwnedFd) {
    // Whatever poll(2) cannot do for the moment (a signal, no memory), it does not mean an end.
    while let Err(error) = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None) {
        tracing::debug!(%error, "watching a process, once more");
        thread::sleep(limits::WATCH_AGAIN);
    }
}

/// Kills a child that cannot be watched. It is not reaped, so its pid is still its own.
fn kill_child(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn reap(mut child: Child) -> ExitStatus {
    // It has ended: this does not wait.
    match child.wait() {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::Unknown,
        },
        Err(error) => {
            tracing::warn!(pid = child.id(), %error, "exit status lost");
            ExitStatus::Unknown
        }
    }
}

/// Field 22 of a `stat` file, `None` for a process that has ended.
fn start_time_of_running(stat: &str) -> Option<u64> {
    // Field 2 is the program's name in parentheses; it may hold parentheses and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start_time)
}

/// The pids of all processes.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The last lines of a log; none when it cannot be read.
pub(crate) fn last_lines(path: &Path) -> Vec<String> {
    let mut end = Vec::new();
    let read = fs::File::open(path).and_then(|mut file| {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(limits::STDERR_BYTES)))?;
        file.take(limits::STDERR_BYTES).read_to_end(&mut end)
    });
    if let Err(error) = read {
        tracing::debug!(path = %path.display(), %error, "no log");
    }
    let text = String::from_utf8_lossy(&end);
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(limits::STDERR_LINES)
        .map(|line| line.chars().take(limits::STDERR_LINE_CHARS).collect())
        .collect();
    lines.reverse();
    lines
}

/// A small file as text, `None` when there is none.
pub(crate) fn read_start(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(limits::SMALL_FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_running_process_is_told_by_its_start_and_an_ended_one_is_none() {
        let own = ProcessId::of(std::process::id()).unwrap();
        assert!(own.is_running() && own.start_time > 0);
        assert!(
            !ProcessId {
                start_time: own.start_time + 1,
                ..own
            }
            .is_running()
        );
        assert_eq!(ProcessId::of(u32::MAX), None);
        assert!(pids().any(|pid| pid == own.pid));
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(
            start_time_of_running(&format!("7 (a) S) (b) {rest}")),
            Some(4711)
        );
        assert_eq!(
            start_time_of_running(&format!("7 (a) {}", rest.replace('S', "Z"))),
            None
        );
        for bad in ["", "7 (a", "7 (a) S", "7 (a) S 1 2 x", ")"] {
            assert_eq!(start_time_of_running(bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn an_unreaped_child_is_reaped_with_its_status() {
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let watched = Watched::child(child, "/no/such/log".into()).unwrap();
        let exit = tokio::time::timeout(PATIENCE, watched.exited())
            .await
            .unwrap();
        assert_eq!((exit.status, exit.stderr.len()), (ExitStatus::Code(3), 0));
        assert!(!watched.id().is_running(), "no zombie is left");
        watched.kill();
    }

    #[tokio::test]
    async fn the_end_of_somebody_elses_process_is_seen_without_its_status() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let watched = Watched::found(id, "/no/such/log".into()).unwrap();
        assert_eq!(watched.exit(), None);
        id.kill().await.unwrap();
        let exit = tokio::time::timeout(PATIENCE, watched.exited())
            .await
            .unwrap();
        assert_eq!(exit.status, ExitStatus::Unknown);
        let gone = Watched::found(id, "/no/such/log".into()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound, "a zombie is gone");
        id.kill().await.unwrap();
        child.wait().unwrap();
        let gone = Watched::found(id, "/no/such/log".into()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn of_a_long_log_the_last_lines_are_kept_each_of_bounded_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "y".repeat(limits::STDERR_LINE_CHARS + 1);
        let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}\n\n")).collect();
        fs::write(file.path(), format!("{}{long}\n", lines.concat())).unwrap();
        let kept = last_lines(file.path());
        assert_eq!(kept.len(), limits::STDERR_LINES);
        assert_eq!(kept[limits::STDERR_LINES - 2], "line 9999");
        assert_eq!(
            kept[limits::STDERR_LINES - 1].len(),
            limits::STDERR_LINE_CHARS
        );
        fs::write(file.path(), [0xff; 100_000]).unwrap();
        assert_eq!(
            last_lines(file.path()).len(),
            1,
            "bytes that are no text do no harm"
        );
        assert!(last_lines(Path::new("/no/such/log")).is_empty());
    }
}
