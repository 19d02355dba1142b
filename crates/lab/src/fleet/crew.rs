//! Several guests that begin on one host, kept by agents or by the lab itself.

use std::sync::Arc;

use anyhow::{Context, Result};
use drover_api::VmDefinition;
use serde_json::Value;
use tokio::process::Child;

use super::watch::{Watch, Watched};
use crate::agent::Agent;
use crate::guest::Image;
use crate::guest::definition::define;
use crate::lab::Lab;
use crate::limits;
use crate::resident::launch_qemu;
use crate::settings::Named;

/// Heartbeats between a guest's resume and what is measured: half a second, in which it is what it is
/// in everyday work.
const SETTLE: u64 = 50;

/// One guest.
#[derive(Debug)]
pub(super) struct Member {
    /// What it is.
    pub(super) definition: VmDefinition,
    /// What is seen of it.
    pub(super) watched: Arc<Watched>,
    /// Its QEMU, where the lab itself started it.
    pub(super) own: Option<Child>,
}

impl Member {
    /// Holds its CPUs.
    ///
    /// # Errors
    /// It runs nowhere, or QEMU's.
    pub(super) async fn hold(&self) -> Result<()> {
        let watched = &self.watched;
        let host = watched.runs_on();
        let host = host.with_context(|| format!("guest {} does not run", watched.name))?;
        let monitor = watched.on(host, limits::QEMU_START).await?;
        monitor.run("stop", Value::Null).await.map(drop)
    }

    /// Lets it run again on that host.
    ///
    /// # Errors
    /// QEMU's.
    pub(super) async fn release(&self, host: usize) -> Result<()> {
        let monitor = self.watched.on(host, limits::QEMU_START).await?;
        monitor.run("cont", Value::Null).await.map(drop)
    }

    /// Waits until it has run for a while.
    ///
    /// # Errors
    /// It is silent.
    pub(super) async fn settle(&self) -> Result<()> {
        let console = &self.watched.console;
        console.wait_sequence(SETTLE, limits::FIRST_HEARTBEAT).await
    }

    /// Has it verify every page; pages verified.
    ///
    /// # Errors
    /// It is not whole.
    pub(super) async fn verify(&self) -> Result<u64> {
        let verified = self.watched.console.verify().await;
        let verified = verified.with_context(|| format!("guest {}", self.watched.name))?;
        Ok(verified.pages)
    }
}

/// Guests that are moved together.
#[derive(Debug)]
pub(super) struct Crew {
    /// All of them.
    pub(super) members: Vec<Member>,
    /// What is seen of them.
    pub(super) watch: Watch,
    /// Whether agents keep them.
    managed: bool,
}

impl Crew {
    /// Boots each of them at its home, by the agent there or by the lab, and waits until they have filled
    /// their memory.
    ///
    /// # Errors
    /// What QEMU, the agent or a guest says.
    pub(super) async fn boot(
        lab: &Lab,
        image: &Image,
        guests: &[Named],
        agents: Option<&[Agent]>,
        home: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        let watch = Watch::begin(lab, guests.iter().map(|(name, _)| name.clone()));
        let mut members = Vec::new();
        let all = watch.guests().iter().zip(guests).enumerate();
        for (number, (watched, (name, settings))) in all {
            let definition = define(name, settings, image, &lab.here())?;
            let own = match agents {
                Some(agents) => {
                    start_by(&agents[home(number)], &definition).await?;
                    None
                }
                None => Some(launch_qemu(&lab.host(home(number)), &definition, false)?),
            };
            members.push(Member {
                definition,
                watched: watched.clone(),
                own,
            });
        }
        for (number, Member { watched, .. }) in members.iter().enumerate() {
            watched.on(home(number), limits::QEMU_START).await?;
            watched.console.wait_ready().await?;
        }
        Ok(Self {
            members,
            watch,
            managed: agents.is_some(),
        })
    }

    /// Whether agents keep them.
    pub(super) fn is_managed(&self) -> bool {
        self.managed
    }

    /// Holds the CPUs of all, so that they cost nothing while others are measured.
    ///
    /// # Errors
    /// One that runs nowhere, or QEMU's.
    pub(super) async fn hold(&self) -> Result<()> {
        for member in &self.members {
            member.hold().await?;
        }
        Ok(())
    }

    /// Lets all of them run again on that host, and waits until they have for a while.
    ///
    /// # Errors
    /// QEMU's, or one is silent.
    pub(super) async fn release(&self, host: usize) -> Result<()> {
        for member in &self.members {
            member.release(host).await?;
        }
        self.settle().await
    }

    /// Waits until all have run for a while.
    ///
    /// # Errors
    /// One is silent.
    pub(super) async fn settle(&self) -> Result<()> {
        for member in &self.members {
            member.settle().await?;
        }
        Ok(())
    }

    /// Has every guest verify every page, and looks whether one ever ran twice; pages verified.
    ///
    /// # Errors
    /// A guest that is not whole, or ran twice.
    pub(super) async fn verify(&self) -> Result<u64> {
        let mut pages = 0;
        for member in &self.members {
            pages += member.verify().await?;
        }
        self.watch.check()?;
        Ok(pages)
    }

    /// How many of them are on a host.
    pub(super) fn on(&self, host: usize) -> usize {
        let here = |member: &&Member| member.watched.runs_on() == Some(host);
        self.members.iter().filter(here).count()
    }
}

/// Gives a guest to an agent and has it started.
async fn start_by(agent: &Agent, definition: &VmDefinition) -> Result<()> {
    agent.host.define(definition)?;
    agent.client.start_vm(&definition.name).await?;
    Ok(())
}
