//! The command line: asks the agent of this host, or of another one, and shows what it answers.
//!
//! It owns no state but the list of clusters that its user has used. What it prints to stdout is the answer, for a person or with `--json` for a
//! program; progress, advice and errors go to stderr.

mod cli;
mod cluster;
mod command;
mod convergence;
mod doctor;
mod failure;
mod interrupts;
mod lab;
mod limits;
mod migrate;
mod nic;
mod pages;
mod plan;
mod progress;
mod recent;
mod remote;
mod resolve;
mod runs;
mod show;
mod storage;
mod top;

use std::process::ExitCode;

use crate::cli::{Agent, Cli, Command};
use crate::command::Outcome;
use crate::failure::{Failure, exit};

fn main() -> ExitCode {
    let (cli, json) = cli::parse();
    ExitCode::from(run(cli, json))
}

fn run(cli: Cli, json: bool) -> u8 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return failure.print(json),
    };
    runtime.block_on(carried_out(cli, json))
}

/// The answer is printed before anything is noted of where it came from.
async fn carried_out(cli: Cli, json: bool) -> u8 {
    let Cli { mut agent, command } = cli;
    let asks = command.asks_an_agent();
    if asks {
        agent = match recent::resolve(agent).await {
            Ok(agent) => agent,
            Err(failure) => return failure.print(json),
        };
    }
    let done = perform(&agent, command, json).await;
    // What an answer's code says is the command's own affair.
    let failed = |failure: &Failure| [exit::NO_AGENT, exit::USAGE].contains(&failure.exit());
    let is_reached = asks && !done.as_ref().is_err_and(failed);
    let code = print(done, json);
    if is_reached
        && let Some(note) = recent::note(&agent).await
        && !json
    {
        eprintln!("{note}");
    }
    code
}

async fn perform(agent: &Agent, command: Command, json: bool) -> Result<Outcome, Failure> {
    match command {
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::man(&directory),
        Command::Recent { command } => recent::run(command).await,
        Command::Lab { command } => {
            let done = command.run(json).await.map(Outcome::printed_already);
            done.map_err(|error| Failure::of_lab(&error))
        }
        Command::Cluster { command } => cluster::run(agent, command).await,
        Command::Host => command::host(agent).await,
        Command::Nic { command } => nic::run(agent, command).await,
        Command::Doctor(args) => doctor::doctor(agent, args).await,
        Command::Cordon { reason } => command::cordon(agent, reason).await,
        Command::Uncordon => command::uncordon(agent).await,
        Command::Plan { command } => plan::run(agent, command).await,
        Command::Drain(what) => runs::drain(agent, what, json).await,
        Command::Resume(what) => runs::resume(agent, what, json).await,
        Command::Maintenance { command } => runs::maintenance(agent, command, json).await,
        Command::Rebalance(what) => runs::rebalance(agent, what, json).await,
        Command::Run(what) => runs::run(agent, what, json).await,
        Command::Status => command::status(agent).await,
        Command::Inventory => command::inventory(agent).await,
        Command::Checkpoints { remove } => command::checkpoints(agent, remove).await,
        Command::Top => top::top(agent, json).await,
        Command::History { what } => command::history(agent, what.as_deref()).await,
        Command::Limit(what) => command::limit(agent, what).await,
        Command::Vm { command } => command::vm(agent, command).await,
        Command::Storage { command } => storage::run(agent, command, json).await,
        Command::Cancel(what) => match &what.what {
            Some(name) => command::cancel(agent, name).await,
            None => runs::cancel(agent, &what).await,
        },
        Command::Resolve(what) => resolve::resolve(agent, &what).await,
        Command::Migrate(what) => migrate::migrate(agent, &what, json).await,
    }
}

fn print(done: Result<Outcome, Failure>, json: bool) -> u8 {
    match done {
        Ok(outcome) => outcome.print(json),
        Err(failure) => failure.print(json),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Failure::error(format!("cannot start: {error}")))
}
