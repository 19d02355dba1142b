//! A test that ends with all that it started: agents and QEMUs live in sessions of their own, and would go on where their test is killed
//! for being too slow, and make every later one slow.
//!
//! ```text
//!   nextest ─▶ xtask contain ─▶ test ─▶ agent ─▶ QEMU
//!               └── who loses its parent becomes a child of this process, and is told to end after the test, and killed if it does not
//! ```

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};
use tokio::signal::unix::{SignalKind, signal};

/// How cargo is told to run every test through it.
pub fn through() -> Result<(&'static str, String)> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let own = own.to_str().context("its path is no text")?;
    ensure!(!own.contains(' '), "cargo takes no path with spaces: {own}");
    Ok((
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
        format!("{own} contain"),
    ))
}

/// Runs the test, and ends what it leaves: its exit code.
pub fn run(test: &[&str]) -> Result<i32> {
    let (program, arguments) = test.split_first().context("no test to run")?;
    set_child_subreaper(Some(getpid())).context("cannot adopt what a test leaves")?;
    // What is sent to the test's process group ends the test; this process stays, to end the rest. Handlers are not inherited.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _context = runtime.enter();
    let _heard = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let child = Command::new(program).args(arguments).spawn();
    let child = child.with_context(|| (*program).to_owned())?;
    let code = loop {
        let (pid, status) = any_child()?;
        if pid.as_raw_nonzero().get().unsigned_abs() == child.id() {
            break code(status);
        }
    };
    let left = end_all()?;
    if !left.is_empty() {
        eprintln!(
            "the test left these running, which were ended: {}",
            left.join(", ")
        );
    }
    Ok(code)
}

/// The next one that has ended.
fn any_child() -> Result<(Pid, WaitStatus), Errno> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// As a shell has it.
fn code(status: WaitStatus) -> i32 {
    let by_signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(by_signal).unwrap_or(1)
}

/// Between two looks whether one has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Looks before what a test left is killed, 3 s of them: a command that removes its lab when it is told to end takes one. All has to be over
/// before nextest kills this process (`grace-period` in `.config/nextest.toml`). Counted, so that what stands still together loses no time.
const LOOKS: u32 = 150;

/// Tells children to end, and kills them if they do not, until there are none: those of one that ended are children of this process by then.
/// Who it was, by name, in no order.
fn end_all() -> Result<Vec<String>> {
    let mut ended = HashMap::new();
    for _ in 0..LOOKS {
        for (pid, name) in children()? {
            // One that was told already would take it for a second wish.
            if !ended.contains_key(&pid) && kill_process(pid, Signal::TERM).is_ok() {
                ended.insert(pid, name);
            }
        }
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return Ok(ended.into_values().collect()),
            Ok(None) => thread::sleep(LOOK),
            waited => waited.map(drop)?,
        }
    }
    loop {
        for (pid, name) in children()? {
            if kill_process(pid, Signal::KILL).is_ok() {
                ended.insert(pid, format!("{name} (killed)"));
            }
        }
        match any_child() {
            Err(Errno::CHILD) => return Ok(ended.into_values().collect()),
            waited => waited.map(drop)?,
        }
    }
}

fn children() -> Result<Vec<(Pid, String)>> {
    let own = getpid();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Others come and go.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        children.extend(child_of(own, &stat));
    }
    Ok(children)
}

/// Who it is, if it is a child of that one and lives. Source: proc_pid_stat(5).
fn child_of(parent: Pid, stat: &str) -> Option<(Pid, String)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (pid, name) = before.split_once(" (")?;
    let mut fields = after.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let is_its = fields.next()?.parse() == Ok(parent.as_raw_nonzero().get());
    let pid = Pid::from_raw(pid.parse().ok()?)?;
    (is_alive && is_its).then(|| (pid, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_told_from_others_whatever_their_name_is() {
        let parent = Pid::from_raw(7).unwrap();
        let told =
            |stat| child_of(parent, stat).map(|(pid, name)| (pid.as_raw_nonzero().get(), name));
        let odd = "12 (a) (b) S 7 12 12 0 -1";
        assert_eq!(told(odd), Some((12, "a) (b".to_owned())));
        for other in ["12 (a) S 8 12", "12 (a) Z 7 12", "12 (a)", "", "x (a) S 7"] {
            assert_eq!(told(other), None, "{other}");
        }
    }
}
