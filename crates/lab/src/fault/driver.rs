//! Waits for the moments of a move, and harms the NICs then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::hand::{Hand, heal};
use super::ideal::Change;
use super::syntax::{Fault, Harm, Moment, NewRate};
use crate::counters::Nics;
use crate::dice::Dice;
use crate::limits;
use crate::monitor::{Events, migration_is, named};
use crate::settings::LabSettings;

/// The move that faults are made for.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Hosts and NICs.
    pub lab: &'a LabSettings,
    /// The number of the host that the guest leaves.
    pub source: usize,
    /// What the source's QEMU tells.
    pub events: Events,
    /// The source's process of QEMU: its namespace's NICs are looked at.
    pub pid: u32,
    /// Bytes that such a move sends over all NICs.
    pub expected: u64,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Faults under way.
#[derive(Debug)]
pub struct Driver {
    lab: LabSettings,
    faults: Vec<Fault>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    works: JoinSet<Result<()>>,
}

#[derive(Debug)]
struct Shared {
    hand: Hand,
    events: Events,
    mark: usize,
    nics: Nics,
    sent_before: u64,
    expected: u64,
    changes: Mutex<Vec<(u64, Change)>>,
}

/// The move has ended before the moment came.
struct Ended;

impl Driver {
    /// Does what is to be done before the move, and begins to wait for the rest.
    ///
    /// # Errors
    /// What the commands say that harm a NIC; it is healed then.
    pub async fn start(stage: Stage<'_>, faults: &[Fault]) -> Result<Self> {
        let nics = Nics::of(stage.pid, stage.lab.nics.len())?;
        let shared = Arc::new(Shared {
            hand: Hand::new(stage.lab.clone(), stage.source),
            mark: stage.events.mark(),
            events: stage.events,
            sent_before: nics.sent()?.iter().sum(),
            nics,
            expected: stage.expected,
            changes: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let mut driver = Self {
            lab: stage.lab.clone(),
            faults: faults.to_vec(),
            shared,
            stop,
            works: JoinSet::new(),
        };
        for (index, fault) in faults.iter().enumerate() {
            let work = Work {
                index,
                fault: *fault,
                shared: Arc::clone(&driver.shared),
                stopped: stopped.clone(),
                dice: Dice::new(stage.seed.wrapping_add(index as u64)),
            };
            if fault.at == Moment::Before && fault.harm.every().is_none() {
                if let Err(error) = work.make(true).await {
                    driver.finish().await.ok();
                    return Err(error);
                }
                if fault.lasting.is_none() {
                    continue;
                }
                driver.works.spawn(work.take_back());
            } else {
                driver.works.spawn(work.run());
            }
        }
        Ok(driver)
    }

    /// Ends all faults and heals every NIC; what was done to them, in order.
    ///
    /// # Errors
    /// A fault that could not be made, or a NIC that could not be healed.
    pub async fn finish(mut self) -> Result<Vec<Change>> {
        self.stop.send_replace(true);
        let mut worst = Ok(());
        while let Some(done) = self.works.join_next().await {
            let done = done.unwrap_or_else(|error| Err(anyhow::anyhow!("a fault failed: {error}")));
            worst = worst.and(done);
        }
        heal(&self.lab, &self.faults).await?;
        worst?;
        Ok(self.shared.changes())
    }
}

impl Shared {
    fn sent(&self) -> u64 {
        let now = self.nics.sent().map_or(0, |sent| sent.iter().sum::<u64>());
        now.saturating_sub(self.sent_before)
    }

    fn changes(&self) -> Vec<Change> {
        let begun = self.events.seen(self.mark, migration_is("setup"));
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes: Vec<_> = changes
            .iter()
            .map(|(at, change)| Change {
                at_ms: begun.map_or(-1.0, |begun| (*at as f64 - begun as f64) / 1e3),
                ..change.clone()
            })
            .collect();
        changes.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        changes
    }

    fn note(&self, change: Change) {
        let at = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() < limits::CHANGES {
            changes.push((at, change));
        }
    }
}

/// One fault.
struct Work {
    index: usize,
    fault: Fault,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
    dice: Dice,
}

impl Work {
    async fn run(mut self) -> Result<()> {
        if self.await_moment().await.is_err() {
            return Ok(());
        }
        let end = |fault: &Fault| fault.lasting.map(|lasting| Instant::now() + lasting);
        match self.fault.harm {
            Harm::Kill { every } => self.kill(every, end(&self.fault)).await,
            harm => match harm.every() {
                Some(every) => self.come_and_go(every, end(&self.fault)).await,
                None => {
                    self.make(true).await?;
                    self.take_back_at(end(&self.fault)).await
                }
            },
        }
    }

    async fn take_back(mut self) -> Result<()> {
        let Ok(()) = self.await_begin().await else {
            return Ok(());
        };
        let end = self.fault.lasting.map(|lasting| Instant::now() + lasting);
        self.take_back_at(end).await
    }

    /// Takes it back in the end, unless the move ends before; everything is healed then.
    async fn take_back_at(&mut self, end: Option<Instant>) -> Result<()> {
        match end {
            Some(end) if self.until(end).await.is_ok() => self.make(false).await,
            _ => Ok(()),
        }
    }

    async fn come_and_go(&mut self, every: Duration, end: Option<Instant>) -> Result<()> {
        let (mut next, mut harmed) = (Instant::now(), false);
        loop {
            harmed = !harmed;
            self.make(harmed).await?;
            next += every / 2;
            let ends = end.is_some_and(|end| next >= end);
            if self.until(next).await.is_err() {
                return Ok(());
            }
            if ends {
                return if harmed {
                    self.make(false).await
                } else {
                    Ok(())
                };
            }
        }
    }

    async fn kill(&mut self, every: Duration, end: Option<Instant>) -> Result<()> {
        let mut next = Instant::now();
        while end.is_none_or(|end| next < end) {
            let numbers: Vec<_> = self.fault.nics.of(self.shared.hand.nics()).collect();
            if let Some(&number) = self.dice.pick(&numbers) {
                let begun = Instant::now();
                let killed = self.shared.hand.kill_one(number, &mut self.dice).await?;
                if let Some(connection) = killed {
                    self.note(number, 1.0, format!("{connection} reset"), begun);
                }
            }
            next += every;
            if self.until(next).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Harms the NICs, or heals them.
    async fn make(&self, harm: bool) -> Result<()> {
        for number in self.fault.nics.of(self.shared.hand.nics()) {
            let begun = Instant::now();
            if harm {
                self.shared.hand.harm(self.fault.harm, number).await?;
            } else {
                self.shared.hand.heal(self.fault.harm, number).await?;
            }
            let word = if harm { "harmed" } else { "healed" };
            let part = if harm { self.part(number) } else { 1.0 };
            let what = format!("{} nic{number} {word}", self.fault.harm.word());
            self.note(number, part, what, begun);
        }
        Ok(())
    }

    fn note(&self, nic: usize, part: f64, what: String, begun: Instant) {
        self.shared.note(Change {
            at_ms: 0.0,
            fault: self.index,
            nic,
            part,
            what,
            sent: self.shared.sent(),
            took_ms: begun.elapsed().as_secs_f64() * 1e3,
        });
    }

    /// The part of its rate that the fault leaves a NIC.
    fn part(&self, number: usize) -> f64 {
        match (self.fault.harm, self.shared.hand.rate_of(number)) {
            (Harm::Rate(NewRate::Part(part)), _) => part,
            (Harm::Rate(NewRate::Fixed(to)), Some(own)) => to.0 as f64 / own.0 as f64,
            (Harm::Rate(NewRate::Fixed(_)) | Harm::Kill { .. } | Harm::Rename, _) => 1.0,
            // Headers take more of it, and that is what is to be measured.
            (Harm::Mtu { .. } | Harm::Single, _) => 1.0,
            // A path that loses large packets may be given up: what the others carry must do.
            (Harm::Cut { .. } | Harm::Down { .. } | Harm::Large { .. }, _) => 0.0,
        }
    }

    async fn await_moment(&mut self) -> Result<(), Ended> {
        match self.fault.at {
            Moment::Before => Ok(()),
            Moment::Switchover => {
                let (events, mark) = (self.shared.events.clone(), self.shared.mark);
                self.unless_ended(events.wait(mark, named("STOP"))).await
            }
            Moment::After(time) => {
                self.await_begin().await?;
                self.until(Instant::now() + time).await
            }
            Moment::Percent(percent) => {
                self.await_begin().await?;
                let bytes = self.shared.expected as f64 * percent / 100.0;
                while (self.shared.sent() as f64) < bytes {
                    self.until(Instant::now() + limits::MOMENT).await?;
                }
                Ok(())
            }
        }
    }

    async fn await_begin(&mut self) -> Result<(), Ended> {
        let (events, mark) = (self.shared.events.clone(), self.shared.mark);
        self.unless_ended(events.wait(mark, migration_is("setup")))
            .await
    }

    async fn until(&mut self, moment: Instant) -> Result<(), Ended> {
        let come = async {
            sleep_until(moment).await;
            Some(())
        };
        self.unless_ended(come).await
    }

    async fn unless_ended<T>(
        &mut self,
        what: impl Future<Output = Option<T>>,
    ) -> Result<(), Ended> {
        tokio::select! {
            come = what => come.map(drop).ok_or(Ended),
            _ = self.stopped.wait_for(|stopped| *stopped) => Err(Ended),
        }
    }
}
