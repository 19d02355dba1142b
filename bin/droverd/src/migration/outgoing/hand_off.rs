//! Telling the destination whose the guest is.

use std::time::Instant;

use drover_api::limits::READ_CALL;
use drover_api::{AbandonRequest, ClientError, IncomingPhase, IncomingView, Resolution};
use drover_hypervisor::UnixMicros;
use drover_migrate::source::Input;
use drover_migrate::{HandOffAnswer, Migration, Question, Reason};
use drover_types::with_sources;
use jiff::Timestamp;

use super::{Link, Message};
use crate::limits;
use crate::migration::silence::{Sought, There, nothing_there, whats_there};

/// When what happened in a hand-off, by this host's clock unless said otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The destination was told.
    pub told: Timestamp,
    /// It had answered that the guest runs.
    pub answered: Timestamp,
    /// The guest ran, by the destination's clock.
    pub resumed: Option<Timestamp>,
}

impl Times {
    /// When the guest ran, by this host's clock: the destination's word where it lies between
    /// question and answer, as it does when the clocks agree, else the nearer of the two.
    pub fn ran(&self) -> Timestamp {
        let resumed = self.resumed.unwrap_or(self.answered);
        resumed.clamp(self.told, self.answered)
    }
}

/// Tells the destination to run the guest, once.
pub async fn tell_to_run(link: Link, migration: Migration, question: Question) {
    let (told, asked) = (Timestamp::now(), Instant::now());
    let answered = link.client.incoming_run(migration.id).await;
    if let Ok(view) = &answered
        && matches!(
            answer_of(view),
            HandOffAnswer::Running | HandOffAnswer::Filling
        )
    {
        let times = Times {
            told,
            answered: Timestamp::now(),
            resumed: view.resumed_at,
        };
        link.tell(Message::RunsThere(times)).await;
    }
    answers(&link, &migration, question, (asked, answered)).await;
}

/// Asks the destination how far it is, once, without telling it anything.
pub async fn ask_destination(link: Link, migration: Migration, question: Question) {
    let asked = Instant::now();
    let answered = link.client.incoming_status(migration.id).await;
    answers(&link, &migration, question, (asked, answered)).await;
}

/// Hands in what came of a question: only silence is no answer.
async fn answers(
    link: &Link,
    migration: &Migration,
    question: Question,
    (asked, answered): (Instant, Result<IncomingView, ClientError>),
) {
    let left = || READ_CALL.saturating_sub(asked.elapsed());
    let pending = |reason: String| HandOffAnswer::Pending {
        reason: reason.into(),
    };
    let host = &migration.destination;
    if matches!(&answered, Ok(view) if view.phase == IncomingPhase::Arrived) {
        link.input(Input::DestinationArrived).await;
    }
    let answer = match answered {
        Ok(view) => Ok(answer_of(&view)),
        Err(error) => {
            let sought = Sought::of(&migration.vm, link.domain.as_ref());
            match whats_there(&link.client, host, sought, &error, left()).await {
                There::Silence(reason) => Err(reason),
                There::Somebody(reason) => Ok(pending(reason)),
            }
        }
    };
    link.input(match answer {
        Ok(answer) => Input::HandOffAnswered { question, answer },
        Err(reason) => Input::HandOffUnreachable {
            question,
            reason: reason.into(),
        },
    })
    .await;
}

fn answer_of(view: &IncomingView) -> HandOffAnswer {
    if view.resolved == Some(Resolution::Discard) && view.phase == IncomingPhase::Abandoned {
        return HandOffAnswer::Discarded;
    }
    let cause = || {
        view.cause
            .clone()
            .unwrap_or_else(|| "no reason given".to_owned())
    };
    match view.phase {
        IncomingPhase::Running => HandOffAnswer::Running,
        IncomingPhase::Filling => HandOffAnswer::Filling,
        IncomingPhase::CutOff => HandOffAnswer::CutOff,
        IncomingPhase::Abandoned => HandOffAnswer::Gone {
            reason: cause().into(),
        },
        phase => HandOffAnswer::Pending {
            reason: format!("the destination is at {phase:?}").into(),
        },
    }
}

/// Tells the destination that the guest stays, once.
pub async fn tell_to_abandon(link: Link, migration: Migration, cause: String) {
    let request = AbandonRequest { cause };
    let input = match link.client.incoming_abandon(migration.id, &request).await {
        Ok(view) if view.resolved == Some(Resolution::RunHere) => Input::DestinationRuns,
        Ok(view) if view.phase == IncomingPhase::Abandoned => Input::DestinationAbandoned,
        Ok(view) => {
            let reason = format!("the destination is still at {:?}", view.phase);
            Input::AbandonUnreachable {
                reason: reason.into(),
            }
        }
        // It never heard of it, or has forgotten it.
        Err(error) if error.is_refused_with(drover_api::ErrorCode::NoSuchMigration) => {
            let sought = Sought::of(&migration.vm, link.domain.as_ref());
            match nothing_there(&link.client, &migration.destination, sought).await {
                Ok(()) => Input::DestinationAbandoned,
                Err(reason) => Input::AbandonUnreachable {
                    reason: reason.into(),
                },
            }
        }
        Err(error) => Input::AbandonUnreachable {
            reason: with_sources(&error).into(),
        },
    };
    link.input(input).await;
}

/// What the destination says of its part.
#[derive(Debug)]
pub enum Said {
    /// It gave the guest up; why.
    Gone(Reason),
    /// It is in trouble; what.
    Trouble(Reason),
}

/// Asks the destination what is wrong there: what it tells is worth more than that the session was
/// closed, or that QEMU could not write. It may be learning it at the same time as we.
pub async fn ask_why(link: &Link, migration: &Migration) -> Option<Said> {
    let asking = async {
        loop {
            let view = link.client.incoming_status(migration.id).await.ok()?;
            if let Some(cause) = view.cause {
                let reason = Reason::from(cause);
                return Some(match view.phase {
                    IncomingPhase::Abandoned => Said::Gone(reason),
                    _ => Said::Trouble(reason),
                });
            }
            tokio::time::sleep(limits::SOON).await;
        }
    };
    tokio::time::timeout(limits::WHY, asking).await.ok()?
}

/// A time as the API tells it.
pub fn timestamp(at: UnixMicros) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(at.0).ok()?).ok()
}
