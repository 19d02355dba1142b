//! Running other programs: bounded in time, with their own words when they fail.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::limits;

/// Runs `program` and gives its output.
///
/// # Errors
/// It cannot be started, fails, or takes longer than [`limits::COMMAND`].
pub async fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_within(program, arguments, limits::COMMAND).await
}

/// As [`run`], with a time of its own.
///
/// # Errors
/// The same.
pub async fn run_within(program: &str, arguments: &[&str], within: Duration) -> Result<String> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command
        .args(arguments)
        .stdin(Stdio::null())
        // An interrupt at the terminal is for us: what cleans up after it must not die of it.
        .process_group(0)
        .kill_on_drop(true);
    let output = tokio::time::timeout(within, command.output())
        .await
        .with_context(|| format!("`{}` did not end within {} s", shown(), within.as_secs()))?
        .with_context(|| format!("cannot run `{}`", shown()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words
            .trim()
            .lines()
            .take(limits::LOG_LINES)
            .collect::<Vec<_>>()
            .join("; ");
        bail!("`{}` failed ({}): {words}", shown(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where `program` is: in `PATH`, or where only root's has it.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places
        .map(|place| place.join(program))
        .find(|file| file.is_file())
}

/// One word of a shell, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The last lines of a log, for an error.
#[must_use]
pub fn log_end(path: &std::path::Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.trim().lines().rev().take(limits::LOG_LINES).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failing_program_is_quoted() {
        let failed = run("sh", &["-c", "echo broken >&2; exit 3"])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failed.contains("broken") && failed.contains('3'),
            "{failed}"
        );
        let missing = run("no-such-program", &[]).await.unwrap_err().to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_ended() {
        let late = run_within("sleep", &["60"], Duration::from_millis(20))
            .await
            .unwrap_err();
        assert!(late.to_string().contains("did not end"), "{late}");
    }
}
