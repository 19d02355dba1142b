//! Interrupts of the NICs that carry migrations, taken near these NICs for as long (`migration.interrupts`).
//!
//! ```text
//!  a migration's interfaces ─▶ Share::hold ─▶ interrupts.json ─▶ /proc/irq/N/smp_affinity_list
//!  its end, or the next agent's start ─▶ Share::release, take_up ─▶ what was there before ─▶ interrupts.json
//!                                                       where it is still as it was written
//! ```
//! The kernel gives nothing back when a process ends. So what was there is on the disk before it is changed, and whichever agent
//! comes next gives it back, unless the migration is still under way. No migration waits for any of it.

pub(crate) mod ledger;
mod moving;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::InterruptsView;
use drover_host::{Adapters, AffinityError};
use drover_types::{CpuSet, MigrationId, with_sources};

pub use self::ledger::Holder;
use self::ledger::Ledger;
pub use self::moving::GivenBack;
use self::moving::{Hands, NotMoved};
use crate::config::InterruptsBy;
use crate::limits::FILE_BYTES;
use crate::registry::files;

/// Those of this host.
#[derive(Debug, Clone)]
pub struct Interrupts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    by: InterruptsBy,
    here: Here,
    ledger: Mutex<Ledger>,
}

/// This host's kernel, and the agent's file.
#[derive(Debug)]
struct Here {
    root: PathBuf,
    file: PathBuf,
}

/// What one side of one migration holds. Clones are the same.
#[derive(Debug, Clone)]
pub struct Share {
    all: Interrupts,
    holder: Holder,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Interfaces that were looked at.
    known: BTreeSet<String>,
    /// It has ended: what is still under way for it comes too late.
    over: bool,
}

impl Interrupts {
    /// As earlier agents have left them; `root` is where `/sys` and `/proc` are below.
    ///
    /// # Errors
    /// The file is there and cannot be read, or the kernel does not tell since when it runs.
    pub fn open(root: &Path, state: &Path, by: InterruptsBy) -> io::Result<Self> {
        let file = state.join("interrupts.json");
        let boot = drover_host::boot_id(root);
        let boot = boot.map_err(|error| io::Error::other(with_sources(&error)))?;
        let found: Option<Ledger> = files::read_document(&file)?;
        let ledger = match found {
            Some(ledger) if ledger.boot == boot => ledger,
            // Where interrupts are taken was forgotten with the kernel that had it.
            Some(_) => {
                files::remove(&file)?;
                Ledger::new(boot)
            }
            None => Ledger::new(boot),
        };
        Ok(Self(Arc::new(Inner {
            by,
            here: Here {
                root: root.to_owned(),
                file,
            },
            ledger: Mutex::new(ledger),
        })))
    }

    /// Gives back what earlier agents have moved for migrations that are not under way any more. Blocks.
    pub fn take_up(&self, under_way: &BTreeSet<Holder>) {
        let mut ledger = lock(&self.0.ledger);
        let GivenBack { count, left } = moving::take_up(&mut ledger, &self.0.here, under_way);
        if count > 0 {
            tracing::info!(
                count,
                "interrupts that an earlier agent moved are given back"
            );
        }
        for what in left {
            tracing::warn!(what, "not given back");
        }
    }

    /// The share of one side of a migration, which holds nothing yet but what an earlier agent held for it.
    pub fn share(&self, migration: MigrationId, leaves: bool) -> Share {
        Share {
            all: self.clone(),
            holder: Holder { migration, leaves },
            state: Arc::default(),
        }
    }
}

impl Share {
    /// Has interrupts of these interfaces taken near them, if that is wanted; what came of it, of those that were not looked at
    /// before.
    pub async fn hold(&self, interfaces: BTreeSet<String>) -> Vec<InterruptsView> {
        if self.all.0.by == InterruptsBy::Leave {
            return Vec::new();
        }
        let new: Vec<String> = {
            let mut state = lock(&self.state);
            let new = interfaces.difference(&state.known).cloned().collect();
            state.known.extend(interfaces);
            new
        };
        if new.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = new.iter().map(String::as_str).collect();
        let found = match drover_host::adapters(&self.all.0.here.root, &names).await {
            Ok(found) => found,
            Err(error) => {
                let why = with_sources(&error);
                return new.iter().map(|name| left(name, why.clone())).collect();
            }
        };
        let share = self.clone();
        let held = tokio::task::spawn_blocking(move || share.move_near(&found));
        held.await.unwrap_or_default()
    }

    fn move_near(&self, found: &BTreeMap<String, Adapters>) -> Vec<InterruptsView> {
        let Inner { here, ledger, .. } = &*self.all.0;
        let mut ledger = lock(ledger);
        if lock(&self.state).over {
            return Vec::new();
        }
        let adapters: Vec<_> = found.values().flat_map(|all| &all.near).collect();
        // Where nothing is to be moved nobody can move it again.
        let any_far = adapters
            .iter()
            .any(|adapter| ledger.far(adapter).next().is_some());
        let alone = if any_far {
            here.nobody_else_moves()
        } else {
            Ok(())
        };
        let held = alone.and_then(|()| moving::hold(&mut ledger, here, self.holder, &adapters));
        if held.is_err() {
            // What others moved is not to be given back before this one has ended, too.
            moving::join(&mut ledger, here, self.holder, &adapters);
        }
        found
            .iter()
            .map(|(name, adapters)| view(name, adapters, &held, &ledger))
            .collect()
    }

    /// It has ended: what no other holds is given back.
    pub async fn release(&self) -> GivenBack {
        let share = self.clone();
        let released = tokio::task::spawn_blocking(move || {
            let Inner { here, ledger, .. } = &*share.all.0;
            let mut ledger = lock(ledger);
            lock(&share.state).over = true;
            if !ledger.release(share.holder) && ledger.owed().is_empty() {
                return GivenBack::default();
            }
            moving::give_back(&mut ledger, here)
        });
        released.await.unwrap_or_default()
    }
}

impl Here {
    /// Whether what is moved stays there.
    fn nobody_else_moves(&self) -> Result<(), String> {
        match drover_host::irqbalance(&self.root) {
            Some(false) => Ok(()),
            Some(true) => Err("irqbalance is running, and would move them again".to_owned()),
            None => Err("there are too many processes to look for irqbalance".to_owned()),
        }
    }
}

impl Hands for Here {
    fn keep(&self, ledger: &Ledger) -> io::Result<()> {
        if ledger.is_empty() {
            return files::remove(&self.file);
        }
        let text = serde_json::to_vec(ledger)?;
        // The next agent reads no more.
        if text.len() as u64 > FILE_BYTES {
            return Err(io::Error::other(format!("more than {FILE_BYTES} bytes")));
        }
        files::write_whole(&self.file, &text)
    }

    fn now(&self, device: &str, number: u32) -> Option<CpuSet> {
        drover_host::affinity(&self.root, device, number)
    }

    fn set(&self, number: u32, cpus: &CpuSet) -> Result<(), AffinityError> {
        drover_host::set_affinity(&self.root, number, cpus)
    }
}

/// Nothing of an interface was moved.
fn left(interface: &str, why: String) -> InterruptsView {
    InterruptsView {
        interface: interface.to_owned(),
        why_not: Some(why),
        fallback: true,
        ..InterruptsView::default()
    }
}

fn view(
    interface: &str,
    adapters: &Adapters,
    held: &Result<BTreeMap<String, NotMoved>, String>,
    ledger: &Ledger,
) -> InterruptsView {
    let is_far = |adapter| ledger.far(adapter).next().is_some();
    let not_moved = match held {
        Ok(not_moved) => not_moved,
        Err(why) if adapters.near.iter().any(is_far) => return left(interface, why.clone()),
        Err(_) => &BTreeMap::new(),
    };
    let devices = || adapters.near.iter().map(|adapter| &adapter.device);
    let moved: Vec<_> = devices()
        .filter_map(|device| ledger.moved(device))
        .collect();
    let cpus = moved.iter().map(|(near, _)| (*near).clone());
    let cpus = cpus.reduce(|all, near| all.or(&near));
    let not_moved: Vec<&NotMoved> = devices()
        .filter_map(|device| not_moved.get(device))
        .collect();
    let managed: usize = not_moved.iter().map(|of_device| of_device.managed).sum();
    let managed = (managed > 0).then(|| format!("the kernel spreads {managed} of them by itself"));
    let refused = not_moved.iter().flat_map(|of_device| &of_device.refused);
    // They are alike, and as many as its queues.
    let refused: Vec<&String> = refused.take(1).collect();
    let why: Vec<&str> = adapters
        .others
        .iter()
        .chain(managed.as_ref())
        .chain(refused.iter().copied())
        .map(String::as_str)
        .collect();
    InterruptsView {
        interface: interface.to_owned(),
        moved: moved.iter().map(|(_, count)| *count as u64).sum(),
        cpus: cpus.map(|cpus| cpus.to_string()),
        why_not: (!why.is_empty()).then(|| why.join("; ")),
        fallback: !refused.is_empty(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
