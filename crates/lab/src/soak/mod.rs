//! One guest moved to and fro, again and again, with random faults, while nothing may grow.
//!
//! ```text
//!   weather   what goes wrong in each round, from the seed
//!   held      what agents and hosts hold: memory, descriptors, threads, processes, files
//!   table     the result for a person
//! ```
//!
//! The first rounds have no fault: they show what such a move sends, and what is held afterwards.
//! Every later round is compared with the one of them that left the guest on the same host.
//!
//! # Invariant
//! The same seed brings the same faults.

mod held;
mod table;
mod weather;

pub use held::{AgentHeld, Held, HostHeld};
pub use table::table;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::compare::{Method, Run, Say, Stage, Task, clean};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::limits;
use crate::machine::Machine;
use crate::require;
use crate::settings::{GuestSettings, LabSettings};

/// The fewest rounds: one to each host, and one to compare.
pub const FEWEST: usize = 3;

/// Rounds that show what is held, where there are rounds enough: two to each host, since what an
/// agent needs at first it gets in its first move as either end.
const BASELINE: usize = 4;

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Hosts and NICs.
    pub lab: LabSettings,
    /// The guest; the faults follow from its seed too.
    pub guest: GuestSettings,
    /// How many moves.
    pub migrations: usize,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Its number, from 1.
    pub number: usize,
    /// What went wrong on purpose.
    pub faults: Vec<Fault>,
    /// The move.
    pub run: Run,
    /// What was held after it.
    pub held: Option<Held>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Soaked {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// The rounds that took place.
    pub rounds: Vec<Round>,
    /// What was wrong, if anything; the rounds end there.
    pub wrong: Option<String>,
}

impl Soaked {
    /// Whether every round was right.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong.is_none() && self.rounds.len() == self.settings.migrations
    }
}

/// Moves the guest as often as asked, or until something is wrong; the caller removes the lab of
/// that name.
///
/// # Errors
/// What keeps it from beginning.
pub async fn soak(plan: &Plan, command: &str, say: Say<'_>) -> Result<Soaked> {
    if plan.migrations < FEWEST {
        bail!(
            "{} migrations compare nothing: at least {FEWEST}",
            plan.migrations
        );
    }
    plan.guest.probe()?;
    require::check_contents(std::slice::from_ref(&plan.guest))?;
    require::check_guest(&plan.guest.qemu).await?;
    require::check_faults()?;
    let machine = Machine::look(&plan.guest.qemu).await;
    let state = State {
        lab: plan.lab.clone(),
        guests: vec![plan.guest.clone()],
    };
    let lab = Lab::create(state).await?;
    let image = Image::build(lab.folder(), &lab.state().guests).await?;
    let mut stage = Stage::new(&lab, &plan.guest, &image);
    stage.start_agents().await?;
    let mut rounds = Vec::new();
    let wrong = all_rounds(plan, &lab, &mut stage, &mut rounds, say)
        .await
        .err();
    if wrong.is_none() {
        stage.end().await?;
    }
    lab.remove().await?;
    Ok(Soaked {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        rounds,
        wrong: wrong.map(|error| format!("{error:#}")),
    })
}

async fn all_rounds(
    plan: &Plan,
    lab: &Lab,
    stage: &mut Stage<'_>,
    rounds: &mut Vec<Round>,
    say: Say<'_>,
) -> Result<()> {
    let mut dice = Dice::new(plan.guest.seed);
    let baseline = BASELINE.min(plan.migrations - 1);
    for number in 1..=plan.migrations {
        let faults = if number <= baseline {
            Vec::new()
        } else {
            weather::faults(&mut dice, plan.lab.nics.len())
        };
        let known = clean(rounds.iter().map(|round| &round.run), Method::Drover);
        let task = Task {
            method: Method::Drover,
            variant: Method::Drover.variants()[0],
            repeat: number,
            faults: &faults,
            clean: known,
        };
        let run = stage.run(task).await?;
        say(&format!("{number}/{}: {}", plan.migrations, run.brief()));
        let error = run.error.clone();
        rounds.push(Round {
            number,
            faults,
            run,
            held: None,
        });
        if let Some(error) = error {
            bail!("round {number} of seed {}: {error}", plan.guest.seed);
        }
        let look = compare(lab, stage, rounds, baseline).await;
        look.with_context(|| format!("after round {number} of seed {}", plan.guest.seed))?;
    }
    match held::trend(rounds) {
        Some(words) => bail!("{words}"),
        None => Ok(()),
    }
}

/// Notes what is held after the last round, and compares it. What is still being given back is
/// waited for.
async fn compare(
    lab: &Lab,
    stage: &Stage<'_>,
    rounds: &mut [Round],
    baseline: usize,
) -> Result<()> {
    let Some((last, before)) = rounds.split_last_mut() else {
        return Ok(());
    };
    let deadline = Instant::now() + limits::GIVE_BACK;
    loop {
        let now = Held::look(lab, stage.agents()).await?;
        let same_host = |round: &&Round| round.run.to == last.run.to && round.number <= baseline;
        let known: Vec<_> = before
            .iter()
            .filter(same_host)
            .filter_map(|round| round.held.as_ref())
            .collect();
        let grown = held::growth(&known, &now);
        let done = grown.is_empty() || last.number <= baseline;
        if done || Instant::now() > deadline {
            last.held = Some(now);
            if !done {
                bail!("{}", grown.join("; "));
            }
            return Ok(());
        }
        tokio::time::sleep(limits::HELD_LOOK).await;
    }
}
