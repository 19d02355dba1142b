//! NetworkManager over D-Bus, as far as files of its profiles take it: which version runs, and that a file is another one by now.
//!
//! Starts nothing, and has no link be set. The active connection stays as it is. What waits for a connection may get one by it: of a profile
//! that has become another one NetworkManager looks again at all devices that are to be connected by themselves.
//!
//! Source: NetworkManager's D-Bus interfaces `org.freedesktop.NetworkManager` and `org.freedesktop.NetworkManager.Settings`; `nm-policy.c`
//! (`connection_updated`).

use std::io;

use tokio::time::timeout;
use zbus::{Connection, OwnedVariant};

use crate::limits::NETWORK_MANAGER;

const NAME: &str = "org.freedesktop.NetworkManager";
const PATH: &str = "/org/freedesktop/NetworkManager";

/// Why NetworkManager tells nothing, or does not take a file.
#[derive(Debug, thiserror::Error)]
pub enum NetworkManagerError {
    /// There is nobody to ask.
    #[error("NetworkManager does not run")]
    Absent,
    /// It stands still.
    #[error("NetworkManager has not answered for {} s", NETWORK_MANAGER.as_secs())]
    Silent,
    /// The bus, or NetworkManager, says no.
    #[error("NetworkManager cannot be asked over D-Bus")]
    Bus(#[from] zbus::Error),
    /// It names no version that has numbers.
    #[error("NetworkManager says that it is version {version:?}")]
    Version {
        /// As it says.
        version: String,
    },
    /// It goes on with what it knew of the profile.
    #[error("NetworkManager cannot read {}: its log says why", files.join(", "))]
    Refused {
        /// The files.
        files: Vec<String>,
    },
}

/// Which version runs, such as 1.42.
///
/// # Errors
/// [`NetworkManagerError`].
pub async fn version() -> Result<(u32, u32), NetworkManagerError> {
    let version = within(async {
        let bus = bus().await?;
        let interface = Some("org.freedesktop.DBus.Properties");
        let asked = bus.call_method(Some(NAME), PATH, interface, "Get", &(NAME, "Version"));
        let body = asked.await?.body();
        let version: OwnedVariant = body.deserialize()?;
        Ok(String::try_from(version)?)
    });
    let version = version.await?;
    numbers(&version).ok_or(NetworkManagerError::Version { version })
}

/// Has it read files of profiles again, which are there. One that does not run reads them as it starts.
///
/// # Errors
/// [`NetworkManagerError`]; it has profiles as they were, then.
pub async fn load(paths: &[&str]) -> Result<(), NetworkManagerError> {
    let loaded = within(async {
        let bus = bus().await?;
        let (settings, interface) = (format!("{PATH}/Settings"), format!("{NAME}.Settings"));
        let files = &(paths,);
        let asked = bus.call_method(
            Some(NAME),
            settings.as_str(),
            Some(interface.as_str()),
            "LoadConnections",
            files,
        );
        let body = asked.await?.body();
        // The first one says nothing before 1.20.
        let (_, failed): (bool, Vec<String>) = body.deserialize()?;
        Ok(failed)
    });
    match loaded.await {
        Ok(failed) if failed.is_empty() => Ok(()),
        Ok(files) => Err(NetworkManagerError::Refused { files }),
        Err(NetworkManagerError::Absent) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn within<T>(
    asked: impl Future<Output = Result<T, NetworkManagerError>>,
) -> Result<T, NetworkManagerError> {
    let answered = timeout(NETWORK_MANAGER, asked).await;
    answered.unwrap_or(Err(NetworkManagerError::Silent))
}

/// A bus on which NetworkManager is.
async fn bus() -> Result<Connection, NetworkManagerError> {
    let bus = match Connection::system().await {
        Err(zbus::Error::Connection(error, _)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NetworkManagerError::Absent);
        }
        bus => bus?,
    };
    let names = "org.freedesktop.DBus";
    let asked = bus.call_method(
        Some(names),
        "/org/freedesktop/DBus",
        Some(names),
        "NameHasOwner",
        &(NAME,),
    );
    let body = asked.await?.body();
    let is_there: bool = body.deserialize()?;
    if is_there {
        Ok(bus)
    } else {
        Err(NetworkManagerError::Absent)
    }
}

/// The first two, which say what it knows; distributions write more behind them.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-']);
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_whatever_a_distribution_writes_behind_it() {
        for (version, expected) in [
            ("1.42.4", Some((1, 42))),
            ("1.46.0-13.el9", Some((1, 46))),
            ("1.53-dev", Some((1, 53))),
            ("1", None),
            ("", None),
            ("one.two", None),
        ] {
            assert_eq!(numbers(version), expected, "{version}");
        }
    }
}
