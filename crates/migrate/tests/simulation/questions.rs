//! Questions of the hand-off between the agents. Each is a connection of its own, which the one that
//! asks gives up after a time; what was said on it before may be held up and arrive long after.

use std::time::Duration;

use drover_migrate::{HandOffAnswer, Question, Time, Verdict, destination, source};

use crate::event::Event;
use crate::requests::unreachable_answer;
use crate::world::{World, gone};

/// How long the source's agent waits for an answer.
const CALL: Duration = Duration::from_secs(15);

/// And the destination's for the verdict.
const VERDICT_CALL: Duration = Duration::from_secs(9);

/// What was sent is sent again by the kernel for as long as this, though nobody waits any more.
const HELD: u64 = 100_000;

/// Before what is held up is sent again.
const AGAIN: Duration = Duration::from_secs(3);

/// A question whose answer is waited for, and the life that asked.
pub type Call = (u32, Question);

impl World {
    /// What an operator wants counts only once the last question has ended.
    pub(crate) fn check_asked_destination(&self) {
        if let Some(source) = &self.source {
            let last = (self.source_life, source.question());
            assert!(!self.calls.contains(&last), "open\n{}", self.story());
        }
    }

    pub(crate) fn check_asked_source(&self) {
        if let Some(destination) = &self.destination {
            let last = (self.destination_life, destination.question());
            assert!(
                !self.verdict_calls.contains(&last),
                "open\n{}",
                self.story()
            );
        }
    }

    /// In one of ten cases, what is said is held up: in the network, or by an agent that stands still.
    fn held_up(&mut self) -> Option<Duration> {
        let most = if self.chance(50) { 20_000 } else { HELD };
        self.chance(10)
            .then(|| Duration::from_millis(self.random() % most))
    }

    /// A call ends in time, unless its agent stood still then.
    fn end_of(&mut self, call: Duration) -> Time {
        let late = match self.random() % 10 {
            0 => 30_000,
            _ => 900,
        };
        self.now + call + Duration::from_millis(self.random() % late)
    }

    pub(crate) fn call_destination(
        &mut self,
        life: u32,
        question: Question,
        action: source::Action,
    ) {
        self.calls.push((life, question));
        let ends = self.end_of(CALL);
        self.at(ends, Event::CallEnds { life, question });
        let reachable = self.control && self.destination_host && self.destination_life != 0;
        match self.held_up().filter(|_| reachable) {
            Some(hold) => {
                let (accepted, by) = (self.now, self.destination_life);
                let held = Event::HeldRequest {
                    life,
                    action,
                    accepted,
                    by,
                };
                self.at(self.now + hold, held);
            }
            None => self.later(Event::Request { life, action }),
        }
    }

    pub(crate) fn held_request(
        &mut self,
        life: u32,
        action: source::Action,
        accepted: Time,
        by: u32,
    ) {
        if by != self.destination_life || self.now > accepted + Duration::from_millis(HELD) {
            return;
        }
        if self.control {
            return self.hear_question(life, &action, accepted);
        }
        let held = Event::HeldRequest {
            life,
            action,
            accepted,
            by,
        };
        self.at(self.now + AGAIN, held);
    }

    /// The destination's agent is told to run, or only asked, and answers.
    pub(crate) fn hear_question(&mut self, life: u32, action: &source::Action, accepted: Time) {
        use source::{Action, Input};
        let (Action::TellDestinationToRun { question } | Action::AskDestination { question }) =
            *action
        else {
            return;
        };
        if let Action::TellDestinationToRun { .. } = action {
            let age = self.now - accepted;
            self.tell_destination(destination::Input::RunRequested { age });
        }
        let known = self.destination.is_some() || self.destination_disk.is_some();
        let answer = self.hand_off_answer();
        let told = matches!(action, Action::TellDestinationToRun { .. });
        let arrived = self
            .destination
            .as_ref()
            .is_some_and(|machine| matches!(machine.phase(), destination::Phase::Arrived { .. }));
        if arrived {
            self.answer(life, Input::DestinationArrived);
        }
        if known || told || answer == HandOffAnswer::Running {
            let input = Input::HandOffAnswered { question, answer };
            match self.held_up() {
                Some(hold) => self.at(self.now + hold, Event::Answer { life, input }),
                None => self.answer(life, input),
            }
        } else {
            self.call_ends(life, question);
        }
    }

    pub(crate) fn hear_answer(&mut self, life: u32, input: source::Input) {
        let input = if self.control {
            input
        } else {
            unreachable_answer(&input)
        };
        if let source::Input::HandOffAnswered { question, .. }
        | source::Input::HandOffUnreachable { question, .. } = input
            && !close(&mut self.calls, life, question)
        {
            return;
        }
        self.answer_locally(life, input);
    }

    pub(crate) fn call_ends(&mut self, life: u32, question: Question) {
        if close(&mut self.calls, life, question) {
            let reason = gone();
            let input = source::Input::HandOffUnreachable { question, reason };
            self.answer_locally(life, input);
        }
    }

    pub(crate) fn call_source(&mut self, question: Question) {
        let life = self.destination_life;
        self.verdict_calls.push((life, question));
        let ends = self.end_of(VERDICT_CALL);
        self.at(ends, Event::VerdictCallEnds { life, question });
        let asked = Event::AskVerdict { life, question };
        match self.held_up().filter(|_| self.control) {
            Some(hold) => self.at(self.now + hold, asked),
            None => self.later(asked),
        }
    }

    pub(crate) fn ask_verdict(&mut self, life: u32, question: Question) {
        let reachable = self.control && self.source_host && self.source_life != 0;
        let verdict = match (&self.source, &self.source_disk) {
            (Some(source), _) => Some(source.verdict()),
            (None, Some(record)) => Some(record.verdict()),
            (None, None) => None,
        };
        match verdict.filter(|_| reachable) {
            Some(verdict) => {
                // By that the source hears that it is there.
                self.source_hears(source::Input::DestinationArrived);
                let said = Event::Verdict {
                    life,
                    question,
                    verdict,
                };
                match self.held_up() {
                    Some(hold) => self.at(self.now + hold, said),
                    None => self.later(said),
                }
            }
            None => self.verdict_call_ends(life, question),
        }
    }

    pub(crate) fn hear_verdict(&mut self, life: u32, question: Question, verdict: Verdict) {
        if close(&mut self.verdict_calls, life, question) {
            let input = destination::Input::VerdictAnswered { question, verdict };
            self.later(Event::ToDestination { life, input });
        }
    }

    pub(crate) fn verdict_call_ends(&mut self, life: u32, question: Question) {
        if close(&mut self.verdict_calls, life, question) {
            let reason = gone();
            let input = destination::Input::VerdictUnreachable { question, reason };
            self.later(Event::ToDestination { life, input });
        }
    }
}

/// False if nobody waits for the answer any more.
fn close(calls: &mut Vec<Call>, life: u32, question: Question) -> bool {
    let before = calls.len();
    calls.retain(|call| *call != (life, question));
    calls.len() < before
}
