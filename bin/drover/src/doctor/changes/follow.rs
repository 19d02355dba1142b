//! Looks at a change until it is at its end.

use std::time::Instant;

use drover_api::{ChangeDetailView, Client, ClientError, ErrorCode};
use drover_types::ChangeId;

use crate::failure::Failure;
use crate::limits;

/// The change at its end. An agent that does not answer for a while is borne: it may be its link that is bounced.
pub async fn to_its_end(client: &Client, id: ChangeId) -> Result<ChangeDetailView, Failure> {
    let mut away = None;
    loop {
        match client.change(id).await {
            Ok(view) if view.change.state.has_ended() => return Ok(view),
            Ok(_) => away = None,
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
            ErrorCode::ShuttingDown | ErrorCode::TooManyRequests | ErrorCode::Timeout
        )
    })
}

fn lost(id: ChangeId, error: ClientError) -> Failure {
    Failure::of_reading(error).next(format!(
        "the change goes on, and takes itself back if other hosts do not reach this one as before: look at \
         `drover doctor changes {id}` when the agent answers again"
    ))
}
