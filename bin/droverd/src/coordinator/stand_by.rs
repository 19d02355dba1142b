//! Runs that nobody drives, taken up: of an earlier agent of this host, or of another host that no longer leads.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal};
use drover_execute::Run;
use drover_store::{Campaign, Leadership};
use drover_types::{HostName, RunId};
use tokio::time::Instant;

use super::Coordinator;
use super::keep::Keep;
use crate::limits;

impl Coordinator {
    /// Takes up whatever run is under way that nobody leads: the one that an earlier agent drove, one whose beginning
    /// was written down though the store did not say so, and, where others may lead as well, theirs.
    pub async fn stand_by(&self) {
        let mut told = None;
        while !self.ends.load(Ordering::SeqCst) {
            if self.place.check_is_here().is_ok() && self.place.may_hold_a_run() {
                let taken = {
                    let _beginning = self.beginning.lock().await;
                    self.take_up().await
                };
                self.tell(taken.as_ref().err(), &mut told);
            }
            tokio::time::sleep(limits::RUN_STAND_BY).await;
        }
    }

    /// Why no run is taken up, once for each reason.
    fn tell(&self, refusal: Option<&Refusal>, told: &mut Option<ErrorCode>) {
        // That another one leads is as it should be.
        let refusal = refusal.filter(|refusal| refusal.code != ErrorCode::RunUnderWay);
        let code = refusal.map(|refusal| refusal.code);
        if *told == code {
            return;
        }
        match refusal {
            Some(refusal) => {
                tracing::warn!(%refusal, next = refusal.next, "runs are not looked after")
            }
            None => tracing::info!("runs are looked after again"),
        }
        *told = code;
    }

    /// Leads the run that is under way, and drives it; nothing if it is driven, or there is none.
    pub(super) async fn take_up(&self) -> Result<(), Refusal> {
        let keep = self.place.keep().await?;
        let Some(run) = self.open_run(&keep).await? else {
            return Ok(());
        };
        if self.drives(run) {
            return Ok(());
        }
        self.check_readable(run)?;
        let leadership = self.lead(&keep).await?;
        match self.take_over(&keep, &leadership).await {
            Ok(Some((run, next, from))) => {
                let id = run.began().run;
                let from = from.map(|host| format!("taken over from {host}, which no longer led"));
                tracing::info!(run = %id, entries = next - 1, from, "taken up where it was");
                self.drive(
                    keep,
                    run,
                    next,
                    leadership,
                    None,
                    from.into_iter().collect(),
                );
                Ok(())
            }
            Ok(None) => {
                keep.resign(leadership).await;
                Ok(())
            }
            Err(refusal) => {
                keep.resign(leadership).await;
                Err(refusal)
            }
        }
    }

    /// The run that is under way, the number of its next entry, and who carried it out if another host did.
    async fn take_over(
        &self,
        keep: &Keep,
        leadership: &Leadership,
    ) -> Result<Option<(Run, u64, Option<HostName>)>, Refusal> {
        let taken = keep.take_over(leadership).await;
        let Some((run, from)) = taken.map_err(|e| self.place.unavailable(&e))? else {
            return Ok(None);
        };
        let entries = keep.entries(run).await;
        let entries = entries.map_err(|e| self.place.unavailable(&e))?;
        let replayed = Run::replay(&entries).map_err(|error| {
            let message = format!("run {run} cannot be taken up: {error}");
            let refusal = Refusal::new(ErrorCode::Internal, message).next(self.place.way_out());
            *self.unreadable() = Some((run, refusal.clone()));
            refusal
        })?;
        Ok(Some((replayed, entries.len() as u64 + 1, from)))
    }

    fn unreadable(&self) -> MutexGuard<'_, Option<(RunId, Refusal)>> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found of a run stays so until another version of this program reads it.
    fn check_readable(&self, run: RunId) -> Result<(), Refusal> {
        match &*self.unreadable() {
            Some((unreadable, refusal)) if *unreadable == run => Err(refusal.clone()),
            _ => Ok(()),
        }
    }

    pub(super) async fn open_run(&self, keep: &Keep) -> Result<Option<RunId>, Refusal> {
        let open = keep.under_way().await;
        open.map_err(|error| self.place.unavailable(&error))
    }

    /// As [`take_up`](Self::take_up), where it is no matter that another agent leads.
    pub(super) async fn take_up_what_can_be(&self) -> Result<(), Refusal> {
        match self.take_up().await {
            Err(refusal) if refusal.code == ErrorCode::RunUnderWay => Ok(()),
            taken => taken,
        }
    }

    /// As [`lead`](Self::lead), where no run is under way: whoever led the last one, or has just looked for one,
    /// lets go in a moment.
    pub(super) async fn lead_next(&self, keep: &Keep) -> Result<Leadership, Refusal> {
        let until = Instant::now() + limits::RUN_LET_GO;
        loop {
            match self.lead(keep).await {
                Err(refusal)
                    if refusal.code == ErrorCode::RunUnderWay && Instant::now() < until =>
                {
                    tokio::time::sleep(limits::RUN_LOOK).await;
                }
                led => return led,
            }
        }
    }

    pub(super) async fn lead(&self, keep: &Keep) -> Result<Leadership, Refusal> {
        let campaign = keep.lead().await;
        match campaign.map_err(|error| self.place.unavailable(&error))? {
            Campaign::Won(leadership) => Ok(leadership),
            Campaign::Held(holding) => {
                let left = holding.left.as_secs();
                let message = format!("{} coordinates at the moment", holding.holder);
                Err(Refusal::new(ErrorCode::RunUnderWay, message).next(format!(
                    "ask there, or here in {left} s if that host is gone"
                )))
            }
        }
    }
}
