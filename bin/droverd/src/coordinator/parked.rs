//! Guests that a run parks, or runs again, as the API shows them.

use drover_api::{ParkedState, ParkedView};
use drover_execute::journal::{ParkHow, ParkOutcome, UnparkOutcome};
use drover_execute::{Park, Run, Unpark, UnparkState};
use drover_plan::Text;
use drover_types::HostName;

use super::view::timestamp;

/// All of a run, in the order in which they were told.
pub fn all(run: &Run) -> Vec<ParkedView> {
    let parked = run.parks().iter().map(parked);
    let host = run.unparked_on();
    let unparked = run.unparks().iter();
    let unparked = unparked.filter_map(|one| Some(unparked_on(host?, one)));
    parked.chain(unparked).collect()
}

fn parked(park: &Park) -> ParkedView {
    let order = &park.order;
    let outcome = park.ended.as_ref().map(|(outcome, _)| outcome);
    let (state, cause) = match (outcome, order.how) {
        (None, ParkHow::Stop) => (ParkedState::Stopping, None),
        (None, ParkHow::Suspend) => (ParkedState::Suspending, None),
        (Some(ParkOutcome::Parked), ParkHow::Stop) => (ParkedState::Stopped, None),
        (Some(ParkOutcome::Parked), ParkHow::Suspend) => (ParkedState::Suspended, None),
        (Some(ParkOutcome::Kept { why }), _) => (ParkedState::Kept, Some(why)),
        (Some(ParkOutcome::Cancelled), _) => (ParkedState::Cancelled, None),
        (Some(ParkOutcome::Unknown { why }), _) => (ParkedState::InDoubt, Some(why)),
    };
    ParkedView {
        vm: order.vm.clone(),
        host: order.host.clone(),
        state,
        why: Some(order.why.to_string()),
        cause: cause.map(Text::to_string),
        started_at: Some(timestamp(order.at)),
        ended_at: park.ended.as_ref().map(|(_, at)| timestamp(*at)),
    }
}

fn unparked_on(host: &HostName, unpark: &Unpark) -> ParkedView {
    let (state, started, ended, cause) = match &unpark.state {
        UnparkState::Waiting => (ParkedState::Waiting, None, None, None),
        UnparkState::UnderWay { since, .. } => (ParkedState::Starting, Some(*since), None, None),
        UnparkState::Ended {
            since, outcome, at, ..
        } => {
            let (state, cause) = match outcome {
                UnparkOutcome::Runs => (ParkedState::Started, None),
                UnparkOutcome::Failed { why } => (ParkedState::NotStarted, Some(why)),
                UnparkOutcome::Settled { why } => (ParkedState::Settled, Some(why)),
            };
            (state, Some(*since), Some(*at), cause)
        }
    };
    ParkedView {
        vm: unpark.guest.vm.clone(),
        host: host.clone(),
        state,
        why: None,
        cause: cause.map(Text::to_string),
        started_at: started.map(timestamp),
        ended_at: ended.map(timestamp),
    }
}
