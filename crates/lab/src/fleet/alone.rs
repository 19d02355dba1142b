//! One guest moved alone, with nothing shared: what several are held against that are moved together.

use anyhow::{Context, Result};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use super::by_drover::move_one;
use super::crew::Crew;
use super::drain::{EMPTIED, Stage};
use super::measure::Meter;
use super::{Emptying, GuestMoved, Plan};
use crate::compare::DroverFacts;
use crate::settings::{AgentSettings, GuestSettings};

/// How one guest moved alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// The guest, and where it went.
    #[serde(flatten)]
    pub guest: GuestMoved,
    /// From the order until it ran there.
    pub total_ms: f64,
    /// What its host sent meanwhile, on all NICs.
    pub wire_bytes: Bytes,
    /// What the agents say of it.
    pub drover: DroverFacts,
    /// Pages that it verified afterwards, all of them.
    pub verified_pages: u64,
}

/// Why one guest alone says nothing of all that such a plan moves.
pub(super) fn says_nothing(plan: &Plan) -> Option<String> {
    let alike = |guest: &GuestSettings| GuestSettings {
        seed: 0,
        ..guest.clone()
    };
    let mut all = plan.guests.iter().map(alike);
    let first = all.next();
    if !all.all(|other| Some(other) == first) {
        return Some(
            "one guest is measured alone for all of them, and these are of different sizes: give \
             --contents, with which all have the same"
                .to_owned(),
        );
    }
    let managed = plan.methods.iter().any(|method| method.is_managed());
    (!managed).then(|| {
        let drover = Emptying::Drover;
        format!("a guest is measured alone as {drover} moves it: name {drover} in --methods")
    })
}

impl Stage<'_> {
    /// Moves the first guest there and back while the others are held, by agents that have nothing of any guest
    /// and share nothing. Those that are there afterwards have nothing, either.
    pub(super) async fn alone(&mut self, crew: &Crew) -> Result<Alone> {
        let told = AgentSettings {
            shared_pages: Some(Bytes(0)),
            checkpoints: None,
            ..self.lab.settings().agents.clone()
        };
        self.start_anew(&told).await?;
        let member = crew.members.first().context("no guests")?;
        let guest = std::slice::from_ref(member);
        member.release(EMPTIED).await?;
        member.settle().await?;
        let [here, there] = [EMPTIED, EMPTIED + 1].map(|host| &self.agents[host]);
        let name = &member.definition.name;
        let meter = Meter::begin([here], self.lab.settings().nics.len(), guest)?;
        let drover = move_one(here, there, name).await?;
        let taken = meter.end(guest)?;
        let verified_pages = member.verify().await?;
        move_one(there, here, name).await?;
        member.hold().await?;
        let told = self.lab.settings().agents.clone();
        self.start_anew(&told).await?;
        let moved = taken.guests.into_iter().next();
        Ok(Alone {
            guest: moved.context("no guest was moved")?,
            total_ms: taken.total_ms,
            wire_bytes: taken.wire_bytes,
            drover,
            verified_pages,
        })
    }
}
