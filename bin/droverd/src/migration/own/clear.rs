//! How copies of disks that come to nothing are taken out of a QEMU that goes on.
//!
//! ```text
//!   pause all ──▶ nothing is on its way ──▶ one after the other: give it up ─▶ it has ended ─▶ let it go
//!        └── 10 s ──▶ cut off what is, one after the other ──▶┘
//! ```
//! QEMU 10.0.2 has hung, its guest with it, where one of two ended while the other had something on its way: docs/decisions/0043.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_hypervisor::{Copied, CopyState, Machine};
use drover_types::with_sources;
use tokio::time::{Instant, sleep};

use crate::limits::{CLEAR_COPIES, CUT_COPIES, CUT_NEXT, SOON};

/// Sees to it that nothing is left of them in a QEMU that goes on.
///
/// # Errors
/// Something is; what, and why.
pub async fn clear(machine: &dyn Machine, names: &[String]) -> Result<(), String> {
    let clearing = Clearing::new(machine, names);
    let cleared = tokio::select! {
        cleared = clearing.give_up() => cleared,
        never = clearing.cut_off() => match never {},
    };
    cleared.or_else(|why| machine.exit().map(drop).ok_or(why))
}

/// After a while cuts all of them off, of which something is on its way, one after the other: also where QEMU's main loop hangs.
pub async fn cut_off(machine: &dyn Machine, names: &[String]) -> Infallible {
    Clearing::new(machine, names).cut_off().await
}

struct Clearing<'a> {
    machine: &'a dyn Machine,
    names: &'a [String],
    until: Instant,
    /// Those of which something may be on its way.
    moving: Mutex<BTreeSet<String>>,
}

impl<'a> Clearing<'a> {
    fn new(machine: &'a dyn Machine, names: &'a [String]) -> Self {
        Self {
            machine,
            names,
            until: Instant::now() + CLEAR_COPIES,
            moving: Mutex::new(names.iter().cloned().collect()),
        }
    }

    /// Nothing that holds it panics.
    fn moving(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self, name: &str) -> bool {
        self.moving().contains(name)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    async fn give_up(&self) -> Result<(), String> {
        let left = |number: usize, why: String| {
            let left = self.names.get(number..).unwrap_or_default().join(", ");
            format!(
                "in its QEMU, copies of its disks are left that came to nothing ({left}): {why}"
            )
        };
        self.pause().await.map_err(|why| left(0, why))?;
        for (number, name) in self.names.iter().enumerate() {
            self.end(name).await.map_err(|why| left(number, why))?;
        }
        Ok(())
    }

    /// Until nothing of any is on its way.
    async fn pause(&self) -> Result<(), String> {
        let copies = self.look().await?;
        for name in self.names.iter().filter(|name| runs(&copies, name)) {
            // One that has just ended, or was paused before, is none to pause.
            if let Err(error) = self.machine.pause_copy(name).await {
                tracing::debug!(name, %error, "copy not paused");
            }
        }
        loop {
            self.look().await?;
            if self.moving().is_empty() {
                return Ok(());
            }
            self.again("something of them is on its way still").await?;
        }
    }

    async fn end(&self, name: &str) -> Result<(), String> {
        let mut asked = false;
        while runs(&self.look().await?, name) {
            if !asked {
                let given_up = self.machine.give_copy_up(name).await;
                asked = given_up.is_ok();
                if let Err(error) = given_up {
                    tracing::debug!(name, %error, "copy not given up");
                }
            }
            self.again("it has not ended").await?;
        }
        let gone = self.machine.let_go(name).await;
        gone.map_err(|error| with_sources(&error))
    }

    /// How they stand. Where QEMU does not answer nothing is concluded.
    async fn look(&self) -> Result<Vec<Copied>, String> {
        loop {
            match self.machine.copies().await {
                Ok(copies) => {
                    let moves =
                        |copy: &&Copied| !copy.stands_still && self.names.contains(&copy.name);
                    let moving = copies.iter().filter(moves).map(|copy| copy.name.clone());
                    *self.moving() = moving.collect();
                    return Ok(copies);
                }
                Err(error) => {
                    tracing::debug!(%error, "copies of disks are looked at again");
                    self.again(&with_sources(&error)).await?;
                }
            }
        }
    }

    /// Waits for another look, while there is time for one.
    async fn again(&self, why: &str) -> Result<(), String> {
        if self.is_late() || self.machine.exit().is_some() {
            let seconds = CLEAR_COPIES.as_secs();
            return Err(format!("{why} after {seconds} s"));
        }
        sleep(SOON).await;
        Ok(())
    }

    async fn cut_off(&self) -> Infallible {
        sleep(CUT_COPIES).await;
        for name in self.names {
            if !self.moves(name) {
                continue;
            }
            match self.machine.cut_copy(name).await {
                Ok(()) => tracing::warn!(name, "the copy of a disk is cut off"),
                Err(error) => tracing::warn!(name, %error, "the copy of a disk is not cut off"),
            }
            let next = Instant::now() + CUT_NEXT;
            while self.moves(name) && Instant::now() < next {
                sleep(SOON).await;
            }
        }
        std::future::pending().await
    }
}

/// Whether there is such a copy, which has not ended.
fn runs(copies: &[Copied], name: &str) -> bool {
    let mut copies = copies.iter();
    copies.any(|copy| copy.name == name && !matches!(copy.state, CopyState::Ended(_)))
}
