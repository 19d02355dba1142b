//! The two agents as far as they drive their machines: what is done, and what is answered.

use std::time::Duration;

use drover_migrate::destination;
use drover_migrate::source;
use drover_migrate::{MigrationSeen, Output, Reason, SourceStep};

use crate::event::Event;
use crate::qemu::Qemu;
use crate::world::{World, gone};

impl World {
    pub(crate) fn drive_source(&mut self) {
        let life = self.source_life;
        let heard = self.destination_has_heard();
        loop {
            let Some(source) = &mut self.source else {
                return;
            };
            match source.poll(self.now) {
                Output::Wait(until) => {
                    if let Some(until) = until
                        && self.source_wake != Some((life, until))
                    {
                        self.source_wake = Some((life, until));
                        self.at(until, Event::WakeSource { life });
                    }
                    return;
                }
                Output::Journal(record) => {
                    // From here on it must not be told to run, whether the disk takes that or not. Who was
                    // never told, as before postcopy's hand-off, needs not be asked last.
                    let told = self
                        .source_disk
                        .as_ref()
                        .is_none_or(|before| before.step != SourceStep::PostcopyBegun);
                    let given_up = record.resolution().is_some();
                    let input = if self.source_full {
                        source::Input::JournalFailed {
                            reason: Reason::from("disk full"),
                        }
                    } else {
                        self.source_disk = Some(record);
                        source::Input::Journaled
                    };
                    let result = source.handle(self.now, input);
                    assert_eq!(result, Ok(()));
                    if given_up && self.had_heard.is_none() {
                        self.had_heard = Some(heard);
                        if told {
                            self.check_asked_destination();
                        }
                    }
                }
                Output::Do(action) => self.later_source(action),
            }
        }
    }

    /// Effects of one agent keep their order: each at the time of the one before, or later.
    pub(crate) fn later_source(&mut self, action: source::Action) {
        let life = self.source_life;
        let last = self.events.iter().rev().find_map(|((time, _), event)| {
            matches!(event, Event::SourceDoes { life: of, .. } if *of == life).then_some(*time)
        });
        let time = (self.now + self.soon()).max(last.unwrap_or_default());
        self.at(time, Event::SourceDoes { life, action });
    }

    pub(crate) fn later_destination(&mut self, action: destination::Action) {
        let life = self.destination_life;
        let last = self.events.iter().rev().find_map(|((time, _), event)| {
            matches!(event, Event::DestinationDoes { life: of, .. } if *of == life).then_some(*time)
        });
        let time = (self.now + self.soon()).max(last.unwrap_or_default());
        self.at(time, Event::DestinationDoes { life, action });
    }

    pub(crate) fn tell_source(&mut self, input: source::Input) {
        if let source::Input::Hypervisor(_) = input {
            // A look is at what is now, not at what was when it was sent off.
            if !self.source_qemu.alive {
                return;
            }
        }
        let Some(source) = &mut self.source else {
            return;
        };
        let answered = matches!(
            input,
            source::Input::HandOffAnswered { .. } | source::Input::HandOffUnreachable { .. }
        );
        let handing_off = matches!(source.phase(), source::Phase::HandingOff(_));
        if answered && handing_off && source.has_handed_off() {
            self.source_definition = false;
        }
        if matches!(
            input,
            source::Input::MigrationStarted
                | source::Input::SessionLives
                | source::Input::SessionFailed { .. }
        ) {
            self.observing_source = true;
        }
        let _ = source.handle(self.now, input);
        self.drive_source();
    }

    pub(crate) fn tell_destination(&mut self, input: destination::Input) {
        let Some(destination) = &mut self.destination else {
            return;
        };
        if matches!(
            input,
            destination::Input::Listening
                | destination::Input::SessionLives
                | destination::Input::SessionFailed { .. }
        ) {
            self.observing_destination = true;
        }
        let _ = destination.handle(self.now, input);
        self.drive_destination();
        self.answer_waiting();
    }

    pub(crate) fn drive_destination(&mut self) {
        let life = self.destination_life;
        loop {
            let Some(destination) = &mut self.destination else {
                return;
            };
            match destination.poll(self.now) {
                Output::Wait(until) => {
                    if let Some(until) = until
                        && self.destination_wake != Some((life, until))
                    {
                        self.destination_wake = Some((life, until));
                        self.at(until, Event::WakeDestination { life });
                    }
                    break;
                }
                Output::Journal(record) => {
                    let mut decided = false;
                    let input = if self.destination_full {
                        destination::Input::JournalFailed {
                            reason: Reason::from("disk full"),
                        }
                    } else {
                        decided = record.resolution().is_some() && !self.decided_there;
                        // Pages that wait before a hypervisor that hangs may be all that it lacks.
                        self.cut_off_unseen |= self.destination_hangs
                            && record.step == drover_migrate::DestinationStep::CutOff;
                        self.destination_disk = Some(record);
                        destination::Input::Journaled
                    };
                    let result = destination.handle(self.now, input);
                    assert_eq!(result, Ok(()));
                    if decided {
                        self.decided_there = true;
                        self.check_asked_source();
                    }
                }
                Output::Do(action) => self.later_destination(action),
            }
        }
        self.answer_waiting();
    }

    pub(crate) fn answer(&mut self, life: u32, input: source::Input) {
        self.later(Event::Answer { life, input });
    }

    pub(crate) fn source_hears(&mut self, input: source::Input) {
        let life = self.source_life;
        self.later(Event::ToSource { life, input });
    }

    pub(crate) fn destination_hears(&mut self, input: destination::Input) {
        let life = self.destination_life;
        self.later(Event::ToDestination { life, input });
    }

    pub(crate) fn source_does(&mut self, action: source::Action) {
        use source::{Action, Input};
        let life = self.source_life;
        match action {
            Action::PrepareDestination
            | Action::TellDestinationToListen
            | Action::AbandonDestination => self.later(Event::Request { life, action }),
            Action::TellDestinationToRun { question } | Action::AskDestination { question } => {
                self.call_destination(life, question, action);
            }
            Action::OpenLanes { .. } => {
                if self.control && self.destination.is_some() {
                    self.open_sessions();
                    self.source_hears(Input::LanesUp);
                } else {
                    self.source_hears(Input::SessionFailed { reason: gone() });
                }
            }
            Action::FindSession => {
                let lives = self.source_session;
                self.source_hears(if lives {
                    Input::SessionLives
                } else {
                    Input::SessionFailed { reason: gone() }
                });
            }
            Action::StartMigration { .. } => self.start_migration(),
            Action::StartPostcopy => self.start_postcopy(),
            Action::ReopenSession { attempt } => {
                if self.connected() && self.connecting == Some(self.session) {
                    self.replaced_in_vain += 1;
                }
                self.close_source_session();
                self.later(Event::Reopen { life, attempt });
            }
            Action::ResumeMigration { attempt } => self.resume_migration(attempt),
            // It takes a moment, in which the migration may complete.
            Action::CancelMigration => self.later(Event::GivesUp { cancelled: true }),
            Action::Yank => self.later(Event::GivesUp { cancelled: false }),
            Action::Observe => self.look_at_source(),
            Action::LookAgain { attempt } => {
                let seen = self.source_qemu.observe();
                let input = Input::LookedAgain { attempt, seen };
                self.source_hears(if self.source_qemu.alive {
                    input
                } else {
                    Input::HypervisorGone { reason: gone() }
                });
            }
            Action::CloseSession => self.close_source_session(),
            Action::KeepGuest => self.source_qemu.cont(),
            Action::QuitSource => {
                assert!(self.may_be_quit(), "quit before it runs there");
                self.check_needs_no_page();
                self.source_qemu.kill();
                self.source_hears(Input::HypervisorGone { reason: gone() });
            }
            Action::ForgetGuest => {
                self.source_definition = false;
                self.source_hears(Input::GuestForgotten);
            }
            Action::ReturnGuest => {
                self.source_definition = true;
                self.source_hears(Input::GuestReturned);
            }
            Action::Finish(_) => {
                self.observing_source = false;
                self.source_claims();
            }
        }
    }

    pub(crate) fn started(&mut self) {
        self.destination_qemu = Some(Qemu::incoming());
        self.destination_hears(destination::Input::HypervisorStarted);
    }

    pub(crate) fn start_migration(&mut self) {
        if !self.source_qemu.alive {
            return;
        }
        if self.source_session && self.chance(97) {
            // A look that was under way is told of when it is old; no older than it can be.
            let look = source::Input::Hypervisor(self.source_qemu.observe());
            let life = self.source_life;
            let age = Duration::from_millis(self.random() % 1500);
            self.at(self.now + age, Event::ToSource { life, input: look });
            self.source_qemu.migration = MigrationSeen::Active;
            self.source_hears(source::Input::MigrationStarted);
            self.later(Event::Transfer { step: 0 });
        } else {
            let reason = Reason::from("refused");
            self.source_hears(source::Input::MigrationRefused { reason });
        }
    }

    pub(crate) fn look_at_source(&mut self) {
        let input = if self.source_qemu.alive {
            source::Input::Hypervisor(self.source_qemu.observe())
        } else {
            source::Input::HypervisorGone { reason: gone() }
        };
        self.source_hears(input);
    }

    pub(crate) fn look_at_destination(&mut self, settled: bool) {
        if self.destination_waits() {
            return;
        }
        let input = match &self.destination_qemu {
            Some(qemu) if qemu.alive && settled => destination::Input::Settled(qemu.observe()),
            Some(qemu) if qemu.alive => destination::Input::Hypervisor(qemu.observe()),
            _ => destination::Input::HypervisorGone { reason: gone() },
        };
        self.destination_hears(input);
    }

    pub(crate) fn destination_does(&mut self, action: destination::Action) {
        use destination::{Action, Input};
        match action {
            // Until it has started there is nothing to kill.
            Action::StartHypervisor => {
                let life = self.destination_life;
                self.later(Event::Started { life });
            }
            Action::Listen => {
                if self
                    .destination_qemu
                    .as_ref()
                    .is_some_and(|qemu| qemu.alive)
                {
                    self.destination_hears(Input::Listening);
                }
            }
            Action::FindSession => {
                let lives = self.destination_session;
                self.destination_hears(if lives {
                    Input::SessionLives
                } else {
                    Input::SessionFailed { reason: gone() }
                });
            }
            Action::Observe => self.look_at_destination(false),
            Action::Settle => {
                self.close_destination_session();
                self.look_at_destination(true);
            }
            Action::AskVerdict { question } => self.call_source(question),
            Action::ResumeGuest => self.resume_guest(),
            Action::AdoptGuest => {
                self.destination_definition = true;
                self.destination_hears(Input::GuestAdopted);
            }
            Action::KillHypervisor => {
                let story = self.story();
                if let Some(qemu) = &mut self.destination_qemu {
                    let killed = qemu.alive && qemu.has_run;
                    assert!(!killed, "a guest that has run is killed\n{story}");
                    qemu.kill();
                }
                self.destination_hears(Input::HypervisorGone { reason: gone() });
            }
            Action::CloseSession => self.close_destination_session(),
            Action::RemoveRuntime => {}
            Action::Finish(_) => {
                self.observing_destination = false;
                self.destination_claims();
            }
        }
    }
}
