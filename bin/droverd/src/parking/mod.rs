//! Guests that a run parks because they cannot move, and runs again when their host is back.
//!
//! ```text
//!   park ID ─▶ ordered (on disk) ─▶ power button ─▶ parked │ late: it runs on, and may yet obey
//!   unpark ID ─▶ start ─▶ over
//! ```
//!
//! Owns which orders there were, and what became of each. Never decides that a guest is parked: that is a
//! run's to say, and the guest's policy has to want it. Never ends a guest that does not obey.
//!
//! # Invariants
//! - An order is on disk before its guest is touched, and is carried out once, also when it is heard again,
//!   or late, or after this agent was started anew.
//! - A guest that somebody starts or stops by hand is no longer a run's to start.

mod orders;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{ErrorCode, ParkHow, ParkPhase, ParkRequest, ParkView, Refusal, UnparkRequest};
use drover_plan::policy::CannotMove;
use drover_types::{ParkId, VmName};
use jiff::Timestamp;
use tokio::sync::Mutex;

use self::orders::{Order, Orders, State};
use crate::agent::Context;
use crate::elsewhere;

/// Whoever parks guests on this host.
#[derive(Debug)]
pub struct Parking {
    context: Arc<Context>,
    directory: PathBuf,
    /// Held while orders are read and written.
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// Guests that are being parked or started, and by which order.
    at_work: BTreeMap<VmName, (ParkId, ParkPhase)>,
    /// Why guests could not be started, until somebody has asked.
    not_started: BTreeMap<VmName, (ParkId, String)>,
}

impl Parking {
    /// With the orders that are below the agent's state directory.
    ///
    /// # Errors
    /// Their directory cannot be made.
    pub fn open(context: Arc<Context>) -> io::Result<Self> {
        let directory = context.config.state.join("parked");
        std::fs::create_dir_all(&directory)?;
        Ok(Self {
            context,
            directory,
            now: Mutex::default(),
        })
    }

    /// Goes on with what an earlier agent had begun.
    pub async fn recover(self: &Arc<Self>) {
        let guests = orders::guests(&self.directory);
        let guests = guests.unwrap_or_else(|error| {
            tracing::error!(%error, directory = %self.directory.display(), "not read");
            Vec::new()
        });
        for vm in guests {
            let mut now = self.now.lock().await;
            let held = self.context.registry.held(&vm);
            if !held.process && !held.definition {
                // It has left for good, or was removed.
                orders::forget(&self.directory, &vm);
                continue;
            }
            match Orders::load(&self.directory, &vm) {
                Ok(orders) => {
                    let begun = |order: &&Order| order.state == State::Ordered;
                    if let Some(order) = orders.last().filter(begun) {
                        self.carry_out(&mut now, &vm, order.id);
                    }
                }
                Err(error) => tracing::error!(%vm, %error, "its orders cannot be read"),
            }
        }
    }

    /// Parks a guest, or tells how far that is.
    ///
    /// # Errors
    /// Another order is being carried out for it, or the order cannot be kept; nothing is begun then.
    pub async fn park(
        self: &Arc<Self>,
        vm: &VmName,
        request: &ParkRequest,
    ) -> Result<ParkView, Refusal> {
        let mut now = self.now.lock().await;
        let mut orders = self.load(vm)?;
        if let Some(order) = orders.get(request.id) {
            let is_idle = !now.at_work.contains_key(vm);
            if order.state == State::Ordered && is_idle {
                self.carry_out(&mut now, vm, request.id);
            }
            return Ok(view(vm, order));
        }
        if let Some((other, _)) = now.at_work.get(vm)
            && request.begin
        {
            return Err(busy(vm, *other));
        }
        let (state, cause) = match self.problem(vm, request.how) {
            _ if !request.begin => (State::CalledBack, None),
            Some(problem) => (State::Kept, Some(problem)),
            None => (State::Ordered, None),
        };
        let order = Order::new(request, state, cause);
        orders.add(order.clone());
        self.save(vm, &orders)?;
        if state == State::Ordered {
            self.carry_out(&mut now, vm, request.id);
        }
        Ok(view(vm, &order))
    }

    /// Runs a guest again that was parked, or tells how far that is.
    ///
    /// # Errors
    /// An order is being carried out for it, or its orders cannot be read.
    pub async fn unpark(
        self: &Arc<Self>,
        vm: &VmName,
        request: &UnparkRequest,
    ) -> Result<ParkView, Refusal> {
        let id = request.id;
        let said = |phase, cause: Option<&str>| ParkView {
            id,
            vm: vm.clone(),
            phase,
            cause: cause.map(str::to_owned),
            since: Timestamp::now(),
        };
        let mut now = self.now.lock().await;
        match now.at_work.get(vm) {
            Some((own, ParkPhase::Unparking)) if *own == id => {
                return Ok(said(ParkPhase::Unparking, None));
            }
            Some((other, _)) => return Err(busy(vm, *other)),
            None => {}
        }
        if let Some((_, why)) = now.not_started.remove(vm).filter(|(own, _)| *own == id) {
            return Ok(said(ParkPhase::NotStarted, Some(&why)));
        }
        let mut orders = self.load(vm)?;
        let last = orders.last().filter(|order| order.id == id);
        let state = last.map(|order| order.state);
        let runs = self.context.registry.held(vm).process;
        match state {
            None => {
                let why = "this host knows no such order, or a later one";
                Ok(said(ParkPhase::Settled, Some(why)))
            }
            Some(State::Over | State::Kept | State::CalledBack) if !runs => {
                let why = "it was started, stopped or moved since";
                Ok(said(ParkPhase::Settled, Some(why)))
            }
            Some(_) if runs => {
                orders.set(id, State::Over, None);
                self.save(vm, &orders)?;
                Ok(said(ParkPhase::Running, None))
            }
            Some(_) => {
                self.start(&mut now, vm, id);
                Ok(said(ParkPhase::Unparking, None))
            }
        }
    }

    /// Somebody has decided what becomes of a guest, so that no run does.
    pub async fn by_hand(&self, vm: &VmName) {
        let _now = self.now.lock().await;
        let settled = || {
            let mut orders = Orders::load(&self.directory, vm)?;
            let parked = |order: &&Order| matches!(order.state, State::Parked | State::Late);
            if let Some(id) = orders.last().filter(parked).map(|order| order.id) {
                orders.set(id, State::Over, None);
                orders.save(&self.directory, vm)?;
            }
            Ok::<(), io::Error>(())
        };
        if let Err(error) = settled() {
            tracing::warn!(%vm, %error, "a run may start it again when this host is resumed");
        }
    }

    /// What an operator should know of a guest that is parked.
    pub async fn note(&self, vm: &VmName) -> Option<String> {
        let _now = self.now.lock().await;
        let orders = Orders::load(&self.directory, vm).ok()?;
        let parked = orders.last()?.state == State::Parked;
        parked.then(|| {
            let host = &self.context.config.host;
            format!(
                "stopped by a run, since it cannot move: `drover resume {host}` starts it again"
            )
        })
    }

    /// Why a guest is not to be touched.
    fn problem(&self, vm: &VmName, how: ParkHow) -> Option<String> {
        let registry = &self.context.registry;
        if !registry.held(vm).process {
            return Some("it does not run any more".to_owned());
        }
        let wanted = match how {
            ParkHow::Stop => CannotMove::StopAndStart,
            ParkHow::Suspend => return Some("this agent suspends no guests".to_owned()),
        };
        let policy = registry.policy(vm);
        let wants = policy.is_some_and(|policy| policy.cannot_move == wanted);
        (!wants).then(|| "its policy does not want that any more".to_owned())
    }

    fn carry_out(self: &Arc<Self>, now: &mut Now, vm: &VmName, id: ParkId) {
        let at_work = (id, ParkPhase::Parking);
        now.at_work.insert(vm.clone(), at_work);
        let (this, vm) = (Arc::clone(self), vm.clone());
        tokio::spawn(async move {
            let (state, cause) = this.stop(&vm).await;
            tracing::info!(%vm, %id, ?state, cause, "parked, or not");
            let mut now = this.now.lock().await;
            now.at_work.remove(&vm);
            // What is not kept is found out again when it is asked for.
            if let Err(refusal) = this.settle(&vm, id, state, cause) {
                tracing::error!(%vm, %refusal, "what became of an order");
            }
        });
    }

    async fn stop(&self, vm: &VmName) -> (State, Option<String>) {
        let registry = &self.context.registry;
        let seconds = registry.policy(vm).unwrap_or_default().stop_within_seconds;
        let within = Duration::from_secs(seconds.into());
        match registry.stop_within(vm, Some(within)).await {
            Ok(_) => (State::Parked, None),
            // It has ended before it was told, or an earlier agent had told it.
            Err(_) if !registry.held(vm).process => (State::Parked, None),
            Err(refusal) if refusal.code == ErrorCode::StopTimeout => {
                let cause = format!("it did not shut down within {seconds} s, and runs on");
                (State::Late, Some(cause))
            }
            Err(refusal) => (State::Kept, Some(refusal.message)),
        }
    }

    fn start(self: &Arc<Self>, now: &mut Now, vm: &VmName, id: ParkId) {
        let at_work = (id, ParkPhase::Unparking);
        now.at_work.insert(vm.clone(), at_work);
        let (this, vm) = (Arc::clone(self), vm.clone());
        tokio::spawn(async move {
            let started = elsewhere::start(&this.context, &vm).await;
            let mut now = this.now.lock().await;
            now.at_work.remove(&vm);
            match started {
                Ok(_) => {
                    tracing::info!(%vm, %id, "a guest that was parked runs again");
                    if let Err(refusal) = this.settle(&vm, id, State::Over, None) {
                        tracing::error!(%vm, %refusal, "what became of an order");
                    }
                }
                Err(refusal) => {
                    tracing::warn!(%vm, %id, %refusal, "a guest that was parked does not run again");
                    let why = match refusal.next {
                        Some(next) => format!("{}; {next}", refusal.message),
                        None => refusal.message,
                    };
                    now.not_started.insert(vm, (id, why));
                }
            }
        });
    }

    fn settle(
        &self,
        vm: &VmName,
        id: ParkId,
        state: State,
        cause: Option<String>,
    ) -> Result<(), Refusal> {
        let mut orders = self.load(vm)?;
        orders.set(id, state, cause);
        self.save(vm, &orders)
    }

    fn load(&self, vm: &VmName) -> Result<Orders, Refusal> {
        let orders = Orders::load(&self.directory, vm);
        orders.map_err(|error| self.unusable("read", vm, &error))
    }

    fn save(&self, vm: &VmName, orders: &Orders) -> Result<(), Refusal> {
        let saved = orders.save(&self.directory, vm);
        saved.map_err(|error| self.unusable("write", vm, &error))
    }

    fn unusable(&self, what: &str, vm: &VmName, error: &io::Error) -> Refusal {
        let directory = self.directory.display();
        let message = format!("cannot {what} {directory}/{vm}.json: {error}");
        Refusal::new(ErrorCode::Internal, message).next("check that file and its disk")
    }
}

fn busy(vm: &VmName, id: ParkId) -> Refusal {
    let message = format!("order {id} is being carried out for guest {vm}");
    Refusal::new(ErrorCode::VmBusy, message).next("ask again when it is over")
}

fn view(vm: &VmName, order: &Order) -> ParkView {
    ParkView {
        id: order.id,
        vm: vm.clone(),
        phase: match order.state {
            State::Ordered => ParkPhase::Parking,
            State::Parked | State::Over => ParkPhase::Parked,
            State::Late | State::Kept => ParkPhase::Kept,
            State::CalledBack => ParkPhase::CalledBack,
        },
        cause: order.cause.clone(),
        since: order.since,
    }
}
