//! The order to run the guest on the destination. In postcopy its hypervisor may hang on a page as it follows it, and
//! any order may be lost with the connection that it was given on.

use std::time::Duration;

use drover_migrate::{Reason, WaitingOn, destination};

use crate::event::Event;
use crate::world::{World, gone};

/// How long an agent waits for its hypervisor's answer.
const ANSWER: Duration = Duration::from_secs(5);

impl World {
    pub(crate) fn destination_waits(&self) -> bool {
        let qemu = self.destination_qemu.as_ref();
        qemu.is_some_and(crate::qemu::Qemu::hangs)
    }

    /// An order that is held is not answered in time.
    pub(crate) fn wait_for_resume(&mut self, event: &Event) {
        if let Event::DestinationDoes { life, action } = event
            && *life == self.destination_life
            && *action == destination::Action::ResumeGuest
        {
            self.told_to_run();
        }
    }

    fn told_to_run(&mut self) {
        self.resumes += 1;
        let resume = self.resumes;
        self.open_resume = Some(resume);
        self.at(self.now + ANSWER, Event::ResumeUnanswered { resume });
    }

    pub(crate) fn resume_guest(&mut self) {
        self.told_to_run();
        let lost = self.postcopy && self.chance(10);
        let hangs = self.postcopy && self.chance(40);
        let Some(qemu) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        if lost {
            return;
        }
        if hangs && qemu.is_in_postcopy() {
            qemu.waits = true;
            self.hung += 1;
            return;
        }
        self.guest_runs();
    }

    fn guest_runs(&mut self) {
        if let Some(qemu) = &mut self.destination_qemu {
            qemu.cont();
        }
        if self.open_resume.take().is_some() {
            self.destination_hears(destination::Input::GuestResumed);
        }
    }

    /// The page that it hangs on is there.
    pub(crate) fn page_comes(&mut self) {
        if !self.destination_waits() {
            return;
        }
        if let Some(qemu) = &mut self.destination_qemu {
            qemu.waits = false;
        }
        self.guest_runs();
        self.look_at_both();
        self.release();
    }

    pub(crate) fn resume_unanswered(&mut self, resume: u32) {
        if self.open_resume == Some(resume) {
            self.open_resume = None;
            let (refused, reason) = (false, Reason::from("no answer"));
            self.destination_hears(destination::Input::ResumeFailed { refused, reason });
        }
    }

    /// As it is advised where an agent that was started again finds a hypervisor that answers nothing.
    pub(crate) fn end_what_hangs(&mut self) {
        let machine = self.destination.as_ref();
        let waiting = machine.and_then(destination::Destination::waiting);
        let advised = waiting.is_some_and(|waiting| waiting.on == WaitingOn::HypervisorToAnswer);
        if advised
            && self.destination_waits()
            && let Some(qemu) = &mut self.destination_qemu
        {
            qemu.kill();
            self.ended_by_hand = true;
            self.destination_hears(destination::Input::HypervisorGone { reason: gone() });
            self.later(Event::SourceCut);
        }
    }
}
