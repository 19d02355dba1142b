//! Carries an order out: asks where it is, writes down what comes next, does it.

mod back;
mod files;
mod proof;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use drover_tune::Step;
use drover_tune::lasting::{End, Rewrite};
use drover_types::{HostName, in_short};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::hands::{Hands, Paths, Performed};
use crate::journal::Journal;
use crate::limits::{PROVE, PROVE_AGAIN};
use crate::moved::{RunError, listed, moved, moved_files, said};
use crate::order::PathTo;
use crate::record::{Outcome, Record};
use crate::standing::{Next, Phase};
use crate::step::{bounces, ends, is, named, nic};

/// One order on its way.
pub struct Runner<'a, H, P> {
    /// Its folder.
    pub journal: &'a mut Journal,
    /// What sets.
    pub hands: &'a H,
    /// What tries paths.
    pub paths: &'a P,
    /// The host.
    pub host: &'a HostName,
    /// Its boot id, as it is now.
    pub boot: &'a str,
}

impl<H: Hands, P: Paths> Runner<'_, H, P> {
    /// Carries out what this process has made, or goes back with what one that has died left.
    pub async fn run(&mut self) -> Outcome {
        if !self.journal.is_new() && !self.journal.standing().has_ended() {
            let boot = self.boot.to_owned();
            let at = Timestamp::now();
            self.note(Record::TakenUp { at, boot });
        }
        self.drive().await
    }

    /// Takes back what is there.
    ///
    /// # Errors
    /// Nothing is there, it is not as it was left, or the journal cannot be written; nothing is done then.
    pub async fn undo(&mut self) -> Result<Outcome, RunError> {
        let standing = self.journal.standing();
        if !standing.can_be_undone() || !standing.may_be_there(self.boot) {
            return Err(RunError::NotThere);
        }
        let moved = self.not_as_left().await;
        if !moved.is_empty() {
            return Err(RunError::Moved(moved));
        }
        let at = Timestamp::now();
        let asked = self.write(Record::UndoAsked { at });
        asked.map_err(RunError::Journal)?;
        Ok(self.drive().await)
    }

    async fn drive(&mut self) -> Outcome {
        let within = self.journal.account().order.plan.within();
        // Only who has begun goes on: nothing is set by whoever takes it up.
        let mut deadline = Instant::now() + within;
        loop {
            match self.journal.standing().next() {
                Next::Begin => {
                    self.begin().await;
                    deadline = Instant::now() + within;
                }
                Next::Do(_) | Next::Write(_) if Instant::now() >= deadline => self.give_up(within),
                Next::Do(step) => self.carry_out(step).await,
                Next::Prove => {
                    self.prove().await;
                    deadline = Instant::now() + within;
                }
                Next::Write(step) => self.write_file(step).await,
                Next::TakeBack(step) => match self.file(step).cloned() {
                    Some(file) => self.put_back(step, &file).await,
                    None => self.take_back(step).await,
                },
                Next::Look(step) => self.look(step).await,
                Next::Reread => self.reread().await,
                Next::End(Outcome::Applied { proven }) => self.succeed(proven),
                Next::End(outcome) => {
                    self.end(outcome);
                }
                Next::Nothing(outcome) => return outcome,
            }
        }
    }

    /// It takes too long: until all is set nobody knows whether other hosts reach this one.
    fn give_up(&mut self, within: Duration) {
        let standing = self.journal.standing();
        let (steps, done) = (self.journal.account().steps.len(), standing.done());
        let seconds = within.as_secs();
        let why = match standing.is_proved() {
            true => format!(
                "not all files by which it lasts were written within {seconds} s: {} of {}",
                done - steps,
                self.journal.account().order.files().len()
            ),
            false => format!("not all was set within {seconds} s: {done} of {steps} settings"),
        };
        self.roll_back(why);
    }

    async fn begin(&mut self) {
        if let Some(why) = self.not_for_this() {
            self.end(Outcome::Refused { why });
            return;
        }
        let order = &self.journal.account().order;
        let mut moved = moved(self.hands, order.plan.steps()).await;
        moved.extend(moved_files(self.hands, order.files()).await);
        if !moved.is_empty() {
            let why = in_short(listed(&moved));
            self.end(Outcome::Refused { why });
            return;
        }
        let carriers = match self.carriers().await {
            Ok(carriers) => carriers,
            Err(why) => {
                self.end(Outcome::Refused { why });
                return;
            }
        };
        let all = &self.journal.account().order.paths;
        let work = self.paths.work(all).await;
        let paths = all.iter().zip(work).filter(|(_, works)| *works);
        let paths: Vec<PathTo> = paths.map(|(path, _)| path.clone()).collect();
        let (opened, unopened) = self.opened(&paths).await;
        let (sizes, untold) = match self.measured(&paths).await {
            Ok(measured) => measured,
            Err(why) => {
                self.end(Outcome::Refused { why });
                return;
            }
        };
        let began = Record::Began {
            at: Timestamp::now(),
            boot: self.boot.to_owned(),
            paths,
            opened,
            unopened,
            carriers,
            sizes,
            untold,
        };
        if !self.note(began) {
            self.roll_back("its journal cannot be written".to_owned());
        }
    }

    /// Interfaces of the plan that have a carrier, and those that are to have one by it; or of which it is not known.
    async fn carriers(&self) -> Result<Vec<String>, String> {
        let account = self.journal.account();
        let nics: BTreeSet<&str> = account.steps.iter().filter_map(nic).collect();
        let mut carriers = Vec::new();
        for nic in nics {
            let is_to_have = account.order.links.iter().any(|link| link == nic);
            if is_to_have || self.carries(nic).await? {
                carriers.push(nic.to_owned());
            }
        }
        Ok(carriers)
    }

    /// Whether an interface has a carrier, or that this is not known, in words.
    async fn carries(&self, nic: &str) -> Result<bool, String> {
        let told = self.hands.carries(nic).await;
        told.map_err(|why| {
            in_short(format!(
                "it is not known whether {nic} has a carrier, because {why}"
            ))
        })
    }

    /// Why the plan is not for this host as it is.
    fn not_for_this(&self) -> Option<String> {
        let plan = &self.journal.account().order.plan;
        if plan.host != *self.host {
            let (of, here) = (&plan.host, self.host);
            return Some(format!("it is a plan for {of}, and this is {here}"));
        }
        let is_over = plan.boot != self.boot;
        is_over.then(|| "the host was restarted since the plan was made".to_owned())
    }

    /// Does a step, and waits for what becomes of it, though the time of all is over meanwhile.
    async fn carry_out(&mut self, number: usize) {
        let step = self.step(number).clone();
        let setting = named(&step);
        let (from, to) = ends(&step);
        // Earlier steps, or others, may have changed it since.
        let found = self.hands.current(&step).await;
        if !matches!(&found, Ok(found) if is(&step, found, from)) {
            let found = said(found);
            self.roll_back(format!(
                "{setting} was {found} when its turn came, and not {from:?}"
            ));
            return;
        }
        if !self.note(Record::AboutTo { step: number }) {
            self.roll_back("its journal cannot be written".to_owned());
            return;
        }
        let performed = self.hands.perform(&step, End::After).await;
        if let Ok(Performed::PassedBy(why)) = &performed {
            return self.pass_by(number, why).await;
        }
        let performed = performed.map(|_| ());
        let found = self.read_back(&step, performed.is_ok()).await;
        // What is neither end is the step's as well, even if it could not be done.
        if let Ok(found) = &found
            && !is(&step, found, from)
            && !is(&step, found, to)
        {
            let found = found.clone();
            self.note(Record::Differs {
                step: number,
                found,
            });
        }
        match (performed, found) {
            (Err(why), _) => self.roll_back(format!("{setting} was not set to {to:?}: {why}")),
            (Ok(()), Ok(found)) if is(&step, &found, to) => {
                if !self.note(Record::Done { step: number }) {
                    self.roll_back("its journal cannot be written".to_owned());
                }
            }
            (Ok(()), Ok(found)) => {
                self.roll_back(format!("{setting} was set to {to:?} and became {found:?}"));
            }
            (Ok(()), Err(why)) => {
                self.roll_back(format!("what {setting} became is not known: {why}"));
            }
        }
    }

    /// What the kernel keeps for itself is as it was, and costs none of the others.
    async fn pass_by(&mut self, number: usize, why: &str) {
        let step = self.step(number).clone();
        let found = self.hands.current(&step).await;
        if !matches!(&found, Ok(found) if is(&step, found, ends(&step).0)) {
            let (setting, found) = (named(&step), said(found));
            return self.roll_back(format!("{setting} was not set, and became {found}: {why}"));
        }
        let why = in_short(why);
        if !self.note(Record::PassedBy { step: number, why }) {
            self.roll_back("its journal cannot be written".to_owned());
        }
    }

    /// What became of a step. A link that bounces tells nothing for a while, or what was before where it `is_set`.
    async fn read_back(&self, step: &Step, is_set: bool) -> Result<String, String> {
        let deadline = Instant::now() + PROVE;
        let (_, to) = ends(step);
        loop {
            let found = self.hands.current(step).await;
            let is_settled = match &found {
                Ok(found) => !is_set || is(step, found, to),
                Err(_) => false,
            };
            if is_settled || !bounces(step) || Instant::now() >= deadline {
                return found;
            }
            sleep(PROVE_AGAIN).await;
        }
    }

    /// Standing names no others than there are.
    fn step(&self, number: usize) -> &Step {
        &self.journal.account().steps[number]
    }

    /// The file that a step writes; `None` of one that sets something.
    fn file(&self, number: usize) -> Option<&Rewrite> {
        let account = self.journal.account();
        account
            .order
            .files()
            .get(number.checked_sub(account.steps.len())?)
    }

    fn roll_back(&mut self, why: String) {
        if self.journal.standing().phase == Phase::Applying {
            let why = in_short(why);
            self.note(Record::RollBack { why });
        }
    }

    fn end(&mut self, outcome: Outcome) -> bool {
        let at = Timestamp::now();
        self.note(Record::Ended { at, outcome })
    }

    /// Whether it is on the disk. Going back does not wait for a disk that is full: what is done is in the journal already.
    fn note(&mut self, record: Record) -> bool {
        self.write(record).is_ok()
    }

    fn write(&mut self, record: Record) -> io::Result<()> {
        let written = self.journal.append(record);
        written.inspect_err(|error| tracing::error!(%error, "the journal cannot be written"))
    }
}
