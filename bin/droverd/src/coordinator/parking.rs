//! Guests that a run parks, or runs again: what is asked of their agent, and what its answer means.

use drover_api::{Client, ClientError, ParkHow, ParkPhase, ParkRequest, ParkView, UnparkRequest};
use drover_execute::journal::{Blame, ParkHow as How, UnparkOutcome};
use drover_execute::{Answer, ParkSeen, UnparkSeen};
use drover_plan::Text;
use drover_types::{ParkId, VmName};

use super::asks::{blame, said};

/// Has a guest be parked, or asks how far that is.
pub async fn park(
    client: Result<Client, Text>,
    vm: &VmName,
    (id, how, begin): (ParkId, How, bool),
) -> Result<Answer, Text> {
    let how = match how {
        How::Stop => ParkHow::Stop,
        How::Suspend => ParkHow::Suspend,
    };
    let request = ParkRequest { id, how, begin };
    let seen = match client?.park(vm, &request).await {
        Ok(view) => parked(&view)?,
        Err(error) => ParkSeen::Kept {
            why: refused(&error)?,
        },
    };
    Ok(Answer::Park(seen))
}

/// Has a guest run again, or asks how far that is.
pub async fn unpark(client: Result<Client, Text>, vm: &VmName, id: ParkId) -> Result<Answer, Text> {
    let seen = match client?.unpark(vm, &UnparkRequest { id }).await {
        Ok(view) => unparked(&view)?,
        Err(error) => UnparkSeen::Over(UnparkOutcome::Failed {
            why: refused(&error)?,
        }),
    };
    Ok(Answer::Unpark(seen))
}

/// Why it will not be done; an error where it may be, a moment later.
fn refused(error: &ClientError) -> Result<Text, Text> {
    let code = error.refusal().map(|refusal| refusal.code);
    match code.and_then(blame) {
        None | Some(Blame::Moment) => Err(said(error)),
        Some(Blame::Guest | Blame::Destination) => Ok(said(error)),
    }
}

fn parked(view: &ParkView) -> Result<ParkSeen, Text> {
    match view.phase {
        ParkPhase::Parking => Ok(ParkSeen::UnderWay),
        ParkPhase::Parked => Ok(ParkSeen::Parked),
        ParkPhase::Kept => Ok(ParkSeen::Kept { why: cause(view) }),
        ParkPhase::CalledBack => Ok(ParkSeen::CalledBack),
        _ => Err(strange(view)),
    }
}

fn unparked(view: &ParkView) -> Result<UnparkSeen, Text> {
    let over = match view.phase {
        ParkPhase::Unparking => return Ok(UnparkSeen::UnderWay),
        ParkPhase::Running => UnparkOutcome::Runs,
        ParkPhase::NotStarted => UnparkOutcome::Failed { why: cause(view) },
        ParkPhase::Settled => UnparkOutcome::Settled { why: cause(view) },
        _ => return Err(strange(view)),
    };
    Ok(UnparkSeen::Over(over))
}

fn cause(view: &ParkView) -> Text {
    let cause = view.cause.as_deref();
    Text::from(cause.unwrap_or("its agent tells no cause").to_owned())
}

fn strange(view: &ParkView) -> Text {
    Text::from(format!(
        "an answer that was not asked for: {:?}",
        view.phase
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use uuid::Uuid;

    fn view(phase: ParkPhase) -> ParkView {
        ParkView {
            id: ParkId(Uuid::nil()),
            vm: "web".parse().unwrap(),
            phase,
            cause: Some("so it is".to_owned()),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_an_agent_says_is_taken_for_what_was_asked_and_for_nothing_else() {
        let why = Text::from("so it is".to_owned());
        assert_eq!(parked(&view(ParkPhase::Parked)), Ok(ParkSeen::Parked));
        let kept = ParkSeen::Kept { why: why.clone() };
        assert_eq!(parked(&view(ParkPhase::Kept)), Ok(kept));
        assert!(parked(&view(ParkPhase::Running)).is_err());
        let failed = UnparkSeen::Over(UnparkOutcome::Failed { why });
        assert_eq!(unparked(&view(ParkPhase::NotStarted)), Ok(failed));
        assert!(unparked(&view(ParkPhase::Parked)).is_err());
        assert!(unparked(&view(ParkPhase::Unknown)).is_err());
    }
}
