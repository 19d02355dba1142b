//! `drover resolve`: an operator decides in the place of a host that does not answer.

use clap::{ArgGroup, Args};
use drover_api::{MigrationPhase, MigrationView, Resolution, ResolveRequest};
use drover_types::MigrationId;

use crate::cli::Agent;
use crate::command::{Outcome, client, migration_of};
use crate::failure::{Failure, exit};
use crate::show;

pub const EXAMPLES: &str = "\
Examples:
  drover status                                       tells what is not known, and the command
  drover resolve web --run-here --other-host-is-off   on the destination: web runs here
  drover resolve web --discard --memory-is-lost       on the destination: end the copy of web
  drover resolve web --give-up --other-host-is-off    on the source: web can be started anew

";

pub const AFTER: &str = "\
The other host is asked once more first; if it answers, its word counts and the command is refused.
If it does not, yours does: when both hosts run the guest, its disks are destroyed. The other host
is told when it is back.";

/// Options of `drover resolve`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("resolution").required(true))]
pub struct ResolveArgs {
    /// The migration's id, or the name of its guest
    #[arg(value_name = "ID|NAME")]
    what: String,
    /// On the destination, where it has arrived: it runs here from now on
    #[arg(long, group = "resolution")]
    run_here: bool,
    /// On the destination, where it has arrived: its copy is ended here
    #[arg(long, group = "resolution")]
    discard: bool,
    /// On the source, which handed it off: the stopped copy is ended, and it can be started anew
    #[arg(long, group = "resolution")]
    give_up: bool,
    /// You state: the other host is off for good, or does not run the guest and will not
    #[arg(long)]
    other_host_is_off: bool,
    /// You state: what the guest has in memory here may be lost
    #[arg(long)]
    memory_is_lost: bool,
}

impl ResolveArgs {
    fn request(&self) -> ResolveRequest {
        let resolution = match (self.run_here, self.discard) {
            (true, _) => Resolution::RunHere,
            (false, true) => Resolution::Discard,
            (false, false) => Resolution::GiveUp,
        };
        ResolveRequest {
            resolution,
            other_host_is_off: self.other_host_is_off,
            memory_is_lost: self.memory_is_lost,
        }
    }
}

/// `drover resolve …`
pub async fn resolve(agent: &Agent, what: &ResolveArgs) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let id = match what.what.parse::<MigrationId>() {
        Ok(id) => id,
        Err(_) => migration_of(&client, &what.what).await?,
    };
    let view = client
        .resolve(id, &what.request())
        .await
        .map_err(Failure::of_changing)?;
    if !view.phase.has_ended() {
        let message = format!(
            "it is decided, and not done yet: migration {} is {}",
            view.id,
            show::word(&view.phase)
        );
        let next = view.next.clone();
        let next = next.unwrap_or_else(|| "`drover status` tells how it goes on".to_owned());
        return Err(Failure::new(exit::PARTIAL, "handing-off", message)
            .next(next)
            .with("migration", &view));
    }
    Outcome::new(done(&view), "migration", &view)
}

fn done(view: &MigrationView) -> String {
    let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
    match view.phase {
        MigrationPhase::Running => {
            format!("guest {vm} runs on {destination}; {source} is told when it is back\n")
        }
        MigrationPhase::GivenUp => format!(
            "guest {vm} is given up; `drover vm start {vm}` boots it on {source}, as after a loss of \
             power; {destination} is told when it is back\n"
        ),
        MigrationPhase::Abandoned => {
            format!("the copy of guest {vm} on {destination} is ended; it is {source}'s\n")
        }
        phase => format!("migration {} is {}\n", view.id, show::word(&phase)),
    }
}
