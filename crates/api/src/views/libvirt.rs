//! What an agent has of its host's libvirt.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether an agent has a connection to libvirt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LibvirtState {
    /// The configuration says that it is not used.
    Off,
    /// The host has none, which `problem` says more of. It is used once it is there.
    Absent,
    /// Nothing is known of it yet: the agent has just been started, or it has just come.
    Looking,
    /// It is there, or was, and does not answer; `problem` says why. It is tried again.
    Unreachable,
    /// Its domains are watched.
    Connected,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A host's libvirt, as its agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LibvirtView {
    /// Whether there is a connection.
    pub state: LibvirtState,
    /// Where it is, or would be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// libvirtd's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version of the QEMU that libvirtd starts domains with by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Domains that it told of last.
    #[serde(default)]
    pub domains: u64,
    /// Why there is no connection; or why what is known of domains is old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_a_newer_agent_is_unknown_and_what_it_does_not_say_is_nothing() {
        let view: LibvirtView = serde_json::from_str(r#"{"state":"asleep","more":1}"#).unwrap();
        assert_eq!(view.state, LibvirtState::Unknown);
        assert_eq!((view.version, view.domains), (None, 0));
    }
}
