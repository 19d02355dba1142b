//! A guest that leaves: performs what [`Source`] decides, and tells it what became of it.
//!
//! One task owns the state machine. Everything that takes time runs beside it and answers with a
//! [`Message`], so that the machine is always ready for a cancel.

mod actions;
mod checkpoint;
mod connect;
mod guest;
mod hand_off;
mod held;
mod join;
mod keep;
mod message;
mod postcopy;
mod reach;
mod show;
mod trouble;

pub use hand_off::timestamp;
pub use message::{Agreed, Found, Link, Message, NotAgreed, Options};
pub use reach::leads_there;
pub use show::{CANCELLED_BY_OPERATOR, PAST_DEADLINE, path_chosen, paths_without_lanes};

use std::sync::Arc;
use std::time::Instant;

use drover_api::{Client, ErrorCode, EventKind, IncomingOffer, LeftOut, MigrationView, Refusal};
use drover_carrier::TlsKeys;
use drover_hypervisor::{MigrationProgress, Movable, UnixMicros};
use drover_migrate::convergence::{Converging, Step};
use drover_migrate::estimate::Estimator;
use drover_migrate::paths::Side;
use drover_migrate::source::{Action, Input, Output, Phase, Source};
use drover_migrate::{CancelledBy, MigrationSeen, Observation, Reason, SourceRecord, SourceStep};
use drover_types::AtDeadline;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};

use super::carrier::{Carried, Carrier};
use super::domains;
use super::held::Held;
use super::interrupts;
use super::journal::{AnyRecord, Entry, Journal};
use super::lanes::LaneWatch;
use super::links::{self, Following};
use super::observe::Watcher;
use super::reduction;
use super::resolve;
use super::security;
use super::snapshot::{Snapshot, round_seen};
use super::trouble::{About, Troubles};
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
    /// The destination's QEMU can be told to let the guest go on before its pages do; and this host's was.
    destination_takes_postcopy: bool,
    has_postcopy: bool,
    /// It went on after a restart: QEMU knows since when it migrates.
    taken_up: bool,
    keeping: Option<JoinHandle<()>>,
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
        of_libvirt: domain.is_some(),
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
        destination_takes_postcopy: false,
        has_postcopy: false,
        taken_up: false,
        keeping: None,
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

    /// Takes what has come by now, such as what the relay told of its end.
    fn take_what_came(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Input(input) => {
                let hand_off = matches!(
                    input,
                    Input::HandOffAnswered { .. } | Input::HandOffUnreachable { .. }
                );
                let handing_off = matches!(self.source.phase(), Phase::HandingOff(_));
                // An answer to a question of before may come while the decision is not on disk yet.
                if hand_off && handing_off && self.source.has_handed_off() {
                    self.definition_leaves();
                }
                self.handle(input);
            }
            Message::Cancel(by, answer) => {
                let taken = self.cancel(by);
                // The one who asked may have gone.
                let _ = answer.send(taken);
            }
            Message::GiveUp(answer) => {
                let taken = self.source.handle(self.now(), Input::GiveUpRequested);
                // From now on no destination that asks is told otherwise.
                self.publish_verdict();
                self.show();
                // The one who asked may have gone.
                let _ = answer.send(taken);
            }
            Message::Agreed(agreed) => self.agreed(*agreed),
            Message::NotAgreed(NotAgreed { refusal, sent }) => {
                let reason = refusal.message.as_str().into();
                let input = if sent || refusal.code == ErrorCode::PeerUnreachable {
                    Input::DestinationUnreachable { sent, reason }
                } else {
                    Input::DestinationRefused { reason }
                };
                self.snapshot
                    .send_modify(|snapshot| snapshot.refusal = Some(refusal));
                self.handle(input);
            }
            Message::Protected(encryption) => {
                let shown = Some(security::shown(encryption));
                self.snapshot.send_modify(|s| s.view.encryption = shown);
            }
            Message::Carries(carrier) => {
                let port = self.offer.as_ref().map(|offer| offer.data_port);
                self.carries(carrier, port);
            }
            Message::Keeps(growing) => self.checkpoint = Some(growing),
            Message::Found(found) => self.found(found),
            Message::Carried(_, Carried::Event(kind)) | Message::Event(kind) => self.record(kind),
            Message::Limits(limits) => self.hold(limits),
            Message::Interrupts(views) => self
                .snapshot
                .send_modify(|snapshot| interrupts::show(snapshot, views)),
            Message::Joining(paths, known) => {
                self.joining(&paths);
                // The one who waits may have gone.
                let _ = known.send(());
            }
            Message::Joined(paths) => {
                if let Some(carrier) = &self.carrier {
                    paths
                        .into_iter()
                        .for_each(|path| carrier.relay.add_path(path));
                }
            }
            // Of a session that was replaced.
            Message::Carried(attempt, Carried::Failed(_))
                if attempt != self.source.page_attempt() => {}
            Message::Carried(_, Carried::Failed(reason)) if self.source.pages_follow() => {
                self.pages_stopped(&reason);
            }
            Message::Carried(_, Carried::Failed(reason)) => {
                let reason = reason.into();
                self.broke_off(Input::SessionFailed { reason });
            }
            Message::BrokeOff(attempt, input) => {
                self.asking_why = false;
                let over = self.session_over.take();
                // Another session may carry by now, which this is not about.
                if attempt != self.source.page_attempt() {
                    return;
                }
                self.handle(match (input, over) {
                    // By that QEMU lost its sockets.
                    (Input::Hypervisor(_), Some(reason)) => Input::SessionFailed { reason },
                    (input, _) => input,
                });
            }
            Message::Trouble(about, why) => self.trouble(about, &why),
            Message::Look(observation, progress) => {
                self.troubles.is_over(About::Looking);
                self.show_progress(&progress);
                self.looked(observation);
                self.converge(&progress);
            }
            Message::NotAimed(limit, error) => {
                if self.converging.not_taken(limit) {
                    let what = format!("setting the downtime limit: {error}; tried again");
                    self.record(EventKind::Fallback { what });
                }
            }
            Message::TakesPostcopy => self.destination_takes_postcopy = true,
            Message::HasPostcopy => self.has_postcopy = true,
            Message::PostcopyRefused(error) => self.postcopy_refused(&error),
            Message::Reopened(carrier, port) => self.reopened(carrier, port),
            Message::PagesFollow => self.pages_go_on(),
            Message::Memory(whole) => self.estimator.memory_holds(whole),
            Message::Dirtied(within, bytes) => self.estimator.sampled(within, bytes),
            Message::Begun(at, watcher) => {
                self.postcopy_is_agreed();
                self.begun_at = Some(at);
                self.record_at(at, EventKind::Begun);
                self.watcher = Some(watcher);
                let prepare = millis(self.asked_at.elapsed());
                self.snapshot
                    .send_modify(|s| s.view.prepare_ms = Some(prepare));
                self.look_at_writes();
                self.handle(Input::MigrationStarted);
            }
            Message::Stopped(at) => self.stopped(at),
            Message::MonitorLost => {
                self.record(EventKind::MonitorLost);
                self.reach();
            }
            Message::Reached(machine) => self.reached(machine),
            Message::RunsThere(times) => self.runs_there(&times),
        }
    }

    /// The relay runs: its lanes follow the host's links, and new ones join.
    fn carries(&mut self, carrier: Carrier, port: Option<u16>) {
        let context = Arc::clone(&self.link.context);
        let follow = links::follow(context, carrier.clone(), Side::Source);
        let near = interrupts::keep_near(
            self.interrupts.clone(),
            carrier.clone(),
            Side::Source,
            self.link.inbox.clone(),
            Message::Interrupts,
        );
        let mut following = Following::start(follow).and(near);
        if let Some(port) = port {
            let id = self.source.migration().id;
            let join = join::keep_joining(self.link.clone(), carrier.clone(), id, port);
            following = following.and(join);
        }
        self.following = Some(following);
        self.carrier = Some(carrier);
    }

    /// The session of before is found, or certainly gone: now QEMU is looked at.
    fn found(&mut self, found: Result<Found, String>) {
        self.finding = false;
        let input = match found {
            Ok(Found {
                carrier,
                memo,
                held,
            }) => {
                self.taken_up = true;
                self.held(&held);
                let port = match self.link.options.remember(&memo) {
                    Ok(port) => Some(port),
                    Err(what) => {
                        self.record(EventKind::Fallback { what });
                        None
                    }
                };
                // QEMU was told so before it began; if not, it refuses.
                self.has_postcopy = self.link.options.wants_postcopy();
                let wished = self.link.options.convergence;
                let vm = &self.source.migration().vm;
                let dirtied = self.link.context.inventory.dirtied(vm);
                self.estimator = Estimator::new(&wished, dirtied);
                self.reckon_with_postcopy();
                self.look_at_memory();
                self.converging = Converging::new(&wished);
                self.carries(carrier, port);
                Input::SessionLives
            }
            Err(reason) => self.session_is_gone(&reason),
        };
        self.handle(input);
        if self.watcher.is_none() {
            self.reach();
        }
    }

    /// Has the migration come to its end, while memory is copied.
    fn converge(&mut self, progress: &MigrationProgress) {
        if !matches!(self.source.phase(), Phase::Transferring { .. }) {
            return;
        }
        let seen = round_seen(progress);
        let then = match self.converging.look(progress.total_time, seen) {
            None => return,
            Some(Step::AimAt(limit)) => return self.aim_at(limit),
            Some(Step::StopAndCopy(limit)) => {
                self.aim_at(limit);
                self.estimator.may_stop_for(limit);
                AtDeadline::StopAndCopy
            }
            Some(Step::Postcopy) if self.has_postcopy => AtDeadline::Postcopy,
            Some(Step::Postcopy | Step::GiveUp) => AtDeadline::GiveUp,
        };
        let rate = self.snapshot.borrow().view.rate;
        self.record(EventKind::DeadlinePassed {
            then,
            remaining: seen.remaining,
            rate,
            dirty_rate: seen.dirty_rate,
        });
        match then {
            AtDeadline::GiveUp => {
                let by = CancelledBy::Deadline;
                self.handle(Input::CancelRequested { by });
            }
            AtDeadline::Postcopy => self.handle(Input::PostcopyRequested),
            AtDeadline::StopAndCopy => {}
        }
    }

    fn looked(&mut self, observation: Observation) {
        let failed = matches!(observation.migration, MigrationSeen::Failed { .. });
        let carrying = matches!(self.source.phase(), Phase::Transferring { .. });
        let input = Input::Hypervisor(observation);
        if failed && carrying {
            self.broke_off(input);
        } else {
            self.handle(input);
        }
    }

    fn agreed(&mut self, agreed: Agreed) {
        let Agreed {
            offer,
            keys,
            left_out,
            input,
            fewer_channels,
        } = agreed;
        self.record(EventKind::Agreed {
            qemu_version: offer.qemu_version.clone(),
            protocol: offer.protocol,
        });
        if let Input::DestinationReady { channels, paths } = &input {
            if paths.is_empty() {
                let refusal = Some(no_path(&left_out));
                self.snapshot
                    .send_modify(|snapshot| snapshot.refusal = refusal);
            }
            let (channels, paths) = (*channels, paths.clone());
            self.snapshot.send_modify(|snapshot| {
                snapshot.view.channels = Some(channels);
                snapshot.view.paths = show::paths_without_lanes(&paths);
                snapshot.record(EventKind::ChannelsChosen {
                    channels,
                    why: fewer_channels,
                });
                for path in &paths {
                    snapshot.record(show::path_chosen(path));
                }
            });
        }
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.left_out = left_out;
            snapshot.view.verify = offer.lanes.verify;
        });
        let (mode, host) = (
            self.link.options.reduction,
            &self.source.migration().destination,
        );
        match reduction::view(mode, host, offer.reduction.as_ref()) {
            Ok(view) => self
                .snapshot
                .send_modify(|snapshot| snapshot.view.reduction = view),
            Err(what) => self.record(EventKind::Fallback { what }),
        }
        for what in offer.notes.clone() {
            self.record(EventKind::Fallback { what });
        }
        self.offer = Some(offer);
        self.keys = Some(keys);
        self.handle(input);
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

fn no_path(left_out: &[LeftOut]) -> Refusal {
    let said = left_out
        .iter()
        .map(|left| format!("{}: {}", left.what, left.reason));
    let said: Vec<String> = said.collect();
    let message = format!(
        "no interface of this host reaches one of the destination ({})",
        said.join("; ")
    );
    Refusal::new(ErrorCode::NoPath, message).next(
        "check addresses, cables and firewalls between the hosts (the destination's \
         `migration.data_port`), and [networks] in droverd.toml on both",
    )
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
