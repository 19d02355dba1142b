//! What the host that a domain goes to has of it, by its agent's word.

use drover_api::{Client, IncomingPhase, IncomingView};
use drover_types::{HostName, MigrationId, with_sources};
use tokio::time::timeout;

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
