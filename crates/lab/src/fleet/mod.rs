//! Several guests on several hosts: a host emptied by each method in turn, and all hosts emptied and
//! filled again while NICs, agents and the coordinator fail.
//!
//! ```text
//!   watch      where each guest runs, since when, whoever moves it; whether one ever ran twice
//!   crew       several guests that are booted, held, released and verified together
//!   by_drover  one order to the coordinator          by_qemu   what a script does
//!   drain      the same host emptied by each method  rounds    all hosts in turn, with faults
//!   alone      one guest moved with nothing shared   measure   time and bytes of a move of several
//!   guests     several made from one                 table     the results for a person
//! ```
//!
//! # Invariant
//! A guest that ever ran on two hosts at once, or went back, ends it with an error.

mod alone;
mod by_drover;
mod by_qemu;
mod crew;
mod drain;
mod guests;
mod measure;
mod method;
mod rounds;
mod table;
mod watch;
mod weather;

pub use alone::Alone;
pub use guests::{of_one_image, variety};
pub use method::Emptying;
pub use rounds::{Leg, Rounds, RoundsPlan, rounds};
pub use table::{rounds_table, table};

use anyhow::{Result, bail};
use crew::Crew;
use drover_types::{Bytes, VmName};
use measure::Taken;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::compare::{DroverFacts, Say};
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::require;
use crate::settings::{GUEST, GuestSettings, LabSettings, named};

/// What to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Hosts and NICs.
    pub lab: LabSettings,
    /// The guests on the host that is emptied.
    pub guests: Vec<GuestSettings>,
    /// The methods.
    pub methods: Vec<Emptying>,
    /// Multifd channels of the methods that have them.
    pub channels: u8,
    /// How often each.
    pub repeats: usize,
    /// Whether one guest is moved alone first, with nothing shared, each time that the agents empty the host.
    #[serde(default)]
    pub alone: bool,
}

/// How one guest left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestMoved {
    /// The guest.
    pub guest: VmName,
    /// Its memory.
    pub memory: Bytes,
    /// Where it went.
    pub to: String,
    /// From its stop on the source until it ran there.
    pub downtime_ms: f64,
}

/// A host that was emptied once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emptied {
    /// How.
    pub method: Emptying,
    /// The number of the repeat, from 0.
    pub repeat: usize,
    /// From the order until the last guest ran elsewhere.
    pub total_ms: f64,
    /// What the host sent meanwhile, on all NICs.
    pub wire_bytes: Bytes,
    /// What its lines would need for that at their rates; none for unlimited NICs.
    pub bound_ms: Option<f64>,
    /// The time as a multiple of that.
    pub of_bound: Option<f64>,
    /// The part of all CPUs' time of this machine that they were busy: guests, hosts and switch share
    /// them.
    pub cpus_busy: f64,
    /// The guests.
    pub guests: Vec<GuestMoved>,
    /// Pages that the guests verified afterwards, all of them. None was bad: that would be an error.
    pub verified_pages: u64,
    /// What drover's agents say of each guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drover: Vec<DroverFacts>,
    /// How one guest moved alone before, with nothing shared, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Alone>,
    /// Bytes sent, as a part of what as many guests would send of which each moved so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_alone: Option<f64>,
}

impl Emptied {
    fn of(method: Emptying, repeat: usize, taken: Taken, lab: &LabSettings) -> Self {
        let Taken {
            total_ms,
            wire_bytes,
            cpus_busy,
            guests,
        } = taken;
        let lines = lab.total_rate();
        let bound_ms = lines.map(|lines| wire_bytes.0 as f64 * 8e3 / lines.0 as f64);
        Self {
            method,
            repeat,
            total_ms,
            wire_bytes,
            bound_ms,
            of_bound: bound_ms.map(|bound| total_ms / bound),
            cpus_busy,
            guests,
            verified_pages: 0,
            drover: Vec::new(),
            alone: None,
            of_alone: None,
        }
    }

    /// What the host sent as a part of so many bytes for each guest.
    fn of_so_many(&self, each: Bytes) -> f64 {
        self.wire_bytes.0 as f64 / (each.0 * self.guests.len() as u64).max(1) as f64
    }
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drains {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// Every time that the host was emptied.
    pub runs: Vec<Emptied>,
}

/// Empties a host by each method in turn, as often as asked; the caller removes the lab of that name.
///
/// # Errors
/// A guest that is not whole or ran twice, a move that failed, or what keeps it from beginning.
pub async fn drains(plan: &Plan, command: &str, say: Say<'_>) -> Result<Drains> {
    if plan.repeats == 0 || plan.methods.is_empty() || plan.guests.is_empty() {
        bail!("nothing to compare: no methods, no guests, or no repeats");
    }
    if let Some(why) = alone::says_nothing(plan).filter(|_| plan.alone) {
        bail!("{why}");
    }
    let machine = prepare(&plan.guests).await?;
    let lab = create(&plan.lab, &plan.guests).await?;
    let mut stage = drain::Stage::build(&lab, plan, say).await?;
    let mut runs = Vec::new();
    for repeat in 0..plan.repeats {
        for method in in_turn(&plan.methods, repeat) {
            let run = stage.run(method, plan.channels, repeat).await?;
            say(&table::line(&run, plan.repeats));
            runs.push(run);
        }
    }
    lab.remove().await?;
    Ok(Drains {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        runs,
    })
}

/// Checks what guests need, before anything is made.
async fn prepare(guests: &[GuestSettings]) -> Result<Machine> {
    let Some(first) = guests.first() else {
        bail!("no guests");
    };
    for guest in guests {
        guest.probe()?;
    }
    require::check_guest(&first.qemu).await?;
    require::check_contents(guests)?;
    Ok(Machine::look(&first.qemu).await)
}

async fn create(lab: &LabSettings, guests: &[GuestSettings]) -> Result<Lab> {
    let state = State {
        lab: lab.clone(),
        guests: guests.to_vec(),
    };
    Lab::create(state).await
}

/// Boots all guests of a lab, each by the agent of its home.
async fn spread(lab: &Lab, image: &Image, agents: &[Agent]) -> Result<Crew> {
    let guests = named(GUEST, &lab.state().guests)?;
    let home = |number| lab.settings().home_of(number);
    Crew::boot(lab, image, &guests, Some(agents), home).await
}

/// The same for a lab that stays: once all have filled their memory nobody looks any more.
///
/// # Errors
/// What QEMU, an agent or a guest says.
pub(crate) async fn boot_to_stay(lab: &Lab, image: &Image, agents: &[Agent]) -> Result<()> {
    spread(lab, image, agents).await?.watch.check()
}

/// The order of one repeat: forwards and backwards in turn, so that what a method leaves behind meets
/// each neighbour.
fn in_turn(methods: &[Emptying], repeat: usize) -> Vec<Emptying> {
    let mut order = methods.to_vec();
    if repeat % 2 == 1 {
        order.reverse();
    }
    order
}
