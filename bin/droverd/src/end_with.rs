//! A command that ends with its agent, however that ends: a QEMU that is only asked something, which would
//! otherwise be left over by an agent that is killed meanwhile.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// What comes before such a command: this process' own program, also after its file was replaced.
pub fn words() -> [String; 3] {
    let agent = std::process::id().to_string();
    ["/proc/self/exe".to_owned(), "end-with".to_owned(), agent]
}

/// Becomes the command. Source: `PR_SET_PDEATHSIG` in prctl(2), which outlives an exec.
///
/// # Errors
/// The agent has ended already, or the command cannot be executed.
pub fn run(agent: u32, command: &[OsString]) -> anyhow::Result<()> {
    let ended = become_it(agent, command);
    ended.map(|never| match never {})
}

fn become_it(agent: u32, command: &[OsString]) -> anyhow::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the agent")?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(agent) {
        bail!("the agent, process {agent}, has ended");
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).exec();
    Err(anyhow!(error).context(program.display().to_string()))
}
