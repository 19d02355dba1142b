//! The guests of a comparison: booted when needed, held while another is measured, moved and
//! verified, with or without faults.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_api::{Encryption, MigrationView};
use drover_types::VmName;

use super::disks::{DiskFacts, Files};
use super::foretold::Looks;
use super::method::{Method, Variant};
use super::ordeal::{Clean, Faulted, Ordeal, Outcome};
use super::summary::{DroverFacts, Run};
use super::{Patience, by_drover, by_qemu, by_virsh};
use crate::agent::Agent;
use crate::fault::{Driver, Fault, Stage as Moves};
use crate::guest::Image;
use crate::guest::heartbeats::Heartbeats;
use crate::lab::Lab;
use crate::libvirt::Libvirt;
use crate::limits;
use crate::meter::Measured;
use crate::resident::{Boot, Resident};
use crate::settings::GuestSettings;
use crate::unite::unite;

/// Heartbeats between a guest's resume and its move: half a second, in which it has rewritten its
/// working set twice and is what it is in everyday work.
const SETTLE: u64 = 50;

/// The same of a guest with a disk of its own: while it read that whole it fell behind with its memory, by 65,536 pages at most, and
/// catches up with these at some 30,000 a second.
const SETTLE_DISK: u64 = 500;

/// One move that is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    /// How.
    pub(crate) method: Method,
    /// With which settings.
    pub(crate) variant: Variant,
    /// The number of the repeat, from 0.
    pub(crate) repeat: usize,
    /// What goes wrong.
    pub(crate) faults: &'a [Fault],
    /// What it takes when nothing does.
    pub(crate) clean: Option<Clean>,
}

/// Guests and agents.
pub(crate) struct Stage<'a> {
    lab: &'a Lab,
    settings: &'a GuestSettings,
    image: &'a Image,
    agents: Vec<Agent>,
    encryption: Encryption,
    /// Of QEMU alone, and of an agent.
    guests: [Option<Resident>; 2],
    longest: Duration,
    /// Whose domain the guest is; then there is one, of QEMU and agents alike.
    libvirt: Option<&'a Libvirt>,
}

type Moved = (Measured, Option<DroverFacts>);

impl<'a> Stage<'a> {
    pub(crate) fn new(lab: &'a Lab, settings: &'a GuestSettings, image: &'a Image) -> Self {
        Self {
            lab,
            settings,
            image,
            agents: Vec::new(),
            encryption: Encryption::On,
            guests: [None, None],
            longest: limits::MOVE,
            libvirt: None,
        }
    }

    /// Has the guest be a domain of this libvirt, which the lab's hosts have.
    pub(crate) fn with_libvirt(self, libvirt: Option<&'a Libvirt>) -> Self {
        Self { libvirt, ..self }
    }

    /// Gives a move up that has not ended after so long; [`limits::MOVE`] at most.
    pub(crate) fn with_longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Starts the agents, in one cluster.
    pub(crate) async fn start_agents(&mut self) -> Result<()> {
        for number in 0..self.lab.settings().hosts {
            let agent = Agent::start_with(self.lab, number, self.encryption).await?;
            self.agents.push(agent);
        }
        unite(&self.agents.iter().collect::<Vec<_>>()).await?;
        Ok(())
    }

    /// The agents.
    pub(crate) fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// One move by one method, measured and verified. What goes wrong is part of the result; the
    /// next run then has new guests, and new agents if there were any.
    pub(crate) async fn run(&mut self, task: Task<'_>) -> Result<Run> {
        let slot = self.slot(task.method);
        let begun = match task.method.encryption() {
            Some(encryption) => self.set_encryption(encryption).await,
            None => Ok(()),
        };
        let begun = match begun {
            Ok(()) => self.guest(slot).await,
            error => error,
        };
        let from = self.guests[slot].as_ref().map_or(0, |guest| guest.host);
        let mut run = Run::new(task.method, task.variant, task.repeat, [from, 1 - from]);
        let done = match begun {
            Ok(()) => self.move_and_verify(slot, task, &mut run).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            run.error = Some(format!("{error:#}"));
            self.reset().await?;
        }
        Ok(run)
    }

    fn slot(&self, method: Method) -> usize {
        usize::from(method.encryption().is_some() && self.libvirt.is_none())
    }

    /// Starts the agents anew with another configuration, if theirs is another; the guest goes on.
    async fn set_encryption(&mut self, encryption: Encryption) -> Result<()> {
        if self.encryption == encryption {
            return Ok(());
        }
        self.encryption = encryption;
        for agent in self.agents.drain(..) {
            agent.kill().await?;
        }
        self.start_agents().await
    }

    /// Has the guest there, running and settled, with the other one held.
    async fn guest(&mut self, slot: usize) -> Result<()> {
        if self.guests[slot].is_none() {
            let guest = self.boot(slot).await?;
            self.guests[slot] = Some(guest);
        } else if let Some(guest) = self.guests[slot]
            .as_ref()
            .filter(|_| self.libvirt.is_none())
        {
            guest.resume().await?;
        }
        let Some(guest) = &self.guests[slot] else {
            return Ok(());
        };
        let settle = match self.settings.disk {
            Some(_) => SETTLE_DISK,
            None => SETTLE,
        };
        let settled = guest.console.wait_sequence(settle, limits::FIRST_HEARTBEAT);
        settled.await?;
        match self.libvirt {
            Some(_) => known(&self.agents, guest).await,
            None => Ok(()),
        }
    }

    async fn boot(&self, slot: usize) -> Result<Resident> {
        let name = if slot == 0 { "peer" } else { "guest" }.parse()?;
        let (settings, image) = (self.settings, self.image);
        let boot = Boot {
            lab: self.lab,
            host: 0,
            name,
            settings,
            image,
        };
        if let Some(files) = self.files(&boot.name) {
            files.begin_on(&self.lab.host(boot.host)).await?;
        }
        match self.agents.first().filter(|_| slot == 1) {
            _ if self.libvirt.is_some() => boot.by_libvirt().await,
            Some(agent) => boot.by_agent(agent).await,
            None => boot.by_lab().await,
        }
    }

    /// The files of a guest's own disk, where it has one.
    fn files<'b>(&'b self, guest: &'b VmName) -> Option<Files<'b>> {
        let (lab, disk) = (self.lab, self.settings.disk.as_ref()?);
        Some(Files { lab, guest, disk })
    }

    /// Has the destination have an empty disk where libvirt wants one; agents make it themselves.
    async fn prepare_disk(&self, slot: usize, method: Method) -> Result<()> {
        let guest = self.guests[slot].as_ref().filter(|_| method.is_virsh());
        let files = guest.and_then(|guest| Some((guest, self.files(&guest.definition.name)?)));
        match files {
            Some((guest, files)) => files.create(&self.lab.host(1 - guest.host)).await,
            None => Ok(()),
        }
    }

    /// Holds what a guest has left on its disk against what it has now, and removes the former; `moved` is when it was moved.
    async fn compare_disks(&self, slot: usize, moved: [Instant; 2]) -> Result<Option<DiskFacts>> {
        let guest = self.guests[slot].as_ref().context("the guest is gone")?;
        let Some(files) = self.files(&guest.definition.name) else {
            return Ok(None);
        };
        let hosts = [1 - guest.host, guest.host].map(|host| self.lab.host(host));
        guest.pause().await?;
        let compared = files.compare(hosts.each_ref()).await?;
        guest.resume().await?;
        files.remove(&hosts[0])?;
        let rate = |time: [Instant; 2]| {
            let pages = |beats: &Heartbeats| beats.rewrite_rate(time, |beat| beat.disk);
            guest.console.heartbeats(pages)
        };
        let before = moved[0].checked_sub(limits::BEFORE);
        Ok(Some(DiskFacts {
            rewrites_before: before.and_then(|before| rate([before, moved[0]])),
            rewrites_during: rate(moved),
            compared,
        }))
    }

    /// An error is a move or a guest that went wrong; what was found out before is in `run`.
    async fn move_and_verify(&mut self, slot: usize, task: Task<'_>, run: &mut Run) -> Result<()> {
        self.prepare_disk(slot, task.method).await?;
        let driver = self.begin_faults(slot, task).await?;
        let begun = Instant::now();
        let moved = self.move_guest(slot, task).await;
        let ended = Instant::now();
        let changes = match driver {
            Some(driver) => Some(driver.finish().await.context("the faults")?),
            None => None,
        };
        if let Some(changes) = changes {
            let ordeal = Ordeal {
                lab: self.lab.settings(),
                method: task.method,
                faults: task.faults,
                clean: task.clean,
                changes,
            };
            run.faulted = Some(self.judge(slot, &moved, ordeal).await);
        }
        (run.measured, run.drover) = match moved {
            Ok((measured, drover)) => (Some(measured), drover),
            Err(error) => return Err(error),
        };
        let guest = self.guests[slot].as_ref().context("the guest is gone")?;
        guest.console.verify().await?;
        run.disk = self.compare_disks(slot, [begun, ended]).await?;
        run.verified = true;
        match self.libvirt {
            // Nothing is measured beside it.
            Some(_) => Ok(()),
            None => guest.pause().await,
        }
    }

    async fn begin_faults(&self, slot: usize, task: Task<'_>) -> Result<Option<Driver>> {
        let guest = self.guests[slot]
            .as_ref()
            .filter(|_| !task.faults.is_empty());
        let Some(guest) = guest else { return Ok(None) };
        let content = self.settings.content.0;
        let stage = Moves {
            lab: self.lab.settings(),
            source: guest.host,
            events: guest.monitor.events().clone(),
            pid: guest.pid,
            expected: task.clean.map_or(content, |clean| clean.bytes as u64),
            seed: self.settings.seed.wrapping_add(task.repeat as u64),
        };
        Driver::start(stage, task.faults).await.map(Some)
    }

    async fn move_guest(&mut self, slot: usize, task: Task<'_>) -> Result<Moved> {
        let guest = self.guests[slot]
            .as_mut()
            .context("there is no guest to move")?;
        if task.method.encryption().is_some() {
            let agents = &self.agents;
            return move_by_agents(self.lab, guest, agents, task.method, self.longest).await;
        }
        let patience = Patience {
            stalled: (!task.faults.is_empty()).then_some(limits::PATIENCE),
            longest: self.longest,
        };
        let (method, variant) = (task.method, task.variant);
        let measured = if method.is_virsh() {
            by_virsh::move_guest(self.lab, guest, method, variant, patience).await?
        } else {
            by_qemu::move_guest(self.lab, guest, method, variant, patience).await?
        };
        Ok((measured, None))
    }

    /// What became of a move with faults, and of its guest.
    async fn judge(&self, slot: usize, moved: &Result<Moved>, ordeal: Ordeal<'_>) -> Faulted {
        let error = match moved {
            Ok((measured, _)) => return ordeal.arrived(measured),
            Err(error) => error,
        };
        let outcome = match error.downcast_ref::<by_qemu::Hangs>() {
            Some(_) => Outcome::Hung,
            None => Outcome::Failed,
        };
        let Some(guest) = &self.guests[slot] else {
            return ordeal.not_arrived(outcome, false);
        };
        let goes_on = guest.console.wait_sequence(2, limits::CANCEL).await.is_ok();
        let kept = goes_on && guest.console.verify().await.is_ok();
        ordeal.not_arrived(outcome, kept)
    }

    /// Ends the guests and agents, whatever state they are in, and starts new agents.
    async fn reset(&mut self) -> Result<()> {
        self.guests = [None, None];
        let had_agents = !self.agents.is_empty();
        self.agents.clear();
        self.lab.empty().await?;
        if let Some(libvirt) = self.libvirt {
            self.lab.start_libvirt(libvirt).await?;
        }
        if had_agents {
            self.start_agents().await?;
        }
        Ok(())
    }

    /// Ends the guests.
    pub(crate) async fn end(mut self) -> Result<()> {
        for guest in self.guests.iter_mut().filter_map(Option::take) {
            guest.end(self.lab, &self.agents).await?;
        }
        Ok(())
    }
}

/// Waits until the agents know that the domain is where it is, and nowhere else.
async fn known(agents: &[Agent], guest: &Resident) -> Result<()> {
    let name = &guest.definition.name;
    let deadline = Instant::now() + limits::AGENT_START;
    for agent in agents {
        let is_here = agent.host.number == guest.host;
        loop {
            let vms = agent.client.vms().await?;
            let runs = vms
                .iter()
                .any(|vm| vm.name == name.as_str() && vm.pid.is_some());
            if runs == is_here {
                break;
            }
            let host = &agent.host.name;
            if Instant::now() > deadline {
                let so = if runs { "still has" } else { "does not know" };
                bail!("the agent of host {host} {so} domain {name}");
            }
            tokio::time::sleep(limits::POLL).await;
        }
    }
    Ok(())
}

async fn move_by_agents(
    lab: &Lab,
    guest: &mut Resident,
    agents: &[Agent],
    method: Method,
    longest: Duration,
) -> Result<Moved> {
    let (mut looks, mut sent) = (Looks::default(), (0, 0));
    let mut watch = |view: &MigrationView| {
        looks.look(view);
        sent = (view.bytes.transferred.0, view.round);
    };
    let moved = by_drover::move_guest(lab, guest, agents, method, &mut watch);
    let Ok(moved) = tokio::time::timeout(longest, moved).await else {
        return Err(by_qemu::not_ended(longest, sent.0, sent.1));
    };
    let (measured, views) = moved?;
    let facts = DroverFacts {
        foretold: looks.foretold(&views[0]),
        ..DroverFacts::of(&views)
    };
    Ok((measured, Some(facts)))
}
