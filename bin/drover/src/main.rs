//! The command line: asks the agent of this host, or of another one, and shows what it answers.
//!
//! It owns no state. What it prints to stdout is the answer, for a person or with `--json` for a
//! program; progress, advice and errors go to stderr.

mod cli;
mod cluster;
mod command;
mod failure;
mod interrupts;
mod lab;
mod limits;
mod migrate;
mod pages;
mod plan;
mod progress;
mod remote;
mod resolve;
mod runs;
mod show;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::command::Outcome;
use crate::failure::Failure;

fn main() -> ExitCode {
    let (cli, json) = cli::parse();
    let done = run(cli, json);
    let code = match done {
        Ok(outcome) => outcome.print(json),
        Err(failure) => failure.print(json),
    };
    ExitCode::from(code)
}

fn run(cli: Cli, json: bool) -> Result<Outcome, Failure> {
    match cli.command {
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::man(&directory),
        Command::Lab { command } => runtime()?.block_on(async {
            let code = command
                .run(json)
                .await
                .map_err(|error| Failure::of_lab(&error))?;
            Ok(Outcome::printed_already(code))
        }),
        Command::Cluster { command } => runtime()?.block_on(cluster::run(&cli.agent, command)),
        Command::Host => runtime()?.block_on(command::host(&cli.agent)),
        Command::Cordon { reason } => runtime()?.block_on(command::cordon(&cli.agent, reason)),
        Command::Uncordon => runtime()?.block_on(command::uncordon(&cli.agent)),
        Command::Plan { command } => runtime()?.block_on(plan::run(&cli.agent, command)),
        Command::Drain(what) => runtime()?.block_on(runs::drain(&cli.agent, what, json)),
        Command::Resume(what) => runtime()?.block_on(runs::resume(&cli.agent, what, json)),
        Command::Rebalance(what) => runtime()?.block_on(runs::rebalance(&cli.agent, what, json)),
        Command::Run(what) => runtime()?.block_on(runs::run(&cli.agent, what, json)),
        Command::Status => runtime()?.block_on(command::status(&cli.agent)),
        Command::History { what } => {
            runtime()?.block_on(command::history(&cli.agent, what.as_deref()))
        }
        Command::Limit(what) => runtime()?.block_on(command::limit(&cli.agent, what)),
        Command::Vm { command } => runtime()?.block_on(command::vm(&cli.agent, command)),
        Command::Cancel(what) => runtime()?.block_on(async {
            match &what.what {
                Some(name) => command::cancel(&cli.agent, name).await,
                None => runs::cancel(&cli.agent, &what).await,
            }
        }),
        Command::Resolve(what) => runtime()?.block_on(resolve::resolve(&cli.agent, &what)),
        Command::Migrate(what) => runtime()?.block_on(migrate::migrate(&cli.agent, &what, json)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Failure::error(format!("cannot start: {error}")))
}
