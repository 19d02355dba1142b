//! The lab's own monitor of a guest's QEMU: it watches every move, whoever carries it out, and
//! it carries out those that are compared with.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_hypervisor::Qmp;
use drover_hypervisor::qmp::{Event, Notice};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::limits;

/// What a QEMU has told so far, and will.
#[derive(Debug, Clone)]
pub struct Events(watch::Receiver<Vec<Event>>);

impl Events {
    /// A place in the list of events: only later ones are looked at.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.0.borrow().len()
    }

    /// When (QEMU's own clock, microseconds since 1970) the first event after `mark` that `is`
    /// right came, if it has.
    pub fn seen(&self, mark: usize, is: impl Fn(&Event) -> bool) -> Option<u64> {
        let events = self.0.borrow();
        let mut later = events.iter().skip(mark);
        later.find(|event| is(event)).map(|event| event.at.0)
    }

    /// When the guest began to run (true) or stopped, in order.
    pub(crate) fn run_states(&self) -> Vec<(bool, u64)> {
        let state = |event: &Event| match event.name.as_str() {
            "RESUME" => Some((true, event.at.0)),
            "STOP" => Some((false, event.at.0)),
            _ => None,
        };
        self.0.borrow().iter().filter_map(state).collect()
    }

    /// Waits until the QEMU has ended, or its monitor is lost.
    pub(crate) async fn ended(&self) {
        let mut events = self.0.clone();
        while events.changed().await.is_ok() {}
    }

    /// Waits for such an event; `None` when the QEMU ends without it.
    pub async fn wait(&self, mark: usize, is: impl Fn(&Event) -> bool) -> Option<u64> {
        let mut events = self.clone();
        loop {
            events.0.mark_unchanged();
            if let Some(at) = self.seen(mark, &is) {
                return Some(at);
            }
            events.0.changed().await.ok()?;
        }
    }
}

/// A QEMU that is watched.
#[derive(Debug)]
pub struct Monitor {
    /// For commands.
    pub qmp: Qmp,
    events: Events,
    missed: Arc<AtomicBool>,
    reader: AbortHandle,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Monitor {
    /// Connects to a QEMU that is there, or will be.
    ///
    /// # Errors
    /// Nothing answers in time.
    pub async fn connect(path: &Path, within: Duration) -> Result<Self> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match Qmp::connect(path, false, left.max(limits::POLL)).await {
                Ok(qmp) => return Ok(Self::watching(qmp)),
                Err(error) if left.is_zero() => {
                    return Err(error)
                        .with_context(|| format!("QEMU does not answer at {} ", path.display()));
                }
                Err(_) => tokio::time::sleep(limits::POLL).await,
            }
        }
    }

    /// Connects to a QEMU that is there already, within that time.
    ///
    /// # Errors
    /// Nothing answers.
    pub(crate) async fn reach(path: &Path, within: Duration) -> Result<Self> {
        Ok(Self::watching(Qmp::connect(path, false, within).await?))
    }

    fn watching(qmp: Qmp) -> Self {
        let mut source = qmp.events();
        let (sender, events) = watch::channel(Vec::new());
        let missed = Arc::new(AtomicBool::new(false));
        let noted = missed.clone();
        let reader = tokio::spawn(async move {
            loop {
                match source.next().await {
                    Notice::Event(event) => sender.send_modify(|events| events.push(event)),
                    Notice::Missed(_) => noted.store(true, Ordering::Relaxed),
                    Notice::Closed(_) => return,
                }
            }
        });
        Self {
            qmp,
            events: Events(events),
            missed,
            reader: reader.abort_handle(),
        }
    }

    /// What it tells.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Whether some of what it told was lost on the way here.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed)
    }

    /// A place in the list of events: only later ones are looked at.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.events.mark()
    }

    /// As [`Events::seen`].
    pub fn seen(&self, mark: usize, is: impl Fn(&Event) -> bool) -> Option<u64> {
        self.events.seen(mark, is)
    }

    /// Waits for such an event.
    ///
    /// # Errors
    /// It does not come in time, the migration fails instead, or QEMU ends.
    pub async fn wait(
        &self,
        mark: usize,
        within: Duration,
        what: &str,
        is: impl Fn(&Event) -> bool,
    ) -> Result<u64> {
        let mut events = self.events.0.clone();
        let waited = tokio::time::timeout(within, async {
            loop {
                events.mark_unchanged();
                if let Some(at) = self.seen(mark, &is) {
                    return Ok(at);
                }
                if self.seen(mark, is_failure).is_some() {
                    bail!("the migration failed: {}", self.migration_error().await);
                }
                if events.changed().await.is_err() {
                    bail!("QEMU ended before {what}");
                }
            }
        });
        waited
            .await
            .with_context(|| format!("no {what} within {} s", within.as_secs()))?
    }

    async fn migration_error(&self) -> String {
        let told = self
            .run("query-migrate", Value::Null)
            .await
            .unwrap_or_default();
        let words = told["error-desc"]
            .as_str()
            .unwrap_or("QEMU does not say why");
        words.to_owned()
    }

    /// Runs a command.
    ///
    /// # Errors
    /// QEMU's.
    pub async fn run(&self, command: &str, arguments: Value) -> Result<Value> {
        Ok(self.qmp.execute(command, arguments).await?)
    }

    /// The threads that run the guest's CPUs.
    ///
    /// # Errors
    /// QEMU's.
    pub async fn vcpu_threads(&self) -> Result<Vec<u32>> {
        let cpus = self.run("query-cpus-fast", Value::Null).await?;
        let ids = cpus
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|cpu| cpu["thread-id"].as_u64());
        Ok(ids.filter_map(|id| u32::try_from(id).ok()).collect())
    }

    /// Has QEMU tell of a migration's phases.
    ///
    /// # Errors
    /// QEMU's.
    pub async fn set_capabilities(&self, names: &[&str]) -> Result<()> {
        let on: Vec<_> = names
            .iter()
            .map(|name| json!({"capability": name, "state": true}))
            .collect();
        self.run("migrate-set-capabilities", json!({"capabilities": on}))
            .await
            .map(drop)
    }
}

/// The event of a migration entering a phase.
pub fn migration_is(status: &str) -> impl Fn(&Event) -> bool {
    move |event| event.name == "MIGRATION" && event.data["status"] == status
}

/// An event without data.
pub fn named(name: &str) -> impl Fn(&Event) -> bool {
    move |event| event.name == name
}

fn is_failure(event: &Event) -> bool {
    migration_is("failed")(event) || migration_is("cancelled")(event)
}
