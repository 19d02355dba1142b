//! What the task makes of each message.

use std::sync::Arc;

use drover_api::{ErrorCode, EventKind, LeftOut, Refusal};
use drover_hypervisor::MigrationProgress;
use drover_migrate::convergence::{Converging, Step};
use drover_migrate::estimate::Estimator;
use drover_migrate::paths::Side;
use drover_migrate::source::{Input, Phase};
use drover_migrate::{CancelledBy, MigrationSeen, Observation};
use drover_types::AtDeadline;

use super::{Agreed, Found, Message, NotAgreed, Outgoing, join, millis, show};
use crate::migration::carrier::{Carried, Carrier};
use crate::migration::interrupts;
use crate::migration::links::{self, Following};
use crate::migration::reduction;
use crate::migration::relays::NoSession;
use crate::migration::security;
use crate::migration::snapshot::round_seen;
use crate::migration::trouble::About;

impl Outgoing {
    /// Takes what has come by now, such as what the relay told of its end.
    pub(super) fn take_what_came(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
    }

    pub(super) fn take(&mut self, message: Message) {
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
                let now = self.now();
                let taken = self.source.handle(now, Input::CancelRequested { by });
                if taken.is_ok() {
                    let by = show::who(by).to_owned();
                    self.record(EventKind::CancelAsked { by });
                }
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
                self.session_has_ended();
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
            // Of a domain that was handed off that is no news: what is left of it is told by who lets it go.
            Message::Gone(_) if self.domain.is_some() && self.source.has_handed_off() => {}
            Message::Gone(reason) => self.handle(Input::HypervisorGone { reason }),
            Message::MonitorLost => {
                self.record(EventKind::MonitorLost);
                self.reach();
            }
            Message::Reached(machine) => self.reached(machine),
            Message::RunsThere(times) => self.runs_there(&times),
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

    /// The relay runs: its lanes follow the host's links, and new ones join.
    pub(super) fn carries(&mut self, carrier: Carrier, port: Option<u16>) {
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
    fn found(&mut self, found: Result<Found, NoSession>) {
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
            Err(none) => {
                if !none.finished {
                    self.session_has_ended();
                }
                self.session_is_gone(&none.reason)
            }
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
