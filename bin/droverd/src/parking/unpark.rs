//! Orders to run a parked guest again.

use std::sync::Arc;

use drover_api::{ParkPhase, ParkView, Refusal, StartRequest, UnparkRequest};
use drover_types::{ParkId, VmName};
use jiff::Timestamp;
use tokio::sync::watch;

use super::orders::{Order, Orders, State};
use super::{AtWork, Now, Parking, busy};
use crate::elsewhere;

impl Parking {
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
        if self.context.registry.is_unsettled(vm) {
            // It stands still, or its QEMU is about to end: that is seen to.
            return Ok(said(ParkPhase::Unparking, None));
        }
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
        if !held.definition && !held.suspended {
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

    fn start(self: &Arc<Self>, now: &mut Now, vm: &VmName, start: ParkId, parked_by: ParkId) {
        let at_work = AtWork {
            id: start,
            phase: ParkPhase::Unparking,
            suspends: false,
            is_told: false,
            gives_way: watch::Sender::new(None),
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
        elsewhere::vacancy(&self.context, vm).surely()?;
        let plainly = StartRequest::default();
        self.context.registry.start(vm, plainly).await?;
        Ok(true)
    }
}
