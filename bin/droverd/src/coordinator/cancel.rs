//! A run ended by an operator, whichever host is asked: whoever carries it out writes that down.

use drover_api::{CancelRunRequest, ErrorCode, Refusal, RunView, RunningMoves};
use drover_execute::journal::{Cancel, Running};
use drover_plan::Text;
use drover_types::{HostName, RunId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::drive::CancelOrder;
use super::{Coordinator, now, refusals};
use crate::limits;

impl Coordinator {
    /// Ends a run: no further move begins.
    ///
    /// # Errors
    /// There is none of that id, or it has ended; and as for [`list`](Self::list).
    pub async fn cancel(
        &self,
        id: RunId,
        asked: CancelRunRequest,
        by: &str,
    ) -> Result<RunView, Refusal> {
        let until = Instant::now() + limits::RUN_CANCEL;
        loop {
            let view = self.get(id).await?;
            if view.result.is_some() {
                return Err(refusals::has_ended(id));
            }
            if let Some(view) = self.try_cancel(&view, &asked, by).await? {
                return Ok(view);
            }
            // Whoever carried it out has just let go of it: another one takes it over, or it has ended.
            if Instant::now() >= until {
                return Err(refusals::nobody_leads(id));
            }
            tokio::time::sleep(limits::RUN_LOOK).await;
        }
    }

    /// Tells whoever carries a run out to end it; nothing if that one let go of it meanwhile.
    async fn try_cancel(
        &self,
        view: &RunView,
        asked: &CancelRunRequest,
        by: &str,
    ) -> Result<Option<RunView>, Refusal> {
        let id = view.id;
        {
            let _beginning = self.beginning.lock().await;
            self.take_up_what_can_be().await?;
        }
        let Some(orders) = self.orders_to(id) else {
            if view.coordinator == self.context.config.host {
                return Ok(None);
            }
            return match self.pass_on(&view.coordinator, id, asked, by).await {
                Err(refusal) if refusal.code == ErrorCode::NotTheCoordinator => Ok(None),
                passed => passed.map(Some),
            };
        };
        let cancel = Cancel {
            running: match asked.running {
                RunningMoves::Cancel => Running::Cancel,
                RunningMoves::Finish => Running::Finish,
            },
            uncordon: asked.uncordon,
            by: Text::from(by.to_owned()),
            at: now(),
        };
        let (tell, told) = oneshot::channel();
        if orders.send((cancel, tell)).await.is_err() {
            return Ok(None);
        }
        let Ok(told) = tokio::time::timeout(limits::RUN_CANCEL, told).await else {
            let message = format!("the cancel of run {id} waits to be written down");
            return Err(Refusal::new(ErrorCode::Timeout, message)
                .next(
                    "no move begins meanwhile; `drover run` shows when it counts. It is forgotten if the agent ends \
                     before that: repeat the command then",
                ));
        };
        match told {
            Ok(Ok(())) => self.get(id).await.map(Some),
            Ok(Err(why)) => {
                let message = format!("the cancel of run {id} could not be written down: {why}");
                Err(Refusal::new(ErrorCode::StoreUnavailable, message))
            }
            Err(_) => Ok(None),
        }
    }

    /// How a run is told anything that this host carries out.
    fn orders_to(&self, id: RunId) -> Option<mpsc::Sender<CancelOrder>> {
        let under_way = self.under_way();
        let found = under_way.as_ref().filter(|run| run.id == id);
        let found = found.filter(|run| !run.task.is_finished());
        found.map(|run| run.orders.clone())
    }

    /// A cancel is the coordinator's to write down.
    async fn pass_on(
        &self,
        coordinator: &HostName,
        id: RunId,
        asked: &CancelRunRequest,
        by: &str,
    ) -> Result<RunView, Refusal> {
        let asked = CancelRunRequest {
            by: Some(by.to_owned()),
            ..asked.clone()
        };
        let client = self.context.peers.client(coordinator)?;
        client.cancel_run(id, &asked).await.map_err(|error| {
            let told = error.refusal().cloned();
            told.unwrap_or_else(|| refusals::not_passed_on(coordinator, id, &error))
        })
    }
}
