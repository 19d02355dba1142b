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
//! - An order is on disk before its guest is touched, and is carried out once, also when it is heard again or late. An
//!   agent that was started again carries out what it finds only when it is asked once more, and only while the
//!   order is young and the host takes no guests.
//! - A guest is started only if every other host says that it has no process of it.
//! - A guest that somebody starts or stops by hand, or that has left meanwhile, is no longer a run's to start.

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
use tokio::sync::{Mutex, watch};

use self::orders::{Order, Orders, State};
use crate::agent::Context;
use crate::config::Config;
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
    at_work: BTreeMap<VmName, AtWork>,
    /// Why guests could not be started, and by which order.
    not_started: BTreeMap<VmName, (ParkId, String)>,
}

/// An order that is being carried out.
#[derive(Debug)]
struct AtWork {
    id: ParkId,
    phase: ParkPhase,
    /// It cannot be called back any more: its guest was told, or may have been, or its QEMU is being launched.
    is_told: bool,
    /// Set where it is to give way to somebody; closed when it is over.
    gives_way: watch::Sender<bool>,
}

impl AtWork {
    fn is_stop(&self, id: ParkId) -> bool {
        self.id == id && self.phase == ParkPhase::Parking
    }
}

impl Now {
    /// Whether an order was not called back until now. It cannot be from now on.
    fn tells(&mut self, vm: &VmName, id: ParkId) -> bool {
        let own = self.at_work.get_mut(vm).filter(|own| own.id == id);
        own.map(|own| own.is_told = true).is_some()
    }
}

impl Parking {
    /// With the orders that are below the agent's state directory.
    ///
    /// # Errors
    /// Their directory cannot be made.
    pub fn open(context: Arc<Context>) -> io::Result<Self> {
        let directory = directory(&context.config);
        std::fs::create_dir_all(&directory)?;
        Ok(Self {
            context,
            directory,
            now: Mutex::default(),
        })
    }

    /// Forgets the orders of guests that are not here any more. What an earlier agent had begun is not gone on with
    /// by itself: whoever ordered it asks again, if it is still wanted.
    pub async fn tidy(&self) {
        let guests = orders::guests(&self.directory);
        let guests = guests.unwrap_or_else(|error| {
            tracing::error!(%error, directory = %self.directory.display(), "not read");
            Vec::new()
        });
        let _now = self.now.lock().await;
        for vm in guests {
            let held = self.context.registry.held(&vm);
            let is_here = held.process || held.definition;
            let orders = Orders::load(&self.directory, &vm);
            let is_settled = orders.is_ok_and(|orders| orders.are_settled());
            if !is_here && is_settled {
                orders::forget(&self.directory, &vm);
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
        by: &str,
    ) -> Result<ParkView, Refusal> {
        let mut now = self.now.lock().await;
        let mut orders = self.load(vm)?;
        let id = request.id;
        if let Some(order) = orders.get(id).cloned() {
            if order.state != State::Ordered {
                return Ok(self.view(&now, vm, &order));
            }
            if let Some(at_work) = now.at_work.get(vm) {
                if !request.begin && at_work.id == id && !at_work.is_told {
                    orders.set(id, State::CalledBack, None);
                    self.save(vm, &orders)?;
                    now.at_work.remove(vm);
                }
                let order = orders.get(id).unwrap_or(&order);
                return Ok(self.view(&now, vm, order));
            }
            if let Some((state, cause)) = self.not_again(vm, &order, request.begin) {
                orders.set(id, state, Some(cause));
                self.save(vm, &orders)?;
            } else {
                self.carry_out(&mut now, vm, id, true);
            }
            let order = orders.get(id).unwrap_or(&order);
            return Ok(self.view(&now, vm, order));
        }
        if let Some(other) = now.at_work.get(vm)
            && request.begin
        {
            return Err(busy(vm, other.id));
        }
        tracing::info!(by, %vm, ?request, "ordered: park a guest");
        let (state, cause) = match self.problem(vm, request.how) {
            _ if !request.begin => (State::CalledBack, None),
            Some(problem) => (State::Kept, Some(problem)),
            None => (State::Ordered, None),
        };
        let order = Order::new(request, state, cause);
        orders.add(order.clone());
        self.save(vm, &orders)?;
        if state == State::Ordered {
            self.carry_out(&mut now, vm, id, false);
        }
        Ok(self.view(&now, vm, &order))
    }

    /// Runs a guest again that was parked, or tells how far that is.
    ///
    /// # Errors
    /// An order is being carried out for it, or its orders cannot be read or kept; nothing is begun then.
    pub async fn unpark(
        self: &Arc<Self>,
        vm: &VmName,
        request: &UnparkRequest,
        by: &str,
    ) -> Result<ParkView, Refusal> {
        let (id, start) = (request.id, request.start);
        let said = |phase, cause: Option<&str>| ParkView {
            id,
            vm: vm.clone(),
            phase,
            cause: cause.map(str::to_owned),
            since: Timestamp::now(),
        };
        let mut now = self.now.lock().await;
        match now.at_work.get(vm) {
            Some(own) if own.phase == ParkPhase::Unparking && own.id == start => {
                if !request.begin && !own.is_told {
                    self.call_start_back(vm, &mut self.load(vm)?, start)?;
                }
                return Ok(said(ParkPhase::Unparking, None));
            }
            Some(other) => return Err(busy(vm, other.id)),
            None => {}
        }
        if let Some((_, why)) = now.not_started.get(vm).filter(|(own, _)| *own == start) {
            return Ok(said(ParkPhase::NotStarted, Some(why)));
        }
        let mut orders = self.load(vm)?;
        if orders.get(id).is_none() {
            // It was not heard, and is not to begin once the guest runs again.
            orders.add(Order::called_back(id));
            self.save(vm, &orders)?;
        }
        let held = self.context.registry.held(vm);
        let Some(order) = orders.in_force().cloned() else {
            let phase = if held.process {
                ParkPhase::Running
            } else {
                ParkPhase::Settled
            };
            let why = "this host knows of no run that stopped it";
            return Ok(said(phase, Some(why)));
        };
        if held.process {
            if let Some(why) = order.may_be_obeyed(Timestamp::now()) {
                return Ok(said(ParkPhase::NotStarted, Some(&why)));
            }
            orders.set(order.id, State::Over, None);
            self.save(vm, &orders)?;
            return Ok(said(ParkPhase::Running, None));
        }
        if order.state == State::Over || orders.is_before(id, order.id) {
            let why = "it was started, stopped or moved since, or stopped by a later run";
            return Ok(said(ParkPhase::Settled, Some(why)));
        }
        if !held.definition {
            orders.set(order.id, State::Over, None);
            self.save(vm, &orders)?;
            return Ok(said(ParkPhase::Settled, Some("it is not on this host")));
        }
        if !request.begin {
            self.call_start_back(vm, &mut orders, start)?;
        }
        if orders.is_not_to_start(start) {
            return Ok(said(ParkPhase::CalledBack, None));
        }
        tracing::info!(by, %vm, ?request, "ordered: run a parked guest again");
        self.start(&mut now, vm, start, order.id);
        Ok(said(ParkPhase::Unparking, None))
    }

    fn call_start_back(
        &self,
        vm: &VmName,
        orders: &mut Orders,
        start: ParkId,
    ) -> Result<(), Refusal> {
        if orders.is_not_to_start(start) {
            return Ok(());
        }
        orders.call_start_back(start);
        self.save(vm, orders)
    }

    /// Somebody has decided what becomes of a guest, so that no run does.
    pub async fn by_hand(&self, vm: &VmName) {
        let _now = self.now.lock().await;
        self.is_nobodys(vm);
    }

    /// Ends the wait for a guest that was told to shut down, since somebody ends it by force. What it may yet do
    /// is remembered.
    pub async fn give_way(&self, vm: &VmName) {
        let at_work = {
            let now = self.now.lock().await;
            let stop = now.at_work.get(vm);
            let stop = stop.filter(|own| own.phase == ParkPhase::Parking);
            stop.map(|own| own.gives_way.clone())
        };
        if let Some(at_work) = at_work {
            at_work.send_replace(true);
            at_work.closed().await;
        }
    }

    /// A guest is elsewhere, whatever a run had wanted here.
    pub async fn has_left(&self, vm: &VmName) {
        let _now = self.now.lock().await;
        self.is_nobodys(vm);
    }

    fn is_nobodys(&self, vm: &VmName) {
        let settled = || {
            let mut orders = Orders::load(&self.directory, vm)?;
            if let Some(id) = orders.in_force().map(|order| order.id) {
                orders.set(id, State::Over, None);
                orders.save(&self.directory, vm)?;
            }
            Ok::<(), io::Error>(())
        };
        if let Err(error) = settled() {
            tracing::warn!(%vm, %error, "a run may start it again when this host is resumed");
        }
    }

    /// What an operator should know of a guest that is off and that a run had told to shut down, also where it
    /// obeyed late.
    pub async fn note(&self, vm: &VmName) -> Option<String> {
        let _now = self.now.lock().await;
        let orders = Orders::load(&self.directory, vm).ok()?;
        let is_off = !self.context.registry.held(vm).process;
        let is_a_runs = orders.in_force()?.state != State::Over;
        (is_off && is_a_runs).then(|| {
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
        if self.context.cordon.view().is_none() {
            return Some("its host takes guests again".to_owned());
        }
        let wanted = match how {
            ParkHow::Stop => CannotMove::StopAndStart,
            ParkHow::Suspend => return Some("this agent suspends no guests".to_owned()),
        };
        let policy = registry.policy(vm);
        let wants = policy.is_some_and(|policy| policy.cannot_move == wanted);
        (!wants).then(|| "its policy does not want that any more".to_owned())
    }

    /// What becomes of an order that an earlier agent had begun, where it is not to be given to the guest again.
    fn not_again(&self, vm: &VmName, order: &Order, begin: bool) -> Option<(State, String)> {
        let again = "this agent was started again meanwhile";
        if !self.context.registry.held(vm).process {
            return Some((State::Parked, format!("it has ended; {again}")));
        }
        let why = match self.problem(vm, order.how) {
            _ if !begin => "the run was cancelled".to_owned(),
            Some(problem) => problem,
            None if order.is_young(Timestamp::now()) => return None,
            None => format!(
                "the order is of {:.0}, too old to be given again",
                order.since
            ),
        };
        Some((State::Late, format!("it runs: {again}, and {why}")))
    }

    fn carry_out(self: &Arc<Self>, now: &mut Now, vm: &VmName, id: ParkId, again: bool) {
        let (gives_way, mut to_give_way) = watch::channel(false);
        let at_work = AtWork {
            id,
            phase: ParkPhase::Parking,
            // An earlier agent may have told it.
            is_told: again,
            gives_way,
        };
        now.at_work.insert(vm.clone(), at_work);
        let (this, vm) = (Arc::clone(self), vm.clone());
        tokio::spawn(async move {
            // What was said while this order waited for its turn has its turn before this.
            if !this.now.lock().await.tells(&vm, id) {
                return;
            }
            let (state, cause) = this.stop(&vm, again, &mut to_give_way).await;
            tracing::info!(%vm, %id, ?state, cause, "parked, or not");
            let mut now = this.now.lock().await;
            now.at_work.remove(&vm);
            // What is not kept is found out again when it is asked for.
            if let Err(refusal) = this.settle(&vm, id, state, cause) {
                tracing::error!(%vm, %refusal, "what became of an order");
            }
        });
    }

    /// Presses the power button. Once it may have been pressed, here or by an earlier agent, the guest may obey,
    /// whatever else is known.
    async fn stop(
        &self,
        vm: &VmName,
        again: bool,
        gives_way: &mut watch::Receiver<bool>,
    ) -> (State, Option<String>) {
        let registry = &self.context.registry;
        let seconds = registry.policy(vm).unwrap_or_default().stop_within_seconds;
        let within = Duration::from_secs(seconds.into());
        let given_up = async {
            // Whoever could say so is there for as long as the order is at work.
            if gives_way.wait_for(|gives_way| *gives_way).await.is_err() {
                std::future::pending().await
            }
        };
        let stopped = registry.stop_within(vm, Some(within), given_up).await;
        match stopped {
            Ok(_) => (State::Parked, None),
            // It has ended before it was told, or an earlier agent had told it.
            Err(_) if !registry.held(vm).process => (State::Parked, None),
            Err(refusal) if refusal.code == ErrorCode::StopTimeout => {
                let cause = format!("it did not shut down within {seconds} s, and runs on");
                (State::Late, Some(cause))
            }
            Err(refusal) if again || *gives_way.borrow() => (State::Late, Some(refusal.message)),
            Err(refusal) => (State::Kept, Some(refusal.message)),
        }
    }

    fn start(self: &Arc<Self>, now: &mut Now, vm: &VmName, start: ParkId, parked_by: ParkId) {
        let at_work = AtWork {
            id: start,
            phase: ParkPhase::Unparking,
            is_told: false,
            gives_way: watch::Sender::new(false),
        };
        now.at_work.insert(vm.clone(), at_work);
        let (this, vm) = (Arc::clone(self), vm.clone());
        tokio::spawn(async move {
            let started = this.starts(&vm, start).await;
            let mut now = this.now.lock().await;
            now.at_work.remove(&vm);
            match started {
                Ok(true) => {
                    tracing::info!(%vm, %start, "a guest that was parked runs again");
                    this.is_nobodys(&vm);
                }
                Ok(false) => tracing::info!(%vm, %start, "called back before it was started"),
                Err(refusal) => {
                    tracing::warn!(%vm, %start, %parked_by, %refusal, "a guest that was parked does not run again");
                    let why = match refusal.next {
                        Some(next) => format!("{}; {next}", refusal.message),
                        None => refusal.message,
                    };
                    now.not_started.insert(vm, (start, why));
                }
            }
        });
    }

    /// Starts a guest if that is still wanted once the others have said that they do not have it.
    async fn starts(&self, vm: &VmName, start: ParkId) -> Result<bool, Refusal> {
        elsewhere::surely_nowhere(&self.context, vm).await?;
        {
            let mut now = self.now.lock().await;
            let orders = self.load(vm)?;
            if orders.is_not_to_start(start) || orders.are_settled() {
                return Ok(false);
            }
            now.tells(vm, start);
        }
        // Its turn may have been long in coming.
        self.context.cordon.check()?;
        self.context.registry.start(vm).await?;
        Ok(true)
    }

    fn settle(
        &self,
        vm: &VmName,
        id: ParkId,
        state: State,
        cause: Option<String>,
    ) -> Result<(), Refusal> {
        let mut orders = self.load(vm)?;
        // Somebody may have decided meanwhile what becomes of the guest.
        let is_open = |order: &Order| order.state == State::Ordered;
        if orders.get(id).is_some_and(is_open) {
            orders.set(id, state, cause);
            self.save(vm, &orders)?;
        }
        Ok(())
    }

    fn view(&self, now: &Now, vm: &VmName, order: &Order) -> ParkView {
        let at_work = now.at_work.get(vm);
        let runs = self.context.registry.held(vm).process;
        let by_hand = || Some("somebody has decided by hand what becomes of it".to_owned());
        let (phase, cause) = match order.state {
            _ if at_work.is_some_and(|at_work| at_work.is_stop(order.id)) => {
                (ParkPhase::Parking, None)
            }
            State::Ordered => (ParkPhase::Parking, None),
            State::Over if runs => (ParkPhase::Kept, by_hand()),
            State::Parked | State::Over => (ParkPhase::Parked, order.cause.clone()),
            State::Late | State::Kept => (ParkPhase::Kept, order.cause.clone()),
            State::CalledBack => (ParkPhase::CalledBack, None),
        };
        ParkView {
            id: order.id,
            vm: vm.clone(),
            phase,
            cause,
            since: order.since,
        }
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

fn directory(config: &Config) -> PathBuf {
    config.state.join("parked")
}

/// Why a guest that runs is not to leave this host: it may shut down yet, and elsewhere nobody would know that it is to
/// be started again. None where its orders cannot be read, which is told where they are asked for.
pub fn may_shut_down(config: &Config, vm: &VmName) -> Option<String> {
    let orders = Orders::load(&directory(config), vm).ok()?;
    orders.in_force()?.may_be_obeyed(Timestamp::now())
}

/// That a guest may be moved.
///
/// # Errors
/// It runs and may shut down yet.
pub fn may_leave(context: &Context, vm: &VmName) -> Result<(), Refusal> {
    let why = may_shut_down(&context.config, vm);
    let Some(why) = why.filter(|_| context.registry.held(vm).process) else {
        return Ok(());
    };
    let message = format!("guest {vm} is not moved: {why}");
    Err(Refusal::new(ErrorCode::VmBusy, message).next(format!(
        "wait until it is off or has had 2 h, or stop it with `drover vm stop {vm}`, start it and move it"
    )))
}

fn busy(vm: &VmName, id: ParkId) -> Refusal {
    let message = format!("order {id} is being carried out for guest {vm}");
    Refusal::new(ErrorCode::VmBusy, message).next("ask again when it is over")
}
