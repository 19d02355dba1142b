//! Whether the other host is silent, or there without an answer that can be used: only in the place
//! of a silent one can an operator decide.

use std::time::Duration;

use drover_api::{Client, ClientError, ErrorCode};
use drover_types::{HostName, VmName, with_sources};

/// What a question without an answer has shown.
pub enum There {
    /// Nobody: there was no connection, or silence on it. Or an agent that has lost what it knew,
    /// and no process of the guest.
    Silence(String),
    /// Somebody, who may have the guest.
    Somebody(String),
}

/// What is there at the host that answered a question of a migration of the guest like this; `within`
/// what is left of that question's time.
pub async fn whats_there(
    client: &Client,
    host: &HostName,
    vm: &VmName,
    error: &ClientError,
    within: Duration,
) -> There {
    if !error.is_refused_with(ErrorCode::NoSuchMigration) {
        return judge(host, error);
    }
    // Its journal was lost or replaced, or is about newer migrations by now.
    let unknown = format!("{host} does not know the migration any more, and");
    match tokio::time::timeout(within, client.held(vm)).await {
        Ok(Ok(held)) if held.process => {
            There::Somebody(format!("{unknown} has a process of guest {vm}"))
        }
        Ok(Ok(_)) => There::Silence(format!("{unknown} has no process of guest {vm}")),
        Ok(Err(error)) => {
            let what = with_sources(&error);
            There::Somebody(format!(
                "{unknown} did not say what it has of guest {vm}: {what}"
            ))
        }
        Err(_) => There::Somebody(format!(
            "{unknown} did not say in time what it has of guest {vm}"
        )),
    }
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
