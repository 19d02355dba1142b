//! What the members said seconds ago, while guests are moved: each move is looked at once more before it begins.
//!
//! ```text
//!   a plan's own facts ─┐
//!   members, every 10 s ┴▶ Recent ─▶ drover_plan::check_move ─▶ begun, or planned anew with the next round
//! ```
//! A plan of many guests is carried out for hours. A host that was cordoned meanwhile, a pin that was written, a guest that
//! was started where one of its group is to go would otherwise be seen when everything is over.

use std::sync::{Arc, Mutex, PoisonError};

use drover_execute::journal::{Move, Outcome};
use drover_execute::{MoveState, Record, Run, Stage};
use drover_plan::{Inventory, Progress, Round, Text, check_move};
use tokio::time::Instant;

use super::drive::{Shared, lock};
use crate::agent::Context;
use crate::limits;
use crate::planning;

/// The newest inventory, and when it was made.
#[derive(Debug, Clone, Default)]
pub struct Recent(Arc<Mutex<Option<Facts>>>);

#[derive(Debug)]
struct Facts {
    at: Instant,
    inventory: Arc<Inventory>,
}

impl Recent {
    pub fn note(&self, inventory: Inventory) {
        let facts = Facts {
            at: Instant::now(),
            inventory: Arc::new(inventory),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts);
    }

    fn get(&self) -> Option<Arc<Inventory>> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = newest.as_ref()?;
        let usable = facts.at.elapsed() <= limits::RUN_FACTS_USABLE;
        usable.then(|| Arc::clone(&facts.inventory))
    }

    /// Asks all members now and then while guests are moved, until the run is let go of.
    pub async fn renew(self, context: Arc<Context>, shared: Shared) {
        loop {
            tokio::time::sleep(limits::RUN_FACTS).await;
            if lock(&shared).run.stage() == Stage::Moving {
                self.look(&context).await;
            }
        }
    }

    async fn look(&self, context: &Context) {
        match planning::look(context).await {
            Ok(inventory) => self.note(inventory),
            Err(refusal) => {
                tracing::warn!(%refusal, "moves begin by what was known when they were planned");
            }
        }
    }

    /// Why a move is not to begin, by what has changed since it was planned. Where nothing is known, as when a run was
    /// just taken over, the members are asked first; nothing is said of what cannot be found out.
    pub async fn keeps_back(
        &self,
        context: &Context,
        shared: &Shared,
        number: u32,
    ) -> Option<Text> {
        if self.get().is_none() {
            // The lease is to be renewed meanwhile.
            let _ = tokio::time::timeout(limits::RUN_FACTS_WAIT, self.look(context)).await;
        }
        let inventory = self.get()?;
        let (planned, round, request) = {
            let run = &lock(shared).run;
            let record = run.moves().iter().find(|record| record.number == number)?;
            let round = round_of(run, record);
            (record.planned.clone(), round, run.began().request.clone())
        };
        let policy = context.config.policy.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let way = (&planned.vm, &planned.from, &planned.to);
            let may = check_move(&inventory, &policy, &request, way, &round);
            may.map_err(|why| format!("not begun, for things have changed: {}: {why}", planned.to))
        });
        looked.await.ok()?.err().map(Text::from)
    }
}

/// The other moves of its round.
fn round_of(run: &Run, of: &Record) -> Round {
    let moves = run.moves().iter();
    let others = moves.filter(|other| other.round == of.round && other.number != of.number);
    let how_far = |record: &Record| {
        let progress = match &record.state {
            MoveState::Waiting => Progress::Waits,
            MoveState::UnderWay { .. }
            | MoveState::Ended {
                outcome: Outcome::Moved { .. } | Outcome::Unknown { .. },
                ..
            } => Progress::Begun,
            MoveState::Ended { .. } | MoveState::Dropped => Progress::Failed,
        };
        let Move { vm, to, .. } = &record.planned;
        (vm.clone(), (to.clone(), progress))
    };
    others.map(how_far).collect()
}
