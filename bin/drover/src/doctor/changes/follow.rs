//! Looks at a change until it is at its end.

use std::time::Instant;

use drover_api::{ChangeDetailView, Client, ClientError, ErrorCode};
use drover_types::{ChangeId, with_sources};

use super::conclude::Ordered;
use crate::failure::{Failure, exit};
use crate::limits;

/// The change at its end. An agent that does not answer for as long as a change may take is borne: it may be its link that is bounced.
pub async fn to_its_end(
    client: &Client,
    id: ChangeId,
    ordered: Ordered<'_>,
) -> Result<ChangeDetailView, Failure> {
    let mut away = None;
    let mut moved = Instant::now();
    let mut last = None;
    loop {
        let told = match ordered {
            Ordered::Link { host, .. } => client.change_of(host, id).await,
            Ordered::Doctor => client.change(id).await,
        };
        match told {
            Ok(view) if view.change.state.has_ended() => return Ok(view),
            Ok(view) => {
                away = None;
                if last.as_ref() != Some(&view) {
                    (last, moved) = (Some(view), Instant::now());
                } else if moved.elapsed() > limits::CHANGE_STANDS {
                    return Err(stands(id, ordered));
                }
            }
            Err(error) => {
                let since = *away.get_or_insert_with(Instant::now);
                if !passes(&error) || since.elapsed() > limits::CHANGE_STANDS {
                    return Err(lost(id, &error, ordered));
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
fn stands(id: ChangeId, ordered: Ordered<'_>) -> Failure {
    let seconds = limits::CHANGE_STANDS.as_secs();
    let look = ordered.shows(id);
    Failure::error(format!(
        "change {id} is not at its end, and has not moved for {seconds} s"
    ))
    .next(format!(
        "look at {look}, and at the log of its agent, which says what keeps it from going back"
    ))
}

/// What becomes of it nobody tells.
fn lost(id: ChangeId, error: &ClientError, ordered: Ordered<'_>) -> Failure {
    let why = with_sources(error);
    let message = format!("what became of change {id} is not known: {why}");
    let look = ordered.shows(id);
    Failure::new(exit::NO_AGENT, "outcome-unknown", message).next(format!(
        "if it began it goes on, and takes itself back unless other hosts and links are reached as before: {look} tells when the agent answers again"
    ))
}

#[cfg(test)]
mod tests {
    use drover_api::Refusal;

    use super::*;

    #[test]
    fn a_change_of_which_nothing_is_told_any_more_is_open_and_says_where_to_look() {
        let (id, host): (ChangeId, _) = (
            "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a".parse().unwrap(),
            "b".parse().unwrap(),
        );
        let link = Ordered::Link {
            host: &host,
            nic: "nic0",
        };
        let silent = ClientError::from(Refusal::new(
            ErrorCode::PeerUnreachable,
            "host b: no agent answers",
        ));
        assert!(passes(&silent));
        let failure = lost(id, &silent, link);
        assert_eq!(failure.exit(), exit::NO_AGENT);
        let message = failure.message();
        assert!(message.contains("is not known: host b:"), "{message}");
        let next = failure.advice().unwrap();
        let look = format!("`drover doctor changes {id}` on b tells");
        assert!(
            next.contains("takes itself back") && next.contains(&look),
            "{next}"
        );
        let next = stands(id, link).advice().map(str::to_owned).unwrap();
        assert!(next.contains("` on b"), "{next}");
    }
}
