//! What plans must know of the guests of this host.

use std::sync::Arc;

use drover_api::{Refusal, VmDefinition};
use drover_hypervisor::{Machine, ProcessId};
use drover_plan::policy::VmPolicy;
use drover_types::{Bytes, VmName};

use super::definitions::{self, Entry};
use super::record::Role;
use super::room::resident;
use super::view::Snapshot;
use super::{Purpose, Registry};

/// A guest that is defined, runs or arrives here.
#[derive(Debug)]
pub struct Known {
    /// Its name.
    pub name: VmName,
    /// What it was started from, or would be, with what is wished for it by its file now; none where it runs and
    /// that was lost.
    pub definition: Option<VmDefinition>,
    /// Who may change it.
    pub reserved: Option<Purpose>,
    /// What its process is here for; none where it has none, or its record was lost.
    pub role: Option<Role>,
    /// Why its file cannot be used, where it has one that cannot: what is wished for it now is not known.
    pub unusable: Option<String>,
    /// Memory that its process has touched; none where it has no process.
    pub resident: Option<Bytes>,
    /// The way to talk to its process.
    pub machine: Option<Arc<dyn Machine>>,
}

/// A guest whose dirty rate may be sampled.
#[derive(Debug)]
pub struct Sampled {
    /// Its name.
    pub name: VmName,
    /// Its process.
    pub process: ProcessId,
    /// The way to talk to it.
    pub machine: Arc<dyn Machine>,
}

impl Registry {
    /// All guests, and what is wrong with definitions that cannot be used and of which nothing runs.
    ///
    /// # Errors
    /// The directory of definitions cannot be read.
    pub async fn known(&self) -> Result<(Vec<Known>, Vec<String>), Refusal> {
        let mut defined = self.defined().await?;
        let mut all = Vec::new();
        for (name, slot) in self.snapshots() {
            let entry = defined.remove(name.as_str());
            all.extend(known(name, entry, slot));
        }
        let mut unusable = Vec::new();
        for (name, entry) in defined {
            match (name.parse(), entry) {
                (Ok(name), Ok(definition)) => {
                    all.extend(known(name, Some(Ok(definition)), Snapshot::default()));
                }
                (_, Err(problem)) => unusable.push(problem),
                // A definition is only usable in a file of its own name.
                (Err(_), Ok(_)) => {}
            }
        }
        Ok((all, unusable))
    }

    /// What a guest was started from, or would be, with what is wished for it by its file now; none where neither is known.
    pub fn as_defined(&self, name: &VmName) -> Option<VmDefinition> {
        let directory = &self.0.config.definitions;
        let slot = self.snapshots().remove(name);
        let record = slot.and_then(|slot| slot.process?.record);
        match record {
            Some(record) => Some(definitions::as_wished(directory, record.definition)),
            None => definitions::get(directory, name)?.ok(),
        }
    }

    /// What is wanted of a guest that is defined or runs here.
    pub fn policy(&self, name: &VmName) -> Option<VmPolicy> {
        Some(self.as_defined(name)?.policy)
    }

    /// Whether a guest's definition is here and can be used.
    ///
    /// # Errors
    /// Why it is not, or cannot be.
    pub fn startable(&self, name: &VmName) -> Result<(), String> {
        let directory = &self.0.config.definitions;
        match definitions::get(directory, name) {
            Some(entry) => entry.map(drop),
            None => {
                let path = definitions::path_of(directory, name);
                Err(format!("there is no {}", path.display()))
            }
        }
    }

    /// Whether somebody is about to change a guest.
    pub fn is_reserved(&self, name: &VmName) -> bool {
        let slots = self.0.slots();
        slots.get(name).is_some_and(|slot| slot.reserved.is_some())
    }

    /// How many guests have a process here.
    pub fn running(&self) -> usize {
        let slots = self.0.slots();
        slots.values().filter(|slot| slot.process.is_some()).count()
    }

    /// Guests that run here and that nobody is about to change.
    pub fn sampled(&self) -> Vec<Sampled> {
        let slots = self.snapshots().into_iter();
        let sampled = slots.filter_map(|(name, slot)| {
            let running = slot.process.filter(|_| slot.reserved.is_none())?;
            let role = running.record.map(|record| record.role);
            let (process, machine) = (running.process, running.machine?);
            (role == Some(Role::Running)).then_some(Sampled {
                name,
                process,
                machine,
            })
        });
        sampled.collect()
    }
}

/// None of a guest that has ended and is no longer defined.
fn known(name: VmName, entry: Option<Entry>, slot: Snapshot) -> Option<Known> {
    let (file, unusable) = match entry.transpose() {
        Ok(file) => (file, None),
        Err(problem) => (None, Some(problem)),
    };
    let Some(running) = slot.process else {
        let arrives = matches!(slot.reserved, Some(Purpose::Incoming { .. }));
        return file.filter(|_| !arrives).map(|definition| Known {
            name,
            definition: Some(definition),
            reserved: slot.reserved,
            role: None,
            unusable: None,
            resident: None,
            machine: None,
        });
    };
    let (started_from, role) = match running.record {
        Some(record) => (Some(record.definition), Some(record.role)),
        None => (None, None),
    };
    let definition = started_from.map(|definition| match &file {
        Some(file) => definition.with_wishes_of(file),
        None => definition,
    });
    Some(Known {
        name,
        definition,
        reserved: slot.reserved,
        role,
        unusable,
        resident: Some(resident(running.process.pid).unwrap_or_default()),
        machine: running.machine,
    })
}
