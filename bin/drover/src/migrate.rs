//! `drover migrate`: asks for a migration and follows it to its end.

use std::io::IsTerminal;
use std::time::Instant;

use drover_api::{
    Client, ClientError, ErrorCode, GuestPlace, MigrateRequest, MigrationPhase, MigrationView,
};

use crate::cli::{Agent, Migrate};
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::interrupts::Interrupts;
use crate::limits;
use crate::progress::Progress;
use crate::show;

/// `drover migrate …`
pub async fn migrate(agent: &Agent, what: &Migrate, json: bool) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let request = MigrateRequest {
        to: what.to.clone(),
        convergence: (&what.convergence).into(),
        channels: what.channels,
        lanes_per_path: what.lanes,
        reduction: what.reduction,
        with_disks: what.with_disks,
        id: None,
    };
    let mut interrupts = Interrupts::new()?;
    let asking = client.migrate(&what.name, &request);
    let view = interrupts
        .remember(asking)
        .await
        .map_err(Failure::of_changing)?;
    if what.detach {
        let text = format!(
            "guest {} is moving to {}; follow it with `drover status`, end it with `drover cancel \
             {}`\n",
            view.vm, view.destination, view.vm
        );
        return Outcome::new(text, "migration", &view);
    }
    let progress = Progress::new(json || !std::io::stderr().is_terminal());
    let mut follower = Follower {
        client,
        interrupts,
        progress,
        told: 0,
        cancelling: false,
        silent: json,
    };
    let end = follower.follow(view).await;
    follower.progress.end();
    conclude(&end?)
}

/// What a migration's last view means for the operator.
fn conclude(view: &MigrationView) -> Result<Outcome, Failure> {
    let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
    let cause = view.cause.as_deref().unwrap_or("the agent tells no cause");
    let failure = match view.phase {
        MigrationPhase::Completed => {
            return Outcome::new(show::moved(view), "migration", view);
        }
        MigrationPhase::Cancelled => {
            let place = view.guest_in_words();
            let place = place.map_or_else(String::new, |place| format!("; guest {vm} {place}"));
            let message = format!("cancelled{place}");
            let failure = Failure::new(exit::CANCELLED, "cancelled", message);
            return Err(failure.with("migration", view));
        }
        MigrationPhase::HandingOff => {
            let message = format!(
                "guest {vm} was handed off to {destination}, which has not confirmed that it runs"
            );
            Failure::new(exit::PARTIAL, "handing-off", message).next(format!(
                "bring the agent of {destination} back; {source} keeps asking it, and the guest \
                 never runs on {source} again"
            ))
        }
        _ => {
            let message = format!("{}: {cause}", not_moved(view));
            Failure::new(exit::ERROR, "migration-failed", message)
        }
    };
    let failure = match &view.next {
        Some(next) => failure.next(next.clone()),
        None => failure,
    };
    Err(failure.with("migration", view))
}

/// What became of a guest that was not moved, as far as the agent says it.
fn not_moved(view: &MigrationView) -> String {
    let vm = &view.vm;
    match (view.guest, view.guest_in_words()) {
        (Some(GuestPlace::Source | GuestPlace::SourceStopped), Some(place)) => {
            format!("guest {vm} was not moved and {place}")
        }
        (_, Some(place)) => format!("guest {vm} {place}"),
        (_, None) => format!(
            "the migration of guest {vm} ended as {}",
            show::word(&view.phase)
        ),
    }
}

struct Follower {
    client: Client,
    interrupts: Interrupts,
    progress: Progress,
    /// Interrupts that were answered.
    told: u32,
    /// The agent was told to cancel.
    cancelling: bool,
    silent: bool,
}

impl Follower {
    /// Looks at a migration until it has ended, or waiting makes no more sense.
    async fn follow(&mut self, mut view: MigrationView) -> Result<MigrationView, Failure> {
        let mut away: Option<Instant> = None;
        let mut handing_off: Option<Instant> = None;
        loop {
            self.progress.show(&view);
            if view.phase.has_ended() {
                return Ok(view);
            }
            if view.phase == MigrationPhase::HandingOff {
                let since = *handing_off.get_or_insert_with(Instant::now);
                if since.elapsed() > limits::HAND_OFF {
                    return Ok(view);
                }
            }
            self.interrupts.wait(limits::LOOK).await;
            if self.interrupts.seen > self.told {
                self.told = self.interrupts.seen;
                self.cancel(&view).await?;
            }
            match self.client.migration(view.id).await {
                Ok(newer) => {
                    view = newer;
                    away = None;
                }
                Err(ClientError::Refused(refusal)) => {
                    return Err(Failure::of_changing(refusal.into()));
                }
                Err(error) => {
                    let since = *away.get_or_insert_with(Instant::now);
                    if since.elapsed() > limits::AGENT_AWAY {
                        return Err(lost(&view, error));
                    }
                }
            }
        }
    }

    async fn cancel(&mut self, view: &MigrationView) -> Result<(), Failure> {
        if self.cancelling {
            let message = format!("no longer followed; the migration of {} goes on", view.vm);
            return Err(Failure::new(exit::ERROR, "not-followed", message)
                .next("`drover status` shows it")
                .with("migration", view));
        }
        self.cancelling = true;
        self.say(&format!(
            "cancelling: guest {} is to stay on {} (Ctrl-C again: no longer wait)",
            view.vm, view.source
        ));
        match self.client.cancel(view.id).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_refused_with(ErrorCode::TooLate) => {
                self.say(&format!(
                    "too late to cancel: guest {} has been handed off to {}",
                    view.vm, view.destination
                ));
                Ok(())
            }
            // It has ended meanwhile; the next look tells how.
            Err(error) if error.is_refused_with(ErrorCode::MigrationEnded) => Ok(()),
            Err(error) => Err(Failure::of_changing(error)),
        }
    }

    fn say(&self, text: &str) {
        if !self.silent {
            self.progress.say(text);
        }
    }
}

fn lost(view: &MigrationView, error: ClientError) -> Failure {
    let last = show::word(&view.phase);
    let more = Failure::of_changing(error);
    more.next(format!(
        "the migration of {} was {last} when last seen: start the agent again, then look at \
         `drover status`",
        view.vm
    ))
    .with("migration", view)
}
