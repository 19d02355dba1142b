//! What the members said seconds ago, while guests are moved: each move is looked at once more before it begins.
//!
//! ```text
//!   a plan's own facts ─┐
//!   members, every 10 s ┴▶ Recent ─▶ drover_plan::check_move ─▶ begun, or planned anew with the next round
//! ```
//! A plan of many guests is carried out for hours. A host that was cordoned meanwhile, a pin that was written, a guest that
//! was started where one of its group is to go would otherwise be seen when everything is over.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use drover_execute::{MoveState, Run, Stage};
use drover_plan::{Inventory, Text, check_move};
use drover_types::VmName;
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
            let moves = lock(&shared).run.stage() == Stage::Moving;
            if !moves {
                continue;
            }
            match planning::look(&context).await {
                Ok(inventory) => self.note(inventory),
                Err(refusal) => {
                    tracing::warn!(%refusal, "moves begin by what was known when they were planned");
                }
            }
        }
    }

    /// Why a move is not to begin, by what has changed since it was planned. Nothing is said without facts.
    pub async fn keeps_back(
        &self,
        context: &Context,
        shared: &Shared,
        number: u32,
    ) -> Option<Text> {
        let inventory = self.get()?;
        let (planned, others, request) = {
            let run = &lock(shared).run;
            let record = run.moves().iter().find(|record| record.number == number)?;
            let others = yet_to_move(run, record.round);
            (record.planned.clone(), others, run.began().request.clone())
        };
        let policy = context.config.policy.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let way = (&planned.vm, &planned.from, &planned.to);
            let may = check_move(&inventory, &policy, &request, way, &others);
            may.map_err(|why| format!("not begun, for things have changed: {}: {why}", planned.to))
        });
        looked.await.ok()?.err().map(Text::from)
    }
}

fn yet_to_move(run: &Run, round: u32) -> BTreeSet<VmName> {
    let moves = run.moves().iter().filter(|record| record.round == round);
    let open = moves.filter(|record| {
        matches!(
            record.state,
            MoveState::Waiting | MoveState::UnderWay { .. }
        )
    });
    open.map(|record| record.planned.vm.clone()).collect()
}
