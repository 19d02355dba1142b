//! Several guests on several hosts: a host emptied by each method in turn, and all hosts emptied and
//! filled again while NICs, agents and the coordinator fail.
//!
//! ```text
//!   watch      where each guest runs, since when, whoever moves it; whether one ever ran twice
//!   crew       several guests that are booted, held, released and verified together
//!   by_drover  one order to the coordinator          by_qemu   what a script does
//!   drain      the same host emptied by each method  rounds    all hosts in turn, with faults
//!   table      the results for a person
//! ```
//!
//! # Invariant
//! A guest that ever ran on two hosts at once, or went back, ends it with an error.

mod by_drover;
mod by_qemu;
mod crew;
mod drain;
mod method;
mod rounds;
mod table;
mod watch;
mod weather;

pub use method::Emptying;
pub use rounds::{Leg, Rounds, RoundsPlan, rounds};
pub use table::{rounds_table, table};

use anyhow::{Result, bail};
use crew::Crew;
use drover_types::{Bytes, VmName};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::compare::Say;
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::require;
use crate::settings::{Dirty, GUEST, GuestSettings, LabSettings, named};

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

/// Guests of different sizes, busy in different measure: multiples of what the first has.
const SIZES: [u64; 6] = [1, 2, 3, 1, 2, 4];
const RATES: [u64; 6] = [0, 1, 2, 1, 0, 4];

/// So many guests made from one, each with its own seed, contents of different sizes and rates at which
/// they are rewritten; memory as that takes.
#[must_use]
pub fn variety(base: &GuestSettings, count: usize) -> Vec<GuestSettings> {
    let sizes = SIZES.iter().cycle().zip(RATES.iter().cycle());
    let guest = |(number, (size, rate)): (usize, (&u64, &u64))| {
        let content = Bytes(base.content.0 * size);
        let rate = base.dirty.rate.map(|bytes| Bytes(bytes.0 * rate));
        let guest = GuestSettings {
            content,
            dirty: Dirty { rate, ..base.dirty },
            seed: base.seed.wrapping_add(number as u64),
            ..base.clone()
        };
        GuestSettings {
            memory: GuestSettings::memory_for(guest.filled()),
            ..guest
        }
    };
    sizes.take(count).enumerate().map(guest).collect()
}
