//! The pages that follow a guest that was handed off by postcopy: the session that brings them, which is
//! opened anew for as long as that takes, whatever the hand-off is at meanwhile.
//!
//! ```text
//! Unknown ─▶ Carries ─▶ Reopening ─▶ Resuming ─▶ Carries
//!                          ▲  └─▶ Waits ◀┘
//!                          └────────┘
//! any ─▶ Over: this hypervisor sends no page any more, and only the destination knows whether it needs one
//! any ─▶ none are left here
//! ```

use super::{Action, Input, Source};
use crate::Time;
use crate::cause::{Cause, Reason, Refused};
use crate::limits;
use crate::observation::OutgoingSeen;
use crate::question::Question;
use crate::session::Session;

/// Pages that are still to follow the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    link: PageLink,
    /// The last session that was asked for.
    attempt: Question,
    /// How often in a row the hypervisor refused to go on.
    refused: u32,
    /// What is expected comes until then; where they are carried, that it is so is believed until then.
    until: Option<Time>,
}

/// What carries them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageLink {
    /// The agent was started again, and looks for the session of before.
    Unknown,
    /// A session.
    Carries,
    /// A new session is being opened, and the destination's hypervisor to listen.
    Reopening,
    /// The hypervisor is to go on over it.
    Resuming,
    /// Nothing, for a moment.
    Waits,
    /// Nothing any more: the hypervisor has ended, or failed its migration.
    Over {
        /// How.
        reason: Reason,
        /// It has ended.
        hypervisor_gone: bool,
    },
}

impl PageLink {
    /// As far as is known, pages follow.
    pub(super) fn carries(&self) -> bool {
        matches!(self, Self::Unknown | Self::Carries)
    }
}

impl Source {
    /// Pages are here that the guest may need at the destination.
    #[must_use]
    pub fn pages_follow(&self) -> bool {
        self.pages.is_some()
    }

    /// What carries them, where there are any.
    #[must_use]
    pub fn page_link(&self) -> Option<&PageLink> {
        self.pages.as_ref().map(|pages| &pages.link)
    }

    /// The number of the last session that was asked for.
    #[must_use]
    pub fn page_attempt(&self) -> Question {
        let attempt = self.pages.as_ref().map(|pages| pages.attempt);
        attempt.unwrap_or_default()
    }

    /// The hypervisor sends none any more.
    pub(super) fn sends_no_more(&self) -> bool {
        matches!(self.page_link(), Some(PageLink::Over { .. }))
    }

    pub(super) fn hypervisor_has_ended(&self) -> bool {
        matches!(
            self.page_link(),
            Some(PageLink::Over {
                hypervisor_gone: true,
                ..
            })
        )
    }

    /// Until when something is expected of them.
    pub(super) fn pages_until(&self) -> Option<Time> {
        self.pages.as_ref()?.until
    }

    /// From the hand-off on they follow over this session.
    pub(super) fn pages_follow_over(&mut self, now: Time, session: Session) {
        match session {
            Session::Lives => self.link(PageLink::Carries, None),
            Session::Gone => self.reopen(now),
            Session::Unknown => {
                self.outbox.act(Action::FindSession);
                self.link(PageLink::Unknown, Some(now + limits::OBSERVE_RETRY));
            }
        }
    }

    /// The destination says that the guest needs some, and this life of the agent knows of none.
    pub(super) fn pages_are_unknown(&mut self, now: Time, hypervisor_gone: bool) {
        self.pages_follow_over(now, Session::Unknown);
        if hypervisor_gone {
            let reason = Reason::from("it had ended before");
            self.send_no_more(Cause::HypervisorGone { reason }, true);
        }
        self.outbox.act(Action::Observe);
    }

    fn link(&mut self, link: PageLink, until: Option<Time>) {
        let known = self.pages.as_ref();
        self.pages = Some(Pages {
            link,
            attempt: known.map(|pages| pages.attempt).unwrap_or_default(),
            refused: known.map(|pages| pages.refused).unwrap_or_default(),
            until,
        });
    }

    fn reopen(&mut self, now: Time) {
        self.link(PageLink::Reopening, Some(now + limits::REOPEN));
        if let Some(pages) = &mut self.pages {
            pages.attempt = pages.attempt.next();
            let attempt = pages.attempt;
            self.outbox.act(Action::ReopenSession { attempt });
        }
    }

    fn reopen_later(&mut self, now: Time, reason: Reason) {
        self.link(PageLink::Waits, Some(now + limits::REOPEN_RETRY));
        self.last = Some(reason);
    }

    /// A hypervisor may not have seen yet that its connection broke. One that does not come to see it never
    /// goes on (QEMU 7.2 where that happens at postcopy's very end, or while it is taken up again).
    fn refused(&mut self, now: Time, reason: Reason) {
        let Some(pages) = &mut self.pages else {
            return;
        };
        pages.refused += 1;
        if pages.refused < limits::RESUMES_REFUSED {
            return self.reopen_later(now, reason);
        }
        let reason = format!("the hypervisor does not go on over a new session: {reason}");
        self.over(Reason::from(reason), false);
    }

    fn send_no_more(&mut self, cause: Cause, hypervisor_gone: bool) {
        self.over(Reason::from(cause.to_string()), hypervisor_gone);
    }

    fn over(&mut self, reason: Reason, hypervisor_gone: bool) {
        // The session stays: what it has of them may be enough.
        let over = PageLink::Over {
            reason,
            hypervisor_gone,
        };
        self.link(over, None);
    }

    /// Whether it tells of the pages, or of what carries them.
    pub(super) fn is_of_pages(input: &Input) -> bool {
        matches!(
            input,
            Input::Hypervisor(_)
                | Input::HypervisorGone { .. }
                | Input::LookedAgain { .. }
                | Input::SessionLives
                | Input::SessionFailed { .. }
                | Input::SessionReopened { .. }
                | Input::ResumeRefused { .. }
                | Input::ReopenFailed { .. }
                | Input::MigrationResumed { .. }
        )
    }

    /// Such an input, in the hand-off or after it.
    pub(super) fn heard_of_pages(&mut self, now: Time, input: Input) -> Result<(), Refused> {
        use PageLink::{Carries, Over, Reopening, Resuming, Unknown, Waits};
        let Some(Pages {
            link,
            attempt,
            until,
            ..
        }) = self.pages.clone()
        else {
            return Err(self.unexpected(input.name()));
        };
        match (link, input) {
            (Over { reason, .. }, Input::HypervisorGone { .. }) => self.over(reason, true),
            (_, Input::HypervisorGone { reason }) => {
                self.send_no_more(Cause::HypervisorGone { reason }, true);
            }
            (Over { .. }, Input::Hypervisor(_) | Input::SessionFailed { .. }) => {}
            (Carries, Input::LookedAgain { attempt: of, seen }) if of == attempt => {
                if until.is_none() && seen.outgoing() == (OutgoingSeen::Left { connected: false }) {
                    self.reopen(now);
                }
            }
            (link, Input::Hypervisor(seen)) => match seen.outgoing() {
                OutgoingSeen::Completed => {
                    self.completed = true;
                    self.pages = None;
                }
                // It may be from before; and a session that carries is ended where it is opened anew.
                OutgoingSeen::Left { connected: false } if link == Carries && until.is_none() => {
                    self.outbox.act(Action::LookAgain { attempt });
                }
                OutgoingSeen::Left { .. } | OutgoingSeen::UnderWay => {}
                OutgoingSeen::Failed { reason } => {
                    self.send_no_more(Cause::HypervisorFailed { reason }, false);
                }
                OutgoingSeen::Cancelled => self.send_no_more(Cause::CancelledElsewhere, false),
                OutgoingSeen::NotThere => {
                    let reason = Reason::from("it shows no migration any more");
                    self.send_no_more(Cause::HypervisorFailed { reason }, false);
                }
            },
            (Unknown, Input::SessionLives) => {
                self.link(Carries, None);
                self.outbox.act(Action::Observe);
            }
            (Unknown | Carries, Input::SessionFailed { reason }) => {
                self.reopen(now);
                self.last = Some(reason);
            }
            (Resuming, Input::SessionFailed { reason }) => self.reopen_later(now, reason),
            // Of the session that is being replaced.
            (Reopening | Waits, Input::SessionFailed { .. }) => {}
            (Reopening, Input::SessionReopened { attempt: of }) if of == attempt => {
                self.outbox.act(Action::ResumeMigration { attempt });
                self.link(Resuming, Some(now + limits::MIGRATE_ANSWER));
            }
            (
                Reopening | Resuming,
                Input::ReopenFailed {
                    attempt: of,
                    reason,
                },
            ) if of == attempt => self.reopen_later(now, reason),
            (
                Resuming,
                Input::ResumeRefused {
                    attempt: of,
                    reason,
                },
            ) if of == attempt => self.refused(now, reason),
            // It takes a moment to connect, and shows what it was until then (QEMU before 9.1).
            (Resuming, Input::MigrationResumed { attempt: of }) if of == attempt => {
                self.link(Carries, Some(now + limits::GOES_ON));
                self.pages.iter_mut().for_each(|pages| pages.refused = 0);
            }
            (_, input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// What was expected of them has not come, or a pause is over.
    pub(super) fn pages_waited(&mut self, now: Time) {
        let stuck = self.outbox.unsafe_since().is_some();
        let Some(pages) = &mut self.pages else {
            return;
        };
        // While the journal is stuck nothing was begun.
        pages.until = stuck.then_some(now + limits::OBSERVE_RETRY);
        match pages.link {
            _ if stuck => {}
            PageLink::Unknown => {
                self.outbox.act(Action::FindSession);
                self.link(PageLink::Unknown, Some(now + limits::OBSERVE_RETRY));
            }
            PageLink::Reopening | PageLink::Resuming | PageLink::Waits => self.reopen(now),
            PageLink::Carries => {
                let attempt = pages.attempt;
                self.outbox.act(Action::LookAgain { attempt });
            }
            PageLink::Over { .. } => {}
        }
    }
}
