//! A guest that leaves: performs what [`Source`] decides, and tells it what became of it.
//!
//! One task owns the state machine. Everything that takes time runs beside it and answers with a
//! [`Message`], so that the machine is always ready for a cancel.

mod actions;
mod checkpoint;
mod connect;
mod guest;
mod hand_off;
mod held_limits;
mod join;
mod keep;
mod message;
mod postcopy;
mod reach;
mod show;
mod taking;

pub use hand_off::timestamp;
pub use message::{Agreed, Found, Link, Message, NotAgreed, Options};
pub use reach::leads_there;
pub use show::{CANCELLED_BY_OPERATOR, PAST_DEADLINE, path_chosen, paths_without_lanes};

use std::sync::Arc;
use std::time::Instant;

use drover_api::{Client, EventKind, IncomingOffer, MigrationView};
use drover_carrier::TlsKeys;
use drover_hypervisor::{Movable, UnixMicros};
use drover_migrate::convergence::Converging;
use drover_migrate::estimate::Estimator;
use drover_migrate::source::{Action, Input, Output, Phase, Source};
use drover_migrate::{KeptGuest, Reason, SourceRecord, SourceStep};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};

use super::carrier::Carrier;
use super::domains;
use super::held::Held;
use super::journal::{AnyRecord, Entry, Journal};
use super::lanes::LaneWatch;
use super::links::Following;
use super::observe::Watcher;
use super::resolve;
use super::snapshot::Snapshot;
use super::trouble::Troubles;
use crate::agent::Context;
use crate::checkpoints::Growing;
use crate::clock::{Moment, until};
use crate::interrupts::Share;
use crate::libvirt::DomainRecord;
use crate::limits;

/// The task's state.
pub struct Outgoing {
    link: Link,
    messages: mpsc::Receiver<Message>,
    source: Source,
    journal: Journal,
    reservation: Option<Arc<dyn Held>>,
    /// What the next agent has to know of the guest, where it is libvirt's.
    domain: Option<DomainRecord>,
    machine: Option<Arc<dyn Movable>>,
    snapshot: watch::Sender<Snapshot>,
    origin: Moment,
    asked_at: Instant,
    offer: Option<IncomingOffer>,
    keys: Option<Option<TlsKeys>>,
    carrier: Option<Carrier>,
    reopening: Option<AbortHandle>,
    following: Option<Following>,
    watcher: Option<Watcher>,
    begun_at: Option<Timestamp>,
    stopped_at: Option<UnixMicros>,
    estimator: Estimator,
    converging: Converging,
    lanes: LaneWatch,
    interrupts: Share,
    preparing: Option<AbortHandle>,
    asking_why: bool,
    /// Why the session ended, heard while that is asked.
    session_over: Option<Reason>,
    finding: bool,
    reaching_to_quit: bool,
    /// The destination's QEMU can be told to let the guest go on before its pages do; and this host's was.
    destination_takes_postcopy: bool,
    has_postcopy: bool,
    /// It went on after a restart: QEMU knows since when it migrates.
    taken_up: bool,
    keeping: Option<JoinHandle<Option<KeptGuest>>>,
    /// How a domain that stays was left.
    kept: Option<KeptGuest>,
    /// Its pages, for its return.
    checkpoint: Option<Growing>,
    troubles: Troubles,
    /// As it was written down at the end.
    last_view: Option<MigrationView>,
}

/// How others reach the task.
#[derive(Debug, Clone)]
pub struct Handle {
    /// To it.
    pub inbox: mpsc::Sender<Message>,
    /// From it.
    pub snapshot: watch::Receiver<Snapshot>,
}

/// What a migration from here begins, or goes on, with.
pub struct Beginning {
    /// The machine, new or recovered.
    pub source: Source,
    /// What is known.
    pub snapshot: Snapshot,
    /// The right to change the guest.
    pub reservation: Option<Arc<dyn Held>>,
    /// How it is to be moved.
    pub options: Options,
    /// The destination's agent.
    pub client: Client,
    /// When the machine's time began.
    pub origin: Moment,
    /// It goes on after a restart: whether its QEMU answers is to be found out.
    pub recovered: bool,
}

/// Starts the task.
pub fn start(context: Arc<Context>, journal: Journal, beginning: Beginning) -> Handle {
    let (inbox, messages) = mpsc::channel(limits::INBOX);
    let held = beginning.reservation.as_ref();
    let domain = held.and_then(|held| held.domain().cloned());
    let shown = Snapshot {
        domain: domain.clone(),
        ..beginning.snapshot
    };
    let (snapshot, shown) = watch::channel(shown);
    let machine = beginning
        .reservation
        .as_ref()
        .and_then(|held| held.machine());
    let options = beginning.options;
    let dirtied = context.inventory.dirtied(&beginning.source.migration().vm);
    let id = beginning.source.migration().id;
    let interrupts = context.interrupts.share(id, true);
    let task = Outgoing {
        link: Link {
            context,
            client: beginning.client,
            inbox: inbox.clone(),
            options,
            domain: domain.as_ref().and_then(domains::id),
            qemu: machine.as_ref().map(|machine| machine.version()),
        },
        messages,
        source: beginning.source,
        journal,
        domain,
        reservation: beginning.reservation,
        machine,
        snapshot,
        origin: beginning.origin,
        asked_at: Instant::now(),
        offer: None,
        keys: None,
        carrier: None,
        reopening: None,
        following: None,
        watcher: None,
        begun_at: None,
        stopped_at: None,
        estimator: Estimator::new(&options.convergence, dirtied),
        converging: Converging::new(&options.convergence),
        lanes: LaneWatch::default(),
        interrupts,
        preparing: None,
        asking_why: false,
        session_over: None,
        finding: false,
        reaching_to_quit: false,
        destination_takes_postcopy: false,
        has_postcopy: false,
        taken_up: false,
        keeping: None,
        kept: None,
        checkpoint: None,
        troubles: Troubles::default(),
        last_view: None,
    };
    // Whether the session lives comes before any look.
    if beginning.recovered && !matches!(task.source.phase(), Phase::Recovering { .. }) {
        task.reach();
    }
    task.look_at_memory();
    tokio::spawn(task.run());
    Handle {
        inbox,
        snapshot: shown,
    }
}

impl Outgoing {
    async fn run(mut self) {
        loop {
            let deadline = match self.drain().await {
                Progress::Ended => return,
                Progress::Until(deadline) => deadline,
            };
            let message = tokio::select! {
                message = self.messages.recv() => message,
                () = until(self.origin, deadline) => None,
            };
            if let Some(message) = message {
                self.take(message);
            }
        }
    }

    fn now(&self) -> drover_migrate::Time {
        self.origin.elapsed()
    }

    /// Does everything that the machine wants done now.
    async fn drain(&mut self) -> Progress {
        loop {
            let now = self.now();
            match self.source.poll(now) {
                Output::Journal(record) => self.write(record).await,
                Output::Do(Action::Finish(outcome)) => {
                    self.finish(&outcome).await;
                    return Progress::Ended;
                }
                Output::Do(action) => {
                    self.publish_verdict();
                    self.perform(action);
                }
                Output::Wait(deadline) => {
                    self.publish_verdict();
                    self.show();
                    return Progress::Until(deadline);
                }
            }
        }
    }

    async fn write(&mut self, record: SourceRecord) {
        self.show();
        let handed_off = [SourceStep::HandedOff, SourceStep::PostcopyHandedOff];
        if handed_off.contains(&record.step) {
            self.record(EventKind::HandedOff);
        }
        let view = match &record.step {
            SourceStep::Finished { outcome } => self.settle(outcome).await,
            _ => self.snapshot.borrow().view.clone(),
        };
        let resolution = record.resolution();
        let view = resolve::with_resolution(view, resolution);
        let resolved = view.resolution.clone();
        if let Some(last) = &mut self.last_view {
            last.resolution.clone_from(&resolved);
        }
        let entry = Entry {
            record: AnyRecord::Source(record),
            view,
            events: self.snapshot.borrow().events.list().to_vec(),
            refusal: self.snapshot.borrow().refusal.clone(),
            domain: self.domain.clone(),
        };
        let input = match self.journal.write(entry).await {
            Ok(()) => {
                self.snapshot.send_modify(|snapshot| {
                    resolve::show_resolution(snapshot, resolution, resolved);
                });
                Input::Journaled
            }
            Err(error) => Input::JournalFailed {
                reason: error.to_string().as_str().into(),
            },
        };
        self.handle(input);
        self.publish_verdict();
    }

    /// For a destination that asks.
    fn publish_verdict(&self) {
        let verdict = self.source.verdict();
        self.snapshot
            .send_modify(|snapshot| snapshot.verdict = verdict);
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        let name = input.name();
        if let Err(refused) = self.source.handle(now, input) {
            tracing::debug!(id = %self.source.migration().id, input = name, %refused, "no effect");
        }
    }

    fn record(&mut self, kind: EventKind) {
        self.record_at(Timestamp::now(), kind);
    }

    fn record_at(&mut self, at: Timestamp, kind: EventKind) {
        let id = self.source.migration().id;
        tracing::info!(%id, "{kind}");
        self.snapshot
            .send_modify(|snapshot| snapshot.record_at(at, kind));
    }

    fn stopped(&mut self, at: UnixMicros) {
        self.stopped_at = Some(at);
        // QEMU stops a guest that the operator pauses, too: the last stop is the switchover.
        self.record_at(
            timestamp(at).unwrap_or_else(Timestamp::now),
            EventKind::Switchover,
        );
    }
}

/// Whether there is more to come.
enum Progress {
    /// The migration has ended.
    Ended,
    /// Until the next message, or this time.
    Until(Option<drover_migrate::Time>),
}

/// Whole milliseconds.
pub fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
