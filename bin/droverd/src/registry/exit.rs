//! How processes of guests ended, for those who ask later.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use drover_api::{ExitKind, ExitView};
use drover_hypervisor::{Exit, ExitStatus};
use jiff::Timestamp;

/// How a process ended, as it is shown.
pub fn exit_view(exit: &Exit, expected: bool) -> ExitView {
    let kind = match exit.status {
        ExitStatus::Code(code) => ExitKind::Status(code),
        ExitStatus::Signal(signal) => ExitKind::Signal(signal),
        ExitStatus::Unknown => ExitKind::Unknown,
    };
    let at = Timestamp::try_from(exit.at).unwrap_or_else(|_| Timestamp::now());
    ExitView {
        exit: kind,
        stderr: exit.stderr.clone(),
        at,
        expected,
    }
}

/// How a process ended that nobody watched.
pub fn unwatched_exit(directory: &Path) -> Exit {
    let stderr = last_lines(&directory.join("stderr.log"));
    Exit {
        status: ExitStatus::Unknown,
        stderr,
        at: SystemTime::now(),
    }
}

fn last_lines(path: &Path) -> Vec<String> {
    let mut end = Vec::new();
    let read = std::fs::File::open(path).and_then(|mut file| {
        let most = drover_hypervisor::limits::STDERR_BYTES;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        file.take(most).read_to_end(&mut end)
    });
    if let Err(error) = read {
        tracing::debug!(path = %path.display(), %error, "no log");
    }
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines
        .len()
        .saturating_sub(drover_hypervisor::limits::STDERR_LINES);
    lines[from..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_long_log_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stderr.log");
        let lines: Vec<_> = (0..5000).map(|i| format!("line {i}")).collect();
        std::fs::write(&path, lines.join("\n\n")).unwrap();
        let last = last_lines(&path);
        assert_eq!(last.len(), drover_hypervisor::limits::STDERR_LINES);
        assert_eq!(last.last().map(String::as_str), Some("line 4999"));
        assert!(last_lines(&dir.path().join("none")).is_empty());
    }
}
