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
mod park;
mod unpark;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use drover_api::{ErrorCode, ParkHow, ParkPhase, Refusal};
use drover_types::{ParkId, VmName};
use jiff::Timestamp;
use tokio::sync::{Mutex, watch};

use self::orders::{Orders, State};
use crate::agent::Context;
use crate::config::Config;

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
    /// The agent ends.
    ends: bool,
}

/// To whom an order gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivesWay {
    /// Somebody who ends the guest by force.
    ToForce,
    /// The agent's end.
    ToEnd,
}

/// An order that is being carried out.
#[derive(Debug)]
struct AtWork {
    id: ParkId,
    phase: ParkPhase,
    /// Its guest stands still until it is over.
    suspends: bool,
    /// It cannot be called back any more: its guest was told, or may have been, or its QEMU is being launched.
    is_told: bool,
    /// Set where it is to give way to somebody; closed when it is over.
    gives_way: watch::Sender<Option<GivesWay>>,
}

impl AtWork {
    fn is_stop(&self, id: ParkId) -> bool {
        self.id == id && self.phase == ParkPhase::Parking
    }
}

impl Now {
    /// That an order may begin for a guest.
    fn takes_orders(&self, vm: &VmName) -> Result<(), Refusal> {
        if self.ends {
            let message = format!("nothing begins with guest {vm}: the agent is ending");
            let refusal = Refusal::new(ErrorCode::ShuttingDown, message);
            return Err(refusal.next("ask again when it is back"));
        }
        self.at_work
            .get(vm)
            .map_or(Ok(()), |other| Err(busy(vm, other.id)))
    }

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
            at_work.send_replace(Some(GivesWay::ToForce));
            tracing::info!(%vm, "an order gives way to a stop by force");
            at_work.closed().await;
        }
    }

    /// Ends what an agent that ends cannot leave alone: a guest that is being suspended would stand still. What is told
    /// to shut down goes on without an agent.
    pub async fn let_go(&self) {
        let suspends = {
            let mut now = self.now.lock().await;
            now.ends = true;
            let at_work = now.at_work.values().filter(|own| own.suspends);
            let at_work: Vec<_> = at_work.map(|own| own.gives_way.clone()).collect();
            at_work
        };
        for suspend in suspends {
            suspend.send_replace(Some(GivesWay::ToEnd));
            suspend.closed().await;
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
        let order = orders.in_force()?;
        let (was, resume) = match order.how {
            ParkHow::Stop => ("stopped", "starts it again"),
            ParkHow::Suspend if self.context.registry.is_suspended(vm) => {
                ("suspended", "has it go on")
            }
            ParkHow::Suspend => ("ended while it was being suspended", "boots it"),
        };
        (is_off && order.state != State::Over).then(|| {
            let host = &self.context.config.host;
            format!("{was} by a run, since it cannot move: `drover resume {host}` {resume}")
        })
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
