use std::ffi::{c_int, c_uint};
use std::fmt;

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
    pub(crate) fn from_number(number: u8) -> Self {
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

/// A domain, and why it is in its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// It.
    pub domain: Domain,
    /// Why it is in its state.
    pub why: Why,
}

/// Why a domain is in its state, as far as its migration is concerned. Source: `virDomainPausedReason` and
/// `virDomainShutoffReason` in libvirt's `libvirt-domain.h`. libvirt forgets why a domain is off when it, or its host, is started
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It stands still by somebody's word. So does one that has arrived to be run by somebody's word.
    Asked,
    /// It stands still for a migration, from here or to here, which has not ended.
    Migrating,
    /// It stands still until its hypervisor has been started.
    StartingUp,
    /// It stands still because a disk failed.
    DiskFailed,
    /// It stands still because its watchdog was not fed.
    Watchdog,
    /// It stands still because it goes on at another host, which takes its memory from here.
    Postcopy,
    /// It has no hypervisor because it runs on the host that it migrated to, or may.
    Left,
    /// It has no hypervisor because it was shut down.
    ShutDown,
    /// It has no hypervisor because somebody ended it.
    Destroyed,
    /// It has no hypervisor because that ended by itself.
    Crashed,
    /// It has no hypervisor because it was saved to a file.
    Saved,
    /// It has no hypervisor because it is as in a snapshot that has none.
    FromSnapshot,
    /// It has no hypervisor because libvirt ended what it could not follow any more, mostly after its own start.
    Unfollowed,
    /// Something else, by libvirt's number for it.
    Other(c_int),
}

impl Why {
    pub(crate) fn from_number(state: DomainState, reason: c_int) -> Self {
        match (state, reason) {
            (DomainState::Paused, 1) => Self::Asked,
            (DomainState::Paused, 2) => Self::Migrating,
            (DomainState::Paused, 5) => Self::DiskFailed,
            (DomainState::Paused, 6) => Self::Watchdog,
            (DomainState::Paused, 11) => Self::StartingUp,
            (DomainState::Paused, 12 | 13) => Self::Postcopy,
            (DomainState::ShutOff, 1) => Self::ShutDown,
            (DomainState::ShutOff, 2) => Self::Destroyed,
            (DomainState::ShutOff, 3) => Self::Crashed,
            (DomainState::ShutOff, 4) => Self::Left,
            (DomainState::ShutOff, 5) => Self::Saved,
            (DomainState::ShutOff, 7) => Self::FromSnapshot,
            (DomainState::ShutOff, 8) => Self::Unfollowed,
            (_, other) => Self::Other(other),
        }
    }
}

/// In words that follow "because".
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "somebody wants it so",
            Self::Migrating => "it migrates",
            Self::StartingUp => "it is being started",
            Self::DiskFailed => "a disk of it failed",
            Self::Watchdog => "its watchdog was not fed",
            Self::Postcopy => "it goes on at another host already",
            Self::Left => "it has left for another host",
            Self::ShutDown => "it was shut down",
            Self::Destroyed => "somebody destroyed it",
            Self::Crashed => "its hypervisor ended by itself",
            Self::Saved => "it was saved",
            Self::FromSnapshot => "it was set back to a snapshot",
            Self::Unfollowed => "libvirt ended what it could not follow any more",
            Self::Other(0) => "of something that libvirt does not know any more",
            Self::Other(number) => return write!(f, "of libvirt's reason {number}"),
        })
    }
}

/// Which XML of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xml {
    /// As it is now; without passwords.
    Current,
    /// As it will be when it is started next; without passwords.
    Definition,
    /// The same with them: what it takes to define it again.
    Kept,
}

impl Xml {
    /// `virDomainXMLFlags`.
    pub(crate) fn flags(self) -> c_uint {
        match self {
            Self::Current => 0,
            Self::Definition => 1 << 1,
            Self::Kept => 1 << 1 | 1,
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

/// One of them, with why it is in its state.
pub(crate) fn look(domain: &raw::Domain<'_>) -> Result<Look, Refusal> {
    let known = read(domain)?;
    let (state, reason) = domain.state()?;
    let state = u8::try_from(state).map_or(DomainState::Other(0), DomainState::from_number);
    let why = Why::from_number(state, reason);
    // The state that belongs to the reason.
    let domain = Domain { state, ..known };
    Ok(Look { domain, why })
}

/// What goes with a definition: `virDomainUndefineFlagsValues`. What is kept of it outside of libvirt stays: its variables of
/// UEFI and its TPM may be those of the same domain on another host.
pub(crate) fn undefine(domain: &raw::Domain<'_>) -> Result<(), Refusal> {
    const SNAPSHOTS_METADATA: c_uint = 1 << 1;
    const KEEP_NVRAM: c_uint = 1 << 3;
    const CHECKPOINTS_METADATA: c_uint = 1 << 4;
    const KEEP_TPM: c_uint = 1 << 6;
    domain.undefine(SNAPSHOTS_METADATA | KEEP_NVRAM | CHECKPOINTS_METADATA | KEEP_TPM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_domain_stands_still_is_told_by_its_state_and_number() {
        let why = |state, number| Why::from_number(state, number);
        assert_eq!(why(DomainState::Paused, 1), Why::Asked);
        assert_eq!(why(DomainState::Paused, 2), Why::Migrating);
        assert_eq!(why(DomainState::Paused, 11), Why::StartingUp);
        assert_eq!(why(DomainState::ShutOff, 4), Why::Left);
        assert_eq!(why(DomainState::ShutOff, 1), Why::ShutDown);
        assert_eq!(why(DomainState::ShutOff, 0), Why::Other(0));
        assert_eq!(why(DomainState::Running, 1), Why::Other(1));
        let forgotten = why(DomainState::ShutOff, 0).to_string();
        assert_eq!(
            forgotten,
            "of something that libvirt does not know any more"
        );
    }

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
