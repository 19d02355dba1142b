//! What a migration has to survive, each thing made to happen, and judged.
//!
//! ```text
//!   catalogue   what goes wrong, on which NICs, and what must hold then
//!   judge       what was found, held against that
//!   table       the same for a person
//! ```
//!
//! Scenarios on like NICs share a lab, and one move without a fault in each repeat: what is
//! compared stands side by side in time.
//!
//! # Invariant
//! A scenario holds only when every guest in it arrived and verified every page.

mod catalogue;
mod judge;
mod table;

pub use catalogue::{CATALOGUE, Scenario, Shape, Target};
pub use judge::{Check, Found};
pub use table::table;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::compare::{Method, Run, Say, Stage, Task, clean};
use crate::fault::Clean;
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::require;
use crate::settings::{GuestSettings, LabName};

/// What to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The lab's name.
    pub name: LabName,
    /// The guest.
    pub guest: GuestSettings,
    /// Only the scenarios whose names these are; all when empty.
    pub only: Vec<String>,
    /// How often each, and how often the moves without a fault that they are held against.
    pub repeats: usize,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// The scenarios in their order.
    pub scenarios: Vec<Found>,
    /// Moves without a fault that the others were held against.
    pub clean: Vec<Run>,
}

impl Shown {
    /// Whether every scenario holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.scenarios.iter().all(Found::holds)
    }
}

/// The scenarios of these names, in the catalogue's order.
///
/// # Errors
/// A name that is none.
pub fn chosen(only: &[String]) -> Result<Vec<&'static Scenario>> {
    for name in only {
        if !CATALOGUE.iter().any(|scenario| scenario.name == name) {
            let names: Vec<_> = CATALOGUE.iter().map(|scenario| scenario.name).collect();
            bail!("{name:?} is no scenario: {}", names.join(", "));
        }
    }
    let named = |scenario: &Scenario| only.is_empty() || only.iter().any(|n| n == scenario.name);
    let against_alone = |target: &Target| matches!(target, Target::Gap | Target::ExtraAlone(_));
    let mut wanted = CATALOGUE.iter().filter(|scenario| named(scenario));
    let against_alone = wanted.any(|scenario| scenario.targets.iter().any(against_alone));
    let wanted = |scenario: &&Scenario| {
        named(scenario) || (against_alone && scenario.name == catalogue::ALONE)
    };
    Ok(CATALOGUE.iter().filter(wanted).collect())
}

/// Makes every scenario happen and judges it; the caller removes the lab of that name.
///
/// # Errors
/// What keeps all of them from being tried. What goes wrong in one is its result.
pub async fn show(plan: &Plan, command: &str, say: Say<'_>) -> Result<Shown> {
    let scenarios = chosen(&plan.only)?;
    plan.guest.probe()?;
    require::check_contents(std::slice::from_ref(&plan.guest))?;
    require::check_guest(&plan.guest.qemu).await?;
    require::check_faults()?;
    let machine = Machine::look(&plan.guest.qemu).await;
    let mut found = Vec::new();
    let mut clean_runs = Vec::new();
    for shape in Shape::ALL {
        let own: Vec<_> = scenarios
            .iter()
            .copied()
            .filter(|s| s.shape == shape)
            .collect();
        if own.is_empty() {
            continue;
        }
        let mut runs = Runs::new(own.len());
        let done = on(shape, plan, &own, &mut runs, say).await;
        let obstacle = done.err().map(|error| format!("{error:#}"));
        if let Some(obstacle) = &obstacle {
            say(&format!("{}: {obstacle}", shape.words()));
        }
        let mut held_against = runs.clean.clone();
        for (scenario, own) in own.iter().zip(&runs.faulted) {
            if scenario.name == catalogue::ALONE {
                held_against.extend_from_slice(own);
            }
        }
        for (scenario, own) in own.iter().zip(runs.faulted) {
            let judged = judge::judge(scenario, own, &held_against, obstacle.as_deref());
            say(&table::line(&judged));
            found.push(judged);
        }
        clean_runs.append(&mut runs.clean);
    }
    Ok(Shown {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        scenarios: found,
        clean: clean_runs,
    })
}

/// What was run on NICs of one shape.
struct Runs {
    clean: Vec<Run>,
    faulted: Vec<Vec<Run>>,
}

impl Runs {
    fn new(scenarios: usize) -> Self {
        Self {
            clean: Vec::new(),
            faulted: vec![Vec::new(); scenarios],
        }
    }
}

async fn on(
    shape: Shape,
    plan: &Plan,
    scenarios: &[&Scenario],
    runs: &mut Runs,
    say: Say<'_>,
) -> Result<()> {
    say(&format!("two hosts with {}", shape.words()));
    let state = State {
        lab: shape.lab(&plan.name)?,
        guests: vec![plan.guest.clone()],
    };
    let lab = Lab::create(state).await?;
    let image = Image::build(lab.folder(), &lab.state().guests).await?;
    let mut stage = Stage::new(&lab, &plan.guest, &image);
    stage.start_agents().await?;
    for repeat in 0..plan.repeats {
        // The first move warms up what the others find warm; one more is all it costs.
        let held_against = scenarios.iter().any(|scenario| scenario.has_faults());
        if held_against {
            let run = stage.run(task(repeat, &[], None)).await?;
            say(&format!(
                "{}/{} no fault: {}",
                repeat + 1,
                plan.repeats,
                run.brief()
            ));
            runs.clean.push(run);
        }
        for (index, scenario) in scenarios.iter().enumerate() {
            for time in 0..scenario.times {
                let number = repeat * scenario.times + time;
                let faults = scenario.faults(number);
                let known = clean(&runs.clean, Method::DroverOff);
                let run = stage.run(task(number, &faults, known)).await?;
                let name = scenario.name;
                say(&format!(
                    "{}/{} {name}: {}",
                    repeat + 1,
                    plan.repeats,
                    run.brief()
                ));
                runs.faulted[index].push(run);
            }
        }
    }
    stage.end().await?;
    lab.remove().await
}

fn task(repeat: usize, faults: &[crate::fault::Fault], clean: Option<Clean>) -> Task<'_> {
    Task {
        method: Method::DroverOff,
        variant: Method::DroverOff.variants()[0],
        repeat,
        faults,
        clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_whose_silence_counts_brings_the_one_it_is_held_against() {
        let names = |only: &[&str]| -> Vec<_> {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(&only)
                .unwrap()
                .iter()
                .map(|scenario| scenario.name)
                .collect()
        };
        assert_eq!(names(&["cut"]), ["alone", "cut"]);
        assert_eq!(names(&["slow", "v6"]), ["slow", "v6"]);
        assert_eq!(names(&[]).len(), CATALOGUE.len());
        let refused = chosen(&["fire".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("alone, cut"), "{refused}");
    }
}
