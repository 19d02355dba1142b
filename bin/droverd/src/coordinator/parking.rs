//! Guests that a run parks, or runs again: what is asked of their agent, and what its answer means.

use drover_api::{Client, ParkHow, ParkPhase, ParkRequest, ParkView, UnparkRequest};
use drover_execute::journal::{ParkHow as How, UnparkOutcome};
use drover_execute::{Answer, ParkSeen, UnparkSeen};
use drover_plan::Text;
use drover_types::{ParkId, VmName};

use super::asks::said;
use super::standing::Standing;

/// Has a guest be parked, or asks how far that is. A refusal tells nothing of an order that was heard before, and
/// counts as silence: it is asked again.
pub async fn park(
    standing: &Standing,
    client: Result<Client, Text>,
    vm: &VmName,
    (id, how, begin): (ParkId, How, bool),
) -> Result<Answer, Text> {
    let how = match how {
        How::Stop => ParkHow::Stop,
        How::Suspend => ParkHow::Suspend,
    };
    let request = ParkRequest { id, how, begin };
    standing.check()?;
    let view = client?.park(vm, &request).await;
    let view = view.map_err(|error| said(&error))?;
    Ok(Answer::Park(parked(&view)?))
}

/// Has a guest run again, or asks how far that is. As [`park`].
pub async fn unpark(
    standing: &Standing,
    client: Result<Client, Text>,
    vm: &VmName,
    (id, start, begin): (ParkId, ParkId, bool),
) -> Result<Answer, Text> {
    let request = UnparkRequest { id, start, begin };
    standing.check()?;
    let view = client?.unpark(vm, &request).await;
    let view = view.map_err(|error| said(&error))?;
    Ok(Answer::Unpark(unparked(&view)?))
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
        ParkPhase::CalledBack => UnparkOutcome::Failed {
            why: Text::from("the run was cancelled before it was started".to_owned()),
        },
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
    use std::path::Path;
    use std::time::Duration;

    use drover_store::{Campaign, Embedded, HostClock, Name, Store};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn view(phase: ParkPhase) -> ParkView {
        ParkView {
            id: ParkId(Uuid::nil()),
            vm: "web".parse().unwrap(),
            phase,
            cause: Some("so it is".to_owned()),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    /// Of a leadership of that name's lease that nobody renews.
    async fn standing(place: &Path, lease: Duration) -> Standing {
        let clock = HostClock::new().unwrap();
        let store = Embedded::open(&place.join("store.db"), clock)
            .await
            .unwrap();
        let (runs, holder): (Name, Name) = ("runs".parse().unwrap(), "a".parse().unwrap());
        let store = Store::from(store);
        let campaign = store.campaign(&runs, &holder, lease);
        let Campaign::Won(leadership) = campaign.await.unwrap() else {
            panic!("somebody else leads");
        };
        Standing::new(clock, false, leadership)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_coordinator_whose_lease_may_have_lapsed_has_no_guest_stopped_or_started() {
        let place = tempfile::tempdir().unwrap();
        let client = || Ok(Client::unix(place.path().join("no agent")));
        let vm: VmName = "web".parse().unwrap();
        let id = ParkId(Uuid::nil());
        let lapsed = |why: Result<Answer, Text>| {
            let why = why.unwrap_err();
            assert!(why.as_str().contains("lease"), "{why}");
        };
        let standing = standing(place.path(), drover_store::limits::LEASE_LEAST).await;
        let mut often = tokio::time::interval(Duration::from_millis(20));
        while standing.check().is_ok() {
            often.tick().await;
        }
        lapsed(park(&standing, client(), &vm, (id, How::Stop, true)).await);
        lapsed(unpark(&standing, client(), &vm, (id, id, true)).await);
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
