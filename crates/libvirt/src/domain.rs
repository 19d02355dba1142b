use std::ffi::c_uint;

use drover_types::Bytes;
use uuid::Uuid;

use crate::error::Refusal;
use crate::raw;

/// A domain of libvirt, as it was when it was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its name: any text without a slash.
    pub name: String,
    /// Its id, the same on every host.
    pub uuid: Uuid,
    /// Whether it runs.
    pub state: DomainState,
    /// It has a definition, with which it stays when it is shut off. One without is *transient*.
    pub persistent: bool,
    /// It is started with its host.
    pub autostart: bool,
    /// The memory that it may have.
    pub memory: Bytes,
    /// Its virtual CPUs.
    pub vcpus: u16,
}

/// All domains of a libvirt, as they were when it was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains {
    /// Those that it told of, by name.
    pub told: Vec<Domain>,
    /// Those that it refused to tell of, by name.
    pub untold: Vec<Untold>,
}

/// A domain that is there, of which libvirt does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// Its name.
    pub name: String,
    /// Its id.
    pub uuid: Uuid,
    /// Why not, in libvirt's words.
    pub why: Refusal,
}

/// Whether a domain runs. Source: `virDomainState` in libvirt's `libvirt-domain.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainState {
    /// It runs.
    Running,
    /// It stands still, by somebody's word or because something failed.
    Paused,
    /// It is being shut down.
    ShuttingDown,
    /// It has no hypervisor.
    ShutOff,
    /// It crashed, and its hypervisor may be there still.
    Crashed,
    /// Its own system suspended it (ACPI).
    Asleep,
    /// One that libvirt does not know, or that we do not, by its number.
    Other(u8),
}

impl DomainState {
    fn from_number(number: u8) -> Self {
        match number {
            // A `BLOCKED` one waits for a resource; QEMU has none.
            1 | 2 => Self::Running,
            3 => Self::Paused,
            4 => Self::ShuttingDown,
            5 => Self::ShutOff,
            6 => Self::Crashed,
            7 => Self::Asleep,
            other => Self::Other(other),
        }
    }
}

/// Which XML of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xml {
    /// As it is now; without passwords.
    Current,
    /// As it will be when it is started next; without passwords.
    Definition,
}

impl Xml {
    /// `virDomainXMLFlags`.
    pub(crate) fn flags(self) -> c_uint {
        match self {
            Self::Current => 0,
            Self::Definition => 1 << 1,
        }
    }
}

/// All domains. One that is gone before it was asked about is left out.
pub(crate) fn list(connection: &raw::Connection) -> Result<Domains, Refusal> {
    let mut domains = Domains::default();
    for domain in connection.domains()? {
        let (name, uuid) = domain.identity()?;
        match read(&domain) {
            Ok(domain) => domains.told.push(domain),
            Err(refusal) if refusal.is_no_domain() => {}
            Err(why) if connection.is_alive() => {
                domains.untold.push(Untold { name, uuid, why });
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let key = |name: &str, uuid: Uuid| (name.to_owned(), uuid);
    domains
        .told
        .sort_by_cached_key(|domain| key(&domain.name, domain.uuid));
    domains
        .untold
        .sort_by_cached_key(|domain| key(&domain.name, domain.uuid));
    Ok(domains)
}

/// One of them, with its state now.
pub(crate) fn read(domain: &raw::Domain<'_>) -> Result<Domain, Refusal> {
    let (name, uuid) = domain.identity()?;
    let info = domain.info()?;
    let persistent = domain.is_persistent()?;
    Ok(Domain {
        name,
        uuid,
        state: DomainState::from_number(info.state),
        persistent,
        // Only of what has a definition.
        autostart: persistent && domain.has_autostart()?,
        memory: Bytes(info.memory_kib.saturating_mul(1 << 10)),
        vcpus: info.vcpus,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_understood_and_an_unknown_one_keeps_its_number() {
        let states: Vec<_> = (0..9).map(DomainState::from_number).collect();
        let expected = [
            DomainState::Other(0),
            DomainState::Running,
            DomainState::Running,
            DomainState::Paused,
            DomainState::ShuttingDown,
            DomainState::ShutOff,
            DomainState::Crashed,
            DomainState::Asleep,
            DomainState::Other(8),
        ];
        assert_eq!(states, expected);
    }
}
