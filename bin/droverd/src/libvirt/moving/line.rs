use std::time::SystemTime;

use drover_hypervisor::{Exit, ExitStatus, MachineError};
use drover_libvirt::{CallError, Connection, Library, SYSTEM_URI};
use drover_types::with_sources;

use crate::libvirt::keep::Whereabouts;

/// How this host's libvirt is reached for one migration: by connections of its own, since one whose calls hang with another
/// domain would keep it waiting.
#[derive(Debug)]
pub struct Line {
    at: Option<Whereabouts>,
}

impl Line {
    /// Of a host that looks at none it says so.
    pub fn new(at: Option<Whereabouts>) -> Self {
        Self { at }
    }

    fn at(&self) -> Result<&Whereabouts, String> {
        let why = "this host looks at no libvirt: set `libvirt.uri` in droverd.toml to \"auto\", and restart droverd";
        self.at.as_ref().ok_or_else(|| why.to_owned())
    }

    /// libvirt's library, loaded.
    ///
    /// # Errors
    /// It cannot be used, and why.
    pub async fn library(&self) -> Result<Library, String> {
        let path = self.at()?.library.clone();
        let loaded = tokio::task::spawn_blocking(move || Library::load(&path)).await;
        let loaded = loaded.map_err(|error| error.to_string())?;
        loaded.map_err(|error| with_sources(&error))
    }

    /// The URI of its libvirtd.
    pub fn uri(&self) -> &str {
        self.at.as_ref().map_or(SYSTEM_URI, |at| &at.uri)
    }

    /// A connection.
    ///
    /// # Errors
    /// There is none, and why.
    pub async fn connect(&self) -> Result<Connection, String> {
        let library = self.library().await?;
        let connected = Connection::open(library, self.uri()).await;
        connected.map_err(|error| with_sources(&error))
    }
}

/// libvirt's answer to what was to be done, as a migration's task takes it.
pub fn failed(operation: &'static str, error: &CallError) -> MachineError {
    let unanswered = matches!(error, CallError::TimedOut { .. } | CallError::Lost { .. });
    MachineError::Other {
        operation,
        reason: with_sources(error),
        unanswered,
    }
}

/// Something that was not done, for a reason that is no call's.
pub fn refused(operation: &'static str, reason: String) -> MachineError {
    MachineError::Other {
        operation,
        reason,
        unanswered: false,
    }
}

/// The end of a domain's hypervisor, of which libvirt tells no status; and why, where that is to be told.
pub fn exit(why: Option<&str>) -> Exit {
    Exit {
        status: ExitStatus::Unknown,
        stderr: why.into_iter().map(str::to_owned).collect(),
        at: SystemTime::now(),
    }
}
