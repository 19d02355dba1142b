//! Looks at a run until it has ended, or the operator has seen enough.

use std::time::Instant;

use drover_api::{Client, ClientError, ErrorCode, RunView};
use jiff::Timestamp;

use super::conclude::conclude;
use super::events::Told;
use super::live;
use super::screen::Screen;
use crate::command::Outcome;
use crate::failure::{Failure, exit};
use crate::interrupts::Interrupts;
use crate::limits;

/// Follows one run.
pub struct Follower {
    client: Client,
    interrupts: Interrupts,
    screen: Screen,
    told: Told,
    /// Since when the agent has not answered.
    away: Option<Instant>,
}

impl Follower {
    /// Of a run of this client's agent; `json` says nothing until the end.
    pub fn new(client: Client, interrupts: Interrupts, json: bool) -> Self {
        Self {
            client,
            interrupts,
            screen: Screen::new(json),
            told: Told::default(),
            away: None,
        }
    }

    /// Looks until the run has ended, and says what came of it.
    pub async fn follow(mut self, view: RunView) -> Result<Outcome, Failure> {
        let end = self.until_its_end(view).await;
        self.screen.end();
        conclude(&end?)
    }

    async fn until_its_end(&mut self, mut view: RunView) -> Result<RunView, Failure> {
        loop {
            self.show(&view);
            if view.phase.has_ended() {
                return Ok(view);
            }
            self.interrupts.wait(limits::LOOK).await;
            if self.interrupts.seen > 0 {
                return Err(not_followed(&view));
            }
            let look = self.client.run(view.id);
            match self.interrupts.unless(look).await {
                None => return Err(not_followed(&view)),
                Some(Ok(newer)) => {
                    view = newer;
                    self.away = None;
                }
                Some(Err(error)) => self.bear(&view, error)?,
            }
        }
    }

    /// An agent that is restarted, or has lost its store, goes on with its run a moment later.
    fn bear(&mut self, view: &RunView, error: ClientError) -> Result<(), Failure> {
        let passes = error.refusal().is_none_or(|refusal| {
            matches!(
                refusal.code,
                ErrorCode::StoreUnavailable
                    | ErrorCode::ShuttingDown
                    | ErrorCode::TooManyRequests
                    | ErrorCode::Timeout
            )
        });
        if !passes {
            return Err(Failure::of_changing(error).with("run", view));
        }
        let since = *self.away.get_or_insert_with(Instant::now);
        if since.elapsed() > limits::AGENT_AWAY {
            return Err(lost(view, error));
        }
        Ok(())
    }

    fn show(&mut self, view: &RunView) {
        let news = self.told.news(view);
        if let Some(plan) = &news.plan {
            self.screen.answer(plan);
        }
        for line in &news.lines {
            self.screen.say(line);
        }
        self.screen.live(&live::lines(view, Timestamp::now()));
    }
}

fn not_followed(view: &RunView) -> Failure {
    let message = "no longer followed: the run goes on";
    Failure::new(exit::PARTIAL, "not-followed", message)
        .next(format!(
            "`drover run {}` shows it, `drover cancel --run` ends it",
            view.id
        ))
        .with("run", view)
}

fn lost(view: &RunView, error: ClientError) -> Failure {
    let RunView {
        coordinator, id, ..
    } = view;
    let failure = match error {
        // Not refused: it was not asked to change anything.
        ClientError::Refused(refusal) => {
            Failure::new(exit::NO_AGENT, refusal.code, refusal.message)
        }
        error => Failure::of_changing(error),
    };
    failure
        .next(format!(
            "the run goes on when the agent of {coordinator} is back: start it again, then look at \
             `drover run {id}`"
        ))
        .with("run", view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::view;
    use drover_api::Refusal;
    use serde_json::json;

    #[test]
    fn an_agent_that_stays_away_ends_the_command_with_7_and_not_the_run() {
        let unreachable = ClientError::Unreachable {
            endpoint: "/run/s".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        };
        let locked = Refusal::new(ErrorCode::StoreUnavailable, "the file is locked");
        for error in [unreachable, locked.into()] {
            let failure = lost(&view(json!({})), error);
            assert_eq!(failure.exit(), exit::NO_AGENT);
            let shown = format!("{failure:?}");
            assert!(
                shown.contains("the run goes on when the agent of c is back"),
                "{shown}"
            );
        }
    }
}
