//! Does to hosts of a lab what is wrong with them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_api::DEFAULT_QEMU;

use super::captured::{Captured, capture};
use super::catalogue::{Break, PATHS, check_together};
use super::machine::obstacle;
use crate::command::run;
use crate::fault::harm;
use crate::host::Host;
use crate::lab::host_of;
use crate::settings::{Addressing, LabSettings};
use crate::{network, require};

/// NICs that commands of the catalogue name.
const NICS: usize = 2;

/// The host that guests are defined on.
const OF_GUESTS: usize = 1;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Something was done to hosts themselves.
    pub done: bool,
    /// With what the doctor is asked beside `--all`, so that all of it is told.
    pub asks: &'static [&'static str],
    /// The hosts with all that is wrong written of them, where a break is written.
    pub captured: Option<Captured>,
}

/// Whether these can be wrong with hosts of such a lab, all at once.
///
/// # Errors
/// They name NICs or addresses that it does not have, take more hosts or another machine, or one of them is not as it says beside another one.
pub fn check(lab: &LabSettings, breaks: &[&Break]) -> Result<()> {
    check_together(breaks)?;
    for broken in breaks {
        if let Some(obstacle) = obstacle(broken) {
            bail!("{} cannot be found here: {obstacle}", broken.name);
        }
    }
    if let Some(broken) = breaks.iter().find(|broken| broken.hosts > lab.hosts) {
        let (name, hosts) = (broken.name, broken.hosts);
        bail!(
            "{name} takes {hosts} hosts, and the lab has {}: give --hosts {hosts}",
            lab.hosts
        );
    }
    let is_named = |nic: usize| lab.addressing_of(nic) == Addressing::V4;
    if lab.nics.len() >= NICS && (0..NICS).all(is_named) {
        return Ok(());
    }
    bail!(
        "what can be wrong is about hosts of {NICS} NICs with IPv4: leave --nics, --rate and --addressing as they are, or give more NICs"
    )
}

/// Checks that the caller may make hosts, and that this machine has what these are made with.
///
/// # Errors
/// What is missing, with what to install.
pub fn require(breaks: &[&Break]) -> Result<()> {
    require::check_hosts()?;
    require::check_faults()?;
    if breaks.iter().any(|broken| broken.starts_guest()) {
        require::check(DEFAULT_QEMU.as_ref())?;
        require::check_taps()?;
    }
    Ok(())
}

/// Has all of it be wrong with the hosts of a lab that is up, until it is removed. `drover` is the program that captures hosts.
///
/// # Errors
/// As [`check`], or what commands on hosts say.
pub async fn break_hosts(lab: &LabSettings, breaks: &[&Break], drover: &Path) -> Result<Broken> {
    check(lab, breaks)?;
    for broken in breaks {
        let failed = || format!("{} did not come about", broken.name);
        do_one(lab, broken).await.with_context(failed)?;
    }
    let written = breaks.iter().any(|broken| broken.is_written());
    let captured = match written {
        true => Some(capture(&lab.name, breaks, drover).await?),
        false => None,
    };
    let asks = breaks.iter().map(|broken| broken.asks());
    let asks = asks.chain([PATHS]).max_by_key(|asks| asks.len());
    Ok(Broken {
        done: breaks.iter().any(|broken| !broken.is_written()),
        // The longest has all that others have.
        asks: asks.unwrap_or(PATHS),
        captured,
    })
}

async fn do_one(lab: &LabSettings, broken: &Break) -> Result<()> {
    if let Some(fault) = broken.harm {
        harm(lab, 0, &fault.parse()?).await?;
    }
    for command in broken.commands {
        let (host, command) = command.split_once(": ").context("no host is named")?;
        let space = network::namespace(&lab.name, host);
        run("ip", &["netns", "exec", &space, "sh", "-c", command]).await?;
    }
    if let Some(guest) = &broken.guest {
        guest.define(&of_guests(lab), broken.name).await?;
    }
    Ok(())
}

/// Takes back what leaves hosts as they were before. What was written of them is replaced by what is captured next.
///
/// # Errors
/// What an agent says, or a file that cannot be removed.
pub(super) async fn undo(lab: &LabSettings, broken: &Break) -> Result<()> {
    match &broken.guest {
        Some(guest) => guest.forget(&of_guests(lab), broken.name).await,
        None => Ok(()),
    }
}

pub(super) fn of_guests(lab: &LabSettings) -> Host {
    host_of(&lab.name, OF_GUESTS)
}
