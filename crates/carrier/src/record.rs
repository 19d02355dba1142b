//! The files of a relay's process, by which an agent finds it again.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::limits::{KILLED, RECORD_BYTES};
use crate::protocol::Usage;

// Short, since the path of a socket is (unix(7)).
const SOCKET: &str = "control";
const QEMU_SOCKET: &str = "qemu";
const CONTROL_SOCKET: &str = "driver";
const RECORD: &str = "process.json";
const RECORD_ASIDE: &str = "process.new";
const LOG: &str = "log";

impl Record {
    /// Whether this very process still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| {
            let parsed = parse(&stat);
            parsed.is_some_and(|parsed| parsed.start_time == self.start_time && !parsed.is_zombie)
        })
    }

    /// Waits for its end for `patience`, then ends it. When this returns without an error it has
    /// ended, and its sockets are closed.
    ///
    /// # Errors
    /// It cannot be watched, or does not even end by `SIGKILL`.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(()); // no process has such a pid
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(()),
            other => other?,
        };
        // The descriptor holds whatever process has the pid now; only then its start time counts.
        if !self.is_running() || ends_within(&pidfd, patience)? {
            return Ok(());
        }
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Err(Errno::SRCH) => return Ok(()),
            other => other?,
        }
        if ends_within(&pidfd, KILLED)? {
            Ok(())
        } else {
            Err(ErrorKind::TimedOut.into())
        }
    }
}

fn ends_within(pidfd: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

/// Which process it is, told apart from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since the machine's boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
}

/// The directory of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// This directory, which need not be there.
    #[must_use]
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Where the process listens for its agent.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join(SOCKET)
    }

    /// Where a source's process listens for QEMU. It is in the process's own directory, so that one
    /// that ends late takes no other's away.
    #[must_use]
    pub fn qemu_socket(&self) -> PathBuf {
        self.0.join(QEMU_SOCKET)
    }

    /// Where a source's process listens for whoever drives QEMU.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.0.join(CONTROL_SOCKET)
    }

    /// What the process writes about itself.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join(LOG)
    }

    /// Makes the directory, for its owner alone, and listens in it.
    ///
    /// # Errors
    /// The directory is there already, or cannot be made, or its path is too long for a socket.
    pub fn make(&self) -> io::Result<UnixListener> {
        DirBuilder::new().mode(0o700).create(&self.0)?;
        let listener = UnixListener::bind(self.socket())?;
        fs::set_permissions(self.socket(), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Opens the log to be appended to.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open_log(&self) -> io::Result<fs::File> {
        let mut options = fs::File::options();
        options.create(true).append(true).mode(0o600);
        options.open(self.log())
    }

    /// The process that was here last; `None` when it has not said so.
    ///
    /// # Errors
    /// The record is there and cannot be read, or is none.
    pub fn record(&self) -> io::Result<Option<Record>> {
        let path = self.0.join(RECORD);
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(RECORD_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > RECORD_BYTES {
            return Err(io::Error::other(format!(
                "{} has more than {RECORD_BYTES} bytes: it is no record of a relay's process",
                path.display()
            )));
        }
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        // Written aside, so that it is never found half.
        let beside = self.0.join(RECORD_ASIDE);
        fs::write(&beside, serde_json::to_vec(record)?)?;
        fs::rename(beside, self.0.join(RECORD))
    }

    /// Removes the directory and what a process puts into it; it is no error that it is gone.
    ///
    /// # Errors
    /// Something else is in it.
    pub fn remove(&self) -> io::Result<()> {
        let tolerant = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        };
        for name in [
            SOCKET,
            QEMU_SOCKET,
            CONTROL_SOCKET,
            RECORD,
            RECORD_ASIDE,
            LOG,
        ] {
            tolerant(fs::remove_file(self.0.join(name)))?;
        }
        tolerant(fs::remove_dir(&self.0))
    }
}

/// This process, and what it uses.
pub(crate) fn own() -> io::Result<(Record, Usage)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let parsed = parse(&stat).ok_or_else(|| io::Error::other("/proc/self/stat is unreadable"))?;
    let record = Record {
        pid: std::process::id(),
        start_time: parsed.start_time,
    };
    Ok((record, parsed.usage))
}

/// What is of use in proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_zombie: bool,
    start_time: u64,
    usage: Usage,
}

fn parse(stat: &str) -> Option<Stat> {
    // Counted from field 3, after the name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)?.checked_add(field(15)?)?;
    let second = rustix::param::clock_ticks_per_second().max(1);
    Some(Stat {
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        start_time: field(22)?,
        usage: Usage {
            resident_bytes: field(24)?.saturating_mul(rustix::param::page_size() as u64),
            cpu: Duration::from_millis(ticks.saturating_mul(1000) / second),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_has_a_beginning() {
        let (record, usage) = own().unwrap();
        assert_eq!(record.pid, std::process::id());
        assert!(record.start_time > 0 && usage.resident_bytes > 0);
        assert!(record.is_running());
        let other = Record {
            start_time: record.start_time + 1,
            ..record
        };
        assert!(!other.is_running(), "a later process with the same pid");
        other.end(Duration::ZERO).unwrap();
        for pid in [0, u32::MAX] {
            let nobody = Record { pid, ..record };
            nobody.end(Duration::ZERO).unwrap();
        }
        assert_eq!(parse("1 (a) S"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_is_waited_for_and_then_ended() {
        let start = |seconds| {
            let mut sleep = std::process::Command::new("sleep");
            let child = sleep.arg(seconds).spawn().unwrap();
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let start_time = parse(&stat).unwrap().start_time;
            let pid = child.id();
            (child, Record { pid, start_time })
        };
        let (mut short, record) = start("0.05");
        record.end(Duration::from_secs(60)).unwrap();
        assert!(short.wait().unwrap().success(), "it ended by itself");
        let (mut long, record) = start("1000");
        record.end(Duration::from_millis(10)).unwrap();
        assert!(!record.is_running(), "a zombie has ended");
        assert!(!long.wait().unwrap().success());
        record.end(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_place_is_its_owners_alone_and_is_removed_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("one"));
        let _listener = place.make().unwrap();
        assert!(place.make().is_err(), "a second process has no place here");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(place.directory()), 0o700);
        assert_eq!(mode(&place.socket()), 0o600);
        assert_eq!(place.record().unwrap(), None);
        let (record, _) = own().unwrap();
        place.write(&record).unwrap();
        place.open_log().unwrap();
        let _relay = UnixListener::bind(place.qemu_socket()).unwrap();
        assert_eq!(place.record().unwrap(), Some(record));
        place.remove().unwrap();
        assert!(!place.directory().exists());
        place.remove().unwrap();
    }

    #[test]
    fn a_record_is_read_whole_or_refused_and_never_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("one"));
        let _listener = place.make().unwrap();
        let path = place.directory().join(RECORD);
        let (record, _) = own().unwrap();
        let mut text = serde_json::to_string(&record).unwrap();
        text += &" ".repeat(usize::try_from(RECORD_BYTES).unwrap() - text.len());
        fs::write(&path, &text).unwrap();
        assert_eq!(place.record().unwrap(), Some(record));
        fs::write(&path, text + " ").unwrap();
        let refused = place.record().unwrap_err().to_string();
        let most = RECORD_BYTES.to_string();
        assert!(
            refused.contains(&most) && refused.contains(RECORD),
            "{refused}"
        );
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(place.record().unwrap_err().to_string().contains(&most));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "{}").unwrap();
        assert!(place.record().is_err());
    }

    #[test]
    fn what_is_not_ours_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("one"));
        let _listener = place.make().unwrap();
        fs::write(place.directory().join("precious"), "x").unwrap();
        assert!(place.remove().is_err());
        assert!(place.directory().join("precious").exists());
    }
}
