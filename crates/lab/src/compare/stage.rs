//! The guests of a comparison: booted when needed, held while another is measured, moved and
//! verified.

use anyhow::Result;

use super::method::{Method, Variant};
use super::summary::{DroverFacts, Run};
use super::{Plan, by_drover, by_qemu};
use crate::agent::Agent;
use crate::guest::Image;
use crate::lab::Lab;
use crate::limits;
use crate::meter::Measured;
use crate::network::HOSTS;
use crate::resident::{Boot, Resident};

/// Heartbeats between a guest's resume and its move: half a second, in which it has rewritten its
/// working set twice and is what it is in everyday work.
const SETTLE: u64 = 50;

/// Guests and agents.
pub(super) struct Stage<'a> {
    lab: &'a Lab,
    plan: &'a Plan,
    image: &'a Image,
    agents: Vec<Agent>,
    /// Of QEMU alone, and of an agent.
    guests: [Option<Resident>; 2],
}

impl<'a> Stage<'a> {
    pub(super) fn new(lab: &'a Lab, plan: &'a Plan, image: &'a Image) -> Self {
        Self {
            lab,
            plan,
            image,
            agents: Vec::new(),
            guests: [None, None],
        }
    }

    /// Starts the agents if a method needs them.
    pub(super) async fn start_agents(&mut self, methods: &[Method]) -> Result<()> {
        if methods.contains(&Method::Drover) {
            for number in 0..HOSTS.len() {
                self.agents.push(Agent::start(self.lab, number).await?);
            }
        }
        Ok(())
    }

    /// One move by one method, measured and verified. What goes wrong is part of the result; the
    /// next run then has a new guest.
    pub(super) async fn run(&mut self, method: Method, variant: Variant, repeat: usize) -> Run {
        let slot = usize::from(method == Method::Drover);
        let begun = self.guest(slot).await;
        let from = self.guests[slot].as_ref().map_or(0, |guest| guest.host);
        let result = match begun {
            Ok(()) => self.move_and_verify(slot, method, variant).await,
            Err(error) => Err(error),
        };
        let mut run = Run::new(method, variant, repeat, [from, 1 - from]);
        match result {
            Ok((measured, drover)) => {
                run.measured = Some(measured);
                run.drover = drover;
                run.verified = true;
            }
            Err(error) => {
                run.error = Some(format!("{error:#}"));
                self.discard(slot).await;
            }
        }
        run
    }

    /// Has the guest there, running and settled, with the other one held.
    async fn guest(&mut self, slot: usize) -> Result<()> {
        if self.guests[slot].is_none() {
            let guest = self.boot(slot).await?;
            self.guests[slot] = Some(guest);
        } else if let Some(guest) = &self.guests[slot] {
            guest.resume().await?;
        }
        match &self.guests[slot] {
            Some(guest) => {
                guest
                    .console
                    .wait_sequence(SETTLE, limits::FIRST_HEARTBEAT)
                    .await
            }
            None => Ok(()),
        }
    }

    async fn boot(&self, slot: usize) -> Result<Resident> {
        let name = if slot == 0 { "peer" } else { "guest" }.parse()?;
        let (settings, image) = (&self.plan.guest, self.image);
        let boot = Boot {
            lab: self.lab,
            host: 0,
            name,
            settings,
            image,
        };
        match self.agents.first().filter(|_| slot == 1) {
            Some(agent) => boot.by_agent(agent).await,
            None => boot.by_lab().await,
        }
    }

    async fn move_and_verify(
        &mut self,
        slot: usize,
        method: Method,
        variant: Variant,
    ) -> Result<(Measured, Option<DroverFacts>)> {
        let Some(guest) = &mut self.guests[slot] else {
            anyhow::bail!("there is no guest to move");
        };
        let moved = if method == Method::Drover {
            let mut watch = |_: &_| {};
            let moved = by_drover::move_guest(self.lab, guest, &self.agents, &mut watch);
            moved
                .await
                .map(|(measured, view)| (measured, Some(DroverFacts::of(&view))))?
        } else {
            let moved = by_qemu::move_guest(self.lab, guest, method, variant);
            (moved.await?, None)
        };
        guest.console.verify().await?;
        guest.pause().await?;
        Ok(moved)
    }

    /// Ends a guest that went wrong, as far as it can be ended.
    async fn discard(&mut self, slot: usize) {
        let Some(guest) = self.guests[slot].take() else {
            return;
        };
        if let Err(error) = guest.end(&self.agents).await {
            tracing::warn!("cannot end a guest that failed: {error:#}");
        }
    }

    /// Ends the guests.
    pub(super) async fn end(mut self) -> Result<()> {
        for guest in self.guests.iter_mut().filter_map(Option::take) {
            guest.end(&self.agents).await?;
        }
        Ok(())
    }
}
