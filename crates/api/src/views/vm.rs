//! A guest.

use std::path::PathBuf;

use drover_types::{Bytes, MigrationId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmState {
    /// Defined, without a process.
    Stopped,
    /// QEMU is being started.
    Starting,
    /// The guest runs.
    Running,
    /// QEMU runs, the guest does not: paused, or halted by an I/O error.
    Paused,
    /// The guest was asked to end and has not yet.
    Stopping,
    /// Stands still while its memory is saved.
    Suspending,
    /// Without a process, its memory saved: it goes on from there when it is started.
    Suspended,
    /// Arriving from another host; it does not run here yet.
    Incoming,
    /// Completely copied to the destination, which has not yet said that it runs there.
    HandingOff,
    /// QEMU ended without being asked to; `last_exit` tells how.
    Failed,
    /// QEMU runs, but does not answer the agent.
    Unreachable,
    /// The definition file cannot be used; `problem` tells why.
    Invalid,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// Who has a guest: starts it, stops it, and knows its definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmSource {
    /// The agent itself. Agents that know of nobody else do not say so.
    #[default]
    Drover,
    /// libvirt: the guest is one of its domains.
    Libvirt,
    /// Somebody of whom a newer agent knows.
    #[serde(other)]
    Unknown,
}

/// How a QEMU process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExitKind {
    /// With an exit status.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// Not known: the agent that started it has been restarted since.
    Unknown,
}

/// The end of a QEMU process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExitView {
    /// How.
    pub exit: ExitKind,
    /// The last lines that it wrote to stderr.
    pub stderr: Vec<String>,
    /// When the agent learnt of it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Whether it had been asked to end.
    pub expected: bool,
}

/// A guest that is defined or runs on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmView {
    /// Its name; for an unusable definition file, the file's. libvirt's may be any text.
    pub name: String,
    /// What it does.
    pub state: VmState,
    /// Who has it.
    #[serde(default)]
    pub source: VmSource,
    /// Its id, of a domain of libvirt's: the same on every host. Orders may name the guest by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub uuid: Option<String>,
    /// Memory, as defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Bytes>,
    /// Virtual CPUs, as defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// The definition file; none when it vanished while the guest runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub definition: Option<PathBuf>,
    /// QEMU's process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The version of the running QEMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_version: Option<String>,
    /// The concrete machine type of the running QEMU, such as `pc-q35-10.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// When it entered this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// How its last QEMU process on this host ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<ExitView>,
    /// The migration that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub migration: Option<MigrationId>,
    /// What is wrong with it or its definition, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Of a guest that was just started: what could not be made sure of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a host has of a guest, for one that moved it there or had it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldView {
    /// There is a process of it, whatever it does.
    pub process: bool,
    /// There is a definition, from which it could be started.
    pub definition: bool,
    /// There is a saved state of it, from which it would go on.
    #[serde(default)]
    pub suspended: bool,
    /// What libvirt has there by that name or id; missing where the host's agent does not look at any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainHeld>,
}

/// What a host's libvirt has of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DomainHeld {
    /// Nothing.
    Absent,
    /// A definition, from which it could be started.
    Off,
    /// It, in memory, whatever it does.
    InMemory,
    /// That is not known: libvirt is not reached, or does not tell. Or a word of a newer agent.
    #[serde(other)]
    NotKnown,
}

/// How to start a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StartRequest {
    /// Boot a guest that is suspended, and give up what was in its memory.
    pub discard_saved_state: bool,
}

/// How to stop a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopRequest {
    /// End QEMU at once, as pulling the plug does, instead of pressing the power button.
    pub force: bool,
    /// Seconds to wait for the guest to obey the power button, 90 at most and by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_an_agent_that_knows_of_nobody_else_is_its_own() {
        let source = |json: &str| serde_json::from_str::<VmView>(json).unwrap().source;
        assert_eq!(
            source(r#"{"name":"web","state":"running"}"#),
            VmSource::Drover
        );
        let newer = r#"{"name":"web","state":"running","source":"somebody"}"#;
        assert_eq!(source(newer), VmSource::Unknown);
    }
}
