//! One run, driven to its end: decisions are written down, asks are put, answers taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{ErrorCode, Refusal};
use drover_execute::journal::{Cancel, Entry, UnixMillis};
use drover_execute::{Answer, Ask, Now, Run};
use drover_plan::{Account, Plan, Text};
use drover_store::{Campaign, Leadership, StoreError};
use drover_types::MigrationId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::asks::Agents;
use super::keep::Keep;
use super::recent::Recent;
use super::{tally, written};
use crate::agent::Context;
use crate::limits;
use crate::planning;

/// What is known of a run while it is under way, for whoever asks.
#[derive(Debug)]
pub struct Shown {
    pub run: Run,
    /// The first round's plan, with its reasons.
    pub plan: Option<Plan>,
    /// What the plans assumed, and what else an operator should see.
    pub notes: Vec<String>,
}

/// The same, shared.
pub type Shared = Arc<Mutex<Shown>>;

pub fn lock(shared: &Shared) -> MutexGuard<'_, Shown> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operator's word, and whether it was written down.
pub type CancelOrder = (Cancel, oneshot::Sender<Result<(), String>>);

/// Whoever carries one run out.
pub struct Driver {
    pub agents: Agents,
    pub keep: Keep,
    pub shared: Shared,
    pub leadership: Leadership,
    /// The number of the journal's next entry.
    pub next: u64,
    /// The plan that is to be carried out, where the operator gave one.
    pub exactly: Option<Arc<Plan>>,
    pub orders: mpsc::Receiver<CancelOrder>,
    /// What the members said seconds ago.
    pub recent: Recent,
}

/// Why a driver lets go of a run that has not ended.
#[derive(Debug, thiserror::Error)]
pub enum LetGo {
    /// Somebody else writes of it, or nobody may.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The authority no longer lets this host coordinate.
    #[error("the authority no longer lets this host coordinate")]
    Revoked,
    /// What was written contradicts the run: a fault of this program.
    #[error("the journal does not fit the run: {0}")]
    Inconsistent(#[from] drover_execute::Inconsistent),
}

/// Asks that are put, and when others may be put again.
#[derive(Default)]
struct Asking {
    put: JoinSet<(Ask, Answer)>,
    open: BTreeMap<Ask, tokio::task::Id>,
    not_before: BTreeMap<Ask, Instant>,
}

impl Driver {
    /// Until the run has ended, or another host may lead in the place of this one. Where no other host can, however
    /// often the leadership is lost meanwhile: by a host that stood still for longer than its lease, say.
    ///
    /// # Errors
    /// The run cannot be gone on with: its journal contradicts itself, or cannot be read.
    pub async fn drive(mut self) -> Result<(), LetGo> {
        let mut beside = JoinSet::new();
        let (context, shared) = (Arc::clone(&self.agents.context), Arc::clone(&self.shared));
        beside.spawn(self.recent.clone().renew(context, shared));
        while let Err(error) = self.while_it_leads().await {
            match &error {
                LetGo::Inconsistent(_) => return Err(error),
                // Another one need not wait for the lease.
                LetGo::Revoked => {
                    tracing::warn!(run = %self.agents.run, %error, "let go of, to be taken over");
                    break;
                }
                LetGo::Store(_) => {}
            }
            tracing::warn!(run = %self.agents.run, %error, "let go of, to be taken up again");
            if self.keep.is_shared() {
                // By whoever leads next, which may be this host.
                return Ok(());
            }
            self.take_up_again().await?;
        }
        self.keep.resign(self.leadership).await;
        Ok(())
    }

    /// Leads again, and goes on from what is written down.
    async fn take_up_again(&mut self) -> Result<(), LetGo> {
        let run = self.agents.run;
        let mut told = false;
        loop {
            tokio::time::sleep(limits::RUN_WRITE_AGAIN).await;
            let led = async {
                let Campaign::Won(leadership) = self.keep.lead().await? else {
                    return Ok(None);
                };
                let entries = self.keep.entries(run).await?;
                Ok::<_, StoreError>(Some((leadership, entries)))
            };
            match led.await {
                Ok(Some((leadership, entries))) => {
                    let again = Run::replay(&entries)?;
                    lock(&self.shared).run = again;
                    self.next = entries.len() as u64 + 1;
                    self.agents.standing = self.keep.standing(&leadership);
                    self.leadership = leadership;
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) if !told => {
                    told = true;
                    tracing::warn!(%run, %error, "not taken up again yet, which is tried on and on");
                }
                Err(error) => tracing::debug!(%run, %error, "not taken up yet"),
            }
        }
    }

    async fn while_it_leads(&mut self) -> Result<(), LetGo> {
        let started = Instant::now();
        let mut asking = Asking::default();
        let mut renew = Instant::now() + self.leadership.renew_every();
        let mut changes = self.agents.context.cluster.changes();
        loop {
            self.check_coordinates()?;
            self.decide(started).await?;
            if lock(&self.shared).run.result().is_some() {
                break;
            }
            let wake = self.put(&mut asking);
            tokio::select! {
                Some(answered) = asking.put.join_next(), if !asking.put.is_empty() => {
                    match answered {
                        Ok((ask, answer)) => {
                            asking.open.remove(&ask);
                            asking.not_before.insert(ask.clone(), Instant::now() + pause(&ask));
                            self.take(&ask, answer, started).await?;
                        }
                        // It is put again.
                        Err(failed) => asking.open.retain(|_, task| *task != failed.id()),
                    }
                }
                Some((cancel, told)) = self.orders.recv() => {
                    let written = self.write(Entry::CancelAsked(cancel)).await;
                    // Where another host leads by now, it is that one's to write down.
                    if written.is_ok() || !self.keep.is_shared() {
                        // Whoever asked may be gone.
                        let _ = told.send(written.as_ref().map_err(ToString::to_string).copied());
                    }
                    written?;
                }
                () = sleep_until(renew) => {
                    self.renew().await?;
                    renew = Instant::now() + self.leadership.renew_every();
                }
                // Who belongs to the cluster, or may coordinate.
                Ok(()) = changes.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
        Ok(())
    }

    /// Where another host can take the run over, only one that may coordinate goes on with it.
    fn check_coordinates(&self) -> Result<(), LetGo> {
        let Context {
            cluster, config, ..
        } = &*self.agents.context;
        if self.keep.is_shared() && !cluster.takes_orders_from(&config.host) {
            return Err(LetGo::Revoked);
        }
        Ok(())
    }

    /// Keeps the leadership. One that has ended is told; one that could not be renewed may go on.
    async fn renew(&mut self) -> Result<(), StoreError> {
        match self.keep.renew(&mut self.leadership).await {
            Ok(()) => self.agents.standing.renewed(&self.leadership),
            Err(error @ StoreError::Fenced { .. }) => return Err(error),
            Err(error) => tracing::warn!(%error, "the lease of runs was not renewed"),
        }
        Ok(())
    }

    async fn decide(&mut self, started: Instant) -> Result<(), LetGo> {
        loop {
            let fresh = MigrationId(Uuid::now_v7());
            let entry = lock(&self.shared).run.decide(now(started), fresh);
            match entry {
                Some(entry @ Entry::Ordered { number, at, .. }) => {
                    let kept_back = self.kept_back(number, at).await;
                    self.write(kept_back.unwrap_or(entry)).await?;
                }
                Some(entry) => self.write(entry).await?,
                None => return Ok(()),
            }
        }
    }

    /// What is written of a move that is not to begin, by what has changed since it was planned.
    async fn kept_back(&self, number: u32, at: UnixMillis) -> Option<Entry> {
        let context = &self.agents.context;
        let kept_back = self.recent.keeps_back(context, &self.shared, number);
        let why = kept_back.await?;
        Some(Entry::KeptBack { number, why, at })
    }

    async fn take(&mut self, ask: &Ask, answer: Answer, started: Instant) -> Result<(), LetGo> {
        let entries = lock(&self.shared).run.handle(ask, answer, now(started));
        for entry in entries {
            self.write(entry).await?;
        }
        Ok(())
    }

    /// Puts what may be put now; when there is more to put.
    fn put(&self, asking: &mut Asking) -> Instant {
        let asks = lock(&self.shared).run.asks();
        let now = Instant::now();
        // One that is not among them at the moment may be back in the next.
        asking
            .not_before
            .retain(|ask, at| *at > now || asks.contains(ask));
        let mut wake = Instant::now() + limits::RUN_IDLE;
        for ask in asks {
            if asking.open.contains_key(&ask) || is_before(&ask, &asking.open) {
                continue;
            }
            let not_before = asking.not_before.get(&ask).copied().or_else(|| first(&ask));
            if let Some(at) = not_before.filter(|at| *at > Instant::now()) {
                asking.not_before.insert(ask, at);
                wake = wake.min(at);
                continue;
            }
            let (putting, put) = (self.putting(ask.clone()), ask.clone());
            let task = asking.put.spawn(async move { (put, putting.await) });
            asking.open.insert(ask, task.id());
        }
        wake
    }

    fn putting(&self, ask: Ask) -> impl Future<Output = Answer> + use<> {
        let agents = self.agents.clone();
        let shared = Arc::clone(&self.shared);
        let exactly = self.exactly.clone();
        let recent = self.recent.clone();
        async move {
            let answered = async {
                match &ask {
                    Ask::Plan { round } => plan(&agents, (&shared, &recent), *round, exactly).await,
                    ask => agents.put(ask).await,
                }
            };
            match tokio::time::timeout(limits::RUN_ASK, answered).await {
                Ok(answer) => answer,
                Err(_) => {
                    let seconds = limits::RUN_ASK.as_secs();
                    let why = Text::from(format!("no answer within {seconds} s"));
                    Answer::Silence { why }
                }
            }
        }
    }

    /// Writes an entry down, however long that takes while nobody else may write, and applies it.
    async fn write(&mut self, entry: Entry) -> Result<(), LetGo> {
        let follows = written::follows(&lock(&self.shared).run, &entry);
        let run = self.agents.run;
        loop {
            let writing =
                self.keep
                    .write(run, self.next, &entry, follows.as_ref(), &self.leadership);
            match writing.await {
                Ok(()) => break,
                Err(
                    error @ (StoreError::NoQuorum { .. }
                    | StoreError::Unavailable { .. }
                    | StoreError::Full { .. }),
                ) => {
                    tracing::warn!(%error, "nothing is begun until the run can be written down");
                    tokio::time::sleep(limits::RUN_WRITE_AGAIN).await;
                    self.renew().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.next += 1;
        written::log(run, &entry);
        let mut shown = lock(&self.shared);
        shown.run.apply(&entry)?;
        if let Some(ended) = tally::ended(&shown.run) {
            self.agents.context.metrics.run_ended(&ended);
        }
        Ok(())
    }
}

/// How long after an answer the same is asked again.
fn pause(ask: &Ask) -> Duration {
    match ask {
        Ask::Look { .. } | Ask::Place { .. } | Ask::Park { .. } | Ask::Unpark { .. } => {
            limits::RUN_LOOK
        }
        _ => limits::RUN_AGAIN,
    }
}

/// A further round is for what failed a moment ago.
fn first(ask: &Ask) -> Option<Instant> {
    let later = matches!(ask, Ask::Plan { round } if *round > 1);
    later.then(|| Instant::now() + limits::RUN_ROUND)
}

/// A cordon on its way must not arrive after it was lifted.
fn is_before(ask: &Ask, open: &BTreeMap<Ask, tokio::task::Id>) -> bool {
    matches!(ask, Ask::Lift { host } if open.contains_key(&Ask::Cordon { host: host.clone() }))
}

async fn plan(
    agents: &Agents,
    (shared, recent): (&Shared, &Recent),
    round: u32,
    exactly: Option<Arc<Plan>>,
) -> Answer {
    let (request, wants_exactly) = {
        let shown = lock(shared);
        (shown.run.request(), shown.run.began().exactly.is_some())
    };
    let made = match (wants_exactly, exactly) {
        (false, _) => planning::make(&agents.context, request).await,
        (true, Some(plan)) => planning::verified(&agents.context, (*plan).clone()).await,
        (true, None) => {
            let why = "the plan that was given is not at hand any more, as this agent took the run up: give it again";
            return Answer::NoPlan {
                why: Account::from(why.to_owned()),
            };
        }
    };
    match made {
        Ok(made) => {
            let policy = &agents.context.config.policy;
            let planned = drover_execute::Planned::of(&made.plan, &made.inventory, policy);
            recent.note(made.inventory);
            let mut shown = lock(shared);
            for note in made.notes {
                if !shown.notes.contains(&note) {
                    shown.notes.push(note);
                }
            }
            shown.notes.truncate(limits::RUN_NOTES);
            if round == 1 {
                shown.plan = Some(made.plan);
            }
            Answer::Planned(Box::new(planned))
        }
        Err(refusal) => match refusal.code {
            ErrorCode::NoPlan | ErrorCode::PlanOutdated => Answer::NoPlan {
                why: in_lines(&refusal),
            },
            _ => Answer::Silence {
                why: Text::from(refusal.to_string()),
            },
        },
    }
}

/// All that it says, what to do next included.
fn in_lines(refusal: &Refusal) -> Account {
    let next = refusal.next.iter().map(|next| format!("\nnext: {next}"));
    let lines: String = std::iter::once(refusal.message.clone())
        .chain(next)
        .collect();
    Account::from(lines)
}

fn now(started: Instant) -> Now {
    let wall = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    Now {
        wall: UnixMillis(wall),
        elapsed: started.elapsed(),
    }
}
