//! Finding the guests again that an earlier agent left running.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use drover_hypervisor::{AdoptError, Hypervisor, ProcessId};
use drover_types::{VmName, with_sources};
use futures_util::StreamExt;
use futures_util::stream;

use super::exit::{exit_view, unwatched_exit};
use super::record::{self, Record, Role};
use super::reservation::{Recovered, Reservation};
use super::slot::Running;
use super::{Inner, Purpose, Registry, files};
use crate::config::Config;
use crate::limits;
use crate::saved::SavedStates;

/// QEMUs that are asked at once.
const AT_ONCE: usize = 16;

impl Registry {
    /// Reads the runtime directory and finds every guest that still runs. The second value is
    /// those that were part of a migration; each stays reserved until that is decided.
    ///
    /// # Errors
    /// The runtime directory cannot be read.
    pub async fn open(
        config: Arc<Config>,
        hypervisor: Arc<dyn Hypervisor>,
    ) -> io::Result<(Self, Vec<Recovered>)> {
        let directory = config.runtime.join("vms");
        let inner = Arc::new(Inner {
            saved: SavedStates::of(&config),
            config,
            hypervisor,
            slots: Mutex::default(),
        });
        let names = names(&directory)?;
        let recovered = stream::iter(names)
            .map(|name| {
                let inner = Arc::clone(&inner);
                async move { inner.recover(name).await }
            })
            .buffer_unordered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let registry = Self(inner);
        // What does not answer in time is seen to later.
        let settled = tokio::time::timeout(limits::RECOVER, registry.settle_saved()).await;
        if settled.is_err() {
            tracing::error!("not every saved state is settled yet");
        }
        Ok((registry, recovered))
    }
}

fn names(directory: &Path) -> io::Result<Vec<VmName>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_name().to_string_lossy().parse() {
            Ok(name) => names.push(name),
            Err(error) => {
                tracing::warn!(path = %entry.path().display(), %error, "no guest's directory");
            }
        }
    }
    Ok(names)
}

impl Inner {
    async fn recover(self: Arc<Self>, name: VmName) -> Option<Recovered> {
        let directory = self.directory(&name);
        let record = Record::load(&directory).unwrap_or_else(|error| {
            tracing::error!(vm = %name, %error, "record not readable");
            None
        });
        let role = record.as_ref().map(|record| record.role.clone());
        match self.hypervisor.find(&directory) {
            Some(process) => self.recover_running(&name, process, record).await,
            None => self.recover_ended(&name, record),
        }
        let role = role.filter(|role| *role != Role::Running)?;
        self.slots().entry(name.clone()).or_default().reserved = Some(purpose(&role)?);
        let reservation = Reservation::new(Arc::clone(&self), name);
        Some(Recovered { reservation, role })
    }

    async fn recover_running(
        self: &Arc<Self>,
        name: &VmName,
        process: ProcessId,
        record: Option<Record>,
    ) {
        let directory = self.directory(name);
        let adopted = self.hypervisor.adopt(process, &directory);
        let adopted = tokio::time::timeout(limits::RECOVER, adopted).await;
        let (machine, problem) = match adopted {
            Ok(Ok(machine)) => (Some(machine), None),
            Ok(Err(AdoptError::Gone { .. })) => return self.recover_ended(name, record),
            Ok(Err(error)) => (None, Some(with_sources(&error))),
            Err(_) => (
                None,
                Some(format!("no answer within {} s", limits::RECOVER.as_secs())),
            ),
        };
        let pid = process.pid;
        match &problem {
            None => tracing::info!(vm = %name, pid, "found running"),
            Some(problem) => tracing::error!(vm = %name, pid, %problem, "runs but does not answer"),
        }
        let machine_type = match &machine {
            Some(machine) => machine.machine_type().await.ok(),
            None => None,
        };
        let running = Running {
            process,
            machine,
            record,
            machine_type,
            problem,
            ending: false,
        };
        self.take(name, running, None);
    }

    fn recover_ended(&self, name: &VmName, record: Option<Record>) {
        let directory = self.directory(name);
        match record.map(|record| record.role) {
            Some(Role::Running | Role::Outgoing { .. }) => {
                let exit = unwatched_exit(&directory);
                let stderr = exit.stderr.join(" / ");
                tracing::error!(vm = %name, %stderr, "ended while no agent watched it");
                let exit = self.keep_exit(name, exit_view(&exit, false));
                self.slots().entry(name.clone()).or_default().last_exit = Some(exit);
            }
            Some(Role::HandedOff { .. } | Role::Incoming { .. }) => self.forget_files(name),
            None => match record::load_exit(&directory) {
                Some(exit) => {
                    self.slots().entry(name.clone()).or_default().last_exit = Some(exit);
                }
                None => {
                    if let Err(error) = files::remove_tree(&directory) {
                        tracing::warn!(vm = %name, %error, "runtime directory not removed");
                    }
                }
            },
        }
    }

    /// Tries once more to talk to a process that did not answer.
    pub(super) async fn reconnect(
        self: &Arc<Self>,
        name: &VmName,
    ) -> Option<Arc<dyn drover_hypervisor::Machine>> {
        let running = self.slots().get(name)?.process.clone()?;
        let directory = self.directory(name);
        let adopted = self.hypervisor.adopt(running.process, &directory);
        let machine = tokio::time::timeout(limits::RECOVER, adopted)
            .await
            .ok()?
            .ok()?;
        let machine_type = machine.machine_type().await.ok();
        let found = Running {
            machine: Some(Arc::clone(&machine)),
            machine_type,
            problem: None,
            ..running
        };
        self.take(name, found, None);
        Some(machine)
    }
}

fn purpose(role: &Role) -> Option<Purpose> {
    match role.clone() {
        Role::Running => None,
        Role::Outgoing {
            migration,
            destination,
        }
        | Role::HandedOff {
            migration,
            destination,
        } => Some(Purpose::Outgoing {
            migration,
            destination,
        }),
        Role::Incoming { migration, source } => Some(Purpose::Incoming { migration, source }),
    }
}
