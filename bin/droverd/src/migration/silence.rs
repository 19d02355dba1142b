//! Whether the other host is silent, or there without an answer that can be used: only in the place
//! of a silent one can an operator decide.

use std::fmt;
use std::time::Duration;

use drover_api::{Client, ClientError, DomainHeld, ErrorCode, HeldView};
use drover_types::{HostName, VmName, with_sources};

/// What a question without an answer has shown.
pub enum There {
    /// Nobody: there was no connection, or silence on it. Or an agent that has lost what it knew,
    /// and no process of the guest.
    Silence(String),
    /// Somebody, who may have the guest.
    Somebody(String),
}

/// A guest as another host may have it.
#[derive(Debug, Clone, Copy)]
pub enum Sought<'a> {
    /// One of Drover's, by its name.
    Guest(&'a VmName),
    /// A domain of libvirt's, by its id.
    Domain(&'a VmName),
}

impl<'a> Sought<'a> {
    /// The guest of a migration, which is a domain where it has such an id.
    pub fn of(vm: &'a VmName, domain: Option<&'a VmName>) -> Self {
        domain.map_or(Self::Guest(vm), Self::Domain)
    }

    fn by(self) -> &'a VmName {
        match self {
            Self::Guest(name) | Self::Domain(name) => name,
        }
    }

    /// What a host has of it that runs, or may; none where that has nothing.
    pub fn found(self, held: &HeldView) -> Option<String> {
        match (self, held.domain) {
            (Self::Guest(vm), _) => held.process.then(|| format!("has a process of guest {vm}")),
            (Self::Domain(_), Some(DomainHeld::Absent | DomainHeld::Off)) => None,
            (Self::Domain(id), Some(DomainHeld::InMemory)) => {
                Some(format!("its libvirt has domain {id} in memory"))
            }
            (Self::Domain(id), Some(DomainHeld::NotKnown)) => {
                Some(format!("what its libvirt has of domain {id} is not known"))
            }
            (Self::Domain(id), None) => Some(format!(
                "its agent looks at no libvirt, which may have domain {id}"
            )),
        }
    }
}

/// In words that follow "of".
impl fmt::Display for Sought<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest(name) => write!(f, "guest {name}"),
            Self::Domain(id) => write!(f, "domain {id}"),
        }
    }
}

/// What is there at the host that answered a question of a migration of the guest like this; `within`
/// what is left of that question's time.
pub async fn whats_there(
    client: &Client,
    host: &HostName,
    sought: Sought<'_>,
    error: &ClientError,
    within: Duration,
) -> There {
    if !error.is_refused_with(ErrorCode::NoSuchMigration) {
        return judge(host, error);
    }
    // Its journal was lost or replaced, or is about newer migrations by now.
    let unknown = format!("{host} does not know the migration any more, and");
    match tokio::time::timeout(within, client.held(sought.by())).await {
        Ok(Ok(held)) => match sought.found(&held) {
            Some(what) => There::Somebody(format!("{unknown} {what}")),
            None => There::Silence(format!("{unknown} has no process of {sought}")),
        },
        Ok(Err(error)) => {
            let what = with_sources(&error);
            There::Somebody(format!(
                "{unknown} did not say what it has of {sought}: {what}"
            ))
        }
        Err(_) => There::Somebody(format!(
            "{unknown} did not say in time what it has of {sought}"
        )),
    }
}

/// Whether anything is left of a guest at a host that does not know its migration; what, or why that is not known.
///
/// # Errors
/// Something is, or may be.
pub async fn nothing_there(
    client: &Client,
    host: &HostName,
    sought: Sought<'_>,
) -> Result<(), String> {
    let Sought::Domain(id) = sought else {
        // What it would have of one of Drover's it knows from that one's own record.
        return Ok(());
    };
    let held = client
        .held(id)
        .await
        .map_err(|error| with_sources(&error))?;
    let left = match held.domain {
        Some(DomainHeld::Absent) => return Ok(()),
        Some(DomainHeld::Off) => Some(format!("its libvirt has a definition of domain {id}")),
        _ => sought.found(&held),
    };
    let left = left.unwrap_or_default();
    Err(format!("{host} does not know the migration, and {left}"))
}

fn judge(host: &HostName, error: &ClientError) -> There {
    let what = with_sources(error);
    match error {
        error if error.is_silence() => There::Silence(what),
        ClientError::NowhereKnown { .. } => There::Somebody(format!(
            "{host} could not be asked: {what}; it has to join the cluster again first"
        )),
        _ => There::Somebody(format!("{host} is there, and gave no answer: {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(process: bool, domain: Option<DomainHeld>) -> HeldView {
        HeldView {
            process,
            definition: false,
            suspended: false,
            domain,
        }
    }

    #[test]
    fn a_domain_is_nowhere_only_where_libvirt_says_that_it_is_not_in_memory() {
        let id = "6b2c8a1e-0000-4000-8000-000000000007".parse().unwrap();
        let found = |domain| Sought::Domain(&id).found(&held(false, domain));
        assert_eq!(found(Some(DomainHeld::Absent)), None);
        assert_eq!(found(Some(DomainHeld::Off)), None);
        let runs = found(Some(DomainHeld::InMemory)).unwrap();
        assert!(runs.contains("in memory"), "{runs}");
        assert!(found(Some(DomainHeld::NotKnown)).is_some());
        assert!(found(None).unwrap().contains("looks at no libvirt"));
    }

    #[test]
    fn a_guest_of_drovers_is_where_its_process_is_whatever_libvirt_has() {
        let vm = "web".parse().unwrap();
        let found = |process| Sought::Guest(&vm).found(&held(process, Some(DomainHeld::InMemory)));
        assert_eq!(found(true).unwrap(), "has a process of guest web");
        assert_eq!(found(false), None);
    }
}
