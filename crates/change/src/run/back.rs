//! Goes back: takes back what is still as a step left it, and leaves the rest.

use drover_tune::Step;
use drover_tune::lasting::End;
use drover_types::in_short;
use tokio::time::{Instant, sleep};

use super::Runner;
use crate::hands::{Hands, Paths, Performed};
use crate::limits::{PROVE, TAKE_BACK_AGAIN, TAKE_BACK_TRIES};
use crate::moved::{Moved, said};
use crate::record::Record;
use crate::step::{bounces, ends, is, is_back, named};

impl<H: Hands, P: Paths> Runner<'_, H, P> {
    /// Settings that are neither as they were set nor as they were before.
    pub(super) async fn not_as_left(&self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for number in self.journal.standing().touched() {
            if let Some(file) = self.file(number) {
                moved.extend(self.file_not_as_left(file).await);
                continue;
            }
            let step = self.step(number);
            if self.is_void(step) {
                continue;
            }
            let (from, to) = ends(step);
            let found = self.hands.current(step).await;
            // A link that a step took down may tell nothing until that is taken back.
            let known = match &found {
                Ok(found) => is(step, found, from) || self.is_ours(number, found),
                Err(_) => bounces(step),
            };
            if !known {
                moved.push(Moved::Setting {
                    setting: named(step),
                    expected: to.to_owned(),
                    found: said(found),
                });
            }
        }
        moved
    }

    /// A link that comes back tells nothing for a while, and a driver that resets refuses: only what is done counts as a try.
    pub(super) async fn take_back(&mut self, number: usize) {
        if self.is_void(self.step(number)) {
            self.note(Record::Undone { step: number });
            return;
        }
        let undo = self.step(number).undo();
        let (_, before) = ends(&undo);
        let mut deadline = Instant::now() + PROVE;
        // Of a link that is on its way to another rate a driver may tell the one before: the order is given all the same.
        let mut is_ordered = !bounces(&undo);
        let mut tries = 0;
        let mut is_told = true;
        let mut refused = String::new();
        let found = loop {
            let is_late = Instant::now() >= deadline;
            let found = self.hands.current(&undo).await;
            match &found {
                Ok(found) if is_ordered && is_back(&undo, found, tries > 0) => {
                    self.note(Record::Undone { step: number });
                    return;
                }
                Ok(there) => {
                    let is_over = tries == TAKE_BACK_TRIES || (is_late && !refused.is_empty());
                    let is_ours = is(&undo, there, before) || self.is_ours(number, there);
                    if is_over || !is_ours {
                        break said(found) + &refused;
                    }
                }
                Err(_) if !is_late => {
                    sleep(TAKE_BACK_AGAIN).await;
                    continue;
                }
                // A link that is down for what a step set may tell nothing until that is gone: by the journal it is the step's.
                Err(_) if is_told => {
                    is_told = false;
                    deadline += PROVE;
                }
                Err(_) => break said(found) + &refused,
            }
            is_ordered = true;
            match self.hands.perform(self.step(number), End::Before).await {
                Err(why) | Ok(Performed::PassedBy(why)) => {
                    refused = format!(", and was not set back: {why}");
                }
                // Many steps are not to take a second each while nobody may reach this host.
                Ok(Performed::Done) if self.is_back(&undo).await => {
                    self.note(Record::Undone { step: number });
                    return;
                }
                Ok(Performed::Done) => tries += 1,
            }
            sleep(TAKE_BACK_AGAIN).await;
        };
        self.leave(number, &found);
    }

    fn is_void(&self, step: &Step) -> bool {
        self.journal.account().is_void(step, self.boot)
    }

    async fn is_back(&self, undo: &Step) -> bool {
        let found = self.hands.current(undo).await;
        found.is_ok_and(|found| is_back(undo, &found, true))
    }

    pub(super) fn leave(&mut self, number: usize, found: &str) {
        self.note(Record::Left {
            step: number,
            found: in_short(found),
        });
    }

    /// What a restart has made of a step.
    pub(super) async fn look(&mut self, number: usize) {
        let step = self.step(number);
        let (before, _) = ends(step);
        match self.hands.current(step).await {
            Ok(found) if is(step, &found, before) => {
                self.note(Record::Undone { step: number });
            }
            found => self.leave(number, &said(found)),
        }
    }

    /// Whether what is there is what a step made.
    fn is_ours(&self, number: usize, found: &str) -> bool {
        let step = self.step(number);
        let differs = self.journal.standing().differs(number);
        is(step, found, ends(step).1) || differs.is_some_and(|differs| is(step, found, differs))
    }
}
