//! The cluster's coordinator: carries out runs, one at a time.
//!
//! ```text
//!   POST /v1/runs ─▶ Coordinator ─▶ Driver ── asks ──▶ agents of all hosts, planning
//!                        │            │ drover_execute::Run: what next
//!                        └── Keep ◀───┘ entries, fenced
//!                            drover-store: one SQLite file below `state`
//! ```
//!
//! Every agent has one of these, and only that of the authority's host does anything: the others take its
//! orders, and refuse runs with the word where to ask. It decides nothing of its own: what is done next is
//! `drover-execute`'s to say, where a guest goes `drover-plan`'s.
//!
//! # Invariant
//! Nothing is ordered before it is on disk, so that an agent that was killed goes on where it was when it is
//! started again ([`Coordinator::recover`]).

mod asks;
mod drive;
mod keep;
mod view;

use std::sync::{Arc, Mutex, PoisonError};

use drover_api::{CancelRunRequest, ErrorCode, Refusal, RunRequest, RunView, RunningMoves};
use drover_execute::Run;
use drover_execute::journal::{Began, Cancel, Running, UnixMillis};
use drover_plan::{Plan, Request, Text, text};
use drover_store::{Campaign, Embedded, HostClock, Leadership, Outcome, Store, StoreError};
use drover_types::{HostName, RunId};
use jiff::Timestamp;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use self::asks::Agents;
use self::drive::{CancelOrder, Driver, Shared, Shown, lock};
use self::keep::Keep;
use crate::agent::Context;
use crate::limits;

/// The store's file below the agent's state directory.
const FILE: &str = "cluster.db";

/// What is left where a journal contradicts itself.
const UNREADABLE: &str = "stop droverd, move cluster.db below `state` away and keep it, and start droverd: all runs are \
                          forgotten then; moves under way end by themselves, and hosts stay cordoned";

/// Whoever carries out runs on this host.
#[derive(Debug)]
pub struct Coordinator {
    context: Arc<Context>,
    keep: OnceCell<Keep>,
    under_way: Mutex<Option<UnderWay>>,
    /// Held while a run begins, so that two requests do not come between each other's steps.
    beginning: tokio::sync::Mutex<()>,
}

/// The run that is being driven.
#[derive(Debug)]
struct UnderWay {
    id: RunId,
    shared: Shared,
    orders: mpsc::Sender<CancelOrder>,
    task: JoinHandle<()>,
}

impl Coordinator {
    /// With nothing under way.
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            keep: OnceCell::new(),
            under_way: Mutex::new(None),
            beginning: tokio::sync::Mutex::new(()),
        }
    }

    /// Takes up the run that was under way when the agent ended.
    pub async fn recover(&self) {
        let file = self.context.config.state.join(FILE);
        if self.check_is_here().is_err() || !file.exists() {
            return;
        }
        loop {
            let taken = {
                let _beginning = self.beginning.lock().await;
                self.take_up().await
            };
            match taken {
                Ok(()) => return,
                Err(refusal) if refusal.code == ErrorCode::StoreUnavailable => {
                    tracing::warn!(%refusal, "a run that is under way is not taken up yet");
                }
                Err(refusal) => {
                    tracing::error!(%refusal, "the run that was under way is not taken up");
                    return;
                }
            }
            tokio::time::sleep(limits::RUN_RECOVER_AGAIN).await;
        }
    }

    async fn take_up(&self) -> Result<(), Refusal> {
        let keep = self.keep().await?;
        let Some(run) = keep.under_way().await.map_err(|e| unavailable(&e))? else {
            return Ok(());
        };
        if self.drives(run) {
            return Ok(());
        }
        let leadership = self.lead(keep).await?;
        let entries = keep.entries(run).await.map_err(|e| unavailable(&e))?;
        let replayed = Run::replay(&entries).map_err(|error| {
            let message = format!("run {run} cannot be taken up: {error}");
            Refusal::new(ErrorCode::Internal, message).next(UNREADABLE)
        })?;
        tracing::info!(%run, entries = entries.len(), "taken up where it was");
        self.drive(replayed, entries.len() as u64 + 1, leadership, None);
        Ok(())
    }

    /// Ends the driving of a run, not the run: the next agent takes it up.
    pub fn stop(&self) {
        if let Some(under_way) = self.under_way().as_ref() {
            under_way.task.abort();
        }
    }

    /// Begins a run.
    ///
    /// # Errors
    /// Another one is under way, this is not the coordinator, or what is asked cannot be used.
    pub async fn start(&self, asked: RunRequest, by: &str) -> Result<RunView, Refusal> {
        self.check_is_here()?;
        if let Some(problem) = asked.problem() {
            return Err(Refusal::new(ErrorCode::BadRequest, problem));
        }
        if let Some(plan) = &asked.plan {
            plan.check_seal()
                .map_err(|error| outdated(&error.to_string()))?;
        }
        let _beginning = self.beginning.lock().await;
        let keep = self.keep().await?;
        // One that is under way and driven by nobody is left of a start or an end that went wrong.
        self.take_up().await?;
        if let Some(run) = keep.under_way().await.map_err(|e| unavailable(&e))? {
            return Err(self.busy(run).await);
        }
        let request = self.with_homes(keep, &asked).await?;
        let began = Began {
            run: RunId(Uuid::now_v7()),
            request,
            exactly: asked.plan.as_ref().map(|plan| plan.seal),
            by: Text::from(by.to_owned()),
            at: now(),
        };
        let leadership = self.lead(keep).await?;
        match keep.begin(&began, &leadership).await {
            Ok(()) => {}
            // It may be done as soon as the store answers again; whoever asks next takes it up.
            Err(error) if is_unknown(&error) => {
                let message = format!("the run may have begun: {error}");
                return Err(Refusal::new(ErrorCode::Timeout, message)
                    .next("look at `drover run` before you ask for it again"));
            }
            Err(StoreError::Conflict { .. }) => {
                let run = keep.under_way().await.map_err(|e| unavailable(&e))?;
                return Err(self.busy(run.unwrap_or(began.run)).await);
            }
            Err(error) => return Err(unavailable(&error)),
        }
        let run = began.run;
        tracing::info!(%run, by = %began.by, request = ?began.request, "a run begins");
        self.drive(Run::new(began), 2, leadership, asked.plan);
        self.get(run).await
    }

    /// Who left a host that is to be resumed is known here.
    async fn with_homes(&self, keep: &Keep, asked: &RunRequest) -> Result<Request, Refusal> {
        let mut request = asked.request.clone();
        if let Request::Resume { host, homes, .. } = &mut request
            && asked.fail_back
        {
            *homes = keep.homes(host).await.map_err(|e| unavailable(&e))?;
        }
        Ok(request)
    }

    /// The runs that are remembered, newest first.
    ///
    /// # Errors
    /// This is not the coordinator, or the store does not answer.
    pub async fn list(&self) -> Result<Vec<RunView>, Refusal> {
        self.check_is_here()?;
        let keep = self.keep().await?;
        let mut views = Vec::new();
        for (run, coordinator) in keep.runs().await.map_err(|e| unavailable(&e))? {
            match self.view(keep, run, &coordinator, false).await {
                Ok(view) => views.push(view),
                Err(refusal) if refusal.code == ErrorCode::Internal => {
                    tracing::error!(%refusal, "left out of the list of runs");
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(views)
    }

    /// One run.
    ///
    /// # Errors
    /// As for [`list`](Self::list), and there is none of that id.
    pub async fn get(&self, id: RunId) -> Result<RunView, Refusal> {
        self.check_is_here()?;
        let keep = self.keep().await?;
        let runs = keep.runs().await.map_err(|e| unavailable(&e))?;
        let found = runs.into_iter().find(|(run, _)| *run == id);
        let (run, coordinator) = found.ok_or_else(|| no_such_run(id))?;
        self.view(keep, run, &coordinator, true).await
    }

    async fn view(
        &self,
        keep: &Keep,
        id: RunId,
        coordinator: &HostName,
        whole: bool,
    ) -> Result<RunView, Refusal> {
        if let Some(shared) = self.shared(id) {
            let shown = lock(&shared);
            return Ok(RunView {
                plan: shown.plan.clone().filter(|_| whole),
                notes: shown.notes.clone(),
                ..view::view(&shown.run, coordinator)
            });
        }
        let entries = keep.entries(id).await.map_err(|e| unavailable(&e))?;
        let run = Run::replay(&entries).map_err(|error| {
            Refusal::new(
                ErrorCode::Internal,
                format!("run {id} cannot be shown: {error}"),
            )
        })?;
        Ok(view::view(&run, coordinator))
    }

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
        let view = self.get(id).await?;
        if view.result.is_none() {
            let _beginning = self.beginning.lock().await;
            self.take_up().await?;
        }
        let orders = self
            .under_way()
            .as_ref()
            .map(|run| (run.id, run.orders.clone()));
        let orders = orders.filter(|(run, _)| *run == id && view.result.is_none());
        let (_, orders) = orders.ok_or_else(|| has_ended(id))?;
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
            return Err(has_ended(id));
        }
        let Ok(told) = tokio::time::timeout(limits::RUN_CANCEL, told).await else {
            let message = format!("the cancel of run {id} waits to be written down");
            return Err(Refusal::new(ErrorCode::Timeout, message)
                .next("no move begins meanwhile; `drover run` shows when it counts"));
        };
        match told {
            Ok(Ok(())) => self.get(id).await,
            Ok(Err(why)) => {
                let message = format!("the cancel of run {id} could not be written down: {why}");
                Err(Refusal::new(ErrorCode::StoreUnavailable, message))
            }
            Err(_) => Err(has_ended(id)),
        }
    }

    fn drive(&self, run: Run, next: u64, leadership: Leadership, exactly: Option<Plan>) {
        let Some(keep) = self.keep.get().cloned() else {
            return;
        };
        let id = run.began().run;
        let shared = Arc::new(Mutex::new(Shown {
            run,
            plan: None,
            notes: Vec::new(),
        }));
        let (orders, inbox) = mpsc::channel(limits::RUN_ORDERS);
        let driver = Driver {
            agents: Agents {
                context: Arc::clone(&self.context),
                run: id,
            },
            keep,
            shared: Arc::clone(&shared),
            leadership,
            next,
            exactly: exactly.map(Arc::new),
            orders: inbox,
        };
        let task = tokio::spawn(async move {
            if let Err(error) = driver.drive().await {
                tracing::error!(run = %id, %error, next = UNREADABLE, "the run is let go of");
            }
        });
        *self.under_way() = Some(UnderWay {
            id,
            shared,
            orders,
            task,
        });
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, Option<UnderWay>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn drives(&self, id: RunId) -> bool {
        let under_way = self.under_way();
        let found = under_way.as_ref().filter(|run| run.id == id);
        found.is_some_and(|run| !run.task.is_finished())
    }

    fn shared(&self, id: RunId) -> Option<Shared> {
        let under_way = self.under_way();
        let found = under_way.as_ref().filter(|run| run.id == id);
        // What one that has let go shows is no longer so.
        let found =
            found.filter(|run| !run.task.is_finished() || lock(&run.shared).run.result().is_some());
        found.map(|run| Arc::clone(&run.shared))
    }

    async fn lead(&self, keep: &Keep) -> Result<Leadership, Refusal> {
        match keep.lead().await.map_err(|e| unavailable(&e))? {
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

    /// The store, opened once.
    async fn keep(&self) -> Result<&Keep, Refusal> {
        let open = async || {
            let config = &self.context.config;
            let clock = HostClock::new()?;
            let store = Embedded::open(&config.state.join(FILE), clock).await?;
            Keep::new(Store::from(store), config.host.clone())
        };
        self.keep
            .get_or_try_init(open)
            .await
            .map_err(|error: StoreError| unavailable(&error))
    }

    /// Whether runs are carried out on this host.
    fn check_is_here(&self) -> Result<(), Refusal> {
        let membership = self.context.cluster.membership();
        let membership = membership.ok_or_else(|| self.context.cluster.no_cluster())?;
        let (own, authority) = (&self.context.config.host, &membership.authority);
        if own == authority {
            return Ok(());
        }
        let message = format!("runs are carried out by {authority}, and not by {own}");
        Err(
            Refusal::new(ErrorCode::NotTheCoordinator, message).next(format!(
                "run the command on {authority}, or with --agent https://{authority} and --identity"
            )),
        )
    }

    async fn busy(&self, run: RunId) -> Refusal {
        let what = match self.get(run).await {
            Ok(view) => format!(
                "{} of {}, since {:.0}",
                text::request(&view.request),
                view.by,
                view.began_at
            ),
            Err(_) => "nothing more is known of it".to_owned(),
        };
        let message = format!("run {run} is under way ({what}), and there is one at a time");
        Refusal::new(ErrorCode::RunUnderWay, message).next(
            "`drover run` shows it: wait for its end, or end it with `drover cancel --run`; several hosts \
             are drained together with `drover drain HOST HOST`",
        )
    }
}

fn now() -> UnixMillis {
    UnixMillis(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default())
}

fn unavailable(error: &StoreError) -> Refusal {
    let message = format!("runs cannot be written down: {error}");
    Refusal::new(ErrorCode::StoreUnavailable, message).next(format!(
        "look at the file {FILE} below `state`, and at the disk it is on"
    ))
}

fn is_unknown(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NoQuorum {
            outcome: Outcome::Unknown,
            ..
        } | StoreError::Unavailable {
            outcome: Outcome::Unknown,
            ..
        }
    )
}

fn outdated(why: &str) -> Refusal {
    Refusal::new(ErrorCode::PlanOutdated, why)
        .next("make it anew with `drover drain --dry-run -o FILE`")
}

fn no_such_run(id: RunId) -> Refusal {
    let message = format!("no run {id} is remembered");
    Refusal::new(ErrorCode::NoSuchRun, message).next("`drover run` lists them")
}

fn has_ended(id: RunId) -> Refusal {
    Refusal::new(ErrorCode::RunEnded, format!("run {id} has ended")).next("`drover run` tells how")
}
