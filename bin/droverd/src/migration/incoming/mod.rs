//! A guest that arrives: performs what [`Destination`] decides, and tells it what became of it.
//!
//! As for a guest that leaves: one task owns the state machine, everything that takes time runs
//! beside it and answers with a [`Message`].

mod actions;
mod prepare;
mod reopen;
mod show;

pub use prepare::{Asked, Wanted};
pub use show::{incoming_view, with_the_sources_word};

use std::sync::Arc;

use drover_api::{
    Client, EventKind, IncomingOffer, IncomingRequest, IncomingStart, InterruptsView,
    MigrationView, Refusal,
};
use drover_hypervisor::{MigrationProgress, Movable, UnixMicros};
use drover_migrate::destination::{Action, Destination, Input, Output, Phase};
use drover_migrate::limits::WORD_COUNTS;
use drover_migrate::paths::Side;
use drover_migrate::{DestinationRecord, DestinationStep, Observation, Refused, Resolution};
use drover_relay::{Expected, LaneListener};
use drover_types::{NicPlacement, Path};
use tokio::sync::{mpsc, oneshot, watch};

use super::carrier::{Carried, Carrier};
use super::held::Held;
use super::interrupts;
use super::journal::{AnyRecord, Entry, Journal};
use super::lanes::LaneWatch;
use super::links::{self, Following};
use super::observe::Watcher;
use super::outgoing::{path_chosen, paths_without_lanes, timestamp};
use super::relays::Doubt;
use super::resolve;
use super::snapshot::Snapshot;
use super::trouble::{About, Troubles};
use crate::agent::Context;
use crate::api::Accepted;
use crate::checkpoints::{Growing, Returning};
use crate::clock::{Moment, until};
use crate::interrupts::Share;
use crate::libvirt::{DomainRecord, Owed};
use crate::limits;
use crate::shared_pages::Lease;

/// What reaches the task.
#[derive(Debug)]
pub enum Message {
    /// Something happened.
    Input(Input),
    /// QEMU waits.
    Started(Arc<dyn Movable>),
    /// QEMU was not started: a precondition does not hold, or it failed.
    NotStarted(Refusal),
    /// The source's lanes are up.
    Listen(IncomingStart),
    /// The session's networks by now.
    Networks {
        /// Its paths, those that joined included.
        paths: Vec<Path>,
        /// The addresses that are offered, and where the threads of lanes to them run.
        nics: Vec<NicPlacement>,
        /// They are listened at.
        heard: oneshot::Sender<()>,
    },
    /// QEMU can be told to let the guest go on before its pages do.
    TakesPostcopy,
    /// The source opens another session for the pages that are still to follow.
    Reopen(Box<Asked>, oneshot::Sender<Result<IncomingOffer, Refusal>>),
    /// QEMU listens again.
    PagesFollow,
    /// Its lanes are up: QEMU is to listen again.
    Recover(Vec<Path>, oneshot::Sender<Result<(), Refusal>>),
    /// QEMU listens; the watch of it began.
    Listening(Watcher),
    /// The source has handed the guest off, as somebody said who was let in then.
    Run(Accepted),
    /// The source keeps the guest, and why.
    Abandon(String),
    /// An operator decides in the source's place.
    Resolve(Resolution, oneshot::Sender<Result<(), Refused>>),
    /// What became of the relay that an earlier agent started, and what is offered to the source.
    Found(Result<Carrier, String>, Vec<NicPlacement>),
    /// What the relay of this session reports.
    Carried(u32, Carried),
    /// A look at QEMU.
    Look(Observation, Box<MigrationProgress>),
    /// What became of interrupts of interfaces that carry.
    Interrupts(Vec<InterruptsView>),
    /// The guest runs.
    Resumed(UnixMicros),
    /// The connection to QEMU is lost.
    MonitorLost,
    /// There is a connection to QEMU again.
    Reached(Arc<dyn Movable>),
    /// Something does not succeed, and why.
    Trouble(About, String),
    /// What else happened.
    Event(EventKind),
}

/// The task's state.
pub struct Incoming {
    context: Arc<Context>,
    inbox: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    destination: Destination,
    journal: Journal,
    client: Client,
    request: Option<IncomingRequest>,
    channels: u8,
    postcopy: bool,
    reservation: Option<Arc<dyn Held>>,
    /// What the next agent has to know of the guest, where it is libvirt's.
    domain: Option<DomainRecord>,
    machine: Option<Arc<dyn Movable>>,
    snapshot: watch::Sender<Snapshot>,
    origin: Moment,
    listener: Option<Arc<LaneListener>>,
    finding: bool,
    carrier: Option<Carrier>,
    following: Option<Following>,
    expected: Option<Expected>,
    lease: Lease,
    /// Its checkpoint here, where it comes back.
    returning: Option<Returning>,
    /// What speaks against either, of a session that was replaced.
    doubt: Option<Doubt>,
    /// Its baseline, for what changes until it goes back.
    recording: Option<Growing>,
    /// The number of its session.
    session: u32,
    watcher: Option<Watcher>,
    abandoned_for: Option<String>,
    discarding: Option<tokio::task::JoinHandle<Vec<Owed>>>,
    /// A domain whose runtime is gone.
    ended: Option<Arc<dyn Held>>,
    lanes: LaneWatch,
    interrupts: Share,
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

/// What a migration to here begins, or goes on, with.
pub struct Beginning {
    /// The machine, new or recovered.
    pub destination: Destination,
    /// What is known.
    pub snapshot: Snapshot,
    /// The right to change the guest.
    pub reservation: Option<Arc<dyn Held>>,
    /// The source's agent.
    pub client: Client,
    /// When the machine's time began.
    pub origin: Moment,
    /// What was asked for; none after a restart.
    pub request: Option<IncomingRequest>,
    /// What was wanted of the session; none after a restart.
    pub asked: Option<Asked>,
}

/// Starts the task. With a request, the relay and its token are made first.
///
/// # Errors
/// The session that was asked for cannot be used.
pub fn start(
    context: Arc<Context>,
    journal: Journal,
    listener: Option<Arc<LaneListener>>,
    mut beginning: Beginning,
) -> Result<(Handle, Option<IncomingOffer>), Refusal> {
    let (inbox, messages) = mpsc::channel(limits::INBOX);
    let session = match (&beginning.asked, &beginning.reservation, &listener) {
        (Some(asked), Some(reservation), Some(listener)) => {
            let sockets = reservation.way_in();
            let inbox = inbox.clone();
            let session = prepare::session(asked, sockets, listener, &context, (inbox, 0));
            Some(session?)
        }
        _ => None,
    };
    let held = beginning.reservation.as_ref();
    let domain = held.and_then(|held| held.domain().cloned());
    beginning.snapshot.domain.clone_from(&domain);
    if let Some(session) = &session {
        beginning.snapshot.view.verify = session.offer.lanes.verify;
    }
    let (snapshot, shown) = watch::channel(beginning.snapshot);
    let (carrier, lease, returning, recording, expected, offer) = match session {
        Some(session) => (
            Some(session.carrier),
            session.lease,
            session.returning,
            session.recording,
            Some(session.expected),
            Some(session.offer),
        ),
        None => {
            let known = snapshot.borrow();
            let returning = match known.domain.is_some() {
                true => None,
                false => context.checkpoints.take_up(&known.view.vm),
            };
            drop(known);
            (None, Lease::default(), returning, None, None, None)
        }
    };
    let interrupts = context.interrupts.share(snapshot.borrow().view.id, false);
    let task = Incoming {
        context,
        inbox: inbox.clone(),
        messages,
        destination: beginning.destination,
        journal,
        client: beginning.client,
        request: beginning.request,
        channels: 0,
        postcopy: false,
        machine: beginning
            .reservation
            .as_ref()
            .and_then(|held| held.machine()),
        domain,
        reservation: beginning.reservation,
        snapshot,
        origin: beginning.origin,
        listener,
        finding: false,
        carrier,
        following: None,
        expected,
        lease,
        returning,
        doubt: None,
        recording,
        session: 0,
        watcher: None,
        abandoned_for: None,
        discarding: None,
        ended: None,
        lanes: LaneWatch::default(),
        interrupts,
        troubles: Troubles::default(),
        last_view: None,
    };
    // After a restart, whether the session lives comes first.
    if task.request.is_none() && !matches!(task.destination.phase(), Phase::Recovering { .. }) {
        task.reach();
    }
    tokio::spawn(task.run());
    let handle = Handle {
        inbox,
        snapshot: shown,
    };
    Ok((handle, offer))
}

impl Incoming {
    async fn run(mut self) {
        while let Some(deadline) = self.drain().await {
            let message = tokio::select! {
                message = self.messages.recv() => message,
                () = until(self.origin, deadline) => None,
            };
            if let Some(message) = message {
                self.take(message);
            }
        }
    }

    /// Does everything that the machine wants done now; the time of its next deadline, if the
    /// migration goes on.
    async fn drain(&mut self) -> Option<Option<drover_migrate::Time>> {
        loop {
            let now = self.origin.elapsed();
            match self.destination.poll(now) {
                Output::Journal(record) => self.write(record).await,
                Output::Do(Action::Finish(ending)) => {
                    self.finish(&ending);
                    return None;
                }
                Output::Do(action) => self.perform(action),
                Output::Wait(deadline) => {
                    self.show();
                    return Some(deadline);
                }
            }
        }
    }

    async fn write(&mut self, record: DestinationRecord) {
        self.show();
        let runs = matches!(
            record.step,
            DestinationStep::Running { .. } | DestinationStep::Filling { unanswered: false }
        );
        if runs && self.machine.is_some() {
            // QEMU's own word for it may come after the end.
            self.resumed(None);
        }
        let view = match actions::ending_of(&record.step) {
            Some(ending) => self.settle(&ending).await,
            None => self.snapshot.borrow().view.clone(),
        };
        let resolution = record.resolution();
        let view = resolve::with_resolution(view, resolution);
        let resolved = view.resolution.clone();
        if let Some(last) = &mut self.last_view {
            last.resolution.clone_from(&resolved);
        }
        let entry = Entry {
            record: AnyRecord::Destination(record),
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
                reason: error.to_string().into(),
            },
        };
        self.handle(input);
    }

    fn handle(&mut self, input: Input) {
        let name = input.name();
        if let Err(refused) = self.destination.handle(self.origin.elapsed(), input) {
            let id = self.destination.migration().id;
            tracing::debug!(%id, input = name, %refused, "no effect");
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
            Message::Input(input) => self.handle(input),
            Message::Started(machine) => {
                let version = machine.version().to_string();
                self.machine = Some(machine);
                self.snapshot.send_modify(|snapshot| {
                    snapshot.prepared = true;
                    snapshot.qemu_version = Some(version.clone());
                    snapshot.record(EventKind::Prepared {
                        qemu_version: version,
                    });
                });
                self.handle(Input::HypervisorStarted);
            }
            Message::NotStarted(refusal) => {
                let reason = refusal.message.as_str().into();
                self.snapshot
                    .send_modify(|snapshot| snapshot.refusal = Some(refusal));
                self.handle(Input::StartFailed { reason });
            }
            Message::Listen(request) => {
                self.channels = request.channels;
                self.postcopy = request.postcopy;
                self.record(EventKind::ChannelsChosen {
                    channels: request.channels,
                    why: None,
                });
                self.set_paths(request.paths);
                self.handle(Input::ListenRequested);
            }
            Message::Networks { paths, nics, heard } => {
                self.offer(nics);
                self.set_paths(paths);
                // The one who asked may have gone.
                let _ = heard.send(());
            }
            Message::TakesPostcopy => {
                self.snapshot
                    .send_modify(|snapshot| snapshot.postcopy = true);
            }
            Message::Reopen(asked, answer) => {
                // The one who asked may have gone.
                let _ = answer.send(self.reopen(&asked));
            }
            Message::Recover(paths, answer) => self.recover(paths, answer),
            Message::PagesFollow => self.pages_go_on(),
            Message::Listening(watcher) => {
                self.watcher = Some(watcher);
                self.handle(Input::Listening);
            }
            Message::Resolve(resolution, answer) => {
                let input = Input::ResolveRequested(resolution);
                let taken = self.destination.handle(self.origin.elapsed(), input);
                self.show();
                // The one who asked may have gone.
                let _ = answer.send(taken);
            }
            Message::Found(found, nics) => self.found(found, nics),
            Message::Run(accepted) => {
                let age = accepted.0.elapsed();
                if age > WORD_COUNTS {
                    let id = self.destination.migration().id;
                    tracing::warn!(%id, ?age, "a word to run was held up on its way: not taken");
                }
                self.handle(Input::RunRequested { age });
            }
            Message::Abandon(cause) => {
                self.abandoned_for = Some(cause);
                self.handle(Input::AbandonRequested);
            }
            Message::Carried(_, Carried::Event(kind)) | Message::Event(kind) => self.record(kind),
            // Of a session that was replaced.
            Message::Carried(session, Carried::Failed(_)) if session != self.session => {}
            Message::Carried(_, Carried::Failed(reason)) => {
                if self.destination.may_reopen() {
                    self.record(EventKind::PagesStopped {
                        reason: reason.clone(),
                    });
                }
                self.handle(Input::SessionFailed {
                    reason: reason.into(),
                });
            }
            Message::Trouble(about, why) => self.trouble(about, &why),
            Message::Look(observation, progress) => {
                self.troubles.is_over(About::Looking);
                self.snapshot
                    .send_modify(|snapshot| snapshot.show_progress(&progress));
                self.handle(Input::Hypervisor(observation));
            }
            Message::Interrupts(views) => self
                .snapshot
                .send_modify(|snapshot| interrupts::show(snapshot, views)),
            Message::Resumed(at) => self.resumed(timestamp(at)),
            Message::MonitorLost => {
                self.record(EventKind::MonitorLost);
                self.reach();
            }
            Message::Reached(machine) => self.reached(machine),
        }
    }

    /// Lets lanes in at these addresses, too, and has their threads run where they are to.
    fn offer(&mut self, nics: Vec<NicPlacement>) {
        if let Some(expected) = &self.expected {
            for what in prepare::offer(expected, &nics) {
                self.record(EventKind::Fallback { what });
            }
        }
        if let Some(carrier) = &self.carrier {
            carrier.relay.place(nics);
        }
    }

    /// The source told its paths. Links may have changed since it saw them.
    fn set_paths(&mut self, paths: Vec<Path>) {
        let Some(carrier) = &self.carrier else {
            return;
        };
        let known = carrier.paths();
        let is_new = |path: &&Path| known.iter().all(|known| known.id != path.id);
        let new: Vec<Path> = paths.iter().filter(is_new).cloned().collect();
        for path in &new {
            // For an agent that takes it up again.
            carrier.relay.add_path(path.clone());
        }
        carrier.change_paths(|all| *all = paths);
        self.follow(carrier.clone());
        // Limits are divided among what is shown.
        let shown = paths_without_lanes(&new);
        self.snapshot
            .send_modify(|snapshot| snapshot.view.paths.extend(shown));
        for path in &new {
            self.record(path_chosen(path));
        }
    }

    fn follow(&mut self, carrier: Carrier) {
        let context = Arc::clone(&self.context);
        let near = interrupts::keep_near(
            self.interrupts.clone(),
            carrier.clone(),
            Side::Destination,
            self.inbox.clone(),
            Message::Interrupts,
        );
        let follow = links::follow(context, carrier, Side::Destination);
        self.following = Some(Following::start(follow).and(near));
    }

    /// The session of before is found, or certainly gone: now QEMU is looked at.
    fn found(&mut self, found: Result<Carrier, String>, nics: Vec<NicPlacement>) {
        self.finding = false;
        let input = match found {
            Ok(carrier) => {
                let id = self.destination.migration().id;
                let listener = self.listener.as_ref();
                self.expected =
                    listener.map(|listener| prepare::expect(listener, id, &carrier.relay));
                self.follow(carrier.clone());
                self.carrier = Some(carrier);
                self.offer(nics);
                self.show();
                self.snapshot
                    .send_modify(|snapshot| snapshot.is_whole = true);
                Input::SessionLives
            }
            Err(reason) => Input::SessionFailed {
                reason: reason.into(),
            },
        };
        self.handle(input);
        if self.watcher.is_none() {
            self.reach();
        }
    }

    /// Something does not succeed.
    fn trouble(&mut self, about: About, why: &str) {
        if self.troubles.hear(about, why) {
            let what = why.to_owned();
            self.record(EventKind::Fallback { what });
        }
        self.show();
    }

    fn record(&mut self, kind: EventKind) {
        let id = self.destination.migration().id;
        tracing::info!(%id, "{kind}");
        self.snapshot.send_modify(|snapshot| snapshot.record(kind));
    }
}
