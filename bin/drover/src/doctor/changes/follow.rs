//! Looks at a change until it is at its end.

use std::time::Instant;

use drover_api::{ChangeDetailView, Client, ClientError, ErrorCode};
use drover_types::{ChangeId, HostName};

use crate::failure::Failure;
use crate::limits;

/// The change at its end. An agent that does not answer for a while is borne: it may be its link that is bounced.
pub async fn to_its_end(
    client: &Client,
    host: Option<&HostName>,
    id: ChangeId,
) -> Result<ChangeDetailView, Failure> {
    let mut away = None;
    let mut moved = Instant::now();
    let mut last = None;
    loop {
        let told = match host {
            Some(host) => client.change_of(host, id).await,
            None => client.change(id).await,
        };
        match told {
            Ok(view) if view.change.state.has_ended() => return Ok(view),
            Ok(view) => {
                away = None;
                if last.as_ref() != Some(&view) {
                    (last, moved) = (Some(view), Instant::now());
                } else if moved.elapsed() > limits::CHANGE_STANDS {
                    return Err(stands(id));
                }
            }
            Err(error) => {
                let since = *away.get_or_insert_with(Instant::now);
                if !passes(&error) || since.elapsed() > limits::AGENT_AWAY {
                    return Err(lost(id, error));
                }
            }
        }
        tokio::time::sleep(limits::LOOK).await;
    }
}

fn passes(error: &ClientError) -> bool {
    error.refusal().is_none_or(|refusal| {
        matches!(
            refusal.code,
            ErrorCode::ShuttingDown
                | ErrorCode::TooManyRequests
                | ErrorCode::Timeout
                | ErrorCode::PeerUnreachable
        )
    })
}

/// Its process stands still, or none can be started that goes back.
fn stands(id: ChangeId) -> Failure {
    let seconds = limits::CHANGE_STANDS.as_secs();
    Failure::error(format!("change {id} is not at its end, and has not moved for {seconds} s")).next(format!(
        "look at `drover doctor changes {id}`, and at the agent's log, which says what keeps it from going back"
    ))
}

fn lost(id: ChangeId, error: ClientError) -> Failure {
    Failure::of_reading(error).next(format!(
        "the change goes on, and takes itself back if other hosts do not reach this one as before: look at \
         `drover doctor changes {id}` when the agent answers again"
    ))
}
