//! Orders to park a guest.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{ErrorCode, ParkHow, ParkPhase, ParkRequest, ParkView, Refusal, VmView};
use drover_plan::policy::CannotMove;
use drover_types::{ParkId, VmName};
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use super::orders::{Order, State};
use super::{AtWork, GivesWay, Now, Parking};

impl Parking {
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
                self.carry_out(&mut now, vm, (id, order.how), true);
            }
            let order = orders.get(id).unwrap_or(&order);
            return Ok(self.view(&now, vm, order));
        }
        if request.begin {
            now.takes_orders(vm)?;
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
            self.carry_out(&mut now, vm, (id, order.how), false);
        }
        Ok(self.view(&now, vm, &order))
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
            ParkHow::Suspend => CannotMove::Suspend,
        };
        if let Err(problem) = registry.startable(vm) {
            return Some(format!("it could not be started again: {problem}"));
        }
        let policy = registry.policy(vm);
        let wants = policy.is_some_and(|policy| policy.cannot_move == wanted);
        (!wants).then(|| "its policy does not want that any more".to_owned())
    }

    /// What becomes of an order that an earlier agent had begun, where it is not to be given to the guest again.
    fn not_again(&self, vm: &VmName, order: &Order, begin: bool) -> Option<(State, String)> {
        let again = "this agent was started again meanwhile";
        let registry = &self.context.registry;
        if !registry.held(vm).process || registry.is_suspended(vm) {
            return Some((State::Parked, format!("it has ended; {again}")));
        }
        let touched = match order.how {
            ParkHow::Stop => State::Late,
            // This agent has had it run on.
            ParkHow::Suspend => State::Kept,
        };
        let why = match self.problem(vm, order.how) {
            _ if !begin => "the run was cancelled".to_owned(),
            Some(problem) => problem,
            None if order.is_young(Timestamp::now()) => return None,
            None => format!(
                "the order is of {:.0}, too old to be given again",
                order.since
            ),
        };
        Some((touched, format!("it runs: {again}, and {why}")))
    }

    fn carry_out(
        self: &Arc<Self>,
        now: &mut Now,
        vm: &VmName,
        (id, how): (ParkId, ParkHow),
        again: bool,
    ) {
        let (gives_way, mut to_give_way) = watch::channel(None);
        let at_work = AtWork {
            id,
            phase: ParkPhase::Parking,
            suspends: how == ParkHow::Suspend,
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
            let (state, cause) = match how {
                ParkHow::Stop => this.stop(&vm, again, &mut to_give_way).await,
                ParkHow::Suspend => this.suspend(&vm, &mut to_give_way).await,
            };
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
        gives_way: &mut watch::Receiver<Option<GivesWay>>,
    ) -> (State, Option<String>) {
        let registry = &self.context.registry;
        let seconds = registry.policy(vm).unwrap_or_default().stop_within_seconds;
        let within = Duration::from_secs(seconds.into());
        let stopped = registry
            .stop_within(vm, Some(within), given_up(gives_way))
            .await;
        match stopped {
            Ok(_) => (State::Parked, None),
            // It has ended before it was told, or an earlier agent had told it.
            Err(_) if !registry.held(vm).process => (State::Parked, None),
            Err(refusal) if refusal.code == ErrorCode::StopTimeout => {
                let cause = format!("it did not shut down within {seconds} s, and runs on");
                (State::Late, Some(cause))
            }
            Err(refusal) if again || gives_way.borrow().is_some() => {
                (State::Late, Some(refusal.message))
            }
            Err(refusal) => (State::Kept, Some(refusal.message)),
        }
    }

    async fn suspend(
        &self,
        vm: &VmName,
        gives_way: &mut watch::Receiver<Option<GivesWay>>,
    ) -> (State, Option<String>) {
        let registry = &self.context.registry;
        match registry.suspend(vm, given_up(gives_way)).await {
            Ok(_) => (State::Parked, None),
            // It is given to the agent that is started next.
            Err(refusal) if *gives_way.borrow() == Some(GivesWay::ToEnd) => {
                (State::Ordered, Some(refusal.message))
            }
            Err(refusal) if registry.is_suspended(vm) || !registry.held(vm).process => {
                (State::Parked, Some(refusal.message))
            }
            Err(refusal) => (State::Kept, Some(refusal.message)),
        }
    }

    /// Suspends a guest for a person: no run has it go on.
    ///
    /// # Errors
    /// As [`crate::registry::Registry::suspend`], or an order is being carried out for it.
    pub async fn suspend_by_hand(&self, vm: &VmName) -> Result<VmView, Refusal> {
        let (gives_way, mut to_give_way) = watch::channel(None);
        {
            let mut now = self.now.lock().await;
            now.takes_orders(vm)?;
            let at_work = AtWork {
                id: ParkId(Uuid::now_v7()),
                phase: ParkPhase::Parking,
                suspends: true,
                is_told: true,
                gives_way,
            };
            now.at_work.insert(vm.clone(), at_work);
        }
        let registry = &self.context.registry;
        let suspended = registry.suspend(vm, given_up(&mut to_give_way)).await;
        let mut now = self.now.lock().await;
        now.at_work.remove(vm);
        if suspended.is_ok() {
            self.is_nobodys(vm);
        }
        suspended
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
}

/// Until an order is to give way. Whoever could say so is there for as long as it is at work.
async fn given_up(gives_way: &mut watch::Receiver<Option<GivesWay>>) {
    if gives_way.wait_for(Option::is_some).await.is_err() {
        std::future::pending().await
    }
}
