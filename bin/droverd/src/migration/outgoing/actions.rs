//! What the state machine wants done.

use std::pin::pin;
use std::sync::Arc;

use drover_api::{EventKind, MigrationView, PostcopyView};
use drover_hypervisor::{ExitStatus, MachineError, MigrationAddress, MigrationSettings, Movable};
use drover_migrate::source::{Action, Input, Phase};
use drover_migrate::{KeptGuest, Outcome, Question, Reason};
use drover_types::with_sources;
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::connect::{self, Opening};
use super::hand_off::{self, Said};
use super::keep;
use super::{Link, Message, Outgoing};
use crate::libvirt::Owed;
use crate::migration::carrier::{Carrier, next_until};
use crate::migration::held::Sockets;
use crate::migration::interrupts;
use crate::migration::kept;
use crate::migration::observe::{self, Seen, Watcher};
use crate::migration::relays::Relays;
use crate::migration::trouble::About;
use crate::registry::Role;

impl Outgoing {
    /// Begins an action; its answer comes as a message.
    pub(super) fn perform(&mut self, action: Action) {
        let migration = self.source.migration().clone();
        tracing::debug!(id = %migration.id, ?action, "performing");
        let link = self.link.clone();
        match action {
            Action::PrepareDestination => {
                let prepare = connect::prepare(link, migration, self.reservation.clone());
                self.preparing = Some(tokio::spawn(prepare).abort_handle());
            }
            Action::FindSession => self.find_session(),
            Action::OpenLanes { paths } => self.open_lanes(paths),
            Action::TellDestinationToListen => {
                let channels = self.snapshot.borrow().view.channels.unwrap_or(0);
                let paths = self.carrier.as_ref().map_or_else(Vec::new, Carrier::paths);
                tokio::spawn(connect::tell_to_listen(link, migration, channels, paths));
            }
            Action::StartMigration { channels } => self.start_migration(channels),
            Action::StartPostcopy => self.with_machine(|link, machine| async move {
                if let Err(error) = machine.start_postcopy().await
                    && !error.is_unanswered()
                {
                    link.tell(Message::PostcopyRefused(error)).await;
                }
            }),
            Action::ReopenSession { attempt } => self.reopen_session(attempt),
            Action::ResumeMigration { attempt } => self.resume_migration(attempt),
            Action::CancelMigration => self.with_machine(|link, machine| async move {
                if let Err(error) = machine.cancel().await {
                    link.fallback(format!("cancelling: {error}")).await;
                }
            }),
            Action::Yank => self.yank(),
            Action::Observe => self.observe(),
            Action::LookAgain { attempt } => self.look_again(attempt),
            Action::TellDestinationToRun { question } => {
                let told = hand_off::tell_to_run(link, migration, question);
                tokio::spawn(told);
            }
            Action::AskDestination { question } => {
                tokio::spawn(hand_off::ask_destination(link, migration, question));
            }
            Action::AbandonDestination => {
                let cause = self.cause_in_words();
                tokio::spawn(hand_off::tell_to_abandon(link, migration, cause));
            }
            Action::CloseSession => {
                let finished = matches!(
                    self.source.phase(),
                    Phase::Leaving {
                        outcome: Outcome::Completed,
                        ..
                    }
                );
                self.close_session(finished);
            }
            Action::KeepGuest => {
                if let Some(reservation) = &self.reservation {
                    let keep = keep::keep(link, self.machine.clone(), reservation.clone());
                    self.keeping = Some(tokio::spawn(keep));
                }
            }
            Action::QuitSource => self.quit_source(),
            Action::ForgetGuest => self.forget_guest(),
            Action::ReturnGuest => self.return_guest(),
            // The loop handles it, since it ends the task.
            Action::Finish(_) => {}
        }
    }

    /// Runs something with QEMU beside the task; without a QEMU there is nothing to do.
    pub(super) fn with_machine<F, R>(&self, work: F)
    where
        F: FnOnce(Link, Arc<dyn Movable>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        if let Some(machine) = &self.machine {
            tokio::spawn(work(self.link.clone(), machine.clone()));
        }
    }

    /// Looks for the relay of before, once at a time.
    fn find_session(&mut self) {
        if std::mem::replace(&mut self.finding, true) {
            return;
        }
        let link = self.link.clone();
        let id = self.source.migration().id;
        tokio::spawn(async move {
            let found = connect::find(link.clone(), id).await;
            link.tell(Message::Found(found)).await;
        });
    }

    /// Cuts the migration's connections. libvirt has no way to, and lets a guest run on once its sockets are closed.
    fn yank(&mut self) {
        if self.domain.is_some() {
            return self.close_session(false);
        }
        self.with_machine(|link, machine| async move {
            if let Err(error) = machine.yank_migration().await {
                link.fallback(format!("cutting the connections: {error}"))
                    .await;
            }
        });
    }

    fn open_lanes(&self, paths: Vec<drover_types::Path>) {
        let (Some(offer), Some(keys)) = (self.offer.clone(), self.keys.clone()) else {
            return;
        };
        let link = self.link.clone();
        let migration = self.source.migration().clone();
        let sizes = offer.session;
        let kept = self.reservation.as_ref();
        let kept = kept.and_then(|reservation| reservation.may_be_kept());
        tokio::spawn(connect::open(
            link,
            Opening {
                migration,
                paths,
                offer,
                keys,
                sizes,
                attempt: Question::default(),
                kept,
                sockets: self.sockets(),
            },
            self.reservation.clone(),
        ));
    }

    /// Where the relay listens for the guest's hypervisor.
    pub(super) fn sockets(&self) -> Sockets {
        let relays = Relays::of(&self.link.context.config.runtime);
        let own = relays.sockets(self.source.migration().id);
        match &self.reservation {
            Some(held) => held.way_out(own),
            None => Sockets::of(own.qemu),
        }
    }

    fn start_migration(&mut self, channels: u8) {
        let Some(machine) = self.machine.clone() else {
            return;
        };
        if let Err(refusal) = self.mark_outgoing() {
            let reason = Reason::from(refusal.message);
            self.handle(Input::MigrationRefused { reason });
            return;
        }
        let settings = MigrationSettings {
            channels,
            downtime_limit: self.converging.aim(),
            throttle: self.link.options.convergence.throttle(),
            postcopy: self.destination_takes_postcopy,
            ..MigrationSettings::default()
        };
        let link = self.link.clone();
        let socket = self.sockets().qemu;
        let carrier = self.carrier.clone();
        tokio::spawn(async move {
            // By its answer it holds the limits that it was told.
            if let Some(carrier) = carrier {
                carrier.refresh().await;
            }
            begin(link, machine, settings, MigrationAddress::Unix(socket)).await;
        });
    }

    fn mark_outgoing(&self) -> Result<(), drover_api::Refusal> {
        let migration = self.source.migration();
        let role = Role::Outgoing {
            migration: migration.id,
            destination: migration.destination.clone(),
        };
        self.reservation
            .as_ref()
            .map_or(Ok(()), |reservation| reservation.set_role(role))
    }

    /// Looks once. A QEMU that runs and does not answer is no reason for anything: the state
    /// machine asks again.
    fn observe(&self) {
        let (link, machine) = (self.link.clone(), self.machine.clone());
        if let Some(machine) = machine {
            tokio::spawn(async move {
                if let Some(exit) = machine.exit() {
                    let reason = observe::gone(&exit);
                    link.tell(Message::Gone(reason)).await;
                    return;
                }
                match observe::look(&*machine).await {
                    Ok((observation, progress)) => {
                        link.tell(Message::Look(observation, progress)).await;
                    }
                    Err(error) => {
                        if let Some(why) = observe::unclear(&error) {
                            link.tell(Message::Trouble(About::Looking, why)).await;
                        }
                    }
                }
            });
        }
    }

    /// Tells QEMU another downtime limit; where it does not take that, again at the next look.
    pub(super) fn aim_at(&self, limit: std::time::Duration) {
        self.with_machine(move |link, machine| async move {
            if let Err(error) = machine.set_downtime_limit(limit).await {
                link.tell(Message::NotAimed(limit, error)).await;
            }
        });
    }

    /// Looks for the guest's process, whose connection is lost or was never had.
    pub(super) fn reach(&self) {
        let link = self.link.clone();
        let Some(reservation) = self.reservation.clone() else {
            tokio::spawn(async move { link.input(no_process()).await });
            return;
        };
        tokio::spawn(async move {
            match observe::reach(&*reservation, link.not_reached()).await {
                Some(machine) => link.tell(Message::Reached(machine)).await,
                None => link.input(no_process()).await,
            }
        });
    }

    /// The guest's process answers: it is watched from now on.
    pub(super) fn reached(&mut self, machine: Arc<dyn Movable>) {
        self.watcher = Some(watch(&self.link, &machine));
        self.machine = Some(machine);
        self.observe();
    }

    fn quit_source(&mut self) {
        self.close_session(true);
        match self.machine.clone() {
            Some(machine) => {
                let link = self.link.clone();
                tokio::spawn(async move {
                    let left = quit(&*machine, &link).await;
                    link.input(left).await;
                });
            }
            None if self.domain.is_some() => self.quit_once_reached(),
            None => self.handle(no_process()),
        }
    }

    /// That there is no way to a domain yet says nothing of what is left of it. What does not succeed then is tried again by the way
    /// that was found.
    fn quit_once_reached(&mut self) {
        let Some(held) = self.reservation.clone() else {
            return self.handle(no_process());
        };
        if std::mem::replace(&mut self.reaching_to_quit, true) {
            return;
        }
        let link = self.link.clone();
        tokio::spawn(async move {
            let left = match observe::reach(&*held, link.not_reached()).await {
                Some(machine) => {
                    link.tell(Message::Reached(Arc::clone(&machine))).await;
                    quit(&*machine, &link).await
                }
                None => no_process(),
            };
            link.input(left).await;
        });
    }

    /// The definition leaves for good before the state machine may forget the guest; the guest on the
    /// destination does not wait for it.
    pub(super) fn definition_leaves(&self) {
        if let Some(reservation) = &self.reservation
            && let Err(refusal) = reservation.hand_off()
        {
            let vm = &self.source.migration().vm;
            tracing::error!(%vm, %refusal, "definition not moved yet");
        }
    }

    fn forget_guest(&mut self) {
        let handed_off = self.reservation.as_ref().map_or(Ok(()), |r| r.hand_off());
        self.handle(match handed_off {
            Ok(()) => Input::GuestForgotten,
            Err(refusal) => Input::LeaveFailed {
                reason: refusal.message.into(),
            },
        });
    }

    fn return_guest(&mut self) {
        let returned = self.reservation.as_ref().map(|r| r.take_back());
        self.handle(match returned {
            Some(Ok(())) => Input::GuestReturned,
            Some(Err(refusal)) => Input::LeaveFailed {
                reason: refusal.message.into(),
            },
            None => Input::LeaveFailed {
                reason: Reason::from("the guest is not held by this migration"),
            },
        });
    }

    pub(super) fn close_session(&mut self, finished: bool) {
        self.show();
        if let Some(reopening) = self.reopening.take() {
            reopening.abort();
        }
        if let Some(carrier) = &self.carrier {
            if !finished {
                self.session_has_ended();
            }
            carrier.close(finished);
        }
    }

    /// Whoever has the guest has to know, where no answer of its own tells whether it has left.
    pub(super) fn session_has_ended(&self) {
        if let Some(held) = &self.reservation {
            held.session_ended();
        }
    }

    /// Something broke off; `otherwise` is what is known here of it.
    pub(super) fn broke_off(&mut self, otherwise: Input) {
        if std::mem::replace(&mut self.asking_why, true) {
            if let Input::SessionFailed { reason } = otherwise {
                self.session_over.get_or_insert(reason);
            }
            return;
        }
        let link = self.link.clone();
        let migration = self.source.migration().clone();
        let carrier = self.carrier.clone();
        let attempt = self.source.page_attempt();
        tokio::spawn(async move {
            let input = match hand_off::ask_why(&link, &migration).await {
                Some(Said::Gone(reason)) => Input::DestinationGone { reason },
                Some(Said::Trouble(reason)) => {
                    let at = &migration.destination;
                    let reason = format!("on {at}, {reason}").into();
                    Input::SessionFailed { reason }
                }
                None => otherwise,
            };
            // What the relay has told by now is heard before.
            if let Some(carrier) = carrier {
                carrier.refresh().await;
            }
            link.tell(Message::BrokeOff(attempt, input)).await;
        });
    }

    /// The last that is done before the end is written down and shown: whoever sees the end finds
    /// the guest free for the next command.
    pub(super) async fn settle(&mut self, outcome: &Outcome) -> MigrationView {
        self.following = None;
        self.watcher = None;
        if let Some(preparing) = self.preparing.take() {
            preparing.abort();
        }
        if let Some(keeping) = self.keeping.take() {
            self.kept = self.kept_by(keeping).await;
        }
        if let Some(carrier) = self.carrier.clone() {
            let mut settled = pin!(carrier.settle(*outcome == Outcome::Completed));
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
        if let Some(reservation) = &self.reservation
            && !matches!(
                outcome,
                Outcome::Completed
                    | Outcome::Lost { .. }
                    | Outcome::CutOff { .. }
                    | Outcome::GivenUp { .. }
            )
            && matches!(reservation.role(), Some(Role::Outgoing { .. }))
            && let Err(refusal) = reservation.set_role(Role::Running)
        {
            tracing::error!(%refusal, "record not written");
        }
        if let Some(held) = self.reservation.clone()
            && matches!(
                outcome,
                Outcome::Refused { .. } | Outcome::Cancelled { .. } | Outcome::Failed { .. }
            )
        {
            held.stays().await;
            self.owe(held.owes());
        }
        let postcopy = self.snapshot.borrow().view.postcopy;
        if let Some(postcopy) = postcopy.filter(|_| *outcome == Outcome::Completed) {
            let PostcopyView {
                bytes, requests, ..
            } = postcopy;
            self.record(EventKind::AllFollowed { bytes, requests });
        }
        let view = self.final_view(outcome);
        self.record(view.ended_event());
        self.last_view = Some(view.clone());
        view
    }

    /// Of a guest of the agent's own it is bounded, and has said itself what went wrong. What libvirt does not do is shown meanwhile.
    async fn kept_by(&mut self, mut keeping: JoinHandle<Option<KeptGuest>>) -> Option<KeptGuest> {
        loop {
            let message = tokio::select! {
                kept = &mut keeping => return kept.ok().flatten(),
                message = self.messages.recv() => message,
            };
            if let Some(message) = message {
                self.take(message);
            }
        }
    }

    /// What is still to be done of a domain, for this agent or the next one. It is known before anybody else can have its turn.
    fn owe(&mut self, owed: Vec<Owed>) {
        for Owed { debt, why } in owed {
            if let Some(domain) = &mut self.domain {
                domain.owes.extend(debt);
            }
            self.record(EventKind::Fallback { what: why });
        }
        let domain = self.domain.clone();
        self.snapshot
            .send_modify(|snapshot| snapshot.domain = domain);
    }

    /// The guest has left: how it arrived is of no use any more.
    fn remove_baseline(&self) {
        let all = self.link.context.checkpoints.clone();
        let vm = self.source.migration().vm.clone();
        // That waits for the disk.
        let own = all.clone();
        all.defer(move || own.remove_baseline(&vm));
    }

    pub(super) async fn finish(&mut self, outcome: &Outcome) {
        let view = self.last_view.take();
        let view = view.unwrap_or_else(|| self.final_view(outcome));
        let carrier = self.carrier.take();
        match self.checkpoint.take() {
            Some(growing) => {
                let has_left = *outcome == Outcome::Completed;
                kept::end(&self.link.context.checkpoints, growing, carrier, has_left);
            }
            None => drop(carrier),
        }
        let ends_here = matches!(
            outcome,
            Outcome::Completed | Outcome::CutOff { .. } | Outcome::GivenUp { .. }
        );
        if ends_here && self.domain.is_none() {
            self.remove_baseline();
        }
        if ends_here && let Some(reservation) = &self.reservation {
            reservation.end().await;
        }
        self.reservation = None;
        tracing::info!(id = %view.id, ?outcome, "migration ended");
        self.link.context.metrics.ended(&view);
        self.snapshot.send_modify(|snapshot| {
            snapshot.prepared = true;
            snapshot.view = view;
        });
    }
}

/// Ends the copy that stands still. One that does not end in order is told of: it leaves its sockets behind.
async fn quit(machine: &dyn Movable, link: &Link) -> Input {
    let ended = match machine.quit().await {
        Ok(exit) => Ok(exit),
        // libvirt lets go of a domain, or does not.
        Err(error) if link.domain.is_some() => Err(error),
        Err(error) => {
            let why = with_sources(&error);
            link.fallback(format!("qemu did not quit, and was killed: {why}"))
                .await;
            machine.kill().await
        }
    };
    match ended {
        Ok(exit) => {
            let reason = observe::gone(&exit);
            if link.domain.is_some() {
                for what in exit.stderr {
                    link.fallback(what).await;
                }
            } else if !matches!(exit.status, ExitStatus::Code(0) | ExitStatus::Unknown) {
                link.fallback(format!("{reason}, when the copy here was to quit"))
                    .await;
            }
            Input::HypervisorGone { reason }
        }
        Err(error) => Input::LeaveFailed {
            reason: with_sources(&error).into(),
        },
    }
}

fn no_process() -> Input {
    Input::HypervisorGone {
        reason: Reason::from("there is no process of it any more"),
    }
}

/// Sets QEMU up and tells it to migrate; watches it from before that.
async fn begin(
    link: Link,
    machine: Arc<dyn Movable>,
    settings: MigrationSettings,
    address: MigrationAddress,
) {
    let refused = |error: &MachineError| Input::MigrationRefused {
        reason: with_sources(error).into(),
    };
    match machine.set_migration(&settings).await {
        Err(error) => return link.input(refused(&error)).await,
        Ok(applied) => {
            if applied.postcopy {
                link.tell(Message::HasPostcopy).await;
            }
            for setting in applied.left_out {
                let note = format!("this guest's QEMU offers no {setting}: done without");
                link.fallback(note).await;
            }
        }
    }
    let watcher = watch(&link, &machine);
    let at = Timestamp::now();
    match machine.migrate(&address).await {
        Ok(()) => link.tell(Message::Begun(at, watcher)).await,
        // Without an answer it may have begun: the watch will tell.
        Err(error) if error.is_unanswered() => link.tell(Message::Begun(at, watcher)).await,
        Err(error) => link.input(refused(&error)).await,
    }
}

fn watch(link: &Link, machine: &Arc<dyn Movable>) -> Watcher {
    let link = link.clone();
    Watcher::start(machine.clone(), move |seen| {
        let link = link.clone();
        async move {
            let message = match seen {
                Seen::Look(observation, progress) => Message::Look(observation, progress),
                Seen::Stopped(at) => Message::Stopped(at),
                Seen::Resumed(_) => return true,
                Seen::Unclear(why) => Message::Trouble(About::Looking, why),
                Seen::Lost => Message::MonitorLost,
                Seen::Gone(reason) => Message::Gone(reason),
            };
            link.inbox.send(message).await.is_ok()
        }
    })
}
