//! The part of the destination's table in which the guest runs and pages of it are still at the source:
//! postcopy. Nothing in it ends or stops the guest.

use super::{Action, Destination, Ending, Event, Input, Phase};
use crate::Time;
use crate::cause::Refused;
use crate::journal::DestinationStep;
use crate::limits;
use crate::observation::{MigrationSeen, Verdict};

impl Destination {
    /// The source may open a session anew, and this host's QEMU be told to listen for it.
    #[must_use]
    pub fn may_reopen(&self) -> bool {
        matches!(self.phase, Phase::Filling { .. })
    }

    /// What is still at the source has to follow before the guest can go on without it.
    #[must_use]
    pub fn needs_its_source(&self) -> bool {
        self.pages_follow
    }

    pub(super) fn fill(&mut self, now: Time) {
        // All may be here by now.
        self.outbox.act(Action::Observe);
        let broken = self.session_over;
        self.wait_for_pages(now, broken);
    }

    fn wait_for_pages(&mut self, now: Time, broken: bool) {
        let phase = Phase::Filling {
            broken,
            asking: false,
        };
        self.enter(now, phase, broken.then_some(limits::VERDICT_RETRY));
    }

    pub(super) fn step_filling(
        &mut self,
        now: Time,
        broken: bool,
        asking: bool,
        event: Event,
    ) -> Result<(), Refused> {
        match event {
            Event::Input(Input::Hypervisor(seen)) => match seen.migration {
                MigrationSeen::Completed => self.ran(now),
                MigrationSeen::PostcopyPaused if !broken => self.wait_for_pages(now, true),
                // It goes on over the session that was opened anew.
                MigrationSeen::Postcopy { .. } if broken && !self.session_over => {
                    self.wait_for_pages(now, false);
                }
                _ => {}
            },
            // A guest that runs may be shut down, and needs no page then.
            Event::Input(Input::HypervisorGone { .. }) => self.ran(now),
            Event::Input(Input::SessionReopened) => self.wait_for_pages(now, false),
            Event::Input(Input::SessionFailed { reason }) => {
                self.wait_for_pages(now, true);
                self.last = Some(reason);
            }
            // The source may have nothing of it any more; only it can tell.
            Event::Deadline => {
                self.question = self.question.next();
                let question = self.question;
                self.outbox.act(Action::AskVerdict { question });
                self.outbox.act(Action::Observe);
                let phase = Phase::Filling {
                    broken,
                    asking: true,
                };
                self.enter(now, phase, Some(limits::VERDICT_ANSWER));
            }
            Event::Input(
                ref input @ (Input::VerdictAnswered { question, .. }
                | Input::VerdictRefused { question, .. }
                | Input::VerdictUnreachable { question, .. }),
            ) if !asking || self.is_late(now, question) => {
                return Err(self.unexpected(input.name()));
            }
            Event::Input(Input::VerdictAnswered {
                // A source that gave the guest up has ended its copy, and the pages with it.
                verdict: Verdict::CutOff | Verdict::Kept,
                ..
            }) => {
                self.record(DestinationStep::CutOff);
                self.outbox.act(Action::CloseSession);
                self.finish(now, Ending::CutOff);
            }
            Event::Input(Input::VerdictAnswered { .. }) => self.wait_for_pages(now, true),
            Event::Input(
                Input::VerdictRefused { reason, .. } | Input::VerdictUnreachable { reason, .. },
            ) => {
                self.wait_for_pages(now, true);
                self.last = Some(reason);
            }
            // The answer is `hand_off_answer`.
            Event::Input(Input::RunRequested { .. }) => {}
            Event::Input(Input::AbandonRequested) => return Err(Refused::TooLate),
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    fn ran(&mut self, now: Time) {
        self.run(now, false);
    }
}
