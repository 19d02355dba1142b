//! What the state machine wants done.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::limits::VERDICT_CALL;
use drover_api::{EventKind, MigrationView, Verdict as ApiVerdict};
use drover_carrier::Side;
use drover_hypervisor::{MigrationAddress, MigrationSettings, Movable};
use drover_migrate::destination::{Action, Ending, Input, Phase};
use drover_migrate::{DestinationStep, Migration, Question, Reason, Verdict};
use drover_types::{VmName, with_sources};
use tokio::sync::mpsc;

use super::{Incoming, Message, prepare};
use crate::libvirt::Owed;
use crate::migration::carrier::{self, Carrier, next_until};
use crate::migration::domains;
use crate::migration::interrupts;
use crate::migration::kept;
use crate::migration::observe::{self, Seen, Watcher};
use crate::migration::offered::Offered;
use crate::migration::relays::{Doubt, Relays};
use crate::migration::silence::{Sought, There, whats_there};
use crate::migration::trouble::About;
use crate::registry::Role;
use crate::{facts, limits};

async fn input(inbox: &mpsc::Sender<Message>, input: Input) {
    // The task ends only when the migration has: then nobody needs to know.
    let _ = inbox.send(Message::Input(input)).await;
}

impl Incoming {
    /// Begins an action; its answer comes as a message.
    pub(super) fn perform(&mut self, action: Action) {
        tracing::debug!(id = %self.destination.migration().id, ?action, "performing");
        match action {
            Action::StartHypervisor => self.start_hypervisor(),
            Action::Listen => self.listen(),
            Action::FindSession => self.find_session(),
            Action::Observe => self.observe(false),
            Action::Settle => {
                self.close_session(false);
                self.observe(true);
            }
            Action::AskVerdict { question } => self.ask_verdict(question),
            Action::ResumeGuest => self.resume(),
            Action::AdoptGuest => self.adopt(),
            Action::KillHypervisor => self.kill(),
            Action::CloseSession => {
                let finished = matches!(self.destination.phase(), Phase::Ended(Ending::Running));
                self.close_session(finished);
            }
            Action::RemoveRuntime => self.remove_runtime(),
            // The loop handles it, since it ends the task.
            Action::Finish(_) => {}
        }
    }

    fn start_hypervisor(&mut self) {
        let (Some(request), Some(reservation)) = (&self.request, &self.reservation) else {
            let reason = Reason::from("nothing is known of the guest any more");
            return self.handle(Input::StartFailed { reason });
        };
        let (definition, reservation) = (request.definition.clone(), reservation.clone());
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let message = match reservation.start_incoming(definition).await {
                Ok(machine) => Message::Started(machine),
                Err(refusal) => Message::NotStarted(refusal),
            };
            if let Some(what) = reservation.made_ready() {
                let event = EventKind::Fallback { what };
                let _ = inbox.send(Message::Event(event)).await;
            }
            let _ = inbox.send(message).await;
        });
    }

    /// Looks for the relay of before, once at a time.
    fn find_session(&mut self) {
        if std::mem::replace(&mut self.finding, true) {
            return;
        }
        let relays = Relays::of(&self.context.config.runtime);
        let (id, inbox) = (self.destination.migration().id, self.inbox.clone());
        let report = prepare::reporter(inbox.clone(), self.session);
        let context = Arc::clone(&self.context);
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(move || {
                let hear = move |news| carrier::tell(news, &report);
                let found = relays.find(id, Side::Destination, hear);
                let (relay, state) = found.map_err(|none| none.reason)?;
                Ok(Carrier::new(relay, state.paths))
            });
            let found = found.await.unwrap_or_else(|error| Err(error.to_string()));
            let nics = match facts::interfaces().await {
                Ok(interfaces) => Offered::of(&context.config, interfaces).await.nics,
                Err(error) => {
                    // The source asks again in a moment.
                    tracing::warn!(%error, "no lane is let in yet");
                    Vec::new()
                }
            };
            let _ = inbox.send(Message::Found(found, nics)).await;
        });
    }

    fn listen(&mut self) {
        let (Some(machine), Some(reservation)) = (self.machine.clone(), &self.reservation) else {
            let reason = Reason::from("QEMU has ended");
            return self.handle(Input::ListenFailed { reason });
        };
        let address = MigrationAddress::Unix(reservation.way_in().qemu);
        let mut settings = MigrationSettings {
            channels: self.channels,
            postcopy: self.postcopy,
            ..MigrationSettings::default()
        };
        if let Some(request) = &self.request {
            settings.downtime_limit = Duration::from_millis(request.downtime_limit_ms);
        }
        let (inbox, reservation) = (self.inbox.clone(), Arc::clone(reservation));
        tokio::spawn(async move {
            let listening = match machine.set_migration(&settings).await {
                Ok(applied) => {
                    if applied.postcopy {
                        let _ = inbox.send(Message::TakesPostcopy).await;
                    }
                    for setting in applied.left_out {
                        let note = format!("the destination's QEMU has no {setting}: done without");
                        let event = EventKind::Fallback { what: note };
                        let _ = inbox.send(Message::Event(event)).await;
                    }
                    match reservation.before_it_listens().await {
                        Ok(()) => machine.listen_incoming(&address).await,
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            let message = match listening {
                Ok(()) => Message::Listening(watch(&inbox, &machine)),
                Err(error) => Message::Input(Input::ListenFailed {
                    reason: with_sources(&error).into(),
                }),
            };
            let _ = inbox.send(message).await;
        });
    }

    /// Looks once. A QEMU that runs and does not answer is no reason for anything: the state
    /// machine asks again.
    fn observe(&self, settle: bool) {
        let Some(machine) = self.machine.clone() else {
            return;
        };
        let inbox = self.inbox.clone();
        let relay = self.carrier.as_ref().map(|carrier| carrier.relay.clone());
        tokio::spawn(async move {
            if settle {
                // QEMU sees its sockets close and ends, or has everything: give it the moment.
                let ended = machine.exited();
                let _ = tokio::time::timeout(limits::SETTLE, ended).await;
                // However late the farewell is: after this look QEMU can no longer tell the source
                // that it has everything.
                if let Some(relay) = relay
                    && let Err(error) = tokio::task::spawn_blocking(move || relay.cut()).await
                {
                    tracing::error!(%error, "the relay was not cut off");
                    return;
                }
            }
            if let Some(exit) = machine.exit() {
                let reason = observe::gone(&exit);
                return input(&inbox, Input::HypervisorGone { reason }).await;
            }
            match observe::look(&*machine).await {
                Ok((seen, _)) if settle => input(&inbox, Input::Settled(seen)).await,
                Ok((seen, _)) => input(&inbox, Input::Hypervisor(seen)).await,
                Err(error) => {
                    if let Some(why) = observe::unclear(&error) {
                        let _ = inbox.send(Message::Trouble(About::Looking, why)).await;
                    }
                }
            }
        });
    }

    /// Looks for the guest's process, whose connection is lost or was never had.
    pub(super) fn reach(&self) {
        let (inbox, reservation) = (self.inbox.clone(), self.reservation.clone());
        tokio::spawn(async move {
            let reached = match &reservation {
                Some(reservation) => {
                    let not_reached = |why: Option<String>| {
                        let inbox = inbox.clone();
                        async move {
                            if let Some(why) = why {
                                let _ = inbox.send(Message::Trouble(About::Looking, why)).await;
                            }
                            !inbox.is_closed()
                        }
                    };
                    observe::reach(&**reservation, not_reached).await
                }
                None => None,
            };
            let message = match reached {
                Some(machine) => Message::Reached(machine),
                None => Message::Input(no_process()),
            };
            let _ = inbox.send(message).await;
        });
    }

    /// The guest's process answers: it is watched from now on.
    pub(super) fn reached(&mut self, machine: Arc<dyn Movable>) {
        self.watcher = Some(watch(&self.inbox, &machine));
        self.machine = Some(machine);
        self.observe(false);
    }

    fn ask_verdict(&self, question: Question) {
        let (client, inbox) = (self.client.clone(), self.inbox.clone());
        let Migration { id, source, vm, .. } = self.destination.migration().clone();
        let domain = self.domain.as_ref().and_then(domains::id);
        tokio::spawn(async move {
            let asked = Instant::now();
            let left = || VERDICT_CALL.saturating_sub(asked.elapsed());
            let answer = match client.verdict(id).await {
                Ok(view) => {
                    let verdict = match view.verdict {
                        ApiVerdict::Undecided => Verdict::Undecided,
                        ApiVerdict::HandedOff => Verdict::HandedOff,
                        ApiVerdict::Kept => Verdict::Kept,
                        ApiVerdict::CutOff => Verdict::CutOff,
                    };
                    Input::VerdictAnswered { question, verdict }
                }
                Err(error) => {
                    let sought = Sought::of(&vm, domain.as_ref());
                    match whats_there(&client, &source, sought, &error, left()).await {
                        There::Silence(reason) => Input::VerdictUnreachable {
                            question,
                            reason: reason.into(),
                        },
                        There::Somebody(reason) => Input::VerdictRefused {
                            question,
                            reason: reason.into(),
                        },
                    }
                }
            };
            input(&inbox, answer).await;
        });
    }

    fn resume(&mut self) {
        let Some(machine) = self.machine.clone() else {
            let reason = Reason::from("QEMU does not answer");
            let refused = false;
            return self.handle(Input::ResumeFailed { refused, reason });
        };
        let (inbox, reservation) = (self.inbox.clone(), self.reservation.clone());
        tokio::spawn(async move {
            let may_run = match &reservation {
                Some(reservation) => reservation.before_it_runs().await,
                None => Ok(()),
            };
            let resumed = match may_run {
                Ok(()) => machine.resume().await,
                Err(error) => Err(error),
            };
            let resumed = match resumed {
                Ok(()) => {
                    // For an agent that finds it when it stands still for another reason.
                    if let Some(reservation) = reservation
                        && let Err(refusal) = reservation.set_role(Role::Running)
                    {
                        tracing::error!(vm = %reservation.name(), %refusal, "not marked as running");
                    }
                    Input::GuestResumed
                }
                Err(error) => Input::ResumeFailed {
                    refused: !error.is_unanswered(),
                    reason: with_sources(&error).into(),
                },
            };
            input(&inbox, resumed).await;
        });
    }

    fn adopt(&mut self) {
        let Some(reservation) = self.reservation.clone() else {
            let reason = Reason::from("the guest is not held by this migration");
            return self.handle(Input::AdoptFailed { reason });
        };
        let request = self.request.as_ref();
        let definition = request.map(|request| request.definition.clone());
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let adopted = match reservation.adopt(definition.as_ref()).await {
                Ok(()) => Input::GuestAdopted,
                Err(refusal) => Input::AdoptFailed {
                    reason: refusal.message.into(),
                },
            };
            input(&inbox, adopted).await;
        });
    }

    fn kill(&mut self) {
        let machine = self.machine.clone();
        let machine = machine.or_else(|| self.reservation.as_ref()?.machine());
        let Some(machine) = machine else {
            return self.handle(no_process());
        };
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let message = match machine.kill().await {
                Ok(exit) => {
                    let reason = observe::gone(&exit);
                    Message::Input(Input::HypervisorGone { reason })
                }
                // It is tried again.
                Err(error) => {
                    let why = with_sources(&error);
                    let why =
                        format!("what is not to come was not ended, and is tried again: {why}");
                    Message::Trouble(About::Ending, why)
                }
            };
            let _ = inbox.send(message).await;
        });
    }

    pub(super) fn close_session(&mut self, finished: bool) {
        self.show();
        self.expected = None;
        if let Some(carrier) = &self.carrier {
            carrier.close(finished);
        }
    }

    /// Gives the right to the guest back after its runtime is gone, so that the next attempt finds
    /// nothing of this one. A domain's is kept until its end is written down, as what was noted of it is.
    fn remove_runtime(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.ended = reservation.domain().map(|_| Arc::clone(&reservation));
            let discarding = async move {
                reservation.end().await;
                reservation.owes()
            };
            self.discarding = Some(tokio::spawn(discarding));
        }
    }

    /// The last that is done before the end is written down and shown: whoever sees the end finds
    /// nothing left that is to go.
    pub(super) async fn settle(&mut self, ending: &Ending) -> MigrationView {
        self.following = None;
        self.watcher = None;
        self.expected = None;
        if let Some(carrier) = self.carrier.clone() {
            let mut settled = pin!(carrier.settle(*ending == Ending::Running));
            while let Some(message) = next_until(&mut self.messages, settled.as_mut()).await {
                self.take(message);
            }
            self.take_what_came();
            self.show();
        }
        let given_back = self.interrupts.release().await;
        // That they were moved may have been told meanwhile.
        self.take_what_came();
        if let Some(told) = interrupts::told(given_back) {
            self.record(told);
        }
        let owed = match (self.discarding.take(), &self.reservation) {
            (Some(discarding), _) => discarding.await.unwrap_or_else(|error| {
                tracing::error!(%error, "runtime directory not removed");
                Vec::new()
            }),
            (None, Some(reservation)) => reservation.owes(),
            (None, None) => Vec::new(),
        };
        for Owed { debt, why } in owed {
            if let Some(domain) = &mut self.domain {
                domain.owes.extend(debt);
            }
            self.record(EventKind::Fallback { what: why });
        }
        // Before anybody else can have its turn.
        let domain = self.domain.clone();
        self.snapshot
            .send_modify(|snapshot| snapshot.domain = domain);
        let view = self.final_view(ending);
        self.record(view.ended_event());
        self.last_view = Some(view.clone());
        view
    }

    pub(super) fn finish(&mut self, ending: &Ending) {
        let view = self.last_view.take();
        let view = view.unwrap_or_else(|| self.final_view(ending));
        let runs_here = *ending == Ending::Running;
        self.let_stored_pages_go(runs_here, &view.vm);
        let carrier = self.carrier.take();
        match self.recording.take() {
            Some(recording) => {
                kept::end(&self.context.checkpoints, recording, carrier, runs_here);
            }
            None => drop(carrier),
        }
        for held in self.reservation.take().into_iter().chain(self.ended.take()) {
            held.over();
        }
        tracing::info!(id = %view.id, ?ending, "migration ended");
        self.context.metrics.ended(&view);
        self.snapshot.send_modify(|snapshot| {
            snapshot.prepared = true;
            snapshot.view = view;
        });
    }

    /// Pages that were stored here for its return, or for others as well, are used again by who comes next, however this ended, unless
    /// they may be why: no use of them changes any. With its guest here a checkpoint has no use, whether or not it was of use for this.
    fn let_stored_pages_go(&mut self, runs_here: bool, vm: &VmName) {
        let returning = self.returning.take();
        let doubt = self.doubt();
        let spoiled = doubt.is_some() && self.context.shared_pages.spoil(&self.lease);
        if let Some(doubt) = doubt
            && (spoiled || returning.is_some())
        {
            tracing::warn!(%vm, ?doubt, "pages that were stored here are not used again");
        }
        let spent = match runs_here {
            // What has a domain's name is kept of a guest of ours.
            true if self.domain.is_some() => returning,
            true => returning.or_else(|| self.context.checkpoints.spent(vm)),
            false => returning.filter(|_| doubt.is_some()),
        };
        if let Some(spent) = spent {
            // That waits for the disk.
            self.context.checkpoints.defer(move || spent.remove());
        }
    }

    /// What speaks against pages that were stored here. Of a relay that is not found nothing is known.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        let of_last = match &self.carrier {
            Some(carrier) => carrier.relay.doubt(),
            None => Some(Doubt::Died),
        };
        self.doubt.or(of_last)
    }
}

/// The end that a record stands for, if it is the last one.
pub(super) fn ending_of(step: &DestinationStep) -> Option<Ending> {
    match step.clone() {
        DestinationStep::Incoming
        | DestinationStep::RunHere
        | DestinationStep::Discarding
        | DestinationStep::Filling { .. } => None,
        DestinationStep::Running { .. } => Some(Ending::Running),
        DestinationStep::Abandoned { cause } => Some(Ending::Abandoned(cause)),
        DestinationStep::Lost { reason } => Some(Ending::Lost(reason)),
        DestinationStep::CutOff => Some(Ending::CutOff),
    }
}

fn no_process() -> Input {
    Input::HypervisorGone {
        reason: Reason::from("there is no process of it any more"),
    }
}

fn watch(inbox: &mpsc::Sender<Message>, machine: &Arc<dyn Movable>) -> Watcher {
    let inbox = inbox.clone();
    Watcher::start(machine.clone(), move |seen| {
        let inbox = inbox.clone();
        async move {
            let message = match seen {
                Seen::Look(observation, progress) => Message::Look(observation, progress),
                Seen::Stopped(_) => return true,
                Seen::Unclear(why) => Message::Trouble(About::Looking, why),
                Seen::Resumed(at) => Message::Resumed(at),
                Seen::Lost => Message::MonitorLost,
                Seen::Gone(reason) => {
                    // A session that failed ends it by closing its channels, and is why.
                    tokio::time::sleep(limits::SESSION_IS_WHY).await;
                    Message::Input(Input::HypervisorGone { reason })
                }
            };
            inbox.send(message).await.is_ok()
        }
    })
}
