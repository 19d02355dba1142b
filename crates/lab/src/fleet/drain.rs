//! One host with several guests, emptied by each method in turn, in one go.
//!
//! Two sets of guests that are the same from their seeds on: QEMU's own methods move one, the agents
//! the other. While one set is moved the CPUs of the other are held. After each time all come home,
//! unmeasured.

use anyhow::{Context, Result, bail};
use drover_types::{Bytes, HostName};

use super::by_drover::{carry_out, drain, fail_back, trouble};
use super::by_qemu::{Way, move_all};
use super::crew::{Crew, Member};
use super::method::Emptying;
use super::watch::Span;
use super::{Emptied, GuestMoved, Plan};
use crate::agent::Agent;
use crate::busy::Busy;
use crate::compare::{Method, Say, Variant};
use crate::counters::Nics;
use crate::guest::Image;
use crate::lab::Lab;
use crate::meter::{millis, now_us};
use crate::network::HOSTS;
use crate::settings::{GUEST, named};
use crate::unite::start_united;

/// The host that is emptied: the coordinator's own, as in the worst case.
const EMPTIED: usize = 0;

/// Guests and agents of a comparison.
pub(super) struct Stage<'a> {
    lab: &'a Lab,
    agents: Vec<Agent>,
    /// Of QEMU alone, and of the agents.
    crews: [Option<Crew>; 2],
}

/// What one emptying is measured from.
struct Meter {
    nics: Nics,
    sent: Vec<u64>,
    busy: Busy,
    from_us: u64,
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
        crew.release(EMPTIED).await?;
        let way = way(method, channels);
        let done = self.empty(&mut crew, method, way, repeat).await?;
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
        let before: Vec<usize> = crew
            .members
            .iter()
            .map(|m| m.watched.spans().len())
            .collect();
        let meter = Meter::begin(&self.agents[EMPTIED], self.lab.settings().nics.len())?;
        match way {
            Some(way) => {
                let others = self.lab.settings().hosts - 1;
                let to = |number: usize| (EMPTIED + 1 + number % others) % (others + 1);
                move_all(self.lab, &mut crew.members, to, way).await?;
            }
            None => self.carry_out(&drain(&host_name(EMPTIED)?)).await?,
        }
        let left = crew.on(EMPTIED);
        if left > 0 {
            bail!("{left} guests are still on {}", HOSTS[EMPTIED]);
        }
        let guests = crew.members.iter().zip(before);
        let guests: Result<Vec<_>> = guests.map(|(member, known)| moved(member, known)).collect();
        let mut emptied = meter.end(self.lab, (method, repeat), guests?)?;
        emptied.verified_pages = crew.verify().await?;
        Ok(emptied)
    }

    async fn carry_out(&self, request: &drover_api::RunRequest) -> Result<()> {
        let view = carry_out(&self.agents[0].client, request).await?;
        match trouble(&view) {
            Some(trouble) => bail!("{trouble}"),
            None => Ok(()),
        }
    }

    async fn bring_home(&self, crew: &mut Crew, channels: u8) -> Result<()> {
        if crew.is_managed() {
            return self.carry_out(&fail_back(&host_name(EMPTIED)?)).await;
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

/// How a guest left: the time in which it ran on the host, and the one after.
fn moved(member: &Member, known: usize) -> Result<(GuestMoved, Span)> {
    let watched = &member.watched;
    let spans = watched.spans();
    let last = *spans.last().context("a guest that never ran")?;
    let before = spans
        .get(known.saturating_sub(1))
        .and_then(|span| span.until);
    let before = before.with_context(|| format!("guest {} never stopped", watched.name))?;
    let moved = GuestMoved {
        guest: watched.name.clone(),
        memory: member.definition.memory,
        to: HOSTS[last.host].to_owned(),
        downtime_ms: millis(before, last.from),
    };
    Ok((moved, last))
}

impl Meter {
    fn begin(agent: &Agent, nics: usize) -> Result<Self> {
        let nics = Nics::of(agent.pid, nics)?;
        Ok(Self {
            sent: nics.sent()?,
            nics,
            busy: Busy::begin()?,
            from_us: now_us(),
        })
    }

    /// Ends with the last guest that runs elsewhere.
    fn end(
        self,
        lab: &Lab,
        (method, repeat): (Emptying, usize),
        guests: Vec<(GuestMoved, Span)>,
    ) -> Result<Emptied> {
        let cpus_busy = self.busy.end()?;
        let now = self.nics.sent()?;
        let sent = now.iter().zip(&self.sent).map(|(now, before)| now - before);
        let wire_bytes: u64 = sent.sum();
        let last = guests.iter().map(|(_, span)| span.from).max();
        let total_ms = millis(self.from_us, last.unwrap_or(self.from_us));
        let lines = lab.settings().total_rate();
        let bound_ms = lines.map(|lines| wire_bytes as f64 * 8e3 / lines.0 as f64);
        Ok(Emptied {
            method,
            repeat,
            total_ms,
            wire_bytes: Bytes(wire_bytes),
            bound_ms,
            of_bound: bound_ms.map(|bound| total_ms / bound),
            cpus_busy,
            guests: guests.into_iter().map(|(guest, _)| guest).collect(),
            verified_pages: 0,
        })
    }
}
