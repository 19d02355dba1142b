//! What the host that a domain goes to has of it, by its agent's word.

use drover_api::{Client, DomainHeld, IncomingPhase, IncomingView};
use drover_types::{HostName, MigrationId, VmName, with_sources};
use tokio::time::timeout;
use uuid::Uuid;

use crate::limits::SHOW;

/// That host's agent.
#[derive(Debug, Clone)]
pub struct OtherHost {
    pub client: Client,
    pub host: HostName,
    pub migration: MigrationId,
}

/// What it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Has {
    /// The domain runs there, by whosever word.
    Runs,
    /// All of it, and it stands still until a word.
    All,
    /// Nothing, and nothing is to come; why.
    Nothing(String),
    /// That is not known by now; why.
    NotKnown(String),
}

impl OtherHost {
    /// Asks it, within [`SHOW`].
    pub async fn has(&self) -> Has {
        let host = &self.host;
        let asked = timeout(SHOW, self.client.incoming_status(self.migration)).await;
        match asked {
            Ok(Ok(view)) => Has::of(host, &view),
            Ok(Err(error)) => {
                Has::NotKnown(format!("{host} does not tell: {}", with_sources(&error)))
            }
            Err(_) => Has::NotKnown(format!("{host} did not answer within {} s", SHOW.as_secs())),
        }
    }
}

impl OtherHost {
    /// What its libvirt has of the domain of this id, within [`SHOW`].
    ///
    /// # Errors
    /// It does not say, and why.
    pub async fn holds(&self, domain: Uuid) -> Result<DomainHeld, String> {
        let host = &self.host;
        let id = domain.to_string().parse::<VmName>();
        let id = id.map_err(|error| error.to_string())?;
        match timeout(SHOW, self.client.held(&id)).await {
            Ok(Ok(held)) => held
                .domain
                .ok_or_else(|| format!("the agent of {host} looks at no libvirt")),
            Ok(Err(error)) => Err(format!("{host} does not tell: {}", with_sources(&error))),
            Err(_) => Err(format!("{host} did not answer within {} s", SHOW.as_secs())),
        }
    }
}

impl Has {
    fn of(host: &HostName, view: &IncomingView) -> Self {
        match view.phase {
            IncomingPhase::Running | IncomingPhase::Filling | IncomingPhase::CutOff => Self::Runs,
            IncomingPhase::Arrived => Self::All,
            IncomingPhase::Abandoned => {
                let why = view.cause.as_deref().unwrap_or("it gives no reason");
                Self::Nothing(format!("{host} has nothing of it: {why}"))
            }
            phase => Self::NotKnown(format!("{host} is at {phase:?}")),
        }
    }
}
