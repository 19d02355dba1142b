//! `drover storage`: has a disk of a guest that runs move to another file of its host, and follows that to its end.

mod show;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use drover_api::{
    Client, ClientError, DiskFormat, ErrorCode, StorageMovePhase, StorageMoveRequest,
    StorageMoveView,
};
use drover_types::{BitRate, VmName};

use crate::cli::Agent;
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::interrupts::Interrupts;
use crate::limits;
use crate::progress::Progress;

pub const EXAMPLES: &str = "\
Examples:
  drover storage move web vda --to /fast/web.qcow2    to another file; Ctrl-C cancels
  drover storage move web vda --to /fast              the same name, in another folder
  drover storage status                               those that go on, and those that were
  drover storage cancel web vda                       the disk stays where it is

";

const MOVE_EXAMPLES: &str = "\
Examples:
  drover storage move web vda --to /fast/web.qcow2
  drover storage move web /images/web.img --to /fast/web.qcow2 --format qcow2
  drover storage move web vda --to /fast --limit 2gbit --detach
  drover storage move web vda --to /fast --remove-old

";

const MOVE_AFTER: &str = "\
The guest runs meanwhile, and stands still for a moment at the end. Its definition names the new file then. The old file is left, unless
--remove-old is given: nothing is to be started with it any more.

Ctrl-C cancels the move; the disk stays where it is, and the exit code is 5. A second Ctrl-C only ends this command.";

const STATUS_EXAMPLES: &str = "\
Examples:
  drover storage status
  drover storage status --json | jq '.storage_moves[0].phase'

";

const CANCEL_EXAMPLES: &str = "\
Examples:
  drover storage cancel web vda

";

#[derive(Debug, Subcommand)]
pub enum StorageCommand {
    /// Move a disk of a guest that runs to another file of its host
    #[command(before_help = MOVE_EXAMPLES, after_help = MOVE_AFTER)]
    Move(MoveArgs),
    /// Show the disks that move, and those that have moved
    #[command(before_help = STATUS_EXAMPLES)]
    Status,
    /// Have a disk that moves stay where it is
    #[command(before_help = CANCEL_EXAMPLES)]
    Cancel {
        /// The guest
        vm: VmName,
        /// The disk, as for move
        disk: String,
    },
}

/// Options of `drover storage move`.
#[derive(Debug, Clone, Args)]
pub struct MoveArgs {
    /// The guest, a domain of libvirt's: by its name or id
    pub vm: VmName,
    /// The disk: by its name for the guest such as vda, or by the path of its file
    pub disk: String,
    /// A file that is not there yet, or a folder that is
    #[arg(long, value_name = "PATH")]
    pub to: PathBuf,
    /// What the new file is to be [default: what the old one is]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// The most that the copy takes, such as 2gbit [default: as much as goes]
    #[arg(long, value_name = "RATE")]
    pub limit: Option<BitRate>,
    /// Remove the old file once nothing names it any more
    #[arg(long)]
    pub remove_old: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub detach: bool,
}

/// The same as [`DiskFormat`], on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As it is
    Raw,
    /// QEMU's qcow2
    Qcow2,
}

impl From<Format> for DiskFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Raw => Self::Raw,
            Format::Qcow2 => Self::Qcow2,
        }
    }
}

/// `drover storage …`
pub async fn run(agent: &Agent, command: StorageCommand, json: bool) -> Result<Outcome, Failure> {
    match command {
        StorageCommand::Move(what) => moves(agent, what, json).await,
        StorageCommand::Status => {
            let asked = client(agent)?.storage_moves().await;
            let all = asked.map_err(Failure::of_reading)?;
            Outcome::new(show::all(&all), "storage_moves", &all)
        }
        StorageCommand::Cancel { vm, disk } => {
            let client = client(agent)?;
            let found = under_way(&client, &vm, &disk).await?;
            let cancelled = client.cancel_storage_move(found.id).await;
            let view = cancelled.map_err(Failure::of_changing)?;
            let from = view.from.display();
            let text = format!("disk {} of guest {vm} is to stay {from}\n", view.disk);
            Outcome::new(text, "storage_move", &view)
        }
    }
}

/// That of a disk which goes on.
async fn under_way(client: &Client, vm: &VmName, disk: &str) -> Result<StorageMoveView, Failure> {
    let all = client.storage_moves().await.map_err(Failure::of_changing)?;
    let mut going = all.into_iter().filter(|view| !view.phase.has_ended());
    let named = |view: &StorageMoveView| {
        view.vm == *vm && (view.disk == disk || view.from.as_os_str() == disk)
    };
    going.find(named).ok_or_else(|| {
        let message = format!("disk {disk} of guest {vm} is not moving");
        Failure::new(exit::REFUSED, "no-such-storage-move", message)
            .next("`drover storage status` shows those that are")
    })
}

async fn moves(agent: &Agent, what: MoveArgs, json: bool) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let request = StorageMoveRequest {
        vm: what.vm,
        disk: what.disk,
        to: what.to,
        format: what.format.map(DiskFormat::from),
        limit: what.limit,
        remove_old: what.remove_old,
    };
    let mut interrupts = Interrupts::new()?;
    let asked = interrupts.remember(client.move_disk(&request)).await;
    let view = asked.map_err(Failure::of_changing)?;
    if what.detach {
        let (vm, disk, to) = (&view.vm, &view.disk, view.to.display());
        let text = format!(
            "disk {disk} of guest {vm} is moving to {to}; follow it with `drover storage status`, end it with `drover storage cancel {vm} {disk}`\n"
        );
        return Outcome::new(text, "storage_move", &view);
    }
    let mut follower = Follower {
        client,
        interrupts,
        progress: Progress::new(json || !std::io::stderr().is_terminal()),
        told: 0,
        silent: json,
    };
    let end = follower.follow(view).await;
    follower.progress.end();
    conclude(&end?)
}

/// What its last view means for the operator.
fn conclude(view: &StorageMoveView) -> Result<Outcome, Failure> {
    let (vm, disk, from) = (&view.vm, &view.disk, view.from.display());
    let failure = match view.phase {
        StorageMovePhase::Moved => {
            return Outcome::new(show::moved(view), "storage_move", view);
        }
        StorageMovePhase::Cancelled => {
            let message = format!("cancelled; disk {disk} of guest {vm} is {from}, as before");
            Failure::new(exit::CANCELLED, "cancelled", message)
        }
        _ => {
            let cause = view.cause.as_deref().unwrap_or("the agent tells no cause");
            let message = format!("disk {disk} of guest {vm} was not moved: {cause}");
            Failure::new(exit::ERROR, "storage-move-failed", message)
        }
    };
    let failure = match &view.next {
        Some(next) => failure.next(next.clone()),
        None => failure,
    };
    Err(failure.with("storage_move", view))
}

struct Follower {
    client: Client,
    interrupts: Interrupts,
    progress: Progress,
    /// Interrupts that were answered.
    told: u32,
    silent: bool,
}

impl Follower {
    /// Looks at a move until it has ended, or waiting makes no more sense.
    async fn follow(&mut self, mut view: StorageMoveView) -> Result<StorageMoveView, Failure> {
        let mut away: Option<Instant> = None;
        while !view.phase.has_ended() {
            self.progress.show_disk(&view);
            self.interrupts.wait(limits::LOOK).await;
            if self.interrupts.seen > self.told {
                self.cancel(&view).await?;
            }
            match self.client.storage_move(view.id).await {
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
                        return Err(Failure::of_changing(error)
                            .next(
                                "libvirt goes on with the copy: start the agent again, then look at `drover storage status`",
                            )
                            .with("storage_move", &view));
                    }
                }
            }
        }
        Ok(view)
    }

    async fn cancel(&mut self, view: &StorageMoveView) -> Result<(), Failure> {
        if self.told > 0 {
            let message = format!("no longer followed; the move of {} goes on", view.disk);
            return Err(Failure::new(exit::ERROR, "not-followed", message)
                .next("`drover storage status` shows it")
                .with("storage_move", view));
        }
        self.told = self.interrupts.seen;
        let from = view.from.display();
        self.say(&format!(
            "cancelling: disk {} is to stay {from} (Ctrl-C again: no longer wait)",
            view.disk
        ));
        match self.client.cancel_storage_move(view.id).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_refused_with(ErrorCode::TooLate) => {
                self.say("too late to cancel: the disk is about to be the new file");
                Ok(())
            }
            // It has ended meanwhile; the next look tells how.
            Err(error) if error.is_refused_with(ErrorCode::StorageMoveEnded) => Ok(()),
            Err(error) => Err(Failure::of_changing(error)),
        }
    }

    fn say(&self, text: &str) {
        if !self.silent {
            self.progress.say(text);
        }
    }
}
