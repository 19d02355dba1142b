//! A guest that leaves, works a little elsewhere, and comes back to a host that kept its pages.
//!
//! Each pair of trips begins without a checkpoint on either host, so that the first one is the
//! guest's first. It is verified after the second: to read everything would be no light work for
//! the guest, and what either trip damaged is found then.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_api::{CheckpointView, CheckpointsView};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::compare::{
    DroverFacts, Method, ReducedSummary, Say, Spread, aligned, move_by_drover, order, spread,
};
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::meter::Measured;
use crate::resident::{Boot, Resident};
use crate::settings::{GUEST, GuestSettings, LabSettings};
use crate::unite::start_united;
use crate::{limits, require};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Hosts and NICs, with agents that keep checkpoints.
    pub lab: LabSettings,
    /// The guest.
    pub guest: GuestSettings,
    /// The ways of drover's to reduce bytes.
    pub methods: Vec<Method>,
    /// How often each.
    pub repeats: usize,
    /// Seconds that the guest is away.
    pub away_s: u64,
}

/// A guest's two trips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// How it was moved.
    pub method: Method,
    /// The number of the repeat, from 0.
    pub repeat: usize,
    /// Its first trip.
    pub out: Measured,
    /// Its return.
    pub back: Measured,
    /// What drover's agents say of both.
    pub drover: [DroverFacts; 2],
    /// Bytes of the return as a part of those of the first trip.
    pub ratio: f64,
    /// Pages that the guest verified after its return, none of them bad.
    pub verified: u64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// The pairs of trips, in their order; all of them verified.
    pub pairs: Vec<Pair>,
    /// What went wrong, if anything; the trips end there.
    pub wrong: Option<String>,
}

/// Makes the lab, moves the guest to and fro, and gives the result; the caller removes the lab of
/// that name.
///
/// # Errors
/// What keeps it from beginning.
pub async fn returns(plan: &Plan, command: &str, say: Say<'_>) -> Result<Returned> {
    let no_agents = |method: &&Method| method.encryption().is_none();
    if let Some(method) = plan.methods.iter().find(no_agents) {
        bail!("{method} is not drover's: only its agents keep pages of guests that left");
    }
    plan.guest.probe()?;
    require::check_guest(&plan.guest.qemu).await?;
    let guests = vec![plan.guest.clone()];
    require::check_contents(&guests)?;
    require::check_memory(&plan.lab, &guests)?;
    let machine = Machine::look(&plan.guest.qemu).await;
    let mut lab = plan.lab.clone();
    // Or the guest would find what it brought on an earlier trip.
    lab.agents.shared_pages.get_or_insert(Bytes(0));
    let lab = Lab::create(State { lab, guests }).await?;
    let agents = start_united(&lab).await?;
    let image = Image::build(lab.folder(), &lab.state().guests).await?;
    let boot = Boot {
        lab: &lab,
        host: 0,
        name: GUEST.parse()?,
        settings: &plan.guest,
        image: &image,
    };
    let mut guest = boot.by_agent(&agents[0]).await?;
    let mut pairs = Vec::new();
    let all = all_pairs(plan, (&lab, &agents), &mut guest, &mut pairs, say);
    let wrong = all.await.err();
    drop(agents);
    lab.remove().await?;
    Ok(Returned {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        pairs,
        wrong: wrong.map(|error| format!("{error:#}")),
    })
}

async fn all_pairs(
    plan: &Plan,
    (lab, agents): (&Lab, &[Agent]),
    guest: &mut Resident,
    pairs: &mut Vec<Pair>,
    say: Say<'_>,
) -> Result<()> {
    for repeat in 0..plan.repeats {
        for method in order(&plan.methods, repeat) {
            forget(agents, guest).await?;
            let (out, first) = move_by_drover(lab, guest, agents, method, &mut |_| {})
                .await
                .with_context(|| format!("{method}, repeat {}, away", repeat + 1))?;
            tokio::time::sleep(Duration::from_secs(plan.away_s)).await;
            kept(agents, |kept| kept.checkpoints.iter().any(of(guest))).await?;
            let (back, second) = move_by_drover(lab, guest, agents, method, &mut |_| {})
                .await
                .with_context(|| format!("{method}, repeat {}, back", repeat + 1))?;
            let pair = Pair {
                method,
                repeat,
                drover: [DroverFacts::of(&first), DroverFacts::of(&second)],
                ratio: bytes(&back) / bytes(&out).max(1.0),
                verified: guest.console.verify().await?.pages,
                out,
                back,
            };
            say(&line(&pair, plan.repeats));
            pairs.push(pair);
        }
    }
    Ok(())
}

/// Has no host keep anything of the guest.
async fn forget(agents: &[Agent], guest: &Resident) -> Result<()> {
    for agent in agents {
        let agent = std::slice::from_ref(agent);
        // What is still being written when its guest has gone is kept a moment later.
        kept(agent, |kept| {
            kept.taken.0 == 0 || kept.checkpoints.iter().any(of(guest))
        })
        .await?;
        let client = &agent[0].client;
        if client.checkpoints().await?.taken.0 > 0 {
            client.remove_checkpoint(&guest.definition.name).await?;
        }
    }
    Ok(())
}

fn of(guest: &Resident) -> impl Fn(&CheckpointView) -> bool {
    |one| one.vm == guest.definition.name
}

/// Waits until one of the hosts keeps what is wanted.
async fn kept(agents: &[Agent], wanted: impl Fn(&CheckpointsView) -> bool) -> Result<()> {
    let deadline = Instant::now() + limits::KEPT;
    loop {
        for agent in agents {
            if wanted(&agent.client.checkpoints().await?) {
                return Ok(());
            }
        }
        if Instant::now() > deadline {
            let waited = limits::KEPT.as_secs();
            bail!("after {waited} s no host keeps a checkpoint of the guest that left it");
        }
        tokio::time::sleep(limits::POLL).await;
    }
}

fn bytes(measured: &Measured) -> f64 {
    measured.wire_bytes.values().sum::<u64>() as f64
}

const IN_MIB: f64 = 1.0 / (1 << 20) as f64;

fn line(pair: &Pair, repeats: usize) -> String {
    format!(
        "{}/{repeats} {:<12} away {:.0} MiB in {:.0} ms, back {:.1} MiB in {:.0} ms: {:.3} of the bytes, verified",
        pair.repeat + 1,
        pair.method,
        bytes(&pair.out) * IN_MIB,
        pair.out.total_ms,
        bytes(&pair.back) * IN_MIB,
        pair.back.total_ms,
        pair.ratio
    )
}

impl Returned {
    /// Whether every pair took place.
    #[must_use]
    pub fn holds(&self) -> bool {
        let wanted = self.settings.methods.len() * self.settings.repeats;
        self.wrong.is_none() && self.pairs.len() == wanted
    }
}

/// Medians by method, smallest and largest in brackets.
#[must_use]
pub fn table(returned: &Returned) -> String {
    let columns = [
        "method",
        "away MiB",
        "away ms",
        "back MiB",
        "back ms",
        "downtime ms",
        "of bytes",
        "verified",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for method in &returned.settings.methods {
        let own = || returned.pairs.iter().filter(|pair| pair.method == *method);
        let cell =
            |value: fn(&Pair) -> f64, digits| spread(Spread::of(own().map(value)), 1.0, digits);
        rows.push([
            method.to_string(),
            cell(|pair| bytes(&pair.out) * IN_MIB, 0),
            cell(|pair| pair.out.total_ms, 0),
            cell(|pair| bytes(&pair.back) * IN_MIB, 1),
            cell(|pair| pair.back.total_ms, 0),
            cell(|pair| pair.back.downtime_ms, 0),
            cell(|pair| pair.ratio, 3),
            format!("{}/{}", own().count(), returned.settings.repeats),
        ]);
    }
    let guest = &returned.settings.guest;
    let mut text = format!(
        "{} guest, {}, {}; away for {} s\n\n{}",
        guest.memory,
        guest.contents_in_words(),
        guest.dirty,
        returned.settings.away_s,
        aligned(&rows)
    );
    for method in &returned.settings.methods {
        for (trip, what) in ["away", "back"].into_iter().enumerate() {
            let own = returned.pairs.iter().filter(|pair| pair.method == *method);
            let facts: Vec<_> = own.map(|pair| &pair.drover[trip]).collect();
            if let Some(reduced) = ReducedSummary::of(&facts) {
                let lines = reduced.lines();
                let _ = write!(text, "Bytes of {method}, {what}:\n{lines}");
            }
        }
    }
    if let Some(wrong) = &returned.wrong {
        let _ = writeln!(text, "ended early: {wrong}");
    }
    text
}
