//! Guests as they are shown.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::{ExitKind, HeldView, Refusal, VmDefinition, VmSource, VmState, VmView};
use drover_hypervisor::RunState;
use drover_types::{MigrationId, VmName};
use futures_util::future::join_all;

use super::definitions::{self, Entry};
use super::exit::unwatched_exit;
use super::record::Role;
use super::slot::Running;
use super::{Purpose, Registry, broken};
use crate::limits;

/// A slot as it was at one moment.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) reserved: Option<Purpose>,
    pub(super) process: Option<Running>,
    last_exit: Option<drover_api::ExitView>,
}

impl Registry {
    /// Every guest that is defined, runs, or ended in a way worth telling.
    ///
    /// # Errors
    /// The directory of definitions cannot be read.
    pub async fn list(&self) -> Result<Vec<VmView>, Refusal> {
        let mut defined = self.defined().await?;
        let mut slots = self.snapshots();
        let names: BTreeSet<String> = defined
            .keys()
            .cloned()
            .chain(slots.keys().map(ToString::to_string))
            .chain(self.saved_guests())
            .collect();
        let views = names.into_iter().filter_map(|name| {
            let entry = defined.remove(&name);
            let slot = name
                .parse::<VmName>()
                .ok()
                .and_then(|name| slots.remove(&name));
            let slot = slot.unwrap_or_default();
            // Nothing but the end of a guest that is no longer defined.
            let saved = name.parse().is_ok_and(|name| self.0.saved.counts(&name));
            let gone = entry.is_none() && slot.process.is_none() && slot.reserved.is_none();
            (!gone || saved).then(|| self.view(name, entry, slot))
        });
        Ok(join_all(views).await)
    }

    /// One guest.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn get(&self, name: &VmName) -> Result<VmView, Refusal> {
        let entry = definitions::get(&self.0.config.definitions, name);
        let slot = self.snapshots().remove(name).unwrap_or_default();
        let gone = entry.is_none() && slot.process.is_none() && slot.reserved.is_none();
        if gone && !self.0.saved.counts(name) {
            return Err(self.0.no_such_vm(name));
        }
        Ok(self.view(name.to_string(), entry, slot).await)
    }

    /// What there is of a guest here.
    pub fn held(&self, name: &VmName) -> HeldView {
        let slot = self.snapshots().remove(name);
        HeldView {
            process: slot.is_some_and(|slot| slot.process.is_some()),
            definition: definitions::get(&self.0.config.definitions, name).is_some(),
            suspended: self.0.saved.counts(name),
            domain: None,
        }
    }

    /// Whether somebody had a guest of that name run here, or suspended it here; one that arrives is none.
    pub fn was_started(&self, name: &VmName) -> bool {
        let slot = self.snapshots().remove(name).unwrap_or_default();
        let arrives = |running: &Running| {
            let role = running.record.as_ref().map(|record| &record.role);
            matches!(role, Some(Role::Incoming { .. }))
        };
        let is_there = slot.process.is_some_and(|running| !arrives(&running));
        is_there || self.0.saved.counts(name)
    }

    /// One guest after an operation on it, also when nothing is left of it to be found.
    pub(super) async fn afterwards(&self, name: &VmName) -> VmView {
        let entry = definitions::get(&self.0.config.definitions, name);
        let slot = self.snapshots().remove(name).unwrap_or_default();
        self.view(name.to_string(), entry, slot).await
    }

    /// Every definition by its file's name.
    pub(super) async fn defined(&self) -> Result<BTreeMap<String, Entry>, Refusal> {
        let directory = self.0.config.definitions.clone();
        let read = tokio::task::spawn_blocking({
            let directory = directory.clone();
            move || definitions::list(&directory)
        });
        let read = read
            .await
            .map_err(|error| broken("list the definitions", &error))?;
        read.map_err(|error| {
            broken(
                format_args!("read the definitions in {}", directory.display()),
                &error,
            )
        })
    }

    pub(super) fn snapshots(&self) -> BTreeMap<VmName, Snapshot> {
        self.notice_ended();
        let slots = self.0.slots();
        let snapshot = |slot: &super::slot::Slot| Snapshot {
            reserved: slot.reserved.clone(),
            process: slot.process.clone(),
            last_exit: slot.last_exit.clone(),
        };
        slots
            .iter()
            .map(|(name, slot)| (name.clone(), snapshot(slot)))
            .collect()
    }

    /// Processes that do not answer are not watched: look whether they are still there.
    fn notice_ended(&self) {
        let unwatched: Vec<_> = {
            let slots = self.0.slots();
            let unwatched = |running: &&Running| running.machine.is_none();
            let gone = |running: &&Running| !running.process.is_running();
            slots
                .iter()
                .filter_map(|(name, slot)| {
                    let running = slot.process.as_ref().filter(unwatched).filter(gone)?;
                    Some((name.clone(), running.process))
                })
                .collect()
        };
        for (name, process) in unwatched {
            let exit = unwatched_exit(&self.0.directory(&name));
            self.0.ended(&name, process, &exit, false);
        }
    }

    async fn view(&self, name: String, entry: Option<Entry>, slot: Snapshot) -> VmView {
        let run_state = match &slot.process {
            Some(running) => run_state(running).await,
            None => Ok(RunState::Shutdown),
        };
        let path = self.0.config.definitions.join(format!("{name}.toml"));
        let (is_saved, note) = name.parse().map_or((false, None), |name| {
            let is_saved = slot.process.is_none() && self.0.saved.counts(&name);
            (is_saved, self.saved_note(&name, &slot))
        });
        let state = state(&entry, &slot, run_state.as_ref().ok(), is_saved);
        let problem = problem(&name, &path.display(), &entry, &slot, &run_state);
        let record = slot
            .process
            .as_ref()
            .and_then(|running| running.record.as_ref());
        let defined = entry.as_ref().and_then(|entry| entry.as_ref().ok());
        let used: Option<&VmDefinition> = record.map(|record| &record.definition).or(defined);
        let running = slot.process.as_ref();
        let machine = running.and_then(|running| running.machine.as_ref());
        VmView {
            memory: used.map(|definition| definition.memory),
            vcpus: used.map(|definition| definition.vcpus),
            definition: entry.is_some().then_some(path),
            pid: running.map(|running| running.process.pid),
            qemu_version: machine.map(|machine| machine.version().to_string()),
            machine: running.and_then(|running| running.machine_type.clone()),
            since: record
                .map(|record| record.since)
                .or(slot.last_exit.as_ref().map(|e| e.at)),
            last_exit: slot.last_exit.clone(),
            migration: migration(&slot),
            problem,
            notes: note.into_iter().collect(),
            name,
            state,
            source: VmSource::Drover,
            uuid: None,
        }
    }
}

impl Registry {
    fn saved_guests(&self) -> Vec<String> {
        let guests = self.0.saved.guests().unwrap_or_default();
        guests.iter().map(ToString::to_string).collect()
    }

    /// What an operator should know of a guest of which there is a saved state.
    fn saved_note(&self, name: &VmName, slot: &Snapshot) -> Option<String> {
        let states = &self.0.saved;
        if slot.process.is_some() {
            let is_left = slot.reserved.is_none() && states.has_any(name);
            let seconds = limits::SAVED_SETTLE.as_secs();
            return is_left.then(|| {
                format!(
                    "something is left of its being suspended: that is seen to each {seconds} s"
                )
            });
        }
        let go_on = format!("`drover vm start {name}` has it go on from there");
        match states.find(name) {
            Ok(state) => state.map(|state| {
                let (mib, since, path) = (state.sum.bytes.0 >> 20, state.since, state.path);
                let path = path.display();
                format!("its memory of {since:.0} is saved in {path}, {mib} MiB: {go_on}")
            }),
            Err(error) => Some(format!("its memory is saved, and cannot be used: {error}")),
        }
    }
}

async fn run_state(running: &Running) -> Result<RunState, String> {
    let Some(machine) = &running.machine else {
        return Err(running
            .problem
            .clone()
            .unwrap_or_else(|| "no connection".to_owned()));
    };
    match tokio::time::timeout(limits::SHOW, machine.state()).await {
        Ok(state) => state.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", limits::SHOW.as_secs())),
    }
}

fn migration(slot: &Snapshot) -> Option<MigrationId> {
    match &slot.reserved {
        Some(Purpose::Outgoing { migration, .. } | Purpose::Incoming { migration, .. }) => {
            Some(*migration)
        }
        _ => slot.process.as_ref()?.record.as_ref()?.role.migration(),
    }
}

fn state(
    entry: &Option<Entry>,
    slot: &Snapshot,
    run_state: Option<&RunState>,
    is_saved: bool,
) -> VmState {
    let Some(running) = &slot.process else {
        return match (&slot.reserved, entry, &slot.last_exit) {
            (Some(Purpose::Start), ..) => VmState::Starting,
            _ if is_saved => VmState::Suspended,
            (Some(Purpose::Incoming { .. }), ..) => VmState::Incoming,
            (_, Some(Err(_)), _) => VmState::Invalid,
            (_, _, Some(exit)) if !exit.expected => VmState::Failed,
            _ => VmState::Stopped,
        };
    };
    match running.record.as_ref().map(|record| &record.role) {
        Some(Role::Incoming { .. }) => return VmState::Incoming,
        Some(Role::HandedOff { .. }) => return VmState::HandingOff,
        _ => {}
    }
    match (&slot.reserved, run_state) {
        (Some(Purpose::Start), _) => VmState::Starting,
        (Some(Purpose::Stop), _) => VmState::Stopping,
        (Some(Purpose::Suspend), _) => VmState::Suspending,
        (_, None) => VmState::Unreachable,
        (_, Some(RunState::Running | RunState::Suspended)) => VmState::Running,
        (_, Some(RunState::InMigrate)) => VmState::Incoming,
        (_, Some(RunState::PostMigrate)) => VmState::HandingOff,
        // The last round of a migration stops the guest for some milliseconds.
        (Some(Purpose::Outgoing { .. }), Some(RunState::FinishMigrate)) => VmState::Running,
        _ => VmState::Paused,
    }
}

fn problem(
    name: &str,
    path: &dyn std::fmt::Display,
    entry: &Option<Entry>,
    slot: &Snapshot,
    run_state: &Result<RunState, String>,
) -> Option<String> {
    let Some(running) = &slot.process else {
        let exit = slot.last_exit.as_ref().filter(|exit| !exit.expected);
        return match entry {
            Some(Err(problem)) => Some(problem.clone()),
            _ => exit.map(|exit| format!("qemu ended unasked, with {}", exit_words(exit.exit))),
        };
    };
    if let Err(problem) = run_state {
        return Some(format!(
            "qemu, process {}, does not answer: {problem}; `drover vm stop {name} --force` ends it",
            running.process.pid
        ));
    }
    let Some(record) = &running.record else {
        return Some("the agent's record of it was lost: stop it and start it again".to_owned());
    };
    if record.role.migration().is_some() {
        return None;
    }
    match entry {
        None => Some(format!(
            "its definition {path} is gone; it runs on until it is stopped"
        )),
        Some(Err(problem)) => Some(format!(
            "it runs, but could not be started again: {problem}"
        )),
        Some(Ok(definition)) if !started_from(definition, &record.definition) => Some(format!(
            "{path} was changed since it was started; stop and start it to use that"
        )),
        Some(Ok(_)) => None,
    }
}

/// Whether a definition says of QEMU what a guest was started from. What is wished for it is none of QEMU's business.
pub(super) fn started_from(now: &VmDefinition, then: &VmDefinition) -> bool {
    now.clone().with_wishes_of(then) == *then
}

fn exit_words(exit: ExitKind) -> String {
    match exit {
        ExitKind::Status(status) => format!("exit status {status}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
        ExitKind::Unknown => "an exit status that no agent saw".to_owned(),
    }
}
