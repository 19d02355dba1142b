//! All hosts emptied and filled again in turn, twice in a round, while things go wrong.

use anyhow::{Context, Result, bail};
use drover_api::{RunRequest, RunView};
use drover_types::HostName;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::by_drover::{drain, fail_back, follow, in_words, trouble};
use super::crew::Crew;
use super::{create, prepare, spread, weather};
use crate::agent::Agent;
use crate::compare::Say;
use crate::dice::Dice;
use crate::guest::Image;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::network::{self, HOSTS};
use crate::settings::{GuestSettings, LabSettings};
use crate::unite::start_united;
use crate::{limits, require};

/// How often each host is emptied and filled again in a round.
const PASSES: usize = 2;

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundsPlan {
    /// Hosts and NICs.
    pub lab: LabSettings,
    /// The guests, at home on the hosts in turn.
    pub guests: Vec<GuestSettings>,
    /// How many rounds.
    pub rounds: usize,
    /// What goes wrong follows from it.
    pub seed: u64,
}

/// One run: a host emptied, or filled again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// The round, from 1.
    pub round: usize,
    /// The host.
    pub host: String,
    /// Whether its guests came home; otherwise they left.
    pub home: bool,
    /// How long the run took, in milliseconds.
    pub run_ms: f64,
    /// What went wrong on purpose.
    pub mishaps: Vec<String>,
    /// Why it did not end as wanted at first, if it did not; without mishaps it then did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_because: Option<String>,
    /// Pages that the guests verified afterwards, all of them.
    pub verified_pages: u64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: RoundsPlan,
    /// The runs that took place.
    pub legs: Vec<Leg>,
    /// What was wrong, if anything; it ends there.
    pub wrong: Option<String>,
}

impl Rounds {
    /// Whether every guest was whole, in one place, and where it belongs, each time.
    #[must_use]
    pub fn holds(&self) -> bool {
        let plan = &self.settings;
        self.wrong.is_none() && self.legs.len() == plan.rounds * PASSES * plan.lab.hosts * 2
    }

    /// Runs that did not end as wanted while things went wrong.
    #[must_use]
    pub fn repeated(&self) -> usize {
        self.legs
            .iter()
            .filter(|leg| leg.again_because.is_some())
            .count()
    }
}

/// Empties and fills all hosts as often as asked, or until something is wrong; the caller removes the
/// lab of that name.
///
/// # Errors
/// What keeps it from beginning.
pub async fn rounds(plan: &RoundsPlan, command: &str, say: Say<'_>) -> Result<Rounds> {
    require::check_faults()?;
    let machine = prepare(&plan.guests).await?;
    let lab = create(&plan.lab, &plan.guests).await?;
    let mut fleet = Fleet::build(&lab).await?;
    let mut legs = Vec::new();
    let wrong = fleet.all(plan, &mut legs, say).await.err();
    lab.remove().await?;
    Ok(Rounds {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        legs,
        wrong: wrong.map(|error| format!("{error:#}")),
    })
}

struct Fleet<'a> {
    lab: &'a Lab,
    agents: Vec<Agent>,
    crew: Crew,
}

impl<'a> Fleet<'a> {
    async fn build(lab: &'a Lab) -> Result<Self> {
        let agents = start_united(lab).await?;
        let image = Image::build(lab.folder(), &lab.state().guests).await?;
        let crew = spread(lab, &image, &agents).await?;
        Ok(Self { lab, agents, crew })
    }

    async fn all(&mut self, plan: &RoundsPlan, legs: &mut Vec<Leg>, say: Say<'_>) -> Result<()> {
        let mut dice = Dice::new(plan.seed);
        for round in 1..=plan.rounds {
            for host in (0..plan.lab.hosts).cycle().take(PASSES * plan.lab.hosts) {
                for home in [false, true] {
                    let leg = self.leg((round, host, home), &mut dice).await;
                    let what = if home { "filled again" } else { "emptied" };
                    let (seed, name) = (plan.seed, HOSTS[host]);
                    let leg = leg.with_context(|| {
                        format!("round {round} of seed {seed}, host {name} {what}")
                    })?;
                    say(&format!("{round}/{}: {}", plan.rounds, leg.brief()));
                    legs.push(leg);
                }
            }
        }
        Ok(())
    }

    async fn leg(
        &mut self,
        (round, host, home): (usize, usize, bool),
        dice: &mut Dice,
    ) -> Result<Leg> {
        self.crew.settle().await?;
        let name: HostName = HOSTS[host].parse().context("a host's name")?;
        let request = if home { fail_back(&name) } else { drain(&name) };
        let begun = std::time::Instant::now();
        let (view, mishaps) = self.run(&request, Some(dice)).await?;
        let run_ms = begun.elapsed().as_secs_f64() * 1e3;
        let misplaced = || self.misplaced(host, home);
        // A guest that did not come home is none of a run's failures, but one that is tried again.
        let again_because =
            trouble(&view).or_else(|| Some(format!("{}: {}", misplaced()?, in_words(&view))));
        if let Some(first) = &again_because {
            let (view, _) = self.run(&request, None).await?;
            if let Some(second) = trouble(&view) {
                bail!("{second}; nothing went wrong meanwhile; before, after {mishaps:?}: {first}");
            }
        }
        let look = self.look(host, home).await;
        let verified_pages = look.with_context(|| format!("after {mishaps:?}"))?;
        Ok(Leg {
            round,
            host: HOSTS[host].to_owned(),
            home,
            run_ms,
            mishaps,
            again_because,
            verified_pages,
        })
    }

    /// Has a run carried out, with or without things going wrong; how it ended, and what was done to it.
    async fn run(
        &mut self,
        request: &RunRequest,
        dice: Option<&mut Dice>,
    ) -> Result<(RunView, Vec<String>)> {
        let client = self.agents[0].client.clone();
        let begun = client.start_run(request).await?;
        let (stop, stopped) = watch::channel(false);
        let followed = async {
            let view = follow(&client, begun.id).await;
            stop.send_replace(true);
            view
        };
        let mishaps = async {
            match dice {
                Some(dice) => weather::rage(self.lab, &mut self.agents, dice, stopped).await,
                None => Ok(Vec::new()),
            }
        };
        let (view, mishaps) = tokio::join!(followed, mishaps);
        let mishaps = mishaps?;
        let view = view.with_context(|| format!("after {mishaps:?}"))?;
        Ok((view, mishaps))
    }

    /// The first guest that is not where it should be.
    fn misplaced(&self, emptied: usize, home: bool) -> Option<String> {
        let lab = self.lab.settings();
        let mut all = self.crew.members.iter().enumerate();
        all.find_map(|(number, member)| {
            let (belongs, at) = (lab.home_of(number), member.watched.runs_on());
            let right = match at {
                Some(at) if !home && belongs == emptied => at != emptied,
                at => at == Some(belongs),
            };
            let found = at.map_or("nowhere", |at| HOSTS[at]);
            let (guest, home) = (&member.watched.name, HOSTS[belongs]);
            (!right).then(|| format!("guest {guest} of host {home} runs on {found}"))
        })
    }

    /// Whether every guest is where it should be, once, and whole; pages verified.
    async fn look(&self, host: usize, home: bool) -> Result<u64> {
        if let Some(misplaced) = self.misplaced(host, home) {
            bail!("{misplaced}");
        }
        self.no_other_is_left().await?;
        self.crew.verify().await
    }

    /// What the agents work on still, for whoever looks for a fault.
    async fn open_migrations(&self) -> String {
        let mut open = Vec::new();
        for (agent, name) in self.agents.iter().zip(HOSTS) {
            match agent.client.migrations().await {
                Ok(all) => open.extend(
                    all.iter()
                        .filter(|view| !view.phase.has_ended())
                        .map(|view| {
                            format!("{name}: {} {:?} {:?}", view.vm, view.phase, view.next)
                        }),
                ),
                Err(error) => open.push(format!("{name}: {error}")),
            }
        }
        format!("migrations under way: [{}]", open.join("; "))
    }

    /// Waits until there are as many QEMUs as guests.
    async fn no_other_is_left(&self) -> Result<()> {
        let deadline = std::time::Instant::now() + limits::GIVE_BACK;
        loop {
            let mut all = Vec::new();
            for (host, name) in self.lab.hosts().iter().zip(HOSTS) {
                let pids = network::processes(host.namespace()).await;
                let qemus = pids.into_iter().filter_map(qemu);
                all.extend(qemus.map(|qemu| format!("{name}: {qemu}")));
            }
            let guests = self.crew.members.len();
            if all.len() == guests {
                return Ok(());
            }
            if std::time::Instant::now() > deadline {
                let (count, all) = (all.len(), all.join("; "));
                let open = self.open_migrations().await;
                bail!("{count} QEMUs run on all hosts for {guests} guests: {all}; {open}");
            }
            tokio::time::sleep(limits::HELD_LOOK).await;
        }
    }
}

/// The guest of that process and whether it waits to come in, where it is a QEMU.
fn qemu(pid: rustix::process::Pid) -> Option<String> {
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let words: Vec<_> = words.split('\0').collect();
    words
        .first()
        .filter(|program| program.contains("qemu-system"))?;
    let name = words.iter().skip_while(|word| **word != "-name").nth(1);
    let incoming = if words.contains(&"-incoming") {
        ", started to come in"
    } else {
        ""
    };
    Some(format!("{}{incoming}", name.unwrap_or(&"nameless")))
}

impl Leg {
    fn brief(&self) -> String {
        let what = if self.home { "filled again" } else { "emptied" };
        let again = self
            .again_because
            .as_ref()
            .map(|cause| format!("; again because {cause}"));
        format!(
            "{} {what} in {:.1} s, {} mishaps, {} pages verified{}",
            self.host,
            self.run_ms / 1e3,
            self.mishaps.len(),
            self.verified_pages,
            again.unwrap_or_default()
        )
    }
}
