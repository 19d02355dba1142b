//! The cluster's coordinator: carries out runs, one at a time.
//!
//! ```text
//!   POST /v1/runs ─▶ Coordinator ─▶ Driver ── asks ──▶ agents of all hosts, planning
//!                        │            │ drover_execute::Run: what next
//!                        └── Keep ◀───┘ entries, fenced
//!                            drover-store: one SQLite file below `state`, or etcd
//! ```
//!
//! Every agent has one of these, and only those of hosts that may coordinate do anything: the others take
//! their orders, and refuse runs with the word where to ask. Where there are several, the one that begins a
//! run leads while it is under way; the others look whether it still does (`stand_by.rs`). It
//! decides nothing of its own: what is done next is `drover-execute`'s to say, where a guest goes
//! `drover-plan`'s.
//!
//! # Invariant
//! Nothing is ordered before it is written down, so that an agent that was killed goes on where it was when it
//! is started again, or another one does in its place.

mod asks;
mod cancel;
mod drive;
mod keep;
mod parked;
mod parking;
mod place;
mod recent;
mod refusals;
mod remember;
mod stand_by;
mod standing;
mod tally;
mod view;
mod written;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::{ErrorCode, Refusal, RunRequest, RunView};
use drover_execute::Run;
use drover_execute::journal::{Began, ParkedGuest, UnixMillis};
use drover_plan::{Plan, Request, Text, text};
use drover_store::{Leadership, StoreError};
use drover_types::{HostName, RunId};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use self::asks::Agents;
use self::drive::{CancelOrder, Driver, Shared, Shown, lock};
use self::keep::Keep;
use self::place::Place;
use self::recent::Recent;
use crate::agent::Context;
use crate::limits;
use crate::metrics::RunUnderWay;

/// Whoever carries out runs on this host.
#[derive(Debug)]
pub struct Coordinator {
    context: Arc<Context>,
    place: Place,
    under_way: Mutex<Option<UnderWay>>,
    /// Held while a run begins, so that two requests do not come between each other's steps.
    beginning: tokio::sync::Mutex<()>,
    /// The run whose journal cannot be read, and what is said of that: it is not led again and again.
    unreadable: Mutex<Option<(RunId, Refusal)>>,
    /// The agent ends: whatever is under way is the next one's.
    ends: AtomicBool,
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
            place: Place::new(Arc::clone(&context)),
            context,
            under_way: Mutex::new(None),
            unreadable: Mutex::new(None),
            beginning: tokio::sync::Mutex::new(()),
            ends: AtomicBool::new(false),
        }
    }

    /// Ends the driving of a run, not the run: the next agent takes it up.
    pub fn stop(&self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(under_way) = self.under_way().as_ref() {
            under_way.task.abort();
        }
    }

    /// Begins a run.
    ///
    /// # Errors
    /// Another one is under way, this is not the coordinator, or what is asked cannot be used.
    pub async fn start(&self, asked: RunRequest, by: &str) -> Result<RunView, Refusal> {
        self.place.check_is_here()?;
        if let Some(problem) = asked.problem() {
            return Err(Refusal::new(ErrorCode::BadRequest, problem));
        }
        self.check_hosts(&asked.request)?;
        if let Some(plan) = &asked.plan {
            plan.check_seal()
                .map_err(|error| crate::planning::outdated(&error.to_string()))?;
        }
        let _beginning = self.beginning.lock().await;
        let keep = self.place.keep().await?;
        // One that is under way and driven by nobody is left of a start or an end that went wrong.
        self.take_up_what_can_be().await?;
        if let Some(run) = self.open_run(&keep).await? {
            return Err(self.busy(run).await);
        }
        let (request, parked) = self.remembered(&keep, &asked).await?;
        let began = Began {
            run: RunId(Uuid::now_v7()),
            request,
            parked,
            exactly: asked.plan.as_ref().map(|plan| plan.seal),
            by: Text::from(by.to_owned()),
            at: now(),
        };
        let leadership = self.lead_next(&keep).await?;
        match keep.begin(&began, &leadership).await {
            Ok(()) => {}
            // It may be done as soon as the store answers again; whoever asks next takes it up.
            Err(error) if refusals::is_unknown(&error) => {
                let message = format!("the run may have begun: {error}");
                return Err(Refusal::new(ErrorCode::Timeout, message)
                    .next("look at `drover run` before you ask for it again"));
            }
            Err(StoreError::Conflict { .. }) => {
                let run = self.open_run(&keep).await?;
                return Err(self.busy(run.unwrap_or(began.run)).await);
            }
            Err(error) => return Err(self.place.unavailable(&error)),
        }
        let run = began.run;
        tracing::info!(%run, by = %began.by, request = ?began.request, "a run begins");
        self.drive(keep, Run::new(began), 2, leadership, asked.plan, Vec::new());
        self.get(run).await
    }

    /// Whether the hosts that a run is about are members: before any of them is told anything.
    fn check_hosts(&self, request: &Request) -> Result<(), Refusal> {
        let cluster = &self.context.cluster;
        let membership = cluster.membership().ok_or_else(|| cluster.no_cluster())?;
        let is_none = |host: &&HostName| membership.member(host).is_none();
        let unknown = match request {
            Request::Drain { hosts, .. } => hosts.iter().find(is_none),
            Request::Resume { host, .. } => Some(host).filter(is_none),
            Request::Rebalance { .. } => None,
        };
        let Some(host) = unknown else {
            return Ok(());
        };
        let message = format!("{host} is not a member of the cluster");
        let names: Vec<&str> = membership
            .members
            .iter()
            .map(|member| member.host.as_str())
            .collect();
        Err(Refusal::new(ErrorCode::NoSuchHost, message)
            .next(format!("its members are {}", names.join(", "))))
    }

    /// Whether no run is under way that may need every host.
    ///
    /// # Errors
    /// One is, or it cannot be told.
    pub async fn check_idle(&self) -> Result<(), Refusal> {
        if self.place.check_is_here().is_err() || !self.place.may_hold_a_run() {
            return Ok(());
        }
        let keep = self.place.keep().await?;
        match self.open_run(&keep).await? {
            Some(run) => Err(self.busy(run).await),
            None => Ok(()),
        }
    }

    /// Who left a host that is to be resumed, and who is parked there, is known here.
    async fn remembered(
        &self,
        keep: &Keep,
        asked: &RunRequest,
    ) -> Result<(Request, Vec<ParkedGuest>), Refusal> {
        let mut request = asked.request.clone();
        let Request::Resume { host, homes, .. } = &mut request else {
            return Ok((request, Vec::new()));
        };
        let known = keep.homes(host).await;
        let mut known = known.map_err(|error| self.place.unavailable(&error))?;
        if asked.fail_back {
            *homes = known.left;
        }
        known.parked.reverse();
        Ok((request, known.parked))
    }

    /// So many of the runs that are remembered, newest first.
    ///
    /// # Errors
    /// This is not the coordinator, or the store does not answer.
    pub async fn list(&self, newest: usize) -> Result<Vec<RunView>, Refusal> {
        self.place.check_is_here()?;
        let keep = self.place.keep().await?;
        let runs = keep.runs().await;
        let mut views = Vec::new();
        let runs = runs.map_err(|error| self.place.unavailable(&error))?;
        for run in runs.into_iter().take(newest) {
            match self.view(&keep, run, false).await {
                Ok(view) => views.push(view),
                // Forgotten meanwhile.
                Err(refusal) if refusal.code == ErrorCode::NoSuchRun => {}
                Err(refusal) if refusal.code == ErrorCode::Internal => {
                    tracing::error!(%refusal, "left out of the list of runs");
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(views)
    }

    /// One run; where another agent carries it out, as that one sees it.
    ///
    /// # Errors
    /// As for [`list`](Self::list), and there is none of that id.
    pub async fn get(&self, id: RunId) -> Result<RunView, Refusal> {
        self.place.check_is_here()?;
        let keep = self.place.keep().await?;
        // Shown without the store, which may not answer at the moment.
        if self.shared(id).is_none() {
            let coordinator = self.coordinator_of(&keep, id).await?;
            if coordinator != self.context.config.host
                && self.open_run(&keep).await? == Some(id)
                && let Some(view) = self.as_seen_by(&coordinator, id).await
            {
                return Ok(view);
            }
        }
        self.view(&keep, id, true).await
    }

    async fn coordinator_of(&self, keep: &Keep, id: RunId) -> Result<HostName, Refusal> {
        let found = keep.coordinator_of(id).await;
        let found = found.map_err(|error| self.place.unavailable(&error))?;
        found.ok_or_else(|| refusals::no_such_run(id))
    }

    /// What its coordinator sees of it beyond its journal; nothing if it does not answer.
    async fn as_seen_by(&self, coordinator: &HostName, id: RunId) -> Option<RunView> {
        let client = self.context.peers.client(coordinator).ok()?;
        let asked = tokio::time::timeout(limits::PEER_PROBE, client.run(id)).await;
        asked.ok()?.ok()
    }

    async fn view(&self, keep: &Keep, id: RunId, whole: bool) -> Result<RunView, Refusal> {
        if let Some(shared) = self.shared(id) {
            let shown = lock(&shared);
            return Ok(RunView {
                plan: shown.plan.clone().filter(|_| whole),
                notes: shown.notes.clone(),
                ..view::view(&shown.run, &self.context.config.host)
            });
        }
        let entries = keep.entries(id).await;
        let entries = entries.map_err(|error| self.place.unavailable(&error))?;
        let run = Run::replay(&entries).map_err(|error| {
            Refusal::new(
                ErrorCode::Internal,
                format!("run {id} cannot be shown: {error}"),
            )
        })?;
        // Read after the entries: whoever took the run over says so before it writes of it.
        let coordinator = self.coordinator_of(keep, id).await?;
        Ok(view::view(&run, &coordinator))
    }

    fn drive(
        &self,
        keep: Keep,
        run: Run,
        next: u64,
        leadership: Leadership,
        exactly: Option<Plan>,
        notes: Vec<String>,
    ) {
        let id = run.began().run;
        let shared = Arc::new(Mutex::new(Shown {
            run,
            plan: None,
            notes,
        }));
        let (orders, inbox) = mpsc::channel(limits::RUN_ORDERS);
        let driver = Driver {
            agents: Agents {
                context: Arc::clone(&self.context),
                run: id,
                standing: keep.standing(&leadership),
            },
            keep,
            shared: Arc::clone(&shared),
            leadership,
            next,
            exactly: exactly.map(Arc::new),
            orders: inbox,
            recent: Recent::default(),
        };
        let way_out = self.place.way_out();
        let task = tokio::spawn(async move {
            if let Err(error) = driver.drive().await {
                tracing::error!(run = %id, %error, next = way_out, "the run is let go of");
            }
        });
        *self.under_way() = Some(UnderWay {
            id,
            shared,
            orders,
            task,
        });
        if self.ends.load(Ordering::SeqCst) {
            self.stop();
        }
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

    /// The run that this host carries out at the moment, for a scrape.
    pub fn carries_out(&self) -> Option<RunUnderWay> {
        let under_way = self.under_way();
        let driven = under_way.as_ref().filter(|run| !run.task.is_finished())?;
        let shown = lock(&driven.shared);
        let began = shown.run.began();
        shown.run.result().is_none().then(|| RunUnderWay {
            kind: tally::kind(&began.request),
            began: Duration::from_millis(began.at.0),
        })
    }

    async fn busy(&self, run: RunId) -> Refusal {
        let what = match self.get(run).await {
            Ok(view) => format!(
                "{}, asked for by {}, since {:.0}, carried out by {}",
                text::request(&view.request),
                view.by,
                view.began_at,
                view.coordinator
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
