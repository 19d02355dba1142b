//! One host with several guests, emptied by each method in turn, in one go.
//!
//! Two sets of guests that are the same from their seeds on: QEMU's own methods move one, the agents
//! the other. While one set is moved the CPUs of the other are held. After each time all come home,
//! unmeasured.

use anyhow::{Context, Result, bail};
use drover_api::{RunRequest, RunView};
use drover_types::HostName;

use super::by_drover::{carry_out, drain, facts, fail_back, trouble};
use super::by_qemu::{Way, move_all};
use super::crew::Crew;
use super::measure::Meter;
use super::method::Emptying;
use super::{Emptied, Plan};
use crate::agent::Agent;
use crate::compare::{Method, Say, Variant};
use crate::guest::Image;
use crate::lab::Lab;
use crate::network::HOSTS;
use crate::settings::{AgentSettings, GUEST, named};
use crate::unite::{start_united, start_united_told};

/// The host that is emptied: the coordinator's own, as in the worst case.
pub(super) const EMPTIED: usize = 0;

/// Guests and agents of a comparison.
pub(super) struct Stage<'a> {
    pub(super) lab: &'a Lab,
    pub(super) agents: Vec<Agent>,
    /// One guest is measured alone, too.
    alone: bool,
    /// Of QEMU alone, and of the agents.
    crews: [Option<Crew>; 2],
}

impl<'a> Stage<'a> {
    /// Starts agents, and boots the guests that these methods need.
    pub(super) async fn build(lab: &'a Lab, plan: &Plan, say: Say<'_>) -> Result<Self> {
        let agents = start_united(lab).await?;
        say(&format!(
            "{} hosts, an agent on each, in one cluster",
            agents.len()
        ));
        let image = Image::build(lab.folder(), &plan.guests).await?;
        let mut stage = Self {
            lab,
            agents,
            alone: plan.alone,
            crews: [None, None],
        };
        for managed in [false, true] {
            if !plan
                .methods
                .iter()
                .any(|method| method.is_managed() == managed)
            {
                continue;
            }
            let guests = named(if managed { GUEST } else { "peer" }, &plan.guests)?;
            let names: Vec<_> = guests.iter().map(|(name, _)| name.to_string()).collect();
            say(&format!("booting {}", names.join(", ")));
            let agents = managed.then_some(stage.agents.as_slice());
            let crew = Crew::boot(lab, &image, &guests, agents, |_| EMPTIED).await?;
            crew.hold().await?;
            stage.crews[usize::from(managed)] = Some(crew);
        }
        Ok(stage)
    }

    /// Empties the host once by one method, and brings all home.
    pub(super) async fn run(
        &mut self,
        method: Emptying,
        channels: u8,
        repeat: usize,
    ) -> Result<Emptied> {
        let slot = usize::from(method.is_managed());
        let mut crew = self.crews[slot].take().context("these guests are gone")?;
        let alone = if self.alone && method.is_managed() {
            Some(self.alone(&crew).await.context("one guest alone")?)
        } else {
            None
        };
        crew.release(EMPTIED).await?;
        let way = way(method, channels);
        let mut done = self.empty(&mut crew, method, way, repeat).await?;
        done.of_alone = alone
            .as_ref()
            .map(|alone| done.of_so_many(alone.wire_bytes));
        done.alone = alone;
        self.bring_home(&mut crew, channels).await?;
        crew.watch.check()?;
        crew.hold().await?;
        self.crews[slot] = Some(crew);
        Ok(done)
    }

    async fn empty(
        &self,
        crew: &mut Crew,
        method: Emptying,
        way: Option<Way>,
        repeat: usize,
    ) -> Result<Emptied> {
        let nics = self.lab.settings().nics.len();
        let meter = Meter::begin([&self.agents[EMPTIED]], nics, &crew.members)?;
        let run = match way {
            Some(way) => {
                let others = self.lab.settings().hosts - 1;
                let to = |number: usize| (EMPTIED + 1 + number % others) % (others + 1);
                move_all(self.lab, &mut crew.members, to, way).await?;
                None
            }
            None => Some(self.carry_out(&drain(&host_name(EMPTIED)?)).await?),
        };
        let left = crew.on(EMPTIED);
        if left > 0 {
            bail!("{left} guests are still on {}", HOSTS[EMPTIED]);
        }
        let mut emptied = Emptied::of(
            method,
            repeat,
            meter.end(&crew.members)?,
            self.lab.settings(),
        );
        if let Some(run) = run {
            emptied.drover = facts(&self.agents, &run).await?;
        }
        emptied.verified_pages = crew.verify().await?;
        Ok(emptied)
    }

    /// Starts the agents anew, which are told this; guests go on.
    pub(super) async fn start_anew(&mut self, told: &AgentSettings) -> Result<()> {
        for agent in self.agents.drain(..) {
            agent.kill().await?;
        }
        self.agents = start_united_told(self.lab, told).await?;
        Ok(())
    }

    async fn carry_out(&self, request: &RunRequest) -> Result<RunView> {
        let view = carry_out(&self.agents[0].client, request).await?;
        match trouble(&view) {
            Some(trouble) => bail!("{trouble}"),
            None => Ok(view),
        }
    }

    async fn bring_home(&self, crew: &mut Crew, channels: u8) -> Result<()> {
        if crew.is_managed() {
            let run = fail_back(&host_name(EMPTIED)?);
            return self.carry_out(&run).await.map(drop);
        }
        let way = Way {
            method: Method::Multifd,
            variant: Variant {
                channels: Some(channels),
            },
            at_once: true,
        };
        move_all(self.lab, &mut crew.members, |_| EMPTIED, way).await
    }
}

fn host_name(number: usize) -> Result<HostName> {
    HOSTS[number].parse().context("a host's name")
}

fn way(method: Emptying, channels: u8) -> Option<Way> {
    let multifd = Variant {
        channels: Some(channels),
    };
    let (method, variant, at_once) = match method {
        Emptying::Drover => return None,
        Emptying::MultifdInTurn => (Method::Multifd, multifd, false),
        Emptying::MultifdAtOnce => (Method::Multifd, multifd, true),
        Emptying::Script => (Method::Tcp, Variant { channels: None }, false),
    };
    Some(Way {
        method,
        variant,
        at_once,
    })
}
